//! What cells say to each other.
//!
//! A request lives at its *home*, the cell of the agent that its client talks to, and there its user is. Each cell
//! *guards* its own pools with its manager. So a message is from a user to a manager of another cell, or back. Protocols
//! know pools by number; numbers mean nothing elsewhere, so the needs go along as people have written them, and what
//! was given comes back by name, with the fences of the guard.
//!
//! A link is a connection: what arrives is a beginning of what was sent, in order and once. After each new
//! connection a home first says which requests of its own there are ([`PeerMessage::Assert`]), and then
//! the roles send again whatever is not answered.
//!
//! This is the form of the network: new kinds are added at the end.

use std::sync::Arc;

use holdall_core::RequestId;
use holdall_protocols::house::{ToManager, ToUser};
use holdall_wire::{Need, Refusal, Taken, Who};
use serde::{Deserialize, Serialize};

/// A message from one cell to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage<M = ToManager, U = ToUser> {
    /// From a user to the manager of the other cell.
    ToManager {
        /// What; its pools are places in the order.
        message: M,
        /// What is asked for, unless it is given up.
        order: Option<Order>,
    },
    /// From the manager to a user of the other cell.
    ToUser {
        /// What; it names no units.
        message: U,
        /// The units, if it says that they are held.
        given: Option<Given>,
    },
    /// From a guard: the request will not be granted, and why. All of it is over there.
    Refused {
        /// The request.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// From a home: the request is a reservation that was granted, and lasts for so many milliseconds more, whatever
    /// becomes of its home. Said again, it lasts as long from then on.
    Keep {
        /// The request.
        request: RequestId,
        /// How long.
        millis: u64,
    },
    /// From a home, before anything else: all its requests that have to do with this guard.
    Assert(Assertion),
}

/// What is asked of a guard, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The needs that the guard is to see to, without its name.
    pub needs: Vec<Need>,
    /// Who asks, as the home knows it.
    pub who: Arc<Who>,
    /// Refuse at once what cannot be held at once.
    pub now: bool,
}

/// What a guard holds for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// By name, with fences, as the guard names it.
    pub taken: Arc<[Taken]>,
    /// Whether it is given to others some time after the home was last heard of. Otherwise it stays until the
    /// home is back, or is forgotten.
    pub leased: bool,
}

/// The requests of a home that have to do with a guard. Those that the guard knows besides are over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// Those that wait; and the stance under which they were told that something is held for them, if so.
    pub waiting: Vec<(RequestId, Option<u32>)>,
    /// Those that hold something there.
    pub held: Vec<Asserted>,
    /// Whether that were all; more follows otherwise.
    pub last: bool,
}

/// A request that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asserted {
    /// The request.
    pub request: RequestId,
    /// What it had asked for.
    pub order: Order,
    /// What it was given.
    pub given: Given,
    /// If it is a reservation: for how many milliseconds more.
    pub millis: Option<u64>,
}
