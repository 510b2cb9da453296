//! Protocols among known neighbours as a person checks them: the scopes of their pages, at pinned
//! counts, and what each of their rules is for.

mod common;

use std::process::Command;

use common::{check, violated};
use serde_json::Value;

/// States of the quick suite, in its order.
const QUICK: &[(&str, &[u64])] = &[
    ("awerbuch-saks", &[74689, 73, 535, 74689, 168, 168, 61093, 4255, 2502, 135, 61093, 2502]),
    ("chandy-misra", &[485, 21, 69, 485, 14, 14, 130, 163, 118, 37, 130, 118]),
    (
        "chandy-misra-drinking",
        &[106503, 477, 1221, 106503, 112, 444, 5928, 6177, 4316, 205, 5928, 4316],
    ),
    ("choy-singh", &[711206, 209, 1829, 711206, 327, 327, 45547, 16117, 10393, 609, 45547, 10393]),
];

#[test]
fn the_quick_suite_is_sound_at_pinned_counts() {
    for (protocol, pinned) in QUICK {
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

/// A scope beyond the quick suite, and its states.
const PINNED: &[(&str, &str, &str, u64)] = &[
    ("ordered:coloured", "1,1,1,1", "0+1*/1+2*/2+3*", 466),
    ("awerbuch-saks", "1,1", "0,1*/1,0*", 820),
    ("awerbuch-saks", "1", "0,0/0/0", 617290),
    ("choy-singh:one-door", "1,1", "0+1*/0*/1*", 44847),
    ("chandy-misra", "1", "0,0/0,0/0,0", 4571),
    ("chandy-misra", "1", "0*/0*/0*", 828),
    ("chandy-misra", "1,1,1", "0+1*/1+2*/2+0*", 828),
    ("chandy-misra", "1,1,1,1", "0+1*/1+2*/2+3*/3+0*", 9646),
    ("chandy-misra", "1,1,1,1,1", "0+1*/1+2*/2+3*/3+4*/4+0*", 103744),
    ("chandy-misra-drinking", "1,1", "0,1*/1,0*", 844),
    ("chandy-misra-drinking", "1,1,1", "0+1*/1+2*/2+0*", 259230),
];

#[test]
fn larger_scopes_are_sound_at_pinned_counts() {
    for (protocol, pools, users, states) in PINNED {
        let (code, reports) = check(&[protocol, "--pools", pools, "--users", users]);
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{protocol} {users}");
        assert_eq!(reports[0]["states"].as_u64(), Some(*states), "{protocol} {users}");
    }
}

/// Where messages that overtake each other make too many states, links that keep order.
const IN_ORDER: &[(&str, &str, u64)] =
    &[("choy-singh", "0*/0*/0*", 117170), ("choy-singh", "0,0/0,0/0,0", 394987)];

#[test]
fn three_rivals_on_links_that_keep_order_are_sound_at_pinned_counts() {
    for (protocol, users, states) in IN_ORDER {
        let (code, reports) =
            check(&[protocol, "--pools", "1", "--users", users, "--order", "fifo"]);
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{protocol} {users}");
        assert_eq!(reports[0]["states"].as_u64(), Some(*states), "{protocol} {users}");
    }
}

/// A rule taken away, a scope in which that matters, and what is lost.
const MUTANTS: &[(&str, &str, &str, &str, &str)] = &[
    ("awerbuch-saks", "bits", "1", "0/0", "exclusion"),
    ("awerbuch-saks", "far", "1", "0,0/0/0", "exclusion"),
    ("awerbuch-saks", "gap", "1", "0*/0*", "exclusion"),
    ("awerbuch-saks", "hold", "1", "0/0", "exclusion"),
    ("awerbuch-saks", "near", "1", "0/0", "exclusion"),
    ("awerbuch-saks", "newcomers", "1", "0/0", "exclusion"),
    ("chandy-misra", "acyclic", "1,1,1", "0+1/1+2/2+0", "no-deadlock"),
    ("chandy-misra", "clean", "1,1,1", "0+1/1+2/2+0", "no-starvation"),
    ("chandy-misra", "dirty", "1,1,1", "0+1/1+2/2+0", "no-deadlock"),
    ("chandy-misra", "use", "1", "0/0", "exclusion"),
    ("chandy-misra-drinking", "drink", "1", "0/0", "exclusion"),
    ("chandy-misra-drinking", "fork", "1,1", "0+1/1+0", "no-starvation"),
    ("chandy-misra-drinking", "hunger", "1,1", "0+1*/1+0*", "no-starvation"),
    ("chandy-misra-drinking", "rise", "1,1", "0+1/1+0", "no-residue"),
    ("choy-singh", "late", "1", "0,0/0,0", "no-deadlock"),
    ("choy-singh", "outer", "1,1", "0+1*/0*/1*", "no-starvation"),
    ("choy-singh", "use", "1", "0/0", "exclusion"),
    ("choy-singh", "yield", "1", "0/0/0", "no-deadlock"),
    ("ordered:coloured", "sorted", "1,1", "0+1/1+0", "no-deadlock"),
];

#[test]
fn every_rule_taken_away_is_missed() {
    for (protocol, rule, pools, users, lost) in MUTANTS {
        let sound = [protocol, "--pools", pools, "--users", users];
        assert_eq!(check(&sound).0, 0, "{protocol} with {rule}");
        let (code, reports) = check(&[&sound[..], &["--without", rule]].concat());
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "{protocol} without {rule}: {found:?}");
        assert_eq!(code, 1, "{protocol} without {rule}");
    }
}

/// Whoever asks for pool 0 now need not wait for one that uses pool 1 for ever, although it may
/// ask for pool 1 later.
#[test]
fn drinkers_wait_only_for_those_whose_request_conflicts() {
    let now = ["--pools", "1,1", "--users", "1!/0,1"];
    let (_, reports) = check(&[&["chandy-misra"], &now[..]].concat());
    assert_eq!(violated(&reports[0], false), [("concurrency".into(), Some(1))]);
    let (_, reports) = check(&[&["chandy-misra-drinking"], &now[..]].concat());
    assert_eq!(violated(&reports[0], false), []);
}

/// Scopes too large to explore are played through at random: few users and pools, hardly any
/// thinking, and messages that overtake each other by far.
#[test]
fn random_schedules_of_six_users_are_sound() {
    let protocols = "awerbuch-saks,chandy-misra,chandy-misra-drinking,choy-singh,ordered:coloured";
    let workload = ["--users", "6", "--resources", "5", "--of", "3", "--think", "1"];
    let disorder = ["--service", "10", "--spikes", "0.2:10", "--graphs", "200", "--ticks", "30000"];
    let out = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .args(["sim", protocols, "--json"])
        .args(workload)
        .args(disorder)
        .output()
        .expect("the command runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let reports = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(reports.lines().count(), 5);
    for report in reports.lines() {
        let report: Value = serde_json::from_str(report).expect("JSON");
        let [granted, longest] = ["grants", "unfinished_longest"].map(|name| report[name].as_u64());
        assert_eq!(report["violations"], 0, "{report}");
        assert!(granted > Some(5_000) && longest < Some(15_000), "nobody is stuck: {report}");
    }
}

#[test]
fn users_that_depart_are_refused() {
    let (code, _) = check(&["chandy-misra", "--pools", "1", "--users", "0^/0"]);
    assert_eq!(code, 64);
}
