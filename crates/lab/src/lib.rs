//! Where protocols are studied.
//!
//! [`check`] explores every interleaving of a small scope and decides what a protocol promises; it
//! drives the very roles that the service runs. [`figures`] is a study made with the simulator,
//! `holdall-sim`. The protocols come from [`registry`]; [`specimens`] are wrong on purpose.

#![forbid(unsafe_code)]

pub mod check;
pub mod figures;
mod svg;

pub use holdall_registry as registry;
pub use holdall_registry::specimens;
