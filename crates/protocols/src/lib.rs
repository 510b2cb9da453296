//! The allocation protocols of holdall, one folder each, and the registry that finds them by name.
//!
//! Each folder holds the messages and the configuration (`mod.rs`), the user and the manager.
//! `docs/protocols/` has a page for each: source, assumptions, what was checked.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod coordinator;
mod early;
pub mod house;
pub mod ordered;
mod past;
mod pool;
mod registry;
pub mod skeen;
pub mod winkowski;

use registry::plain;
pub use registry::{Unknown, Visitor, split_name};

registry! {
    coordinator::Coordinator,
    house::House,
    ordered::Ordered,
    skeen::Skeen,
    winkowski::Complete,
    winkowski::Restricted,
}
