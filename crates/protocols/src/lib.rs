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
pub mod datta;
pub mod datta_token;
#[cfg(test)]
mod dishonest;
mod early;
mod few;
pub mod house;
mod lanes;
mod line;
pub mod linked;
mod neighbours;
pub mod nobody;
pub mod ordered;
mod pool;
pub mod positions;
mod registry;
pub mod rhee;
pub mod ring;
pub mod skeen;
pub mod skr;
mod stock;
#[cfg(test)]
mod testing;
pub mod walk;
pub mod watched;
pub mod winkowski;

use registry::plain;
pub use registry::{Unknown, Visitor, is_named, split_name, variant_of};

registry! {
    awerbuch_saks::AwerbuchSaks,
    chandy_misra::ChandyMisra,
    chandy_misra_drinking::Drinking,
    choy_singh::ChoySingh,
    coordinator::Coordinator,
    datta::Two,
    datta::Many,
    datta_token::DattaToken,
    house::House,
    linked::Linked<chandy_misra::ChandyMisra> as "linked:chandy-misra",
    linked::Linked<datta::Two> as "linked:datta",
    linked::Linked<datta_token::DattaToken> as "linked:datta-token",
    linked::Linked<ordered::Ordered> as "linked:ordered",
    linked::Linked<skeen::Skeen> as "linked:skeen",
    ordered::Ordered,
    rhee::Rhee<chandy_misra::ChandyMisra> as "rhee:chandy-misra" | "rhee+:chandy-misra",
    rhee::Rhee<chandy_misra_drinking::Drinking>
        as "rhee:chandy-misra-drinking" | "rhee+:chandy-misra-drinking",
    rhee::Rhee<choy_singh::ChoySingh> as "rhee:choy-singh" | "rhee+:choy-singh",
    rhee::Rhee<ordered::Ordered> as "rhee:ordered" | "rhee+:ordered",
    rhee::Rhee<skeen::Skeen> as "rhee:skeen" | "rhee+:skeen",
    skeen::Skeen,
    skr::Skr,
    walk::Walking,
    winkowski::Complete,
    winkowski::Restricted,
}
