//! What is refused, and alarms.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::{Place, code, deal, quiet, refused, told, wait_until};

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
    refused(&["status", "--store", &store], 71, "cannot be read");
    let good = with(&[], &[]);
    let good: Vec<_> = good.iter().map(String::as_str).collect();
    assert_eq!(deal(&good).status.code(), Some(0));
    let before = fs::read(format!("{store}/worker-0")).expect("there");
    refuse(with(&[(7, "2")], &[]), 64, "deals 3 items already, here are only 2");
    refuse(with(&[], &["--batch", "2"]), 64, "begun with --batch 1, not --batch 2");
    refuse(with(&[], &["--sync"]), 64, "begun without --sync, not with --sync");
    refuse(with(&[], &["--batch", "4611686018427387904"]), 64, "1 to 1048576");
    refuse(with(&[], &["--jobs", "0"]), 64, "--jobs");
    refuse(with(&[], &["--timeout", "0"]), 64, "--timeout");
    refused(&["retire", "--store", &store, "--worker", "5"], 64, "never began");
    refused(&["retire", "--store", &store, "--worker", "0"], 64, "nobody is left");
    assert_eq!(fs::read(format!("{store}/worker-0")).expect("there"), before);
    let mut other = before.clone();
    other[8] = 9;
    fs::write(format!("{store}/worker-0"), &other).expect("written");
    refuse(with(&[(3, "1")], &[]), 64, "another version");
    fs::write(format!("{store}/worker-0"), b"rubbish").expect("written");
    refuse(with(&[(3, "1")], &[]), 71, "damaged");
}

/// A second process under the same number, which no claim told of: found out at its next line.
#[test]
fn another_process_writes_the_journal() {
    let place = Place::new();
    let mut one = place.worker(0, "--of 1 --count 50", &["sleep", "0.1"]);
    let one = one.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    wait_until("it works", || place.journal(0).contains("end"));
    let path = format!("{}/journal-0", place.store());
    let mut file = OpenOptions::new().append(true).open(path).expect("there");
    file.write_all(b"start 40 .\n").expect("written");
    let out = one.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 70, "{}", told(&out));
    assert!(told(&out).contains("ALARM") && told(&out).contains("under one number"));
}

/// As on a store with old reads: two journals claim the same items.
#[test]
fn an_item_in_two_journals() {
    let place = Place::new();
    let work = || place.worker(0, "--of 2 --count 6", &["true"]).output().expect("runs");
    assert_eq!(code(&work()), 0);
    assert_eq!(code(&place.deal("status", "--check")), 0);
    fs::write(format!("{}/journal-1", place.store()), "take 2 4 .\n").expect("written");
    for out in [work(), place.deal("status", ""), place.deal("wait", "")] {
        assert_eq!(code(&out), 70, "{}", told(&out));
        assert!(told(&out).contains("ALARM: item 2 is in the journals of workers"));
    }
}

#[test]
fn a_probe_that_shows_nothing_says_so() {
    let place = Place::new();
    fs::create_dir(place.store()).expect("made");
    let one = place.deal("probe", "--seconds 1");
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert_eq!(code(&one), 75, "{text}");
    assert!(text.contains("one mount only"), "{text}");
    let reader = place.deal("probe", "--seconds 1 --read");
    let text = String::from_utf8_lossy(&reader.stdout).into_owned();
    assert_eq!(code(&reader), 75, "{text}");
    assert!(text.contains("nobody was seen to write"), "{text}");
    let (store, other) = (place.store(), place.file("other"));
    std::os::unix::fs::symlink(&store, &other).expect("made");
    let two = deal(&["probe", "--store", &store, "--and", &other, "--seconds", "1"]);
    assert_eq!(code(&two), 0);
    // Two sides that do not see each other at all.
    fs::remove_file(&other).expect("there");
    fs::create_dir(&other).expect("made");
    let two = deal(&["probe", "--store", &store, "--and", &other, "--seconds", "1"]);
    assert_eq!(code(&two), 75);
    // A side that sees what was, for ever.
    fs::write(format!("{other}/probe"), "1 0").expect("written");
    let two = deal(&["probe", "--store", &store, "--and", &other, "--seconds", "1"]);
    assert_eq!(code(&two), 1);
    refused(&["probe", "--store", &store, "--seconds", "18446744073709551615"], 64, "--seconds");
    assert_eq!(fs::read_dir(&store).expect("there").count(), 0, "nothing is left");
}

#[test]
fn benches_end() {
    refused(&["bench", "suspend", "--workers", "1"], 64, "there are no others");
    let place = Place::new();
    fs::create_dir(place.store()).expect("made");
    let out = place.deal("bench", "directory --workers 1,2 --millis 20 --json");
    assert_eq!((code(&out), String::from_utf8_lossy(&out.stdout).lines().count()), (0, 4));
    assert_eq!(fs::read_dir(place.store()).expect("there").count(), 0, "nothing is left");
}

/// What processes were writing when they were killed is cleared away by the next.
#[test]
fn leftovers_go() {
    let place = Place::new();
    let work = || place.worker(0, "--of 2 --count 2", &["true"]).output().expect("runs");
    assert_eq!(code(&work()), 0);
    for name in [".worker-0.123", ".claim-0-abc"] {
        fs::write(format!("{}/{name}", place.store()), "cut").expect("written");
    }
    assert_eq!(code(&work()), 0);
    let entries = fs::read_dir(place.store()).expect("there");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("one").file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, ["journal-0", "worker-0"]);
}

/// Two workers that begin with different lists at the same moment are both or one refused, never
/// neither; with one list, whoever reads it later may find more.
#[test]
fn other_items() {
    let place = Place::new();
    let (one, other) = (place.file("one"), place.file("other"));
    fs::write(&one, "a\nb\n").expect("written");
    fs::write(&other, "a\nc\nd\n").expect("written");
    let args = |list: &str| format!("--of 2 --items {list}");
    let first = place.worker(0, &args(&one), &["true"]).output().expect("runs");
    assert_eq!(code(&first), 0, "{}", told(&first));
    let second = place.worker(1, &args(&other), &["true"]).output().expect("runs");
    assert_eq!(code(&second), 64);
    assert!(told(&second).contains("deals other items (worker 0)"), "{}", told(&second));
    let numbers = place.worker(1, "--of 2 --count 2", &["true"]).output().expect("runs");
    assert!(told(&numbers).contains("begun with --items, not --count"), "{}", told(&numbers));
    let _ = quiet(&mut place.worker(1, &args(&one), &["true"])).wait();
    let began = Instant::now();
    while place.journal(1).is_empty() && began.elapsed() < Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!place.journal(1).is_empty(), "the refused left nothing that stands in the way");
}
