//! `holdall deal` as people use it: killed, started again, retired, misused; and what it asks of
//! the file system.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdall_assign::machine::{Do, Machine};
use holdall_assign::registers::{Dir, Durability, Memory, Registers};
use holdall_assign::windows::{Layout, Seat};
use serde_json::Value;

const HOLDALL: &str = env!("CARGO_BIN_EXE_holdall");

fn deal(args: &[&str]) -> Output {
    Command::new(HOLDALL).arg("deal").args(args).output().expect("the command runs")
}

/// Refused: the exit status, and what stands in the one line it says.
fn refused(args: &[&str], status: i32, says: &str) {
    let out = deal(args);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(status), "{told}");
    assert!(told.contains(says) && told.lines().count() == 1, "{told}");
}

/// A worker whose command notes its item, after a moment, in `dir/out`.
fn start(dir: &Path, worker: usize, of: usize, count: usize) -> Child {
    let note = format!("sleep 0.00{worker}; echo {{}} >> {}", dir.join("out").display());
    Command::new(HOLDALL)
        .args(["deal", "--store", &dir.join("store").display().to_string()])
        .args(["--worker", &worker.to_string(), "--of", &of.to_string()])
        .args(["--count", &count.to_string(), "--", "sh", "-c", &note])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs")
}

/// The items run, each once.
fn ran(dir: &Path) -> BTreeSet<u64> {
    let text = fs::read_to_string(dir.join("out")).unwrap_or_default();
    let mut items = BTreeSet::new();
    for line in text.lines() {
        let item = line.parse().expect("a number");
        assert!(items.insert(item), "item {item} was run twice");
    }
    items
}

fn status(store: &str) -> Value {
    let out = deal(&["status", "--store", store, "--json"]);
    serde_json::from_slice(&out.stdout).expect("one object")
}

#[test]
fn killed_workers_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (n, count) = (3, 300);
    let mut workers: Vec<_> = (0..n).map(|worker| start(dir.path(), worker, n, count)).collect();
    let (mut random, until) = (7_u64, Instant::now() + Duration::from_secs(3));
    while Instant::now() < until {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_micros((random >> 40) % 60_000));
        let victim = (random >> 20) as usize % n;
        workers[victim].kill().expect("SIGKILL");
        workers[victim].wait().expect("gone");
        workers[victim] = start(dir.path(), victim, n, count);
    }
    for worker in &mut workers {
        assert_eq!(worker.wait().expect("it ends").code(), Some(0));
    }
    thread::sleep(Duration::from_millis(50));
    // What was not run was started by a worker that was killed.
    let store = dir.path().join("store").display().to_string();
    let status = status(&store);
    let number = |row: &Value, what: &str| row[what].as_u64().expect("a number");
    let rows = status["at"].as_array().expect("rows");
    let undecided: u64 = rows.iter().map(|row| number(row, "undecided")).sum();
    assert_eq!(number(&status, "done") + undecided, count as u64, "{status}");
    assert!(ran(dir.path()).len() as u64 >= number(&status, "done"));
    // Those are run again if asked for.
    for worker in 0..n {
        let (worker, of, count) = (worker.to_string(), n.to_string(), count.to_string());
        let args = ["--store", &store, "--worker", &worker, "--of", &of, "--count", &count];
        let out = deal(&[&args[..], &["--retry-started", "--", "true"]].concat());
        assert_eq!(out.status.code(), Some(0));
    }
    assert_eq!(self::status(&store)["done"], count);
}

#[test]
fn a_retired_worker_leaves_its_items_to_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store").display().to_string();
    let out = dir.path().join("out").display().to_string();
    let note = format!("echo {{}} >> {out}");
    let mut dies = Command::new(HOLDALL)
        .args(["deal", "--store", &store, "--worker", "1", "--of", "2", "--count", "40"])
        .args(["--batch", "5", "--", "sleep", "10"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    let began = Instant::now();
    while !fs::read_to_string(format!("{store}/journal-1")).is_ok_and(|j| j.contains("start")) {
        assert!(began.elapsed() < Duration::from_secs(20), "it starts its first item");
        thread::sleep(Duration::from_millis(5));
    }
    let works = |worker: &str| {
        deal(&[
            "--store", &store, "--worker", worker, "--of", "2", "--count", "40", "--batch", "5",
            "--", "sh", "-c", &note,
        ])
    };
    let retire = ["retire", "--store", &store, "--worker", "1"];
    refused(&[&retire[..], &["--to", "0"]].concat(), 64, "is run by process");
    let args = ["--store", &store, "--worker", "1", "--of", "2", "--count", "40", "--batch", "5"];
    refused(&[&args[..], &["--", "true"]].concat(), 64, "is run by process");
    dies.kill().expect("SIGKILL");
    dies.wait().expect("gone");
    // Once is enough, although nobody has gone beyond its windows yet.
    let retired = deal(&[&retire[..], &["--to", "0"]].concat());
    assert_eq!(retired.status.code(), Some(0), "{retired:?}");
    let told = String::from_utf8_lossy(&retired.stdout).into_owned();
    assert!(told.contains("go to 0") && told.contains("perhaps done"), "{told}");
    assert!(told.contains("start again: 0"), "{told}");
    refused(&[&args[..], &["--", "true"]].concat(), 64, "is retired");
    refused(&[&retire[..], &["--to", "0"]].concat(), 64, "is retired already");
    assert_eq!(works("0").status.code(), Some(0));
    // All but the one item that was started.
    assert_eq!(ran(dir.path()).len(), 39);
    let retried = deal(&[&retire[..], &["--retry-started"]].concat());
    assert_eq!(retried.status.code(), Some(0), "{retried:?}");
    assert_eq!(works("0").status.code(), Some(0));
    assert_eq!(ran(dir.path()).len(), 40);
    assert_eq!(status(&store)["done"], 40);
}

/// Worker 1 has shown that it wants the first window, and is gone: what it delays is told, nobody
/// waits for it, and once it is retired it delays nothing.
#[test]
fn a_worker_that_stopped_while_taking_delays_little() {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(2, 16, 1).expect("the sizes of a store for two");
    // Two workers, batches of one, six items, which are numbers.
    let terms = [2, 1, 6, 0xcbf2_9ce4_8422_2325];
    let files = Dir::new(dir.path(), 2, layout.slots(), terms, Durability::Process);
    let mut seat: Seat = Seat::new(layout, 1);
    seat.acquire();
    let Do::Put { slot, value } = seat.step(0) else { panic!("it puts its intent") };
    let mut regs = files.handle(1).expect("new");
    regs.put(slot, value).expect("noted");
    regs.fence().expect("written");

    let store = dir.path().display().to_string();
    assert_eq!(status(&store)["at"][1]["pins"], serde_json::json!([0, 2]));
    let args = ["--store", &store, "--worker", "0", "--of", "2", "--count", "6", "--json"];
    let works = || deal(&[&args[..], &["--patience", "0", "--", "true"]].concat());
    let out = works();
    assert_eq!(out.status.code(), Some(75), "{out:?}");
    let told = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(told.contains(r#""event":"delayed","by":1,"start":0,"end":2"#), "{told}");
    assert_eq!(status(&store)["done"], 5);
    let retired = deal(&["retire", "--store", &store, "--worker", "1"]);
    assert_eq!(retired.status.code(), Some(0), "{retired:?}");
    assert_eq!(works().status.code(), Some(0));
    assert_eq!(status(&store)["done"], 6);
}

/// Workers killed in the middle and retired one after another, the heir before it has inherited.
#[test]
fn heirs_retire_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store").display().to_string();
    let (n, count) = (4, 120);
    let mut workers: Vec<_> = (0..n).map(|worker| start(dir.path(), worker, n, count)).collect();
    let began = Instant::now();
    while ran(dir.path()).len() < 30 {
        assert!(began.elapsed() < Duration::from_secs(60), "they work");
        thread::sleep(Duration::from_millis(5));
    }
    for worker in &mut workers {
        worker.kill().expect("SIGKILL");
        worker.wait().expect("gone");
    }
    for (worker, to) in [("3", "2"), ("2", "1"), ("1", "0")] {
        let retire = ["retire", "--store", &store, "--worker", worker, "--to", to];
        assert_eq!(deal(&[&retire[..], &["--retry-started"]].concat()).status.code(), Some(0));
    }
    thread::sleep(Duration::from_millis(50));
    let (count, args) = (count.to_string(), ["--store", &store, "--worker", "0", "--of", "4"]);
    let rest = ["--count", &count, "--retry-started", "--", "true"];
    let out = deal(&[&args[..], &rest].concat());
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(status(&store)["done"], 120);
}

#[test]
fn bad_input_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store").display().to_string();
    let base = ["--store", &store, "--worker", "0", "--of", "2", "--count", "3"];
    let with = |change: &[(usize, &str)], more: &[&str]| -> Vec<String> {
        let mut args: Vec<String> = base.iter().map(ToString::to_string).collect();
        change.iter().for_each(|(at, to)| args[*at] = (*to).into());
        args.extend(more.iter().chain(&["--", "true"]).map(ToString::to_string));
        args
    };
    let refuse = |args: Vec<String>, status, says| {
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), status, says);
    };
    refuse(with(&[(3, "2")], &[]), 64, "they are 0 to 1");
    refuse(with(&[(5, "0")], &[]), 64, "--worker 0");
    refuse(with(&[(5, "65")], &[]), 64, "1 to 64");
    refuse(with(&[], &["--batch", "0"]), 64, "batch");
    refused(&["status", "--store", &store], 1, "cannot be read");
    let good = with(&[], &[]);
    let good: Vec<_> = good.iter().map(String::as_str).collect();
    assert_eq!(deal(&good).status.code(), Some(0));
    let before = fs::read(format!("{store}/worker-0")).expect("there");
    refuse(with(&[(5, "3")], &[]), 64, "begun with --of 2, not 3");
    refuse(with(&[(7, "4")], &[]), 64, "begun with items: 3, not 4");
    refuse(with(&[], &["--batch", "2"]), 64, "begun with --batch 1, not 2");
    refused(&["retire", "--store", &store, "--worker", "5"], 64, "0 to 1");
    refused(&["retire", "--store", &store, "--worker", "0"], 64, "nobody is left");
    assert_eq!(fs::read(format!("{store}/worker-0")).expect("there"), before);
    let mut other = before.clone();
    other[8] = 9;
    fs::write(format!("{store}/worker-0"), &other).expect("written");
    refuse(with(&[(3, "1")], &[]), 64, "another version");
    fs::write(format!("{store}/worker-0"), b"rubbish").expect("written");
    refuse(with(&[(3, "1")], &[]), 1, "damaged");
}

#[test]
fn events() {
    let dir = tempfile::tempdir().expect("a directory");
    let list = dir.path().join("list");
    fs::write(&list, "a\nb\n\nc\n").expect("written");
    let store = dir.path().join("store").display().to_string();
    let list = list.display().to_string();
    let out = deal(&[
        "--store", &store, "--worker", "0", "--of", "1", "--items", &list, "--json", "--", "test",
        "{}", "!=", "b",
    ]);
    assert_eq!(out.status.code(), Some(1), "one command failed");
    let lines = String::from_utf8(out.stdout).expect("UTF-8");
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let finished = events.iter().filter(|event| event["event"] == "finished");
    let statuses: Vec<_> = finished.map(|event| event["status"].as_i64()).collect();
    assert_eq!(statuses, [Some(0), Some(1), Some(0)]);
    let last = events.last().expect("events");
    assert_eq!(
        (&last["event"], &last["run"], &last["failed"]),
        (&"done".into(), &3.into(), &1.into())
    );
}

/// Only get and put: of all system calls that name the store none locks, links, or creates
/// exclusively.
#[test]
fn only_get_and_put() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store").display().to_string();
    let trace = dir.path().join("trace");
    let traced = Command::new("strace")
        .args(["-f", "-y", "-o", &trace.display().to_string(), HOLDALL, "deal", "--store", &store])
        .args(["--worker", "0", "--of", "2", "--count", "20", "--", "true"])
        .output();
    let Ok(traced) = traced else {
        eprintln!("SKIPPED: no strace here, no system call was traced");
        return;
    };
    assert!(traced.status.success(), "{traced:?}");
    let text = fs::read_to_string(trace).expect("a trace");
    let mut calls = BTreeSet::new();
    for line in text.lines().filter(|line| line.contains(&store) && !line.contains("execve")) {
        let call = line.split_once(' ').and_then(|(_, rest)| rest.trim_start().split_once('('));
        let (call, rest) = call.expect("a system call");
        assert!(!rest.contains("O_EXCL") && !rest.contains("RENAME_"), "{line}");
        assert!(!(call == "fcntl" && rest.contains("LK")), "{line}");
        calls.insert(call.to_owned());
    }
    println!("{calls:?}");
    let allowed = [
        "close",
        "fcntl",
        "fstat",
        "getdents64",
        "lseek",
        "mkdir",
        "newfstatat",
        "openat",
        "read",
        "rename",
        "stat",
        "statfs",
        "statx",
        "unlink",
        "write",
    ];
    let others: Vec<_> = calls.iter().filter(|call| !allowed.contains(&call.as_str())).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(calls.contains("rename") && calls.contains("openat"), "{calls:?}");
}
