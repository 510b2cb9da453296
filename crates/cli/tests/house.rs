//! The house protocol as a person checks it: the scopes of its page, at pinned counts, and what
//! each of its rules is for.

mod common;

use common::{check, violated};

/// Settings small enough to explore: see `docs/protocols/house.md`.
const SMALL: &str = "house:reserve=1,passes=2,bumps=1,parks=1";

/// A scope beyond the quick suite, and its states.
const PINNED: &[(&[&str], u64)] = &[
    (&["--pools", "1,1", "--users", "0+1,0+1/1+0,1+0", "--timers", "quiet"], 100541),
    (&["--pools", "1,1", "--users", "0+1/1+0", "--timers", "quiet", "--duplicates"], 338728),
    (&["--pools", "1,1", "--users", "0+1/1+0", "--timers", "quiet", "--suspect", "0"], 178455),
    (&["--pools", "1,1", "--users", "0+1,0+1/1+0", "--timers", "quiet", "--crash", "0"], 37754),
    (&["--pools", "1,1", "--users", "0+1^/1+0^", "--timers", "quiet"], 70702),
    (&["--pools", "2", "--users", "0:2^/0^/0^"], 2480),
    (&["--pools", "1,1", "--users", "0+1*/0*"], 1160),
    (&["--pools", "2,1", "--users", "0:2+1/0^/0^", "--timers", "quiet"], 3312),
    (&["--pools", "1,1", "--users", "0!/0+1/1^", "--timers", "quiet"], 1243),
    (&["--pools", "1,1", "--users", "0!/0+1/1^", "--timers", "quiet", "--nodes", "0,0"], 269),
    (&["--pools", "1,1", "--users", "0^/0+1/1^"], 42054),
    (&["--pools", "1,1", "--users", "0^/0+1/1^", "--nodes", "0,0"], 1244),
];

#[test]
fn small_scopes_are_sound_at_pinned_counts() {
    for (scope, states) in PINNED {
        let (code, reports) = check(&[&[SMALL], *scope].concat());
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{scope:?}");
        assert_eq!(reports[0]["states"].as_u64(), Some(*states), "{scope:?}");
    }
}

/// With `resend=1`, messages may be lost.
const LOSSY: &[(&[&str], u64)] = &[
    (&["--pools", "1", "--users", "0/0", "--loss", "2"], 1872),
    (&["--pools", "1,1", "--users", "0+1/1+0", "--loss", "1"], 209194),
    (&["--pools", "1,1", "--users", "0!/0+1/1", "--loss", "1"], 39351),
    (&["--pools", "1,1", "--users", "0+1/1+0", "--loss", "1", "--crash", "0"], 400398),
];

#[test]
fn what_is_lost_is_sent_again() {
    let small = format!("{SMALL},resend=1");
    for (scope, states) in LOSSY {
        let (code, reports) = check(&[&[&small, "--timers", "quiet"], *scope].concat());
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{scope:?}");
        assert_eq!(reports[0]["states"].as_u64(), Some(*states), "{scope:?}");
    }
    let (_, reports) = check(&[&[SMALL, "--timers", "quiet"], LOSSY[0].0].concat());
    let lost = violated(&reports[0], false);
    assert!(lost.iter().any(|(name, _)| name == "no-deadlock"), "nobody sends again: {lost:?}");
}

/// Rules taken away, a scope in which that matters, and what is lost. Stepping aside from overdue
/// holders also resolves deadlocks, so it is taken away as well where it would hide one.
const MUTANTS: &[(&[&str], &[&str], &str)] = &[
    (&["ended"], &["--pools", "1,1", "--users", "0+1/1+0", "--departures"], "no-residue"),
    (&["stance"], &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    (&["latest"], &["--pools", "1,1", "--users", "0+1/1+0"], "exclusion"),
    (&["firm"], &["--pools", "1,1", "--users", "0+1/1+0"], "local"),
    (&["park", "yield"], &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    (
        &["park", "reserve"],
        &[
            "--pools",
            "2,1",
            "--users",
            "0:2+1/0^/0^",
            "--overtaking",
            "0",
            "--max-states",
            "100000",
        ],
        "bounded-overtaking",
    ),
    (
        &["park", "solo-rounds"],
        &["--pools", "1,1", "--users", "0/0+1^/0+1^", "--order", "fifo", "--overtaking", "2"],
        "bounded-overtaking",
    ),
    (&["floor"], &["--pools", "2,1,1", "--users", "0:2/0+1^/0+2^"], "no-starvation"),
    (&["behind"], &["--pools", "2,1,1", "--users", "0:2/0+1^/0+2^"], "no-starvation"),
    (&["park", "order"], &["--pools", "1,1", "--users", "0+1/1+0"], "no-deadlock"),
    (&["implied"], &["--pools", "1,1", "--users", "0,1/0", "--nodes", "0,0"], "no-deadlock"),
    (&["purge"], &["--pools", "1,1", "--users", "0+1/1+0", "--crash", "0"], "no-deadlock"),
    (&["park"], &["--pools", "1,1", "--users", "0!/0+1/1"], "concurrency"),
];

#[test]
fn every_rule_taken_away_is_missed() {
    for (rules, scope, lost) in MUTANTS {
        let without: Vec<&str> = rules.iter().flat_map(|rule| ["--without", rule]).collect();
        let (code, reports) =
            check(&[&[SMALL, "--timers", "quiet"], *scope, &without[..]].concat());
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "without {rules:?}: {found:?}");
        assert_eq!(code, 1, "without {rules:?}");
    }
}

#[test]
fn overtaking_is_bounded_where_the_page_says() {
    let scopes: &[&[&str]] = &[
        &["--pools", "2,1", "--users", "0:2+1/0^/0^", "--overtaking", "0"],
        &["--pools", "1,1", "--users", "0/0+1^/0+1^", "--order", "fifo", "--overtaking", "2"],
    ];
    for scope in scopes {
        let (code, reports) = check(&[&[SMALL, "--timers", "quiet"], *scope].concat());
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{scope:?}");
    }
}
