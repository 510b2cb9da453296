//! What bytes from elsewhere go through, as functions that take any bytes at all.
//!
//! A target panics if something is wrong: with a parser that panics, with a value that does not come back when it is
//! written and read again, with an invariant that bytes have broken. It returns whether anything could be made of the
//! bytes, so that a test sees that [`Target::seeds`] reach what they are for. The fuzzer itself is in `fuzz/`, outside
//! of the workspace; the tests here replay its corpus. `docs/fuzzing.md` tells how it is run and what it has found.

mod log;
mod notation;
mod peer;
mod records;
#[cfg(feature = "whole")]
mod whole;
mod wire;

use std::path::{Path, PathBuf};

use holdall_links::fuzzing;

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, that of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Takes any bytes; returns whether anything could be made of them.
    pub run: fn(&[u8]) -> bool,
    /// With what the search begins: something can be made of each.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

const LIGHT: [Target; 8] = [
    Target { name: "wire", run: wire::run, seeds: wire::seeds },
    Target { name: "frames", run: fuzzing::frames, seeds: || fuzzing::seeds().frames },
    Target {
        name: "certificate",
        run: fuzzing::certificate,
        seeds: || fuzzing::seeds().certificates,
    },
    Target { name: "files", run: fuzzing::files, seeds: || fuzzing::seeds().files },
    Target { name: "records", run: records::run, seeds: records::seeds },
    Target { name: "log", run: log::run, seeds: log::seeds },
    Target { name: "peer", run: peer::run, seeds: peer::seeds },
    Target { name: "notation", run: notation::run, seeds: notation::seeds },
];

#[cfg(feature = "whole")]
const WHOLE: [Target; 2] = [
    Target { name: "config", run: whole::config, seeds: whole::config_seeds },
    Target { name: "scope", run: whole::scope, seeds: whole::scope_seeds },
];
#[cfg(not(feature = "whole"))]
const WHOLE: [Target; 0] = [];

/// All targets.
pub fn targets() -> impl Iterator<Item = Target> {
    LIGHT.into_iter().chain(WHOLE)
}

/// The target of that name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    targets().find(|target| target.name == name).expect("a target of that name")
}

/// Where the corpus of a target is.
pub fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}
