//! Runs that went wrong once: each was repaired, and goes well since.

use holdall_fuzz::{Mode, Target};

/// A protocol, a mode, and the seeds at which it failed.
const SEEDS: &[(&str, Mode, &[u64])] = &[
    // Clocks were led astray by leaps that add up, and honest users accused of believing them.
    ("rhee+:skeen", Mode::Forged, &[902751]),
    ("rhee:skeen", Mode::Forged, &[901589]),
    ("skeen", Mode::Forged, &[901341, 903488]),
    ("skr", Mode::Forged, &[900708, 901127]),
    // A request was made to give up its home, where it has nothing to give up.
    ("datta:brief", Mode::Forged, &[2002012]),
    // A probe went round in a loop of others for ever, and a lost probe was never sent again.
    ("linked:datta", Mode::Faults, &[20007968]),
    // A user asked two managers for different things in one request, and one of them was accused.
    ("datta-token", Mode::Forged, &[8001732]),
    // A user sent two messages on different ways for one request, and honest managers were accused.
    ("walk:agent", Mode::Forged, &[900000, 900593, 900847, 901511, 901750, 903698]),
    // A user believed a view that did not fit its stance.
    ("winkowski", Mode::Forged, &[200183, 900084, 900829]),
    ("winkowski-restricted", Mode::Forged, &[200114, 900424, 1001654]),
];

#[test]
fn what_went_wrong_goes_well() {
    for (protocol, mode, seeds) in SEEDS {
        let target = Target::named(protocol, &[]).expect("a protocol");
        for seed in *seeds {
            if let Err(failure) = target.run(*mode, *seed) {
                panic!("{failure}");
            }
        }
    }
}
