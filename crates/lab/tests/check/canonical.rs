//! States that differ only by a shift of their stamps are taken for one: they must behave alike.

use holdall_core::Origin;
use holdall_lab::check::{Outcome, Scope, Settings, Timers, check, compare_shifted};
use holdall_lab::registry::{Chosen, all_chosen};

/// Scopes in which users ask again, so that stamps grow, and what else may happen.
const SCOPES: &[(&str, &str, &str)] = &[
    ("1", "0*/0*", ""),
    ("1,1", "0+1*/1+0*", ""),
    ("1,1", "0+1*/0*", ""),
    ("2", "0:2*/0*/0*", ""),
    ("1,1", "0+1^/1+0^", ""),
    ("1,1", "0+1,0+1/1+0,1+0", ""),
    ("1", "0,0/0,0", "departures"),
    ("1", "0,0/0,0", "crash"),
    ("1", "0,0/0,0", "suspect"),
];

/// Numbers that begin anew although earlier ones of their family are still about. They are never
/// compared with those, but a shift does not bring equals together: where clients need not wait for the
/// end of their requests (`brief`), attempts are numbered from 0 again.
fn begins_anew(chosen: &Chosen) -> bool {
    chosen.name.ends_with(":brief")
}

/// How many states are looked at in a scope where there is no end of them.
const STATES_MAX: usize = 6_000;

#[test]
fn states_that_differ_by_a_shift_behave_alike_in_every_protocol() {
    let mut unlike = Vec::new();
    for chosen in all_chosen() {
        for (pools, users, fault) in SCOPES {
            let scope = Scope::parse(pools, users, None).expect("sensible");
            let assumes = chosen.about.assumes;
            let served = scope.suits(&chosen.about).is_ok()
                && (fault.is_empty() || assumes.departures)
                && !begins_anew(&chosen);
            if !served {
                continue;
            }
            let patient = !chosen.about.with_patience.is_empty();
            let settings = Settings {
                departures: *fault == "departures",
                crash: (*fault == "crash").then_some(0),
                suspect: (*fault == "suspect" && assumes.suspicions).then_some(0),
                timers: if patient { Timers::Quiet } else { Timers::Any },
                max_states: STATES_MAX,
                ..Settings::default()
            };
            let what = format!("{} {scope} {fault}", chosen.name);
            let found = compare_shifted(&chosen, &scope, &settings).expect("served");
            if let Some([first, second]) = found.unlike {
                unlike.push(format!("{what}:\n{first}\n\nand shifted\n\n{second}\n"));
                continue;
            }
            if !found.complete {
                continue;
            }
            for origin in [Origin::default(), Origin::new(7)] {
                let settings = Settings { canonical: Some(true), origin, ..settings.clone() };
                let shifted = check(&chosen, &scope, &settings, &|_| {}).expect("served");
                if shifted.states != found.classes {
                    let (states, classes) = (shifted.states, found.classes);
                    unlike.push(format!("{what}: {states} states, {classes} up to a shift"));
                }
            }
        }
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

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
