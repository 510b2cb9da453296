//! Workers that are gone for good.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdall_assign::machine::{Access, Machine};
use holdall_assign::registers::{Dir, Durability, Memory, Registers};
use holdall_assign::windows::{Layout, Seat};

use super::{HOLDALL, Place, code, deal, quiet, ran, refused, start, status, told, wait_until};

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

#[test]
fn a_worker_that_stopped_while_taking_delays_little() {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(2, 16, 1).expect("the sizes of a store for two");
    // Two workers, batches of one, numbers, not synced.
    let terms = [2, 1, 0, 0];
    let files = Dir::new(dir.path(), 2, layout.slots(), terms, Durability::Process);
    let mut seat: Seat = Seat::new(layout, 1);
    seat.acquire();
    let Access::Put { slot, value } = seat.step(0) else { panic!("it puts its intent") };
    let mut regs = files.handle(1).expect("new");
    regs.put(slot, value).expect("noted");
    regs.fence().expect("written");

    let store = dir.path().display().to_string();
    let args = ["--store", &store, "--worker", "0", "--of", "2", "--count", "6", "--json"];
    let works = || deal(&[&args[..], &["--patience", "0", "--", "true"]].concat());
    let out = works();
    assert_eq!(out.status.code(), Some(75), "{out:?}");
    let told = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(told.contains(r#""event":"delayed","by":1,"start":0,"end":2"#), "{told}");
    assert_eq!(status(&store)["done"], 5);
    assert_eq!(status(&store)["at"][1]["pins"], serde_json::json!([0, 2]));
    let retired = deal(&["retire", "--store", &store, "--worker", "1"]);
    assert_eq!(retired.status.code(), Some(0), "{retired:?}");
    assert_eq!(works().status.code(), Some(0));
    assert_eq!(status(&store)["done"], 6);
}

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

/// Two `retire` at the same moment, each of which may name the other's worker as an heir: whoever
/// is left does everything, or says that it cannot.
#[test]
fn retired_at_once() {
    for round in 0..8 {
        let place = Place::new();
        let mut dying: Vec<_> = (0..2)
            .map(|id| quiet(&mut place.worker(id, "--of 3 --count 40 --batch 4", &["sleep", "60"])))
            .collect();
        wait_until("both have begun", || (0..2).all(|id| place.journal(id).contains("start")));
        for worker in &mut dying {
            worker.kill().expect("SIGKILL");
            worker.wait().expect("gone");
        }
        let mut last = quiet(&mut place.worker(2, "--of 3 --count 40 --batch 4", &["true"]));
        if round % 2 == 0 {
            last.wait().expect("it ends");
        } else {
            wait_until("the last has begun", || place.journal(2).contains("begin"));
        }
        let retire = |id: &str| {
            let mut retire = Command::new(HOLDALL);
            retire.args(["deal", "retire", "--store", &place.store(), "--worker", id]);
            retire.arg("--retry-started").stdout(Stdio::null()).spawn().expect("it runs")
        };
        for mut retire in [retire("0"), retire("1")] {
            assert_eq!(retire.wait().expect("it ends").code(), Some(0));
        }
        last.wait().expect("it ends");
        let out = place.worker(2, "--of 3 --count 40 --batch 4", &["true"]).output().expect("runs");
        assert_eq!(code(&out), 0, "round {round}: {}", told(&out));
        assert_eq!(status(&place.store())["done"], 40, "round {round}");
    }
}

/// All are retired at once: nobody is left to get the items, and that is said.
#[test]
fn nobody_is_left() {
    let place = Place::new();
    let journal = |id: usize, text: &str| {
        fs::write(format!("{}/journal-{id}", place.store()), text).expect("written");
    };
    assert_eq!(code(&place.worker(0, "--of 3 --count 4", &["true"]).output().expect("runs")), 0);
    let items = place.journal(0).lines().find(|l| l.starts_with("items")).expect("said").to_owned();
    // As two calls at the same moment would have written it.
    journal(0, &format!("begin .\n{items}\ntake 0 2 .\nretired 1 .\n"));
    journal(1, &format!("begin .\n{items}\ntake 2 4 .\nretired 0 .\n"));
    let last = || place.worker(2, "--of 3 --count 4", &["true"]).output().expect("runs");
    let out = last();
    assert_eq!(code(&out), 75, "{}", told(&out));
    assert!(told(&out).contains("retire") && told(&out).contains("--to J"), "{}", told(&out));
    for id in ["0", "1"] {
        let out = place.deal("retire", &format!("--worker {id} --to 2"));
        assert_eq!(code(&out), 0, "{}", told(&out));
    }
    assert_eq!((code(&last()), &status(&place.store())["done"]), (0, &4.into()));
}
