//! The game of tasks for resources as a person checks it: the scopes of its page, at pinned counts,
//! what each of its rules is for, and what is wrong in the paper's own text.

mod common;

use std::process::Command;

use common::{check, violated};
use serde_json::Value;

const GAME: &str = "winkowski";
/// Tickets that grow, instead of lanes.
const NUMBERS: &str = "winkowski:numbers=1";

/// A scope, what else may happen, and its states.
const PINNED: &[(&str, &[&str], u64)] = &[
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0"], 24660),
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0", "--timers", "quiet"], 21902),
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0", "--duplicates"], 24660),
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0", "--departures"], 598152),
    (GAME, &["--pools", "1,1", "--users", "0/0+1/1"], 56238),
    (GAME, &["--pools", "2,2", "--users", "0:2+1/0+1:2"], 24660),
    (NUMBERS, &["--pools", "1,1", "--users", "0+1/1+0"], 27653),
    (NUMBERS, &["--pools", "1,1", "--users", "0+1,0/1+0,1"], 77096),
    (GAME, &["--pools", "1,1", "--users", "0+1*/1+0*"], 45576),
    (GAME, &["--pools", "1,1", "--users", "0+1^/1+0^"], 48528),
    (GAME, &["--pools", "1,1", "--users", "0+1^/1+0"], 34713),
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0^"], 19104),
    (GAME, &["--pools", "1", "--users", "0^/0^/0"], 47929),
    (GAME, &["--pools", "2", "--users", "0:2/0^/0^"], 17759),
    (GAME, &["--pools", "2", "--users", "0^/0^/0:2"], 28810),
    (GAME, &["--pools", "3", "--users", "0:2^/0^/0:2"], 28916),
    (GAME, &["--pools", "3", "--users", "0^/0:2^/0:3"], 28810),
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0", "--crash", "0"], 44669),
    (
        GAME,
        &["--pools", "1,1", "--users", "0+1/1+0", "--crash", "0", "--detector", "reclaim"],
        357644,
    ),
    (GAME, &["--pools", "1,1", "--users", "0+1/1+0", "--crash", "0", "--amid"], 47669),
    (
        GAME,
        &[
            "--pools",
            "1,1",
            "--users",
            "0+1/1+0",
            "--crash",
            "0",
            "--amid",
            "--detector",
            "reclaim",
        ],
        382510,
    ),
    (GAME, &["--pools", "1,1", "--users", "0+1/0", "--suspect", "0"], 137186),
    (GAME, &["--pools", "1,1", "--users", "0+1/0", "--suspect", "0", "--timers", "quiet"], 135470),
    (GAME, &["--pools", "1,1", "--users", "0+1/0", "--suspect", "1"], 54723),
    (GAME, &["--pools", "1,1", "--users", "0+1/0", "--suspect", "0", "--crash", "1"], 354976),
    (GAME, &["--pools", "1,1", "--users", "0+1/0", "--suspect", "1", "--crash", "0"], 94614),
    ("winkowski:filter=0", &["--pools", "1,1", "--users", "0+1/1+0"], 238537),
    ("winkowski:merge=0", &["--pools", "1,1", "--users", "0+1/1+0"], 24158),
    ("winkowski:fast=0", &["--pools", "1,1", "--users", "0+1/1+0"], 37708),
    ("winkowski:turns=0", &["--pools", "1,1", "--users", "0+1/1+0", "--timers", "quiet"], 25955),
    ("winkowski:plain", &["--pools", "1,1", "--users", "0+1/1+0", "--timers", "quiet"], 87037),
    ("winkowski-restricted", &["--pools", "1,1", "--users", "0+1/1+0"], 13897),
    ("winkowski-restricted", &["--pools", "1,1", "--users", "0+1^/1+0^"], 19471),
    ("winkowski-restricted", &["--pools", "1,1", "--users", "0/0+1/1"], 33124),
    ("printed-winkowski", &["--pools", "1", "--users", "0/0", "--timers", "quiet"], 4005),
];

#[test]
fn small_scopes_are_sound_at_pinned_counts() {
    for (protocol, scope, states) in PINNED {
        let (code, reports) = check(&[&[*protocol], *scope].concat());
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{protocol} {scope:?}");
        assert_eq!(reports[0]["states"].as_u64(), Some(*states), "{protocol} {scope:?}");
    }
}

/// States of the quick suite, in its order.
const SUITES: &[(&str, &[u64])] = &[
    (GAME, &[19175, 24660, 55025, 12132, 163704, 696, 45576, 48528, 56238, 31973, 738, 31973]),
    (
        "winkowski-restricted",
        &[9996, 13897, 32229, 8074, 98353, 377, 17981, 19471, 33124, 19162, 597, 19162],
    ),
];

#[test]
fn the_quick_suite_is_sound_at_pinned_counts() {
    for (protocol, pinned) in SUITES {
        let (code, reports) = check(&[protocol, "--suite", "quick"]);
        let states: Vec<u64> =
            reports.iter().map(|r| r["states"].as_u64().expect("a count")).collect();
        assert_eq!((code, &states[..]), (0, *pinned), "{protocol}");
    }
}

/// Rules taken away, a scope in which that matters, and what is lost. Regressing and advancing each
/// resolve what the other would; the restricted game does not advance. Where a rule bounds how often
/// a task can be turned away, there is no end of states without it, and the search is cut off.
const MUTANTS: &[(&str, &[&str], &[&str], &str)] = &[
    (GAME, &["orders"], &["--pools", "1,1", "--users", "0+1/1+0"], "local"),
    (GAME, &["all"], &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    (
        GAME,
        &["predecessors"],
        &["--pools", "1", "--users", "0^/0", "--max-states", "2000"],
        "no-starvation",
    ),
    (
        "winkowski:fast=0",
        &["regress", "advance"],
        &["--pools", "1,1", "--users", "0+1/1+0"],
        "no-deadlock",
    ),
    (
        "winkowski-restricted",
        &["regress"],
        &["--pools", "1,1", "--users", "0+1/1+0"],
        "no-deadlock",
    ),
    (GAME, &["priority"], &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    (
        "winkowski:turns=0",
        &["once"],
        &["--pools", "1,1", "--users", "0+1*/1+0", "--timers", "quiet", "--max-states", "20000"],
        "no-starvation",
    ),
    (GAME, &["latest"], &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    (
        GAME,
        &["answer"],
        &["--pools", "1,1", "--users", "0+1/1+0", "--max-states", "50000"],
        "no-deadlock",
    ),
    (GAME, &["ended"], &["--pools", "1", "--users", "0/0", "--departures"], "no-residue"),
    (GAME, &["purge"], &["--pools", "1", "--users", "0/0", "--crash", "0"], "no-deadlock"),
    (GAME, &["lease"], &["--pools", "1", "--users", "0/0", "--suspect", "0"], "exclusion"),
];

#[test]
fn every_rule_taken_away_is_missed() {
    for (protocol, rules, scope, lost) in MUTANTS {
        let without: Vec<&str> = rules.iter().flat_map(|rule| ["--without", rule]).collect();
        let (code, reports) = check(&[&[*protocol], *scope, &without[..]].concat());
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "without {rules:?}: {found:?}");
        assert_eq!(code, 1, "without {rules:?}");
    }
}

#[test]
fn without_turns_an_impatient_alarm_goes_on_for_ever() {
    let scope = ["winkowski:turns=0", "--pools", "1,1", "--users", "0+1*/1+0"];
    let (code, reports) = check(&[&scope[..], &["--timers", "quiet"]].concat());
    assert_eq!((code, violated(&reports[0], true)), (0, vec![]));
    let (code, reports) = check(&scope);
    assert_eq!((code, violated(&reports[0], false)), (0, vec![("no-starvation".into(), Some(0))]));
}

/// Runs `holdall locality` on a path of three users whose first may crash.
fn locality(protocol: &str, more: &[&str]) -> Value {
    let out = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .args(["locality", protocol, "--pools", "1,1", "--users", "0/0+1/1", "--crash", "0"])
        .args(more)
        .arg("--json")
        .output()
        .expect("the command runs");
    serde_json::from_slice(&out.stdout).expect("a report")
}

#[test]
fn with_a_detector_a_crash_is_felt_only_by_those_in_conflict() {
    for (detector, distance, states) in
        [("none", 2, 92603), ("suspect", 1, 296684), ("reclaim", 0, 657022)]
    {
        let report = locality(GAME, &["--detector", detector]);
        let found = (&report["locality"], report["complete"].as_bool(), report["states"].as_u64());
        assert_eq!(found, (&Value::from(distance), Some(true), Some(states)), "{detector}");
    }
    let report = locality(GAME, &["--detector", "suspect", "--without", "strand"]);
    assert_eq!(report["locality"], 2, "nobody makes way for the suspected");
}

/// Defects of the printed text, all else repaired; a scope in which they matter; what is lost.
const PRINTED: &[(&str, &[&str], &str)] = &[
    ("d1", &["--pools", "1", "--users", "0"], "no-deadlock"),
    ("d2", &["--pools", "1", "--users", "0*/0", "--max-states", "4000"], "no-starvation"),
    ("d3", &["--pools", "1", "--users", "0"], "no-deadlock"),
    ("d5,d6", &["--pools", "1", "--users", "0/0"], "no-deadlock"),
    ("d7,d8", &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    ("d9", &["--pools", "1", "--users", "0/0"], "no-deadlock"),
    ("d10", &["--pools", "1,1", "--users", "0+1/1"], "no-deadlock"),
    ("d11,d12", &["--pools", "1", "--users", "0"], "no-residue"),
    ("d5,d15", &["--pools", "1", "--users", "0/0"], "no-deadlock"),
    ("d16", &["--pools", "1", "--users", "0/0"], "no-deadlock"),
    ("d18", &["--pools", "1", "--users", "0"], "no-deadlock"),
];

#[test]
fn the_printed_game_has_the_defects_that_are_told_of_it() {
    for (defects, scope, lost) in PRINTED {
        let as_printed = [GAME, "--as-printed", defects, "--timers", "quiet"];
        let (code, reports) = check(&[&as_printed[..], *scope].concat());
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "{defects}: {found:?}");
        assert_eq!(code, 1, "{defects}");
    }
    let (code, reports) = check(&[GAME, "--pools", "1", "--users", "0", "--as-printed"]);
    assert_eq!((code, violated(&reports[0], true)), (1, vec![("no-deadlock".into(), None)]));
}
