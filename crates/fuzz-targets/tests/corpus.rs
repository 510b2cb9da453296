//! What the fuzzer has found worth keeping goes through its targets again, and the seeds still reach what they are for.

use std::panic::catch_unwind;

use holdall_fuzz_targets::{corpus, targets};

/// One after the other: some targets put what they are given into files of one directory, which the process has for all of them.
#[test]
fn targets_read_what_they_should_and_nothing_else() {
    something_can_be_made_of_every_seed();
    nothing_can_be_made_of_noise();
    everything_in_the_corpus_is_fine();
    let bench = std::env::temp_dir().join(format!("holdall-fuzzing-{}", std::process::id()));
    std::fs::remove_dir_all(bench).expect("ours");
}

fn everything_in_the_corpus_is_fine() {
    for target in targets() {
        let dir = corpus(target.name);
        let entries = std::fs::read_dir(&dir);
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{} is empty", dir.display());
        for path in paths {
            let bytes = std::fs::read(&path).expect("readable");
            let run = catch_unwind(|| (target.run)(&bytes));
            assert!(run.is_ok(), "{}: see above", path.display());
        }
    }
}

fn something_can_be_made_of_every_seed() {
    for target in targets() {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            assert!((target.run)(seed), "seed {number} of {}: {seed:02x?}", target.name);
        }
    }
}

fn nothing_can_be_made_of_noise() {
    // A log without records is one, too, and some of its files may have anything in them.
    for target in targets().filter(|target| !["records", "log"].contains(&target.name)) {
        for noise in [&b""[..], b"\0", &[0xff; 64]] {
            if target.name == "config" && noise.is_empty() {
                continue; // Nothing needs to be configured.
            }
            assert!(!(target.run)(noise), "{}: {noise:02x?}", target.name);
        }
    }
}
