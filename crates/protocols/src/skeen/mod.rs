//! Agreed timestamps: a request joins the queues of all its pools in one order that is the same
//! everywhere, and is served in that order.
//!
//! Source: Skeen's total order multicast, as told by Birman and Joseph (1987). Every manager
//! proposes a time later than all it has seen; the user takes the latest proposal; that is the
//! request's place in every queue. Ties are broken by the user's id.
//!
//! # Invariants
//! - **S1, units.** What is held and what is free make up a pool (`Manager::check`).
//! - **S2, one order.** Queues are sorted by (time, user), and an entry is served only when its
//!   time is agreed and nothing stands before it; since a proposal can only grow, nothing can
//!   still come before it. So all queues serve common requests in the same order, and waiting
//!   forms no cycle.
//!
//! Costs five messages a pool. Nobody is ever passed once its time is agreed; for the same reason
//! everybody waits for whoever waits before it elsewhere (no *concurrency*).
//!
//! Assumes that every message arrives once, in any order.

mod manager;
mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Clock, ManagerId, NodeId, Options, PoolId, Property, Protocol, RequestId,
    Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::line::LineRules;
use crate::plain;

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Join the queue, at a time yet to be agreed.
    Join {
        /// For this request.
        request: RequestId,
        /// This many units.
        units: u32,
    },
    /// This is the time of the request in all its queues.
    Agreed {
        /// The request.
        request: RequestId,
        /// Its time.
        time: Clock,
    },
    /// Leave the queue, or give the units back.
    Release(RequestId),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The units are held for this request.
    Held(RequestId),
    /// The request is not before this time here.
    Proposed {
        /// The request.
        request: RequestId,
        /// The time.
        time: Clock,
    },
}

rules! {
    /// The rules in force.
    struct Rules {
        early "early": "a release that overtakes its request is remembered",
        purge "purge": "whoever is reported gone loses its units and its place",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Skeen {
    topology: Topology,
    line: LineRules,
    rules: Rules,
}

impl Skeen {
    /// Each pool has a manager of its own, with the same number.
    const fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }
}

impl Protocol for Skeen {
    const FAMILY: &'static str = "skeen";
    const NAMES: &'static [&'static str] = &["skeen"];
    const DRIFTS: bool = true;
    const STAGES: u32 = 2;
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        plain(Self::FAMILY, variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "requests join all their queues in one agreed timestamp order",
            source: "Skeen's total order multicast (Birman and Joseph 1987)",
            assumes: Assumes::RELIABLE,
            promises: Property::sound_and(&[
                Property::NoStarvation,
                Property::BoundedOvertaking(0),
            ]),
            with_patience: Vec::new(),
            rules: [Rules::ALL, LineRules::ALL].concat(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        plain(Self::FAMILY, options.variant.as_deref())?;
        Ok(Self {
            topology: topology.clone(),
            line: LineRules::new(options),
            rules: Rules::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.topology.pools.iter().map(|pool| pool.node).collect()
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(self.topology.pools[id.index()].capacity, self.topology.origin)
    }
}
