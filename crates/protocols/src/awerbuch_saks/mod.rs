//! A distributed queue: users that may conflict advance through numbered slots, one behind the
//! other, and whoever reaches the front uses its pools.
//!
//! Source: B. Awerbuch and M. Saks, "A dining philosophers algorithm with polynomial response
//! time", FOCS 1990, pages 65-74; reconstructed, see `docs/protocols/awerbuch-saks.md`.
//!
//! The queue has as many *levels* as ids have bits. A user starts above the level of the highest
//! bit in which its id differs from a competitor's, and goes down level by level, slot by slot. In
//! the level of that bit the two take slots of different residues; below it, they enter one after
//! the other, since slot 0 of the level above belongs to one of them at a time. A slot is taken
//! only if the one behind it is free as well, so that nobody who has a place waits for a newcomer.
//!
//! Two neighbours exchange *reports* of where they are. Whoever could be in the other's way next
//! sends one and waits for the answer; whoever is reported to right behind keeps the answer back
//! until it has moved on.
//!
//! # Invariants
//! - **Q1, balance.** Nobody has sent a neighbour two reports more than it has received from it, or
//!   received two more than it has sent (`Balance`; one beyond that is misbehaviour). So at most
//!   two are under way in one direction, and a bit tells which is the older.
//! - **Q2, rest.** Whoever is not in the queue, or at its front, awaits no answer (`User::check`).
//!
//! Assumes that every message arrives once, in any order.

mod position;
mod user;

use alloc::vec::Vec;

use holdall_core::{About, Options, Property, Protocol, Topology, Unsupported, UserId, rules};
use serde::{Deserialize, Serialize};

pub use self::position::Position;
pub use self::user::User;
use crate::neighbours::{AMONG_NEIGHBOURS, Neighbours};
use crate::nobody::no_managers;
use crate::plain;

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// Where the sender is: news, or an answer.
    Report {
        /// None if it is not in the queue.
        at: Option<Position>,
        /// Whether it is the sender's first, third, fifth .. report to this neighbour.
        odd: bool,
    },
}

rules! {
    /// The rules in force.
    struct Rules {
        bits "bits": "in a level, users take slots by a bit of their ids",
        far "far": "who reports from above the first common level is asked again",
        gap "gap": "a slot is taken only if the one behind it is free as well",
        hold "hold": "whoever is right behind is answered only after moving on",
        near "near": "moves into slot 1 are told to newcomers as well, as all before it",
        newcomers "newcomers": "moves are told to whoever is about to enter the level",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct AwerbuchSaks {
    neighbours: Neighbours,
    rules: Rules,
}

impl Protocol for AwerbuchSaks {
    const FAMILY: &'static str = "awerbuch-saks";
    const NAMES: &'static [&'static str] = &["awerbuch-saks"];
    type ToUser = ToUser;
    type User = User;
    no_managers!();

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        plain(Self::FAMILY, variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "a distributed queue: slots in as many levels as ids have bits",
            source: "Awerbuch and Saks 1990, reconstructed",
            assumes: AMONG_NEIGHBOURS,
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        plain(Self::FAMILY, options.variant.as_deref())?;
        Ok(Self { neighbours: Neighbours::new(topology), rules: Rules::new(options) })
    }

    fn user(&self, id: UserId) -> User {
        User::new(self, id)
    }
}
