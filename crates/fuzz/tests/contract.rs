//! This world keeps the contract of the worlds.

use holdall_core::Options;
use holdall_core::contract::Probe;
use holdall_fuzz::{Mode, Summary, Target};

#[test]
fn the_probe_has_nothing_to_complain_of() {
    let probe = Target::of::<Probe>("probe", Options::default()).expect("it has no variants");
    let mut all = Summary::default();
    for seed in 0..200 {
        match probe.run(Mode::Faults, seed) {
            Ok(summary) => all += summary,
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(all.grants > 1000 && all.replaced > 1000, "{all:?}");
}
