//! What the pages of the protocols say beyond counts and missed rules (`pinned/`).

use holdall_lab::check::{Outcome, Report, Trace};
use holdall_lab::registry::Chosen;

use crate::common::{explore, violated};

/// Settings small enough to explore: see `docs/protocols/house.md`.
const SMALL_HOUSE: &str = "house:reserve=1,passes=2,bumps=1,parks=1";

fn names(lost: Vec<(&'static str, Option<usize>)>) -> Vec<&'static str> {
    lost.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn what_is_lost_is_missed_unless_it_is_sent_again() {
    let lossy = format!("{SMALL_HOUSE} --timers quiet --pools 1 --users '0/0' --loss 2");
    assert!(names(violated(&explore(&lossy), false)).contains(&"no-deadlock"));
}

/// A lone request is one path, whose length counts its messages: beside them, only its asking and
/// the end of its use.
#[test]
fn lone_requests_of_datta_take_so_many_messages() {
    let messages = |protocol, users| {
        let report = explore(&format!("{protocol} --pools 1,1,1 --users '{users}'"));
        assert_eq!(report.states, report.depth + 1, "{protocol} {users} is one path");
        report.depth - 2
    };
    for (k, users) in [(1, "0"), (2, "0+1"), (3, "0+1+2")] {
        assert_eq!(messages("datta-k", users), 3 * k + 1);
        assert_eq!(messages("datta-k:brief", users), 3 * k);
    }
    assert_eq!((messages("datta", "0"), messages("datta", "0+1")), (4, 7));
}

/// Defects of the printed text, a scope that shows them, what is violated, in how many steps, and
/// what is said at the end. `docs/errata.md` tells each in words.
const PRINTED_DATTA: &[(&str, &str, &str, &str, usize, &str)] = &[
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

/// How a promised property is violated.
fn trace<'a>(report: &'a Report, property: &str) -> &'a Trace {
    let found = report.properties.iter().find(|p| p.name == property).expect("a property");
    assert!(found.promised && found.verdict == Outcome::Violated, "{property}: {report:?}");
    found.trace.as_ref().expect("a violation is told")
}

#[test]
fn defects_of_the_printed_datta_show() {
    for (defects, pools, users, property, steps, end) in PRINTED_DATTA {
        let line = format!("datta --as-printed {defects} --pools {pools} --users '{users}'");
        let report = explore(&line);
        let trace = trace(&report, property);
        assert_eq!(trace.steps.len(), *steps, "{line}: {property}");
        assert!(trace.end.contains(end), "{line}: {}", trace.end);
    }
    for (pools, users) in [("1,1", "0+1/1+0"), ("1,1,1", "0+2/1+2/2"), ("1,1", "0+1/0+1/1+0")] {
        let report = explore(&format!("printed-datta --pools {pools} --users '{users}'"));
        assert_eq!((report.complete, violated(&report, true)), (true, vec![]), "{users}");
    }
}

#[test]
fn nothing_works_as_printed() {
    for (name, pools, users) in [("datta", "1,1", "0+1"), ("winkowski", "1", "0")] {
        let chosen = Chosen::as_printed(name, &[]).expect("kept");
        let scope = holdall_lab::check::Scope::parse(pools, users, None).expect("sensible");
        let report = holdall_lab::check::check(&chosen, &scope, &Default::default(), &|_| {});
        assert!(names(violated(&report.expect("served"), true)).contains(&"no-deadlock"), "{name}");
    }
}

#[test]
fn the_figures_of_rhee_repaired_have_the_states_of_the_protocol() {
    for scope in [
        "--pools 1 --users '0/0/0'",
        "--pools 1 --users '0,0/0,0'",
        "--pools 1,1 --users '0+1/1+0'",
        "--pools 1,1 --users '0+1,1/1+0,0'",
    ] {
        let states = |protocol| explore(&format!("{protocol} {scope}")).states;
        assert_eq!(states("printed-rhee:chandy-misra"), states("rhee:chandy-misra"), "{scope}");
    }
}

#[test]
fn a_user_whose_neighbours_want_something_else_is_served() {
    let other = "--pools 1,1 --users '0,1!/1'";
    for protocol in ["rhee:chandy-misra", "rhee+:chandy-misra", "rhee:ordered", "skr", "walk"] {
        let report = explore(&format!("{protocol} {other}"));
        assert_eq!(violated(&report, false), [], "{protocol}: Theorem 5.11");
        let report = explore(&format!("{protocol} --pools 1,1 --users '1!/0+1/0'"));
        assert_eq!(violated(&report, false), [("concurrency", Some(2))], "{protocol}");
    }
    let report = explore(&format!("chandy-misra {other}"));
    assert!(!violated(&report, false).is_empty(), "the diners alone wait for neighbours");
}

#[test]
fn a_name_says_which_subroutine() {
    for name in ["rhee:skeen", "rhee+:skeen"] {
        assert!(Chosen::new(name, &[]).is_ok(), "{name}");
    }
    for name in ["rhee", "rhee:", "rhee+", "rhee:skeen:x", "rhee:rhee:skeen", "walk:x", "skr:x"] {
        assert!(Chosen::new(name, &[]).is_err(), "{name}");
    }
}

/// Whoever asks for pool 0 now need not wait for one that uses pool 1 for ever, although it may
/// ask for pool 1 later.
#[test]
fn drinkers_wait_only_for_those_whose_request_conflicts() {
    let now = "--pools 1,1 --users '1!/0,1'";
    let lost = |protocol| violated(&explore(&format!("{protocol} {now}")), false);
    assert_eq!(lost("chandy-misra"), [("concurrency", Some(1))]);
    assert_eq!(lost("chandy-misra-drinking"), []);
}

#[test]
fn without_turns_an_impatient_alarm_goes_on_for_ever() {
    let line = "winkowski:turns=0 --pools 1,1 --users '0+1*/1+0'";
    assert_eq!(violated(&explore(&format!("{line} --timers quiet")), true), []);
    assert_eq!(violated(&explore(line), false), [("no-starvation", Some(0))]);
}
