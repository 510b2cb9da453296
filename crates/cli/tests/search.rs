//! How far `holdall check` searches, and what it draws of it.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{check, violated};
use serde_json::Value;

const SOUND: [&str; 5] = ["skeen", "--pools", "1,1", "--users", "0+1/1+0"];
const DEADLOCK: [&str; 7] =
    ["ordered", "--without", "sorted", "--pools", "1,1", "--users", "0+1/1+0"];
/// Clocks run apart, so there is no end of states.
const ENDLESS: [&str; 5] = ["skeen", "--pools", "1,1", "--users", "0+1*/0*/1*"];

fn verdict_of<'r>(report: &'r Value, property: &str) -> &'r Value {
    let properties = report["properties"].as_array().expect("a list");
    &properties.iter().find(|p| p["name"] == property).expect("listed")["verdict"]
}

#[test]
fn a_limit_ends_the_search_with_a_verdict_so_far() {
    for (limit, reason) in [(["--time", "0s"], "time"), (["--memory", "1M"], "memory")] {
        let (code, reports) = check(&[&SOUND[..], &limit].concat());
        assert_eq!((code, &reports[0]["cut_off"]), (3, &Value::from(reason)));
        assert_eq!(verdict_of(&reports[0], "exclusion"), "undecided");
        let generous = if reason == "time" { ["--time", "2h"] } else { ["--memory", "900G"] };
        let (code, reports) = check(&[&SOUND[..], &generous].concat());
        assert_eq!((code, verdict_of(&reports[0], "exclusion")), (0, &Value::from("holds")));
    }
    for bad in [["--time", "soon"], ["--time", "5d"], ["--memory", "1"], ["--memory", "x2G"]] {
        assert_eq!(check(&[&SOUND[..], &bad].concat()).0, 64, "{bad:?}");
    }
}

#[test]
fn ctrl_c_ends_the_search_with_a_verdict_so_far() {
    let search = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .arg("check")
        .args(ENDLESS)
        .args(["--threads", "1", "--memory", "2G"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let status = format!("/proc/{}/status", search.id());
    let handles_interrupts = || {
        let status = fs::read_to_string(&status).expect("it runs");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("a number") & 0b10 != 0
    };
    while !handles_interrupts() {
        sleep(Duration::from_millis(5));
    }
    let pid = search.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(sent.success());
    let out = search.wait_with_output().expect("it ends");
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(out.status.code(), Some(3), "{text}");
    assert!(text.contains("cut off (interrupted)"), "{text}");
}

#[test]
fn requests_that_stand_still_in_a_deadlock_are_not_said_to_come_to_an_end() {
    let (_, reports) = check(&DEADLOCK);
    assert_eq!(verdict_of(&reports[0], "no-starvation"), "undecided");
    assert_eq!(verdict_of(&reports[0], "exclusion"), "holds");
}

#[test]
fn random_walks_find_what_is_there_to_find_and_decide_nothing_else() {
    let (code, reports) = check(&[&DEADLOCK[..], &["--random-walk", "50"]].concat());
    assert_eq!((code, violated(&reports[0], true)), (1, vec![("no-deadlock".into(), None)]));
    let properties = reports[0]["properties"].as_array().expect("a list");
    let deadlock = properties.iter().find(|p| p["name"] == "no-deadlock").expect("listed");
    assert_eq!(deadlock["trace"]["steps"].as_array().map(Vec::len), Some(8), "told whole");

    let walk = |seed| check(&[&ENDLESS[..], &["--random-walk", "3", "--seed", seed]].concat());
    let (code, reports) = walk("1");
    assert_eq!((code, &reports[0]["cut_off"]), (3, &Value::from("random-walk")));
    assert_eq!(reports[0]["transitions"], 30_000, "three walks of the greatest length");
    assert_eq!(reports[0]["walks"], 3);
    let cut = check(&[&ENDLESS[..], &["--random-walk", "3", "--max-states", "10"]].concat());
    assert_eq!(cut.1[0]["walks"], 1, "a limit came first");
    assert_eq!(verdict_of(&reports[0], "exclusion"), "undecided");
    assert_eq!(walk("1"), walk("1"));
    assert_ne!(walk("1"), walk("2"));

    let (code, reports) = check(&[
        "coordinator:skip",
        "--without",
        "room",
        "--pools",
        "1",
        "--users",
        "0*/0*",
        "--random-walk",
        "9",
    ]);
    assert_eq!((code, verdict_of(&reports[0], "exclusion")), (1, &Value::from("violated")));
}

#[test]
fn the_state_graph_is_drawn_or_refused_with_the_number_of_states() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (dot, svg) = (path("states.dot"), path("states.svg"));
    let (code, reports) = check(&[&DEADLOCK[..], &["--dot", &dot, "--graph-svg", &svg]].concat());
    assert_eq!(code, 1);
    let (states, transitions) = (&reports[0]["states"], &reports[0]["transitions"]);
    let text = fs::read_to_string(&dot).expect("written");
    let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert_eq!((lines("[tooltip="), lines(" -> ")), (74, 120), "{text}");
    assert_eq!((states, transitions), (&74.into(), &120.into()));
    assert_eq!(lines("color=red"), 1, "the deadlock");
    let text = fs::read_to_string(&svg).expect("written");
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let circles = document.descendants().filter(|node| node.has_tag_name("circle")).count();
    assert_eq!(circles, 74);

    let large = ["skeen", "--pools", "1,1", "--users", "0+1/1+0/0", "--graph-svg"];
    let file = path("large.svg");
    let out = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .arg("check")
        .args(large)
        .arg(&file)
        .output()
        .expect("the command runs");
    let (told, refused) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(64), "{refused}");
    let states = told.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a number");
    assert!(refused.contains(&format!("there are {states} states, and at most 300")), "{refused}");
    assert!(fs::metadata(&file).is_err(), "nothing is written");

    let broken = ["skeen", "--without", "hear", "--pools", "1,1", "--users", "0+1/1+0/0"];
    let (code, _) = check(&[&broken[..], &["--graph-svg", &file]].concat());
    assert_eq!(code, 1, "a broken promise weighs more than a picture");
}

/// A scope of some 12,000 states.
const LONGER: [&str; 5] = ["skeen", "--pools", "1,1", "--users", "0+1/1+0/0"];

fn holdall(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdall")).args(args).output().expect("the command runs")
}

fn told(out: &Output) -> (Option<i32>, String) {
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Waits until a checkpoint is in its place that was not there before.
fn wait_for_another(file: &Path, before: &[u8]) {
    while fs::read(file).is_ok_and(|now| now == before) || !file.exists() {
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_search_that_is_killed_goes_on_from_where_it_was_saved() {
    let whole = check(&LONGER);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("search");
    let name = file.to_str().expect("UTF-8");
    let first = [&["check"][..], &LONGER, &["--save", name]].concat();
    let again = ["check", "--resume", name];
    for (turn, args) in [&first[..], &again, &again].into_iter().enumerate() {
        let before = fs::read(&file).unwrap_or_default();
        let mut search = Command::new(env!("CARGO_BIN_EXE_holdall"))
            .args(args)
            .args(["--save-every", "0s", "--threads", "2"])
            .stdout(Stdio::null())
            .spawn()
            .expect("the command runs");
        wait_for_another(&file, &before);
        search.kill().expect("it is ours");
        let status = search.wait().expect("it ended");
        assert_eq!(status.code(), None, "killed in turn {turn}, before it came to its end");
    }
    assert_eq!(check(&["--resume", name]), whole);
    assert!(!file.exists(), "it has come to its end");
}

#[test]
fn a_search_is_resumed_by_the_name_of_its_file_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("search");
    let name = file.to_str().expect("UTF-8");
    let out =
        holdall(&[&["check"][..], &DEADLOCK, &["--save", name, "--max-states", "20"]].concat());
    let (code, err) = told(&out);
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains(&format!("`holdall check --resume {name}` goes on")), "{err}");
    let refused = |args: &[&str], why: &str| {
        let (code, err) = told(&holdall(args));
        assert_eq!((code, err.lines().count()), (Some(64), 1), "{err}");
        assert!(err.contains(why), "{err}");
    };
    refused(
        &[&["check"][..], &SOUND, &["--resume", name]].concat(),
        "is of another search: ordered",
    );
    refused(&[&["check"][..], &DEADLOCK, &["--save", name]].concat(), "is there already");
    refused(&["check", "--resume", name, "--crash", "0"], "leave out what is to be explored");
    refused(&["check", "--resume", "/no/such/file"], "No such file");
    refused(&["check", "--resume", name, "--random-walk", "3"], "cannot be used with");
    refused(&["check", "--suite", "quick", "--save", name], "cannot be used with");
    refused(&[&["check"][..], &SOUND, &["--save-every", "3s"]].concat(), "--save");
    let all = [&["check"][..], &DEADLOCK, &["--resume", name, "--max-states", "30"]].concat();
    assert_eq!(told(&holdall(&all)).0, Some(3), "all of it may be named");
    assert_eq!(check(&["--resume", name]), check(&DEADLOCK));
}

#[test]
fn what_cannot_be_saved_is_told_and_the_search_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("search");
    let name = file.to_str().expect("UTF-8");
    // Files of more than 50 KiB cannot be written: as good as a full disk.
    let limited = |more: &str| {
        let scope = LONGER.join(" ");
        let line = format!("trap '' XFSZ; ulimit -f 100; exec \"$0\" check {scope} {more}");
        let program = env!("CARGO_BIN_EXE_holdall");
        Command::new("sh").args(["-c", &line, program]).output().expect("the command runs")
    };
    let (code, err) = told(&limited(&format!("--save {name} --max-states 9000 --save-every 0s")));
    assert_eq!(code, Some(74), "{err}");
    assert!(err.contains("cannot save the search to") && err.contains("File too large"), "{err}");
    assert!(err.ends_with("holds the search as it was before\n"), "{err}");
    assert_eq!(fs::read_dir(&dir).expect("there").count(), 1, "nothing is left beside it");
    let (code, err) = told(&limited(&format!("--resume {name} --save-every 0s")));
    assert_eq!(code, Some(0), "it comes to its end all the same: {err}");

    let (code, err) = told(&holdall(&[&["check"][..], &SOUND, &["--save", "/proc/no"]].concat()));
    assert_eq!((code, err.lines().count()), (Some(74), 1), "{err}");
}

#[test]
fn whoever_stops_reading_changes_no_verdict() {
    let unread = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdall"));
        command.args(args).stdout(writer).stderr(Stdio::null());
        command.status().expect("the command runs").code()
    };
    assert_eq!(unread(&[&["check"][..], &DEADLOCK].concat()), Some(1));
    assert_eq!(unread(&[&["check"][..], &SOUND].concat()), Some(0));
    let several = ["check", "ordered", "--suite", "quick"];
    assert_eq!(unread(&several), Some(3), "what nobody reads is not explored, and no success");
    let ticks = ["--ticks", "1000"];
    assert_eq!(unread(&[&["sim", "all", "--csv"][..], &ticks].concat()), Some(0));
    assert_eq!(unread(&[&["sim", "all", "--json"][..], &ticks].concat()), Some(0));
    assert_eq!(unread(&["fuzz", "ordered", "--without", "whole", "--runs", "300"]), Some(1));
}
