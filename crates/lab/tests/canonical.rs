//! States that differ only by a shift of their stamps are one: this must change no verdict.

use holdall_lab::check::{Outcome, Scope, Settings, check};
use holdall_lab::registry::Chosen;

/// States and verdicts of a scope, with and without shifting.
fn explore(name: &str, users: &str, canonical: bool) -> (usize, Vec<(&'static str, Outcome)>) {
    let chosen = Chosen::new(name, &[]).expect("known");
    let scope = Scope::parse("1,1", users, None).expect("sensible");
    let settings = Settings { canonical: Some(canonical), ..Settings::default() };
    let report = check(&chosen, &scope, &settings, &|_| {}).expect("served");
    assert!(report.complete, "{name} {scope}");
    (report.states, report.properties.iter().map(|p| (p.name, p.verdict)).collect())
}

#[test]
fn two_rounds_agree_with_the_plain_search() {
    for users in ["0+1,0+1/1+0,1+0", "0+1,1/1+0,0", "0,0/0,0/0", "0+1,0/1,1/0"] {
        for name in ["ordered", "coordinator:fifo", "coordinator:skip"] {
            // Without clocks, a finite script fixes every request number: nothing can shift.
            assert_eq!(explore(name, users, true), explore(name, users, false), "{name} {users}");
        }
        let (shifted, verdicts) = explore("skeen", users, true);
        let (plain, plain_verdicts) = explore("skeen", users, false);
        assert_eq!(verdicts, plain_verdicts, "{users}");
        assert!(shifted <= plain, "{users}: {shifted} > {plain}");
    }
}

#[test]
fn without_shifting_a_repeating_user_never_closes() {
    let chosen = Chosen::new("ordered", &[]).expect("known");
    let scope = Scope::parse("1", "0*", None).expect("sensible");
    let explore = |canonical| {
        let settings = Settings { canonical, max_states: 1000, ..Settings::default() };
        check(&chosen, &scope, &settings, &|_| {}).expect("served")
    };
    assert!(explore(None).complete);
    assert!(!explore(Some(false)).complete);
}
