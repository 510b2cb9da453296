//! A double doorway and coloured forks: few get to the forks at a time, and there the smaller
//! colour comes first.
//!
//! Source: M. Choy and A. K. Singh, "Efficient fault-tolerant algorithms for distributed resource
//! allocation", ACM TOPLAS 17(3), 1995 (first at STOC 1992); reconstructed, see
//! `docs/protocols/choy-singh.md`.
//!
//! A user passes the *outer* door once it has seen each neighbour outside, one after the other,
//! and the *inner* door when it sees no neighbour behind it at the same moment. Whoever is behind
//! the inner door collects forks: those shared with neighbours of smaller colour first (the *low*
//! ones), then the others. It gives a fork to a smaller colour whenever it does not eat, and to a
//! larger one as long as it lacks a low fork.
//!
//! # Invariants
//! - **D1, one fork.** Whoever lacks a fork has the token with which to ask for it, or has asked
//!   (`User::check`).
//! - **D2, all forks.** Whoever eats holds the forks of all its edges (`User::check`).
//! - **D3, colours.** Neighbours differ in colour, so that of those behind the inner door some are
//!   the smallest among their neighbours there, and get every fork they ask for.
//!
//! The outer door keeps a neighbour from passing a waiting user time and again: whoever is behind
//! it is passed by each neighbour at most once.
//!
//! `choy-singh:one-door` has no inner door, for comparison.
//!
//! Like the diners of `chandy-misra` it takes the forks of all neighbours, whatever the request.
//!
//! Assumes that every message arrives once, in any order.

#[cfg(test)]
mod tests;
mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Options, Property, Protocol, RequestId, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::user::User;
use crate::neighbours::{AMONG_NEIGHBOURS, Neighbours, colours};
use crate::nobody::no_managers;

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The token: give me the fork.
    Ask,
    /// The fork.
    Fork,
    /// With this request the sender has come here.
    Passed(RequestId, Passed),
}

/// How far a user has come with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Passed {
    /// Through the outer door.
    Outer,
    /// Through the inner door as well.
    Inner,
    /// Out again.
    Out,
}

rules! {
    /// The rules in force.
    struct Rules {
        late "late": "news that is older than what is known is ignored",
        outer "outer": "before the outer door one waits to see each neighbour outside",
        in_use "use": "a fork in use is kept until the use ends",
        yields "yield": "who does not eat yet gives its forks to smaller colours",
    }
}

/// Whether there is an inner door, by the variant.
fn has_inner_door(variant: Option<&str>) -> Result<bool, Unsupported> {
    match variant {
        None => Ok(true),
        Some("one-door") => Ok(false),
        Some(v) => Err(Unsupported::variant("choy-singh", v, "choy-singh or choy-singh:one-door")),
    }
}

/// The configuration.
#[derive(Debug)]
pub struct ChoySingh {
    neighbours: Neighbours,
    /// For each lane.
    colours: Vec<u32>,
    inner: bool,
    rules: Rules,
}

impl ChoySingh {
    /// Whether the fork that two neighbours share is a low one for the first of them.
    fn is_low(&self, user: UserId, neighbour: UserId) -> bool {
        let colour = |user: UserId| self.colours.get(user.lane().index());
        colour(neighbour) < colour(user)
    }
}

impl Protocol for ChoySingh {
    const FAMILY: &'static str = "choy-singh";
    const NAMES: &'static [&'static str] = &["choy-singh"];
    const STAGES: u32 = 2;
    type ToUser = ToUser;
    type User = User;
    no_managers!();

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let (name, summary) = if has_inner_door(variant)? {
            ("choy-singh", "dining: forks by colour, behind a double doorway")
        } else {
            ("choy-singh:one-door", "dining: forks by colour, behind a doorway")
        };
        Ok(About {
            name: name.into(),
            summary,
            source: "Choy and Singh 1992, 1995, reconstructed",
            assumes: AMONG_NEIGHBOURS,
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let inner = has_inner_door(options.variant.as_deref())?;
        let neighbours = Neighbours::new(topology);
        let adjacent =
            |lane| neighbours.of(UserId::first(lane as u32)).iter().map(|user| user.lane().index());
        Ok(Self {
            colours: colours(topology.users.len(), adjacent),
            neighbours,
            inner,
            rules: Rules::new(options),
        })
    }

    fn user(&self, id: UserId) -> User {
        User::new(self, id)
    }
}
