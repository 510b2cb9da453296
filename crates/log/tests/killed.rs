//! Real processes on real files, killed at random moments.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdall_log::disk::RealDisk;
use holdall_log::epoch::Place;
use holdall_log::file::{Durability, FileLog, FileStore, Options};
use holdall_log::{Class, Entry, Index, Life, Log, Memory, Opened};

const DIR: &str = "HOLDALL_LOG_TEST_DIR";
const SYNCED: &str = "HOLDALL_LOG_TEST_SYNCED";

/// What the record of an index looks like: short, and now and then several pages long.
fn content(index: u64) -> Vec<u8> {
    let length = if index.is_multiple_of(61) { 20_000 } else { index * 7919 % 300 };
    (0..length).map(|at| (index * 31 + at) as u8).collect()
}

fn store(dir: &Path, durability: Durability) -> FileStore {
    let disk = Arc::new(RealDisk::open(&dir.join("log")).expect("it is there"));
    let above = Arc::new(RealDisk::open(dir).expect("it is there"));
    let options = Options { durability, segment: 256 << 10, ..Options::default() };
    FileStore::new(disk, Some(Place::new(above, "log.epoch")), options)
}

/// Everything is there without a gap, and the last of it is this.
fn last_of(opened: &Opened) -> u64 {
    let mut last = 0;
    if let Some(snapshot) = &opened.snapshot {
        last = snapshot.upto.0;
        assert_eq!(snapshot.payload, content(last));
    }
    for record in &opened.records {
        last += 1;
        assert_eq!(record.index, Index(last));
        assert_eq!(record.payload, content(last), "record {last}");
    }
    last
}

fn snapshot_beside(log: &mut FileLog) -> JoinHandle<()> {
    let job = log.begin_snapshot().expect("none is being made");
    std::thread::spawn(move || {
        let (before, records) = job.history().expect("readable");
        let counted = before.map_or(0, |snapshot| snapshot.upto.0) + records.len() as u64;
        assert_eq!(counted, job.upto().0);
        let state = content(counted);
        job.keep(1, &state).expect("kept");
    })
}

/// Appends for ever, and tells what may be told; started by the test below.
#[test]
#[ignore = "a part of another test"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let synced = std::env::var_os(SYNCED).is_some();
    let durability = if synced { Durability::Synced } else { Durability::Written };
    let (mut log, opened) = store(Path::new(&dir), durability).open_file().expect("opened");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut next = last_of(&opened) + 1;
    let mut watch = log.watch();
    let mut snapshot: Option<JoinHandle<()>> = None;
    let mut out = std::io::stdout().lock();
    for round in 1.. {
        for _ in 0..round % 7 + 1 {
            let payload = content(next);
            let entry = Entry { class: Class::May, logic: 1, payload: &payload, sync: false };
            log.append(entry).expect("there is room");
            next += 1;
        }
        log.flush().expect("written");
        runtime.block_on(watch.reached(Index(next - 1))).expect("it may leave");
        writeln!(out, "told {}", next - 1).expect("somebody listens");
        if round % 50 == 0 && snapshot.as_ref().is_none_or(JoinHandle::is_finished) {
            if let Some(thread) = snapshot.take() {
                thread.join().expect("it was kept");
            }
            snapshot = Some(snapshot_beside(&mut log));
        }
    }
}

fn spawn(dir: &Path, durability: Durability) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(DIR, dir);
    if durability == Durability::Synced {
        command.env(SYNCED, "1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a process")
}

/// Lets a process run for a while, kills it, and returns what it told last.
fn run_and_kill(dir: &Path, durability: Durability, after: Duration) -> u64 {
    let mut child = spawn(dir, durability);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut told = 0;
    let mut take = |line: std::io::Result<String>| {
        // A line without an end was cut by the kill; it is still what was told.
        let line = line.expect("readable");
        told = line.strip_prefix("told ").and_then(|n| n.parse().ok()).unwrap_or(told);
        line.starts_with("told ")
    };
    let mut begun = None;
    for line in lines.by_ref() {
        if take(line) {
            let begun = *begun.get_or_insert_with(Instant::now);
            if begun.elapsed() >= after {
                break;
            }
        }
    }
    child.kill().expect("it runs");
    for line in lines {
        let line = line.expect("readable");
        // The last line may be a part of a number.
        told = told.max(line.strip_prefix("told ").and_then(|n| n.parse().ok()).unwrap_or(0));
    }
    child.wait().expect("it has ended");
    told
}

fn storm(durability: Durability, rounds: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("log")).expect("a directory");
    let mut life: Option<Life> = None;
    let (mut epoch, mut last) = (0, 0);
    for round in 0..rounds {
        let after = Duration::from_micros(round * 7919 % 30_000);
        let told = run_and_kill(dir.path(), durability, after);
        let (_, opened) = store(dir.path(), durability).open_file().expect("it can be opened");
        assert_eq!(opened.memory, Memory::Kept, "round {round}");
        assert!(life.is_none_or(|life| life == opened.life), "it is the same life");
        assert!(opened.epoch > epoch);
        let there = last_of(&opened);
        assert!(there >= told && there > last, "round {round}: {told} told, {there} there");
        (life, epoch, last) = (Some(opened.life), opened.epoch, there);
    }
}

#[test]
fn what_was_told_is_there_after_a_kill() {
    storm(Durability::Written, 20);
}

#[test]
fn what_was_told_is_there_after_a_kill_when_it_is_synced_too() {
    storm(Durability::Synced, 6);
}

#[test]
fn a_directory_that_is_removed_or_moved_is_noticed() {
    for what in ["removed", "moved", "unlocked"] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        std::fs::create_dir(&path).expect("a directory");
        let (mut log, _) = store(dir.path(), Durability::Written).open_file().expect("empty");
        match what {
            "removed" => std::fs::remove_dir_all(&path).expect("removed"),
            "moved" => std::fs::rename(&path, dir.path().join("other")).expect("moved"),
            _ => std::fs::remove_file(path.join("lock")).expect("removed"),
        }
        let entry = Entry { class: Class::Must, logic: 1, payload: b"x", sync: false };
        log.append(entry).expect("nobody has looked yet");
        let gone = log.flush();
        assert!(matches!(gone, Err(holdall_log::Error::Gone(_))), "{what}: {gone:?}");
        assert_eq!(log.watch().may_leave(), Index(0));
    }
}
