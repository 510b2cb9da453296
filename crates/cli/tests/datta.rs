//! `datta`, `datta-k` and `datta-token` as a person checks them: the scopes of their pages at
//! pinned counts, what each rule is for, and what is wrong with the algorithm as printed.

mod common;

use common::{check, violated};
use serde_json::Value;

/// A protocol, the units of its pools and its users (or `--all` or `--suite` and which), what else
/// may happen, and its states.
type Line = (&'static str, &'static str, &'static str, Faults, u64);

const PINNED: &[Line] = &[
    ("datta", "--suite", "quick", &[], 36093),
    ("datta:brief", "--suite", "quick", &[], 47316),
    ("datta-k", "--suite", "quick", &[], 36093),
    ("datta-token", "--suite", "quick", &[], 97878),
    ("datta", "--all", "3x3", &[], 135719),
    ("datta:brief", "--all", "3x3", &[], 83822),
    ("datta", "1,1,1", "0+1/1+2/2+0", &[], 1242),
    ("datta", "1,1,1", "0+1/1+2/2+0", &["--keep-stale"], 26817),
    ("datta", "1,1,1,1", "0+1/1+2/2+3/3+0", &[], 11909),
    ("datta", "1,1", "0+1,1+0/1+0,0+1", &[], 2454),
    ("datta:brief", "1,1", "0+1,1+0/1+0,0+1", &[], 2197),
    ("datta", "1,1,1", "0+1,1+2/1+2,2+0/2+0,0+1", &[], 32468),
    ("datta", "1,1,1", "0+1/1+2/2+0/0", &[], 8225),
    ("datta", "1,1,1", "0+1/1+2/2+0/0+1", &[], 44866),
    ("datta", "1,1,1", "0+1/1+0/1+2/2", &[], 11112),
    ("datta", "1,1", "0+1*/1+0*", &[], 8905),
    ("datta:brief", "1,1", "0+1*/1+0*", &[], 13700),
    ("datta", "1,1", "0+1*/1+0*/0*", &[], 49793),
    ("datta", "1,1,1", "0+1*/1+0*", &[], 49534),
    ("datta", "1,1", "0+1^/1+0^", &[], 11575),
    ("datta", "--all", "3x2", &["--departures"], 134384),
    ("datta", "--all", "3x2", &["--crash", "0"], 49070),
    ("datta", "--all", "3x2", &["--crash", "1"], 50972),
    ("datta", "--all", "3x2", &["--crash", "2"], 53244),
    ("datta:brief", "1,1", "0+1,1/1+0,0", &["--departures"], 3266),
    ("datta", "1,1,1", "0+1/1+2/2+0", &["--departures"], 13936),
    ("datta-k", "1,1,1", "0+1+2/2+1+0", &[], 728),
    ("datta-k", "1,1,1", "0+1+2/1+2+0/2+0+1", &[], 14836),
    ("datta-k", "1,1,1", "0+1+2/2+1+0/1+0+2", &[], 46605),
    ("datta-k", "1,1,1", "0+1+2,2+1+0/2+1+0,1+0+2", &[], 11120),
    ("datta-k", "1,1,1", "0+1+2/2+1+0", &["--departures"], 5181),
    ("datta-k", "1,1,1", "0+1+2/2+1+0", &["--crash", "0"], 6172),
    ("datta-k", "1,1,1", "0+1+2*/2+1+0*", &[], 148681),
    ("datta-token", "--all", "3x2", &[], 54269),
    ("datta-token", "1,1,1", "0+1/1+2/2+0", &[], 39244),
    ("datta-token", "1,1,1", "0+1+2/1+2+0/2+0+1", &[], 111481),
    ("datta-token", "1,1", "0+1,1+0/1+0,0+1", &[], 4746),
    ("datta-token", "1,1", "0+1*/1+0*", &[], 2064),
    ("datta-token", "1,1", "0+1*/1+0*/0*", &[], 11618),
    ("datta-token", "1,1,1", "0+1*/1+0*", &[], 11347),
    ("datta-token", "1,1", "0+1^/1+0^", &[], 3028),
    ("datta-token", "1,1", "0+1/1+0/0", &["--departures"], 34256),
    ("datta-token", "1,1", "0+1/1+0/0", &["--crash", "0"], 13848),
    ("datta-token", "1,1,1", "0+1+2/2+1+0", &["--departures"], 32868),
];

/// The command line for a scope.
fn scope<'a>(pools: &'a str, users: &'a str) -> Vec<&'a str> {
    match pools {
        "--all" | "--suite" => vec![pools, users],
        _ => vec!["--pools", pools, "--users", users],
    }
}

#[test]
fn scopes_are_sound_at_pinned_counts() {
    let mut wrong = Vec::new();
    for (protocol, pools, users, more, states) in PINNED {
        let (code, reports) = check(&[&[*protocol], &scope(pools, users)[..], *more].concat());
        for report in &reports {
            assert_eq!(violated(report, true), [], "{protocol} {}", report["scope"]);
        }
        let found: u64 = reports.iter().filter_map(|r| r["states"].as_u64()).sum();
        if (code, found) != (0, *states) {
            wrong.push(format!("{protocol} {pools} {users} {more:?}: {found}, status {code}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A lone request is one path, whose length counts its messages: beside them, only its asking and
/// the end of its use.
#[test]
fn lone_requests_take_so_many_messages() {
    let messages = |protocol, users| {
        let (_, reports) = check(&[&[protocol], &scope("1,1,1", users)[..]].concat());
        let number = |what: &str| reports[0][what].as_u64().expect("a count");
        assert_eq!(number("states"), number("depth") + 1, "{protocol} {users} is one path");
        number("depth") - 2
    };
    for (k, users) in [(1, "0"), (2, "0+1"), (3, "0+1+2")] {
        assert_eq!(messages("datta-k", users), 3 * k + 1);
        assert_eq!(messages("datta-k:brief", users), 3 * k);
    }
    assert_eq!((messages("datta", "0"), messages("datta", "0+1")), (4, 7));
}

/// A protocol, a rule taken away, a scope in which that matters, what may happen, and what is lost.
type Mutant = (&'static str, &'static str, &'static str, &'static str, Faults, &'static str);
type Faults = &'static [&'static str];

const MUTANTS: &[Mutant] = &[
    ("datta", "aside", "1,1", "0+1/1+0", &[], "local"),
    ("datta", "early", "1,1", "0+1/1+0", &["--departures"], "no-residue"),
    ("datta", "head", "1,1,1", "0+1/1+2/2+0", &[], "exclusion"),
    ("datta-k", "home", "1,1,1", "0+1+2/2+1+0", &[], "no-starvation"),
    ("datta", "order", "1,1", "0+1/1+0", &[], "no-starvation"),
    ("datta", "probe", "1,1", "0+1/1+0", &[], "no-deadlock"),
    ("datta", "purge", "1,1", "0+1/1+0", &["--crash", "0"], "no-deadlock"),
    ("datta", "relay", "1,1", "0+1/1+0", &["--crash", "0"], "no-residue"),
    ("datta", "rollback", "1,1", "0+1/1+0", &[], "no-deadlock"),
    ("datta", "token", "1,1", "0+1*/1+0*", &[], "no-starvation"),
    ("datta-token", "acks", "1,1", "0+1/0+1", &[], "local"),
    ("datta-token", "early", "1,1", "0+1/1+0", &["--departures"], "no-residue"),
    ("datta-token", "purge", "1,1", "0+1/1+0", &["--crash", "0"], "no-deadlock"),
    ("datta-token", "ready", "1,1", "0+1/1+0", &[], "local"),
    ("datta-token", "token", "1,1", "0+1/1+0", &[], "local"),
];

#[test]
fn every_rule_taken_away_is_missed() {
    for (protocol, rule, pools, users, more, lost) in MUTANTS {
        let sound = [&[*protocol], &scope(pools, users)[..], *more].concat();
        assert_eq!(check(&sound).0, 0, "{protocol} with {rule}");
        let (code, reports) = check(&[&sound[..], &["--without", rule]].concat());
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "{protocol} without {rule}: {found:?}");
        assert_eq!(code, 1, "{protocol} without {rule}");
    }
}

/// Defects of the printed text, a scope that shows them, what is violated, in how many steps, and
/// what is said at the end. `docs/errata.md` tells each in words.
const PRINTED: &[(&str, &str, &str, &str, usize, &str)] = &[
    ("d1", "1,1", "0+1", "no-deadlock", 10, "nothing moves"),
    ("d2", "1,1", "0+1", "local", 11, "line 80"),
    ("d2", "1,1,1", "0+2/1+2/1", "exclusion", 24, "2 units of pool 1"),
    ("d3,d5", "1,1", "0", "local", 5, "line 75"),
    ("d4", "1,1", "1", "local", 5, "exactly one token"),
    ("d6", "1,1", "0+1/1+0", "no-deadlock", 18, "nothing moves"),
    ("d5,d6,d7", "1,1", "0+1/0+1/1+0", "local", 24, "line 95"),
    ("d9", "1,1", "0+1/1+0", "no-deadlock", 15, "nothing moves"),
    ("d10", "1,1", "0+1/1+0", "all-or-nothing", 21, "not waiting"),
    ("d11", "1,1,1", "0+2/1+2/2", "no-deadlock", 18, "nothing moves"),
    ("d11,d12,d15", "1,1", "0+1/1+0", "local", 29, "line 65"),
    ("d14", "1,1", "0+1/1+0", "local", 17, "line 123"),
    ("d15", "1,1", "0+1/1+0", "exclusion", 30, "2 units of pool 0"),
    ("d15,d18", "1,1", "0+1/1+0", "no-deadlock", 26, "nothing moves"),
];

fn trace<'a>(report: &'a Value, property: &str) -> &'a Value {
    let properties = report["properties"].as_array().expect("a list");
    let found = properties.iter().find(|p| p["name"] == property).expect("a property");
    assert!(found["verdict"] == "violated" && found["promised"] == true, "{property}: {found}");
    &found["trace"]
}

#[test]
fn defects_of_the_printed_text_show() {
    for (defects, pools, users, property, steps, end) in PRINTED {
        let printed = ["datta", "--as-printed", defects];
        let (code, reports) = check(&[&printed[..], &scope(pools, users)].concat());
        assert_eq!(code, 1, "{defects}");
        let trace = trace(&reports[0], property);
        let found = trace["steps"].as_array().expect("steps").len();
        assert_eq!(found, *steps, "{defects} {property}");
        assert!(trace["end"].as_str().expect("an end").contains(end), "{defects}: {trace}");
    }
}

#[test]
fn nothing_works_as_printed_and_all_does_with_all_repairs() {
    let (code, reports) = check(&[&["datta", "--as-printed"], &scope("1,1", "0+1")[..]].concat());
    assert_eq!(code, 1);
    assert_eq!(trace(&reports[0], "no-deadlock")["steps"].as_array().map(Vec::len), Some(8));
    for (pools, users) in [("1,1", "0+1/1+0"), ("1,1,1", "0+2/1+2/2"), ("1,1", "0+1/0+1/1+0")] {
        let (code, reports) = check(&[&["printed-datta"], &scope(pools, users)[..]].concat());
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{users}");
    }
}
