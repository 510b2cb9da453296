//! `holdall locality` as a person runs it: who is blocked in which
//! stage and sense, and what each detector changes.

mod common;

use std::process::Command;

use common::{check, json, violated};
use serde_json::{Value, json};

const PATH_OF_3: &[&str] = &["--pools", "1,1", "--users", "0/0+1/1"];

fn locality(args: &[&str]) -> (i32, Value) {
    let (code, mut objects) = json("locality", args);
    assert_eq!(objects.len(), 1, "{args:?}");
    (code, objects.remove(0))
}

/// Who is blocked after the crash of a user in a stage: user, distance, and whether no path is left.
fn blocked(report: &Value, user: u64, stage: &str) -> Vec<(u64, u64, bool)> {
    let crashes = report["crashes"].as_array().expect("a list");
    let crash = crashes.iter().find(|crash| crash["user"] == user).expect("it crashes");
    let stages = crash["stages"].as_array().expect("a list");
    let stage = stages.iter().find(|row| row["stage"] == stage).expect("such a stage");
    let number = |value: &Value| value.as_u64().expect("a number");
    let row = |b: &Value| {
        assert_eq!(b["fair_run"], true, "no path implies no fair run that satisfies");
        (number(&b["user"]), number(&b["distance"]), b["no_path"] == true)
    };
    stage["blocked"].as_array().expect("a list").iter().map(row).collect()
}

#[test]
fn who_is_blocked_depends_on_who_crashes_and_when() {
    let (_, report) = locality(&[&["ordered"], PATH_OF_3].concat());
    assert_eq!(report["scope"], "--pools 1,1 --users '0/0+1/1' --detector none");
    // Whoever waits for pool 0 holds nothing; whoever waits for pool 1 holds pool 0.
    assert_eq!(blocked(&report, 0, "using"), [(1, 1, true)]);
    assert_eq!(blocked(&report, 2, "using"), [(0, 2, true), (1, 1, true)]);
    let story = report["story"]["steps"].as_array().expect("steps");
    assert_eq!(story.len(), 6, "a shortest one");
    assert!(story[5]["what"].as_str().expect("text").contains("stops without a word"));

    let (_, told) = locality(&[&["ordered"], PATH_OF_3, &["--detector", "suspect"]].concat());
    assert_eq!(blocked(&told, 2, "using"), [], "its units are free again");
    assert_eq!(
        blocked(&told, 2, "waiting"),
        [(0, 2, true), (1, 1, true)],
        "its request may arrive after the suspicion"
    );
}

#[test]
fn only_the_user_named_crashes() {
    let (code, report) = locality(&[&["ordered"], PATH_OF_3, &["--crash", "0"]].concat());
    assert_eq!((code, &report["locality"]), (0, &json!(1)));
    assert_eq!(report["crashes"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["crashes"][0]["user"], 0);
}

#[test]
fn a_user_may_crash_in_the_middle_of_a_step_or_idle() {
    let stages = |report: &Value, crash: usize| -> Vec<String> {
        let rows = report["crashes"][crash]["stages"].as_array().expect("a list").iter();
        rows.map(|row| row["stage"].as_str().expect("a name").into()).collect()
    };
    let (_, report) = locality(&[&["skeen"], PATH_OF_3].concat());
    assert_eq!(stages(&report, 0), ["waiting: joining", "waiting: queued", "using"]);
    // User 1 asks two managers, and may stop between the two messages.
    assert_eq!(stages(&report, 1)[0], "idle or asking");
    assert_eq!(blocked(&report, 1, "idle or asking"), [(0, 1, true)]);

    let (_, report) = locality(&[&["ordered"], PATH_OF_3, &["--idle"]].concat());
    assert_eq!(stages(&report, 0), ["idle or asking", "waiting", "using"]);
    assert_eq!(blocked(&report, 0, "idle or asking"), []);
}

#[test]
fn users_may_ask_for_ever_and_starve_anyway() {
    let scope = ["--pools", "1,1", "--users", "0*/0+1*/1*"];
    let (code, report) = locality(&[&["coordinator:skip"], &scope[..]].concat());
    assert_eq!((code, &report["locality"]), (0, &json!(1)));
    assert_eq!(report["crashes"][0]["starving_anyway"], json!([1]));
    let (_, report) = locality(&[&["ordered"], &scope[..]].concat());
    assert_eq!(report["locality"], 2);
    assert!(report["crashes"][0]["starving_anyway"].is_null());
}

#[test]
fn a_fair_run_may_leave_out_whom_a_path_would_reach() {
    // The dead hold pool 0; user 1 waits for it and has the only reservation for ever; so nothing
    // keeps users 3 and 4 from taking turns with what user 2 needs at once.
    let scope = ["--pools", "1,1,1", "--users", "0/0/1+2/1*/2*", "--crash", "0"];
    let (_, report) = locality(&[&["coordinator:reserve=1"], &scope[..]].concat());
    assert_eq!(report["locality"], "unconnected");
    assert_eq!(report["locality_no_path"], 1);
    let using = &report["crashes"][0]["stages"][1];
    let far = json!({"user": 2, "distance": "unconnected", "no_path": false, "fair_run": true});
    assert_eq!((&using["stage"], &using["blocked"][1]), (&json!("using"), &far));
    assert!(!report["story"]["cycle"].as_array().expect("a cycle").is_empty());
}

#[test]
fn a_queue_does_not_hold_up_strangers() {
    let scope = ["--pools", "1,1", "--users", "0/0/1"];
    for protocol in ["coordinator:fifo", "coordinator:skip", "ordered", "skeen"] {
        let (_, report) = locality(&[&[protocol], &scope[..]].concat());
        assert_eq!(report["locality"], 1, "{protocol}");
    }
}

#[test]
fn a_search_cut_off_gives_a_lower_bound() {
    let few = ["--max-states", "300"];
    let (code, report) = locality(&[&["skeen"], PATH_OF_3, &few[..]].concat());
    assert_eq!((code, &report["complete"]), (3, &json!(false)));
    let least = report["locality"].as_u64().expect("a number");
    assert!(least <= 2 && (report["exact"] == true) == (least == 2), "{least}");
    for states in ["600", "1200", "2400"] {
        let (_, report) = locality(&[&["skeen"], PATH_OF_3, &["--max-states", states]].concat());
        let more = report["locality"].as_u64().expect("a number");
        assert!((least..=2).contains(&more), "{more} with {states} states each");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let with = |n| locality(&[&["skeen"], PATH_OF_3, &["--threads", n]].concat());
    assert_eq!(with("1"), with("3"));
}

#[test]
fn a_table_has_a_line_for_each_detector() {
    let (code, lines) = json("locality", &["coordinator:skip", "--table"]);
    assert_eq!(code, 0);
    assert_eq!(lines.len(), 16, "four graphs, four detectors");
    assert!(lines.iter().all(|line| line["exact"] == true));
}

/// The same crash under `holdall check`: what is promised, and what is seen to fail.
#[test]
fn the_checker_tells_managers_what_the_detector_does() {
    let crash = ["--pools", "1,1", "--users", "0+1/1+0", "--crash", "0", "--timers", "quiet"];
    let house = |more: &[&str]| check(&[&["house"], &crash[..], more].concat());
    let names = |lost: Vec<(String, Option<u64>)>| -> Vec<String> {
        lost.into_iter().map(|(name, _)| name).collect()
    };
    let (code, reports) = house(&["--detector", "reclaim"]);
    assert_eq!((code, violated(&reports[0], true)), (0, vec![]));
    assert_eq!(violated(&reports[0], false), []);
    for detector in ["none", "suspect"] {
        let (code, reports) = house(&["--detector", detector]);
        assert_eq!(code, 0, "progress is not promised beside the dead: {detector}");
        assert_eq!(names(violated(&reports[0], false))[0], "no-deadlock", "{detector}");
        let properties = reports[0]["properties"].as_array().expect("a list");
        assert_eq!(properties[0]["name"], "exclusion");
        assert_eq!(properties[0]["promised"], true, "safety is");
    }
    let (_, default) = house(&[]);
    let (_, departed) = house(&["--detector", "departed"]);
    assert_eq!(default[0]["states"], departed[0]["states"]);
    let (_, amid) = house(&["--amid"]);
    assert!(amid[0]["states"].as_u64() > default[0]["states"].as_u64());
    assert_eq!(violated(&amid[0], true), []);
}

/// Outside what a protocol assumes of a detector it promises nothing.
#[test]
fn a_false_suspicion_is_not_for_everybody() {
    let suspected = ["--pools", "1,1", "--users", "0+1/1+0", "--suspect", "0"];
    for protocol in ["ordered", "skeen", "coordinator:fifo"] {
        let (code, reports) = check(&[&[protocol], &suspected[..]].concat());
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{protocol}");
        let lost = violated(&reports[0], false);
        assert!(lost.iter().any(|(name, _)| name == "exclusion"), "{protocol}: {lost:?}");
    }
}

/// What is printed of the scope can be typed again.
#[test]
fn a_manager_that_stops_is_told_as_it_is_typed() {
    let (_, report) = locality(&[&["ordered"], PATH_OF_3, &["--crash-manager", "0"]].concat());
    let scope = report["scope"].as_str().expect("a scope");
    let words: Vec<&str> = scope.split(' ').map(|word| word.trim_matches('\'')).collect();
    let (_, again) = locality(&[&["ordered"], &words[..]].concat());
    assert_eq!(report, again);
}

#[test]
fn bad_input_is_one_line_and_status_64() {
    let bad: &[&[&str]] = &[
        &[],
        &["ordered"],
        &["ordered", "--pools", "1"],
        &["orderd", "--pools", "1", "--users", "0/0"],
        &["ordered", "--pools", "1", "--users", "0/x"],
        &["ordered", "--pools", "1", "--users", "0/0", "--crash", "2"],
        &["ordered", "--pools", "1", "--users", "0!/0"],
        &["ordered", "--pools", "1", "--users", "0/0", "--detector", "luck"],
        &["ordered", "--pools", "1", "--users", "0/0", "--as-printed"],
        &["ordered", "--table", "--pools", "1"],
        &["ordered", "--table", "--crash", "0"],
    ];
    for args in bad {
        let out = Command::new(env!("CARGO_BIN_EXE_holdall")).arg("locality").args(*args).output();
        let out = out.expect("the command runs");
        let message = String::from_utf8(out.stderr).expect("UTF-8");
        assert_eq!(out.status.code(), Some(64), "{args:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        assert!(out.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn among_neighbours_nobody_can_be_told() {
    for protocol in ["chandy-misra", "awerbuch-saks"] {
        let (_, report) = locality(&[&[protocol], PATH_OF_3].concat());
        assert_eq!(report["locality"], 2);
        let told = [&["locality", protocol], PATH_OF_3, &["--detector", "suspect"]].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_holdall")).args(told).output().expect("runs");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{why}");
        assert!(why.contains("no managers that could be told"), "{why}");
    }
}
