//! Every protocol there is, briefly.

use holdall_fuzz::{Mode, Summary, Target};

const RUNS: u64 = 30;

fn everyone() -> Vec<Target> {
    let named = |name: &str| Target::named(name, &[]).expect("a protocol");
    holdall_protocols::names().chain(["house:resend=1"]).map(named).collect()
}

fn all_go_well(mode: Mode) -> Summary {
    let mut all = Summary::default();
    for target in everyone() {
        for seed in 0..RUNS {
            match target.run(mode, seed) {
                Ok(summary) => all += summary,
                Err(failure) => panic!("{failure}"),
            }
        }
    }
    all
}

#[test]
fn everybody_heals() {
    let all = all_go_well(Mode::Faults);
    assert!(all.grants > 1000 && all.replaced > 1000, "{all:?}");
}

#[test]
fn nobody_falls_for_a_forgery() {
    let all = all_go_well(Mode::Forged);
    assert!(all.forged > 1000, "{all:?}");
}
