//! Rhee's queues of positions, selected by a message that walks from manager to manager.
//!
//! Source: our own, after I. Rhee's modular algorithm (1998), with its two improvements (see
//! `rhee`). In the place of the subroutine one message goes to the managers of the request's pools
//! in their global order, opens the selection at each, or waits for its turn there, and gathers
//! the marks. So selections wait for each other only upwards, and never in a circle.
//!
//! - `walk`: the last manager sends all marks to the user, which selects a position and moves up
//!   by itself.
//! - `walk:agent`: the last manager selects and acts for the request, so that the user sends one
//!   message, gets one, and sends one in the end; what managers on one node say to each other
//!   costs nothing.
//!
//! # Departures
//! A user that leaves before it has the marks does not know how far its message has come. It sends
//! a `Recall` after it: a manager that the message has left takes the request out and passes the
//! recall on; one where it waits takes it out and is done; one that it has not reached yet
//! remembers the recall. When a user is gone that has not selected, the first manager of its way
//! does the same; one that has may have told only some managers of its last move, so each where it
//! stands takes it out and tells the next (`Purge`). With an agent there is no such order between what the user's last words and the
//! detector set off, so `walk:agent` assumes that nobody departs.
//!
//! # Invariants
//! Those of the queues (Q1 to Q3), and
//! - **W1** A request is open or stands in a queue only where its message has been, and there its
//!   way is known.

mod agent;
mod manager;
#[cfg(test)]
mod tests;
mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, ManagerId, NodeId, Options, PoolId, Property, Protocol, Request, RequestId,
    Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::positions::{Move, News, QueueRules};

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// A move in the queue.
    Move(Move),
    /// From another manager's queue, for a request that this one acts for.
    News(News),
    /// The user is gone, after its message had been everywhere: take the request out if it is still
    /// here, and tell the next.
    Purge(RequestId),
    /// Take the request out, and tell the next if its message went on.
    Recall(RequestId),
    /// The message that walks.
    Walk(Walk),
}

/// A request under way along its managers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Walk {
    /// Its needs are in the order of the way.
    request: Request,
    /// The positions marked so far.
    marked: Vec<u32>,
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// From a queue; marks are those of all queues.
    News(News),
}

rules! {
    /// The rules in force.
    struct Rules {
        ascend "ascend": "managers are walked in their global order, not as asked",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Walking {
    topology: Topology,
    /// The last manager acts for a request.
    agent: bool,
    rules: Rules,
    queues: QueueRules,
}

impl Walking {
    /// Each pool has a manager of its own, with the same number.
    const fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }

    /// The managers of a request, in the order of its way.
    fn way(request: &Request) -> impl Iterator<Item = ManagerId> {
        request.needs.iter().map(|need| Self::manager_of(need.pool))
    }

    /// The manager that acts for a request, if managers do.
    fn last(request: &Request) -> Option<ManagerId> {
        request.needs.last().map(|need| Self::manager_of(need.pool))
    }
}

fn is_agent(variant: Option<&str>) -> Result<bool, Unsupported> {
    match variant {
        None => Ok(false),
        Some("agent") => Ok(true),
        Some(v) => Err(Unsupported::variant("walk", v, "walk or walk:agent")),
    }
}

impl Protocol for Walking {
    const FAMILY: &'static str = "walk";
    const NAMES: &'static [&'static str] = &["walk", "walk:agent"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let agent = is_agent(variant)?;
        Ok(About {
            name: if agent { "walk:agent".into() } else { Self::FAMILY.into() },
            summary: match agent {
                true => "queues of positions; a message walks the managers, the last one acts",
                false => "queues of positions; a message walks the managers for the marks",
            },
            source: "after Rhee 1998",
            assumes: Assumes { departures: !agent, ..Assumes::RELIABLE },
            promises: Property::sound_and(&[Property::NoStarvation, Property::CurrentConflicts]),
            with_patience: Vec::new(),
            rules: [Rules::ALL, QueueRules::ALL].concat(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self {
            topology: topology.clone(),
            agent: is_agent(options.variant.as_deref())?,
            rules: Rules::new(options),
            queues: QueueRules::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.topology.pools.iter().map(|pool| pool.node).collect()
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(id, self.topology.pools[id.index()].capacity)
    }
}
