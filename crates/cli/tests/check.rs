//! `holdall check` as a person runs it: the sound protocols keep what they promise, at pinned
//! counts, and every rule taken away is missed.

mod common;

use std::process::Command;

use common::{check, violated};
use serde_json::Value;

/// States of the quick suite, in its order. Any change of a rule, of what may happen or of what
/// counts as a state shows here.
const PINNED: &[(&str, &[u64])] = &[
    (
        "coordinator:fifo",
        &[
            249, 35, 172, 249, 228, 228, 1849, 1815, 382, 28, 28, 66, 182, 182, 228, 160, 90, 182,
            160,
        ],
    ),
    (
        "coordinator:skip",
        &[
            180, 33, 144, 180, 186, 186, 1618, 1623, 293, 22, 22, 56, 101, 101, 186, 129, 83, 101,
            129,
        ],
    ),
    (
        "coordinator:reserve=2",
        &[
            180, 33, 144, 180, 192, 192, 1618, 1663, 293, 22, 22, 56, 107, 107, 192, 134, 83, 107,
            134,
        ],
    ),
    (
        "house",
        &[
            180, 15835, 29371, 1262650, 228, 237568, 2520754, 873, 475835, 46, 291379, 339502, 358,
            9679, 885, 582, 76, 358, 168,
        ],
    ),
    (
        "ordered",
        &[
            180, 69, 328, 617, 228, 468, 5798, 1888, 838, 22, 50, 124, 134, 161, 282, 194, 83, 161,
            199,
        ],
    ),
    (
        "skeen",
        &[
            879, 880, 2824, 28560, 945, 12562, 899333, 17919, 25924, 64, 806, 1008, 968, 2085,
            1644, 176, 1644,
        ],
    ),
];

#[test]
fn sound_protocols_keep_their_promises_at_pinned_counts() {
    for (protocol, pinned) in PINNED {
        let (code, reports) = check(&[protocol, "--suite", "quick"]);
        let states: Vec<u64> =
            reports.iter().map(|r| r["states"].as_u64().expect("a count")).collect();
        for report in &reports {
            assert_eq!(violated(report, true), [], "{protocol} {}", report["scope"]);
            assert_eq!(report["complete"], true, "{protocol} {}", report["scope"]);
        }
        assert_eq!(code, 0, "{protocol}");
        assert_eq!(&states, pinned, "{protocol}");
    }
}

/// A rule taken away, a scope in which that matters, and what is lost first.
const MUTANTS: &[(&str, &str, &[&str], &str)] = &[
    ("ordered", "sorted", &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    ("ordered", "fifo", &["--pools", "1", "--users", "0*/0*/0*"], "no-starvation"),
    ("ordered", "whole", &["--pools", "2", "--users", "0:2/0"], "local"),
    ("ordered", "early", &["--pools", "1", "--users", "0/0", "--departures"], "no-residue"),
    ("ordered", "purge", &["--pools", "1,1", "--users", "0+1/1+0", "--crash", "0"], "no-deadlock"),
    ("coordinator:skip", "room", &["--pools", "1", "--users", "0/0"], "exclusion"),
    ("coordinator:fifo", "scan", &["--pools", "1", "--users", "0/0"], "no-deadlock"),
    (
        "coordinator:fifo",
        "early",
        &["--pools", "1", "--users", "0/0", "--departures"],
        "no-residue",
    ),
    (
        "coordinator:reserve=1",
        "purge",
        &["--pools", "1", "--users", "0/0", "--crash", "0"],
        "no-deadlock",
    ),
    ("skeen", "latest", &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    ("skeen", "tentative", &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    ("skeen", "ties", &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    ("skeen", "hear", &["--pools", "1,1", "--users", "0+1/1+0/0"], "no-deadlock"),
    ("skeen", "early", &["--pools", "1", "--users", "0/0", "--departures"], "no-residue"),
    ("skeen", "purge", &["--pools", "1", "--users", "0/0", "--crash", "0"], "no-deadlock"),
];

#[test]
fn every_rule_taken_away_is_missed() {
    for (protocol, rule, scope, lost) in MUTANTS {
        let sound: Vec<&str> = [&[*protocol], *scope].concat();
        assert_eq!(check(&sound).0, 0, "{protocol} with {rule}");
        let (code, reports) = check(&[&sound[..], &["--without", rule]].concat());
        assert_eq!(code, 1, "{protocol} without {rule}");
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "{protocol} without {rule}: {found:?}");
    }
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
