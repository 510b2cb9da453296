//! The allocation protocols of holdall, one folder each, and the registry that finds them by name.
//!
//! Each folder holds the messages and the configuration (`mod.rs`), the user and the manager.
//! `docs/protocols/` has a page for each: source, assumptions, what was checked.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod awerbuch_saks;
pub mod chandy_misra;
pub mod chandy_misra_drinking;
pub mod choy_singh;
pub mod coordinator;
mod early;
pub mod house;
mod neighbours;
mod nobody;
pub mod ordered;
mod pool;
mod registry;
pub mod skeen;

use registry::plain;
pub use registry::{Unknown, Visitor, split_name};

registry! {
    awerbuch_saks::AwerbuchSaks,
    chandy_misra::ChandyMisra,
    chandy_misra_drinking::Drinking,
    choy_singh::ChoySingh,
    coordinator::Coordinator,
    house::House,
    ordered::Ordered,
    skeen::Skeen,
}
