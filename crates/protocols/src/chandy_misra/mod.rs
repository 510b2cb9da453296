//! Hygienic dining: a fork for each two users that may conflict; whoever has used a fork gives it
//! up to whoever asks.
//!
//! Source: K. M. Chandy and J. Misra, "The drinking philosophers problem", ACM TOPLAS 6(4), 1984,
//! the diners. `docs/protocols/chandy-misra.md` sets its rules beside the code.
//!
//! # Invariants
//! - **F1, one fork.** Whoever lacks a fork has the token with which to ask for it, or has asked
//!   (`User::check`). Fork and token of an edge are each in one place: a second one that arrives is
//!   misbehaviour.
//! - **F2, all forks.** Whoever eats holds the forks of all its edges, used ones (`User::check`).
//! - **F3, order.** Let u be before v if u holds the clean fork, or v the used one, or the fork is
//!   on its way to u. That order has no cycle at the start, and only a user that eats changes it,
//!   to be behind all its neighbours. So of those who wait, one is before all others.
//!
//! It takes the forks of *all* neighbours, whatever the request: two users that ask for different
//! pools now wait for each other if they may ever ask for the same.
//!
//! Assumes that every message arrives once, in any order. The paper keeps the order of messages;
//! without it a token may overtake the fork it is to fetch back, and whoever gets it must not ask
//! before the fork has come (`Edge::asked`).

mod user;

use alloc::vec::Vec;

use holdall_core::{About, Options, Property, Protocol, Topology, Unsupported, UserId, rules};
use serde::{Deserialize, Serialize};

pub use self::user::User;
use crate::neighbours::{AMONG_NEIGHBOURS, Neighbours};
use crate::nobody::no_managers;
use crate::plain;

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The token: give me the fork.
    Ask,
    /// The fork, clean.
    Fork,
}

rules! {
    /// The rules in force.
    struct Rules {
        acyclic "acyclic": "at the start the forks are with the lower ids, not in a ring",
        clean "clean": "a fork is clean when it is given, and then kept until used",
        dirty "dirty": "a used fork is given up to whoever asks, also when hungry",
        in_use "use": "a fork in use is kept until the use ends",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct ChandyMisra {
    pub(crate) neighbours: Neighbours,
    rules: Rules,
}

impl ChandyMisra {
    /// Whether a user holds the fork it shares with a neighbour at the start.
    pub(crate) fn starts_with_fork(&self, user: UserId, neighbour: UserId) -> bool {
        let (low, high) = (user.min(neighbour), user.max(neighbour));
        let ring = high.lane().number - low.lane().number > 1;
        (user == low) == (self.rules.acyclic || !ring)
    }
}

impl Protocol for ChandyMisra {
    const FAMILY: &'static str = "chandy-misra";
    const NAMES: &'static [&'static str] = &["chandy-misra"];
    type ToUser = ToUser;
    type User = User;
    no_managers!();

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        plain(Self::FAMILY, variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "dining: a fork between neighbours, given up once used",
            source: "Chandy and Misra 1984, the diners",
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
