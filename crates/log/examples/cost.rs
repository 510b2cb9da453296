//! What the log costs: `cargo run -p holdall-log --example cost [DIRECTORY]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdall_log::disk::RealDisk;
use holdall_log::file::{Durability, FileLog, FileStore, Options};
use holdall_log::{Class, Entry, Index, Log, Opened};

fn main() {
    let above = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = above.join(format!("holdall-log-cost-{}", std::process::id()));
    println!("in {}", dir.display());
    for batch in [1, 4, 16, 64, 256] {
        appends(&dir, batch, 200);
    }
    appends(&dir, 16, 16 << 10);
    syncs(&dir);
    longest(&dir, false);
    longest(&dir, true);
    recovery(&dir);
    std::fs::remove_dir_all(&dir).expect("it was made here");
}

/// An empty log.
fn fresh(dir: &Path, durability: Durability) -> FileLog {
    drop(std::fs::remove_dir_all(dir));
    std::fs::create_dir_all(dir).expect("a directory");
    open(dir, durability).0
}

fn open(dir: &Path, durability: Durability) -> (FileLog, Opened) {
    let disk = Arc::new(RealDisk::open(dir).expect("it is there"));
    let options = Options { durability, ..Options::default() };
    FileStore::new(disk, None, options).open_file().expect("it can be opened")
}

fn append(log: &mut FileLog, payload: &[u8], sync: bool) -> Index {
    log.append(Entry { class: Class::May, logic: 1, payload, sync }).expect("there is room")
}

fn appends(dir: &Path, batch: u32, length: usize) {
    let mut log = fresh(dir, Durability::Written);
    let payload = vec![7; length];
    let mut each = Duration::MAX; // The best of some: others use the machine, too.
    for _ in 0..20 {
        let begun = Instant::now();
        let flushes = 4096 / batch;
        for _ in 0..flushes {
            for _ in 0..batch {
                append(&mut log, &payload, false);
            }
            log.flush().expect("written");
        }
        each = each.min(begun.elapsed() / flushes / batch);
    }
    let speed = length as f64 / each.as_secs_f64() / 1e6;
    println!("written, {length} bytes, {batch:3} a flush: {each:9.2?} each, {speed:.0} MB/s");
}

fn syncs(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for waiting in [1, 16, 256] {
        let mut log = fresh(dir, Durability::Synced);
        let mut watch = log.watch();
        let begun = Instant::now();
        let mut groups = 0;
        while begun.elapsed() < Duration::from_secs(1) {
            let last = (0..waiting).map(|_| append(&mut log, &[7; 200], false)).last();
            log.flush().expect("handed over");
            runtime.block_on(watch.reached(last.expect("some"))).expect("it may leave");
            groups += 1;
        }
        let each = begun.elapsed() / groups;
        let rate = f64::from(groups * waiting) / begun.elapsed().as_secs_f64();
        println!("synced, {waiting:3} waiting at a time: {each:.2?} a group, {rate:.0} a second");
    }
}

/// How long appending and flushing stop the thread that grants, over several segments.
fn longest(dir: &Path, syncing: bool) {
    let mut log = fresh(dir, Durability::Written);
    let mut times = Vec::new();
    let mut stops = 0;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let before = stopped();
        let flushing = Instant::now();
        append(&mut log, &[7; 2000], syncing);
        log.flush().expect("written");
        times.push(flushing.elapsed());
        stops += stopped() - before;
        std::thread::sleep(Duration::from_micros(50));
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let (half, most, all) = (at(0.5), at(0.999), at(1.0));
    let beside = if syncing { "while always syncing" } else { "without syncing" };
    println!(
        "append and flush of 2 kB {beside}: {half:.2?}, 99.9 % within {most:.2?}, longest {all:.2?}; of {} {stops} \
         had to wait",
        times.len()
    );
}

/// How often this thread has waited for something, as the kernel counts it.
fn stopped() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("it is there");
    let counted = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    counted.and_then(|count| count.trim().parse().ok()).expect("a number")
}

fn recovery(dir: &Path) {
    let mut log = fresh(dir, Durability::Written);
    for _ in 0..100_000 {
        append(&mut log, &[7; 200], false);
    }
    log.flush().expect("written");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(log.watch().reached(Index(100_000))).expect("it may leave");
    drop(log);
    let begun = Instant::now();
    let (mut log, opened) = open(dir, Durability::Written);
    println!("opened with {} records in {:.2?}", opened.records.len(), begun.elapsed());
    let begun = Instant::now();
    let job = log.begin_snapshot().expect("begun");
    println!("a snapshot begun in {:.2?}", begun.elapsed());
    let begun = Instant::now();
    let records = job.history().expect("readable").1.len();
    job.keep(1, &vec![7; 10 << 20]).expect("kept");
    println!("{records} records read and 10 MiB kept beside in {:.2?}", begun.elapsed());
}
