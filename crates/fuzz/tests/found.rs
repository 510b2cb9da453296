//! What is wrong is found: protocols without one of their rules, within two thousand short runs.

use holdall_fuzz::{Mode, Problem, Target};

const RUNS: u64 = 2000;

/// The first failure of a protocol without a rule.
fn found(protocol: &str, rule: &str) -> Problem {
    let target = Target::named(protocol, &[rule]).expect("a protocol");
    let failure = (0..RUNS).find_map(|seed| target.run(Mode::Faults, seed).err());
    let failure = failure.unwrap_or_else(|| panic!("{protocol} does well without {rule}"));
    let again = target.run(Mode::Faults, failure.seed).expect_err("the same run fails again");
    assert_eq!(again, failure);
    let command =
        format!("holdall fuzz '{protocol}' --without {rule} --mode faults --seed {}", failure.seed);
    assert!(failure.to_string().contains(&command), "{failure}");
    failure.problem
}

#[test]
fn lost_exclusion_is_found() {
    for (protocol, rule) in [("coordinator:skip", "room"), ("coordinator:skip", "session")] {
        let problem = found(protocol, rule);
        assert!(matches!(problem, Problem::Exclusion { .. }), "{protocol}, {rule}: {problem}");
    }
}

/// Late messages of those who are gone, releases that overtake, units that never come back.
#[test]
fn leaks_and_deadlocks_are_found() {
    let rules = [
        ("ordered", "sorted"),
        ("ordered", "early"),
        ("house", "ended"),
        ("house", "implied"),
        ("house", "purge"),
        ("skr", "purge"),
        ("datta", "early"),
    ];
    for (protocol, rule) in rules {
        let problem = found(protocol, rule);
        let stuck = matches!(
            problem,
            Problem::Stuck(_) | Problem::Waiting(_) | Problem::Residue(_) | Problem::Chatter
        );
        assert!(stuck, "{protocol}, {rule}: {problem}");
    }
}

#[test]
fn broken_invariants_are_found() {
    let problem = found("house", "firm");
    assert!(matches!(problem, Problem::Invariant { .. }), "{problem}");
    for (protocol, rule) in [("datta-token", "acks"), ("house", "latest")] {
        let problem = found(protocol, rule);
        assert!(matches!(problem, Problem::System(_)), "{protocol}, {rule}: {problem}");
    }
    // An older stance that undoes a later one takes back what was said, or leaves somebody waiting.
    let problem = found("house", "stance");
    assert!(matches!(problem, Problem::System(_) | Problem::Stuck(_)), "{problem}");
}
