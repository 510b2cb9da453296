//! Worlds to study protocols in.
//!
//! [`sim`] plays a protocol through in simulated time and measures it. [`check`] explores every
//! interleaving of a small scope and decides what the protocol promises. Both drive the very
//! roles that the service runs. [`figures`] is a study made with the simulator. [`specimens`] are
//! protocols that are wrong on purpose.

#![forbid(unsafe_code)]

pub mod check;
pub mod figures;
pub mod registry;
pub mod sim;
pub mod specimens;
