//! Several processes on one memory, killed at any moment and started again: nothing is handed out
//! twice, and nothing is lost.
#![cfg(not(any(loom, shuttle)))]

use std::collections::BTreeSet;
use std::env;
use std::fmt::Debug;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdall_assign::paper::Assignment;
use holdall_assign::registers::{Dir, Durability, Mapped, Memory};
use holdall_assign::windows::Layout;
use holdall_assign::{Assigner, Worker};

const WORKERS: usize = 3;
const SECONDS: u64 = 3;

fn layout() -> Layout {
    Layout::new(WORKERS, 4, 2).expect("good sizes")
}

fn mapped(dir: &Path) -> Mapped {
    Mapped::open(&dir.join("registers"), WORKERS, layout().slots()).expect("made by the parent")
}

fn files(dir: &Path) -> Dir {
    Dir::new(dir, WORKERS, layout().slots(), [0; 4], Durability::Process)
}

/// Not a test: what the parent starts. Told by its environment which worker it is.
#[test]
fn child() {
    let Ok(told) = env::var("HOLDALL_TEST_WORKER") else { return };
    let mut told = told.splitn(3, ' ');
    let mut next = || told.next().expect("kind, worker, directory");
    let (kind, worker, dir) = (next(), next(), PathBuf::from(next()));
    let worker = worker.parse().expect("a number");
    let goes_on = || !dir.join("stop").exists();
    match kind {
        "paper-mapped" => enter(paper_mapped(&dir), &dir, worker),
        "paper-files" => enter(paper_files(&dir), &dir, worker),
        "mapped" => work(mapped(&dir), &dir, worker, goes_on),
        _ => work(files(&dir), &dir, worker, goes_on),
    }
}

/// Takes and notes what it took, in one write each; what it may have taken before it was killed
/// and did not note, it did not use, and notes first.
fn work<M: Memory<Error: Debug>>(memory: M, dir: &Path, id: usize, goes_on: impl Fn() -> bool) {
    let notes = dir.join(format!("notes-{id}"));
    let noted: BTreeSet<u64> = read(&notes).into_iter().collect();
    let mut file = OpenOptions::new().create(true).append(true).open(notes).expect("notes");
    let mut note = |worker: &mut Worker<M::Handle>, mut won: Vec<Range<u64>>| {
        let mut doubts = Vec::new();
        worker.doubtful(&mut doubts);
        won.extend(doubts.into_iter().filter(|items| !noted.contains(&items.start)));
        let lines: Vec<_> = won.into_iter().flatten().map(|item| format!("{item}\n")).collect();
        file.write_all(lines.concat().as_bytes()).expect("notes");
    };
    let assigner = Assigner::over(layout(), memory);
    let mut worker = assigner.worker(id).expect("resumed");
    let mut won = Vec::new();
    worker.stock(&mut won);
    note(&mut worker, won);
    while goes_on() {
        let mut won = Vec::new();
        worker.acquire(&mut won).expect("acquired");
        note(&mut worker, won);
        // So that windows are shared: a lone worker would run away.
        thread::sleep(Duration::from_micros(200));
    }
}

fn read(notes: &Path) -> Vec<u64> {
    let text = fs::read_to_string(notes).unwrap_or_default();
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

fn start(kind: &str, worker: usize, dir: &Path) -> Child {
    Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "child", "--nocapture"])
        .env("HOLDALL_TEST_WORKER", format!("{kind} {worker} {}", dir.display()))
        .stdout(Stdio::null())
        .spawn()
        .expect("this test runs")
}

/// Kills one after another for a while, then lets all end, and looks at what they noted.
fn kill_at_random<M: Memory<Error: Debug>>(kind: &str, memory: impl Fn(&Path) -> M, dir: &Path) {
    let mut children: Vec<_> = (0..WORKERS).map(|worker| start(kind, worker, dir)).collect();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let (mut random, mut kills) = (12345_u64, 0);
    while Instant::now() < until {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_micros((random >> 40) % 20_000));
        let victim = (random >> 20) as usize % WORKERS;
        children[victim].kill().expect("SIGKILL");
        children[victim].wait().expect("gone");
        children[victim] = start(kind, victim, dir);
        kills += 1;
    }
    fs::write(dir.join("stop"), "").expect("written");
    for child in &mut children {
        assert!(child.wait().expect("it ends").success());
    }
    // All are at rest: two more entries of each leave everything behind.
    let mut beyond = u64::MAX;
    for round in 0..2 {
        for id in 0..WORKERS {
            let left = std::cell::Cell::new(2);
            work(memory(dir), dir, id, || left.replace(left.get() - 1) > 0);
            let last = read(&dir.join(format!("notes-{id}"))).into_iter().max();
            beyond = if round == 0 { beyond.min(last.expect("items")) } else { beyond };
        }
    }
    let mut all: Vec<_> =
        (0..WORKERS).flat_map(|id| read(&dir.join(format!("notes-{id}")))).collect();
    all.sort_unstable();
    let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "handed out twice after {kills} kills");
    let hole = (0..beyond).find(|item| all[*item as usize] != *item);
    assert_eq!(hole, None, "lost after {kills} kills, of {beyond}");
    println!("{kind}: {kills} kills, {beyond} items");
}

#[test]
fn killed_on_a_mapped_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("registers");
    Mapped::create(&path, WORKERS, layout().slots()).expect("made");
    assert!(Mapped::create(&path, WORKERS, layout().slots()).is_err());
    assert!(Mapped::open(&path, WORKERS + 1, layout().slots()).is_err());
    kill_at_random("mapped", mapped, dir.path());
}

#[test]
fn killed_on_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    kill_at_random("files", files, dir.path());
}

/// Operations of each processor.
const OPERATIONS: usize = 4;

fn paper_mapped(dir: &Path) -> Mapped {
    let slots = Assignment::slots(WORKERS, OPERATIONS);
    Mapped::open(&dir.join("registers"), WORKERS, slots).expect("made by the parent")
}

fn paper_files(dir: &Path) -> Dir {
    let slots = Assignment::slots(WORKERS, OPERATIONS);
    Dir::new(dir, WORKERS, slots, [0; 4], Durability::Process)
}

/// A processor of Fig. 3: notes its first items, and all it says.
fn enter<M: Memory<Error: Debug>>(memory: M, dir: &Path, processor: usize) {
    let assignment = Assignment::over(memory, OPERATIONS);
    let mut participant = assignment.participant(processor).expect("there");
    let mut notes = String::new();
    for _ in 0..OPERATIONS {
        let item = participant.try_enter().expect("an operation is left");
        notes += &format!("{item} {processor}\n");
        for (item, owner) in participant.try_announce().expect("readable") {
            notes += &format!("{item} {owner}\n");
        }
    }
    fs::write(dir.join(format!("said-{processor}")), notes).expect("written");
}

/// Fig. 3 between processes: they agree about all that is said, and everything is.
fn agree(kind: &str, dir: &Path) {
    let children: Vec<_> = (0..WORKERS).map(|processor| start(kind, processor, dir)).collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let mut owners = std::collections::BTreeMap::new();
    for processor in 0..WORKERS {
        let said = fs::read_to_string(dir.join(format!("said-{processor}"))).expect("said");
        for line in said.lines() {
            let (item, owner) = line.split_once(' ').expect("an item and its owner");
            let (item, owner) = (item.parse::<u64>().expect("a number"), owner.to_owned());
            let before = owners.entry(item).or_insert_with(|| owner.clone());
            assert_eq!(*before, owner, "item {item}");
        }
    }
    let all: Vec<_> = owners.into_keys().collect();
    assert_eq!(all, (1..=2 * (WORKERS * OPERATIONS) as u64 - 1).collect::<Vec<_>>());
}

#[test]
fn figure_3_on_a_mapped_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let slots = Assignment::slots(WORKERS, OPERATIONS);
    Mapped::create(&dir.path().join("registers"), WORKERS, slots).expect("made");
    agree("paper-mapped", dir.path());
}

#[test]
fn figure_3_on_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    agree("paper-files", dir.path());
}
