//! Exit statuses that count everything, and workers that stop in good order.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{HOLDALL, Place, code, quiet, ran, status, terminate, told, wait_until};

/// What failed or was skipped in an earlier life counts, until it is run again.
#[test]
fn earlier_lives_count() {
    let place = Place::new();
    let flag = place.file("flag");
    let line = format!("test {{}} != 3 || test -e {flag}");
    let work = |more: &str| {
        let args = format!("--of 1 --count 6 {more}");
        place.shell(0, &args, &line).output().expect("it runs")
    };
    assert_eq!(code(&work("")), 1);
    assert_eq!(code(&work("")), 1, "it failed earlier");
    assert_eq!((code(&place.deal("status", "")), code(&place.deal("status", "--check"))), (0, 1));
    assert_eq!(code(&place.deal("wait", "")), 1);
    let failed = place.deal("status", "--list failed");
    assert_eq!(String::from_utf8_lossy(&failed.stdout), "3\n");
    fs::write(&flag, "").expect("written");
    assert_eq!(code(&work("--retry-failed")), 0);
    assert_eq!((code(&place.deal("status", "--check")), code(&place.deal("wait", ""))), (0, 0));
}

/// A worker is killed: what it had waits for it, what it ran is undecided, and whoever looks is
/// told so by the exit status.
#[test]
fn what_a_dead_worker_holds_counts() {
    let place = Place::new();
    let mut dies = quiet(&mut place.worker(0, "--of 2 --count 20 --batch 5", &["sleep", "60"]));
    wait_until("it works", || place.journal(0).contains("start"));
    dies.kill().expect("SIGKILL");
    dies.wait().expect("gone");
    let other =
        || place.worker(1, "--of 2 --count 20 --batch 5", &["true"]).output().expect("runs");
    let out = other();
    assert_eq!(code(&out), 75, "{}", told(&out));
    assert!(told(&out).contains("items wait for worker 0, which is not running"), "{}", told(&out));
    assert_eq!(code(&place.deal("status", "--check")), 75);
    let wait = place.deal("wait", "--patience 0");
    assert_eq!(code(&wait), 75);
    let list = |which: &str| {
        let out = place.deal("status", &format!("--list {which}"));
        String::from_utf8_lossy(&out.stdout).lines().count()
    };
    assert_eq!((list("undecided"), list("failed")), (1, 0));
    assert_eq!(list("missing") as u64, 19 - status(&place.store())["done"].as_u64().expect("done"));
    // It goes on, and skips what may be done: that counts as well.
    let again = |more: &str| {
        let args = format!("--of 2 --count 20 --batch 5 {more}");
        code(&place.worker(0, &args, &["true"]).output().expect("it runs"))
    };
    assert_eq!(again(""), 75);
    assert_eq!(code(&place.deal("status", "--check")), 75);
    assert_eq!(again("--retry-started"), 0);
    assert_eq!((code(&other()), code(&place.deal("status", "--check"))), (0, 0));
}

/// The same for items that a dead worker never learnt of: lots of a worker that did not come.
#[test]
fn what_a_dead_worker_never_learnt_of_counts() {
    let place = Place::new();
    let args = "--of 64 --count 64 --patience 0";
    let mut dies = quiet(&mut place.worker(0, args, &["sleep", "60"]));
    wait_until("it works", || place.journal(0).contains("start"));
    let other = || place.worker(1, args, &["true"]).output().expect("runs");
    assert_eq!(code(&other()), 0, "the first works and will learn of the rest");
    dies.kill().expect("SIGKILL");
    dies.wait().expect("gone");
    let out = other();
    assert_eq!(code(&out), 75, "{}", told(&out));
    assert!(told(&out).contains("items more may be those of worker 0"), "{}", told(&out));
    let retired = place.deal("retire", "--worker 0 --retry-started");
    assert_eq!(code(&retired), 0);
    assert_eq!((code(&other()), code(&place.deal("status", "--check"))), (0, 0));
}

/// A command that cannot be run stops the worker before it has burnt the queue.
#[test]
fn a_command_that_cannot_be_run() {
    let place = Place::new();
    let work = |more: &str, command: &[&str]| {
        place.worker(0, &format!("--of 1 --count 9 {more}"), command).output().expect("it runs")
    };
    let out = work("", &["/no/such/program", "{}"]);
    assert_eq!(code(&out), 127, "{}", told(&out));
    assert!(told(&out).contains("cannot run /no/such/program"), "{}", told(&out));
    assert_eq!(code(&work("", &["/etc/passwd"])), 126);
    let before = status(&place.store());
    let none = 0.into();
    assert_eq!((&before["done"], &before["undecided"], &before["running"]), (&none, &none, &none));
    // A shell that does not find it.
    assert_eq!(code(&work("", &["sh", "-c", "no-such-command {}"])), 127);
    let status = status(&place.store());
    assert_eq!((&status["done"], &status["failed"]), (&1.into(), &1.into()));
    assert_eq!(code(&work("--retry-failed", &["true"])), 0);
}

/// SIGTERM: the running command ends in peace and is recorded, nothing more is started.
#[test]
fn told_to_stop() {
    let place = Place::new();
    let line = format!("sleep 0.7; echo {{}} >> {}", place.file("out"));
    let worker = quiet(&mut place.shell(0, "--of 1 --count 5 --batch 5", &line));
    wait_until("it works", || place.journal(0).contains("start"));
    terminate(&worker);
    let out = worker.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 75, "items are left");
    assert_eq!(ran(place.0.path()).len(), 1);
    let status = status(&place.store());
    assert_eq!(
        (&status["done"], &status["undecided"], &status["failed"]),
        (&1.into(), &0.into(), &0.into())
    );
    // Told again, it ends what runs; whether that was done is not known.
    let mut worker = quiet(&mut place.worker(0, "--of 1 --count 5 --batch 5", &["sleep", "60"]));
    wait_until("it works", || place.journal(0).matches("start").count() == 2);
    terminate(&worker);
    wait_until("it goes on until told again", || {
        terminate(&worker);
        worker.try_wait().expect("asked").is_some()
    });
    assert_eq!(self::status(&place.store())["undecided"], 1);
}

#[test]
fn time_is_up() {
    let place = Place::new();
    let out = place.shell(0, "--of 1 --count 2 --timeout 1", "test {} = 1 || sleep 60 & wait");
    let began = Instant::now();
    let out = { out }.output().expect("it runs");
    assert!(began.elapsed() < Duration::from_secs(50), "it was ended, and what it had started");
    assert_eq!(code(&out), 1);
    assert!(told(&out).contains("status 124"), "{}", told(&out));
    assert_eq!(status(&place.store())["failed"], 1);
}

/// Several at a time: each of these waits for the other.
#[test]
fn several_commands_at_once() {
    let place = Place::new();
    let (a, b) = (place.file("0"), place.file("1"));
    let line = format!(
        "touch {}/{{}}; until test -e {a} && test -e {b}; do sleep 0.01; done",
        place.0.path().display()
    );
    let out = place.shell(0, "--of 1 --count 2 -j 2 --timeout 60", &line).output().expect("runs");
    assert_eq!(code(&out), 0, "{}", told(&out));
}

/// Whoever read the events, or the messages, has left: the items are run all the same.
#[test]
fn nobody_listens() {
    let place = Place::new();
    let note = format!("echo {{}} >> {}", place.file("out"));
    let pipe = format!(
        "{HOLDALL} deal --store {} --worker 0 --of 1 --count 9 --json -- sh -c '{note}' | head -1",
        place.store()
    );
    assert!(Command::new("sh").args(["-c", &pipe]).stderr(Stdio::null()).status().is_ok());
    assert_eq!((ran(place.0.path()).len(), &status(&place.store())["done"]), (9, &9.into()));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let out = place.worker(0, "--of 1 --count 12", &["false"]).stderr(full).output().expect("runs");
    assert_eq!(code(&out), 1, "three failed, and that could not be said");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let other = Command::new(HOLDALL).args(["check", "no-such"]).stderr(full).output();
    assert_eq!(code(&other.expect("it runs")), 64, "no other command panics either");
}

/// Who waits says for whom, although nobody is at a terminal.
#[test]
fn says_for_whom_it_waits() {
    let place = Place::new();
    let mut held = quiet(&mut place.worker(1, "--of 2 --count 6", &["sleep", "60"]));
    wait_until("it works", || place.journal(1).contains("start"));
    held.kill().expect("SIGKILL");
    held.wait().expect("gone");
    // Its intent for the second window, as if it had been killed in the middle of taking.
    let path = format!("{}/worker-1", place.store());
    let before = fs::read(&path).expect("there");
    let after = crate::crowd::intends_more(&before);
    fs::write(&path, after).expect("written");
    let out = place.worker(0, "--of 2 --count 6 --patience 0", &["true"]).output().expect("runs");
    assert_eq!(code(&out), 75, "{}", told(&out));
    assert!(told(&out).contains("waits for worker 1 (not running)"), "{}", told(&out));
}
