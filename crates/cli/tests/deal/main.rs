//! `holdall deal` as people use it.

mod crowd;
mod misuse;
mod retired;
mod truth;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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

/// A store in a directory of its own, and what commands write beside it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn store(&self) -> String {
        self.0.path().join("store").display().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A worker, with further arguments.
    fn worker(&self, worker: usize, args: &str, command: &[&str]) -> Command {
        let mut deal = Command::new(HOLDALL);
        deal.args(["deal", "--store", &self.store(), "--worker", &worker.to_string()]);
        deal.args(args.split_whitespace()).arg("--").args(command);
        deal.stdin(Stdio::null());
        deal
    }

    /// A worker whose command is a line of shell.
    fn shell(&self, worker: usize, args: &str, line: &str) -> Command {
        self.worker(worker, args, &["sh", "-c", line])
    }

    fn deal(&self, what: &str, args: &str) -> Output {
        let store = self.store();
        deal(
            &[&[what, "--store", &store][..], &args.split_whitespace().collect::<Vec<_>>()]
                .concat(),
        )
    }

    fn journal(&self, worker: usize) -> String {
        fs::read_to_string(format!("{}/journal-{worker}", self.store())).unwrap_or_default()
    }
}

fn code(out: &Output) -> i32 {
    out.status.code().unwrap_or(-1)
}

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn quiet(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command runs")
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited too long: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn terminate(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
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
        // 75 if it skipped an item that an earlier life had started.
        let code = worker.wait().expect("it ends").code();
        assert!(matches!(code, Some(0 | 75)), "{code:?}");
    }
    thread::sleep(Duration::from_millis(50));
    // What was not run was started by a worker that was killed.
    let store = dir.path().join("store").display().to_string();
    let status = status(&store);
    let number = |row: &Value, what: &str| row[what].as_u64().expect("a number");
    assert_eq!(number(&status, "done") + number(&status, "undecided"), count as u64, "{status}");
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
    let of_store = |line: &&str| line.contains(&store) && !line.contains("execve");
    // A call that another thread interrupts has two lines; the first has its name.
    for line in text.lines().filter(of_store).filter(|line| !line.contains(" resumed>")) {
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
