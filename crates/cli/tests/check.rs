//! `holdall check` as a person runs it. What it finds of every protocol, and in how many states, is
//! in the rows of `crates/lab/tests/pinned`.

mod common;

use std::process::Command;

use common::{check, violated};
use serde_json::{Value, json};

#[test]
fn a_suite_is_a_line_for_each_scope() {
    let (code, reports) = check(&["ordered", "--suite", "quick"]);
    assert_eq!((code, reports.len()), (0, 19));
    for report in &reports {
        assert_eq!((violated(report, true), &report["complete"]), (vec![], &Value::Bool(true)));
    }
}

#[test]
fn a_rule_taken_away_is_missed() {
    let scope = ["ordered", "--pools", "1,1", "--users", "0+1/1+0"];
    assert_eq!(check(&scope).0, 0);
    let (code, reports) = check(&[&scope[..], &["--without", "sorted"]].concat());
    assert_eq!((code, violated(&reports[0], true)), (1, vec![("no-deadlock".into(), None)]));
    let (code, reports) =
        check(&["datta", "--as-printed", "d1", "--pools", "1,1", "--users", "0+1"]);
    assert_eq!((code, &violated(&reports[0], true)[0].0[..]), (1, "no-deadlock"));
    assert_eq!(reports[0]["protocol"], "datta --as-printed d1");
}

#[test]
fn what_was_not_seen_behind_a_violation_is_not_said_to_hold() {
    let scope = ["coordinator:skip", "--without", "room", "--pools", "1", "--users", "0*/0*"];
    let (code, reports) = check(&[&scope[..], &["--max-states", "24"]].concat());
    assert_eq!((code, &reports[0]["complete"]), (1, &Value::Bool(false)));
    let properties = reports[0]["properties"].as_array().expect("a list");
    assert!(properties.iter().all(|p| p["verdict"] != "holds"), "{properties:?}");
}

#[test]
fn a_deadlock_that_takes_two_rounds_is_found_in_two_rounds() {
    let lost = ["coordinator:skip", "--without", "session", "--pools", "1"];
    assert_eq!(check(&[&lost[..], &["--users", "0/0"]].concat()).0, 0);
    let (code, reports) = check(&[&lost[..], &["--users", "0,0/0"]].concat());
    assert_eq!((code, violated(&reports[0], true)), (1, vec![("no-deadlock".into(), None)]));
}

#[test]
fn a_starvation_in_a_cycle_that_serves_everybody_somewhere_is_found() {
    let alike = check(&["no-twice", "--pools", "1", "--users", "0*/0*/0*"]);
    assert_eq!(alike.0, 0, "among equals it is fair");
    let (code, reports) = check(&["no-twice", "--pools", "1,1", "--users", "0+1*/0*/1*"]);
    assert_eq!((code, violated(&reports[0], true)), (1, vec![("no-starvation".into(), Some(0))]));
    let properties = reports[0]["properties"].as_array().expect("a list");
    let starving = properties.iter().find(|p| p["name"] == "no-starvation").expect("listed");
    let cycle = starving["trace"]["cycle"].as_array().expect("a cycle").iter();
    let granted = |user: &str| {
        cycle.clone().any(|scene| {
            scene.to_string().contains(&format!("{user}#"))
                && scene.to_string().contains("is granted")
        })
    };
    assert!(granted("u1") && granted("u2"), "the others are served in the cycle");
}

#[test]
fn what_is_not_promised_is_seen_to_fail() {
    let chain = ["--pools", "1,1", "--users", "1/0+1/0"];
    let (code, reports) = check(&[&["ordered"], &chain[..]].concat());
    assert_eq!((code, violated(&reports[0], false)), (0, vec![("concurrency".into(), Some(2))]));
    let (_, reports) = check(&[&["coordinator:skip"], &chain[..]].concat());
    assert_eq!(violated(&reports[0], false), []);

    let wide = ["--pools", "1,1", "--users", "0+1*/0*/1*"];
    let (code, reports) = check(&[&["coordinator:skip"], &wide[..]].concat());
    assert_eq!((code, violated(&reports[0], false)), (0, vec![("no-starvation".into(), Some(0))]));
    let (code, reports) = check(&[&["coordinator:reserve=1"], &wide[..]].concat());
    assert_eq!((code, violated(&reports[0], true)), (0, vec![]));
    assert!(violated(&reports[0], false).iter().all(|(name, _)| name != "no-starvation"));
}

#[test]
fn every_assignment_of_three_clients_to_two_resources_is_sound() {
    for protocol in ["ordered", "skeen", "coordinator:fifo"] {
        let (code, reports) = check(&[protocol, "--all", "3x2"]);
        assert_eq!((code, reports.len()), (0, 10), "{protocol}");
    }
}

#[test]
fn an_endless_holder_excuses_only_those_it_blocks() {
    let (code, reports) = check(&["coordinator:skip", "--pools", "1,1", "--users", "0!/0+1/1"]);
    assert_eq!((code, violated(&reports[0], false)), (0, vec![]));
    let (code, reports) = check(&["coordinator:fifo", "--pools", "1,1", "--users", "0!/0+1/1"]);
    assert_eq!((code, violated(&reports[0], false)), (0, vec![("concurrency".into(), Some(2))]));
}

#[test]
fn outside_its_assumptions_nothing_is_promised() {
    let (code, reports) = check(&["ordered", "--pools", "1", "--users", "0/0", "--duplicates"]);
    assert_eq!((code, violated(&reports[0], true)), (0, vec![]));
    assert!(!violated(&reports[0], false).is_empty(), "a duplicate request leaves a ghost");
}

#[test]
fn a_search_cut_off_decides_nothing() {
    let scope = ["--pools", "1,1", "--users", "0+1/1+0/0", "--max-states", "20"];
    let (code, reports) = check(&[&["skeen"], &scope[..]].concat());
    assert_eq!((code, &reports[0]["complete"]), (3, &Value::Bool(false)));
    let properties = reports[0]["properties"].as_array().expect("a list");
    assert!(properties.iter().all(|p| p["verdict"] == "undecided"));
}

const DEADLOCK: [&str; 7] =
    ["ordered", "--without", "sorted", "--pools", "1,1", "--users", "0+1/1+0"];

#[test]
fn traces_are_typed() {
    let (_, reports) = check(&DEADLOCK);
    let properties = reports[0]["properties"].as_array().expect("a list");
    let deadlock = properties.iter().find(|p| p["name"] == "no-deadlock").expect("listed");
    let steps = deadlock["trace"]["steps"].as_array().expect("steps");
    assert_eq!((&steps[0]["kind"], &steps[0]["at"]), (&"ask".into(), &json!({ "user": 0 })));
    let arrives = steps.iter().find(|step| step["kind"] == "deliver").expect("a message arrives");
    let sent = |step: &&Value| {
        let all = step["sent"].as_array().cloned().unwrap_or_default();
        all.iter()
            .any(|sent| (&sent["to"], &sent["content"]) == (&arrives["at"], &arrives["content"]))
    };
    let sender = steps.iter().find(sent).expect("it was sent");
    assert_eq!((&sender["at"], arrives["content"].is_null()), (&arrives["from"], false));
}

#[test]
fn a_violation_is_drawn_as_a_message_sequence_chart() {
    let holdall = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_holdall")).arg("check").args(args).output();
        let out = out.expect("the command runs");
        (out.status.code(), String::from_utf8(out.stdout).expect("UTF-8"))
    };
    let (code, text) = holdall(&[&DEADLOCK[..], &["--chart"]].concat());
    assert_eq!(code, Some(1), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let head = lines.iter().find(|line| line.contains("u0")).expect("a head");
    assert!(["u1", "m0", "m1"].iter().all(|party| head.contains(party)), "{text}");
    assert!(text.contains("->|") && text.contains("|<-") && text.contains("asks"), "{text}");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("chart.svg");
    let path = file.to_str().expect("UTF-8");
    assert_eq!(holdall(&[&DEADLOCK[..], &["--chart-svg", path]].concat()).0, Some(1));
    let svg = std::fs::read_to_string(&file).expect("written");
    let document = roxmltree::Document::parse(&svg).expect("well-formed");
    let of_class = |class: &str| {
        document.descendants().filter(|node| node.attribute("class") == Some(class)).count()
    };
    let arrives = text.lines().filter(|line| line.contains("->|") || line.contains("|<-")).count();
    assert_eq!(
        (of_class("party"), of_class("message")),
        (4, 2 * arrives),
        "a line and a head each"
    );
    let nowhere = dir.path().join("no/chart.svg");
    let nowhere = nowhere.to_str().expect("UTF-8");
    assert_eq!(
        holdall(&[&DEADLOCK[..], &["--chart-svg", nowhere]].concat()),
        (Some(74), String::new())
    );
    let directory = dir.path().to_str().expect("UTF-8");
    let directory = holdall(&[&DEADLOCK[..], &["--chart-svg", directory]].concat());
    assert_eq!(directory, (Some(74), String::new()), "before the search");
    let full = holdall(&[&DEADLOCK[..], &["--chart-svg", "/dev/full"]].concat());
    assert_eq!(full.0, Some(74), "not what a violation has");
}

#[test]
fn clocks_that_run_apart_are_reported_as_that() {
    let cut_off = |protocol, users| {
        let args = [protocol, "--pools", "1,1", "--users", users, "--max-states", "20000"];
        let (code, mut reports) = check(&args);
        assert_eq!((code, &reports[0]["cut_off"]), (3, &Value::from("max-states")), "{args:?}");
        reports.remove(0)
    };
    let gap = cut_off("skeen", "0+1*/0*/1*")["growing_gap"].as_u64();
    assert!(gap.is_some_and(|gap| gap > 3), "{gap:?}");
    let large = cut_off("skeen", "0+1,0+1,0+1/0+1,0+1,0+1/0+1,0+1,0+1");
    assert_eq!(large["growing_gap"], Value::Null, "it has an end");
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let scope =
        ["skeen", "--without", "ties", "--pools", "1,1", "--users", "0+1/1+0/0", "--threads"];
    let with = |threads| check(&[&scope[..], &[threads]].concat());
    assert_eq!(with("1"), with("3"));
}

#[test]
fn bad_input_is_one_line_and_status_64() {
    let bad: &[&[&str]] = &[
        &["orderd", "--pools", "1", "--users", "0"],
        &["coordinator", "--pools", "1", "--users", "0"],
        &["ordered", "--pools", "1", "--users", "1"],
        &["ordered", "--pools", "1", "--users", "0:2"],
        &["ordered", "--pools", "1,1", "--users", "0+0"],
        &["ordered", "--pools", "1", "--users", "0/"],
        &["ordered", "--pools", "1", "--users", ""],
        &["ordered", "--pools", "0", "--users", "0"],
        &["ordered", "--pools", "99999999999", "--users", "0"],
        &["ordered", "--pools", "1", "--users", "0", "--nodes", "0,1"],
        &["ordered", "--pools", "1", "--users", "0", "--crash", "7"],
        &["ordered", "--pools", "1", "--users", "0", "--without", "luck"],
        &["chandy-misra", "--pools", "1", "--users", "0^/0"],
        &["datta", "--as-printed", "d99", "--pools", "1", "--users", "0"],
        &["ordered", "--pools", "1", "--users", "0", "--max-states", "0"],
        &["ordered", "--all", "3by3"],
        &["ordered"],
    ];
    for args in bad {
        let out = Command::new(env!("CARGO_BIN_EXE_holdall")).arg("check").args(*args).output();
        let out = out.expect("the command runs");
        let message = String::from_utf8(out.stderr).expect("UTF-8");
        assert_eq!(out.status.code(), Some(64), "{args:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        assert!(out.stdout.is_empty(), "{args:?}");
    }
}
