//! Ordered locking: a request takes its pools one after another in the global order of pools, and
//! waits at each in a first-in-first-out queue.
//!
//! Source: Havender's ordered resource allocation (1968); what practitioners do who remember to
//! sort. It is the yardstick for everything else.
//!
//! # Invariants
//! - **O1, units.** What is held and what is free make up a pool (`Manager::check`).
//! - **O2, ascent.** A user waits only at a pool above all those it holds, so waiting forms no
//!   cycle (`User::check`).
//!
//! It holds while it waits: a request that waits high up blocks those who want only what it has
//! below (no *concurrency*), and makes long convoys.
//!
//! Assumes that every message arrives once, in any order.

mod manager;
mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, ManagerId, NodeId, Options, PoolId, Property, Protocol, RequestId, Rule,
    Topology, Unsupported, UserId,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::plain;

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Join the queue.
    Acquire {
        /// For this request.
        request: RequestId,
        /// This many units.
        units: u32,
    },
    /// Leave the queue, or give the units back.
    Release(RequestId),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The units are held for this request.
    Held(RequestId),
}

const RULES: &[Rule] = &[
    Rule { name: "sorted", says: "needs are taken in the global order, not in the order asked" },
    Rule { name: "fifo", says: "a queue is served first in, first out; without it, last in" },
    Rule { name: "whole", says: "a queue's head waits until all its units are free" },
    Rule { name: "early", says: "a release that overtakes its request is remembered" },
    Rule { name: "purge", says: "whoever is reported gone loses its units and its place" },
];

/// The configuration.
#[derive(Debug)]
pub struct Ordered {
    topology: Topology,
    sorted: bool,
    fifo: bool,
    whole: bool,
    early: bool,
    purge: bool,
}

impl Ordered {
    /// Each pool has a manager of its own, with the same number.
    const fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }
}

impl Protocol for Ordered {
    const FAMILY: &'static str = "ordered";
    const NAMES: &'static [&'static str] = &["ordered"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        plain(Self::FAMILY, variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "pools taken one after another in a global order, a FIFO queue at each",
            source: "Havender 1968; common practice",
            assumes: Assumes::RELIABLE,
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: RULES,
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        plain(Self::FAMILY, options.variant.as_deref())?;
        Ok(Self {
            topology: topology.clone(),
            sorted: options.keeps("sorted"),
            fifo: options.keeps("fifo"),
            whole: options.keeps("whole"),
            early: options.keeps("early"),
            purge: options.keeps("purge"),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.topology.pools.iter().map(|pool| pool.node).collect()
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(self.topology.pools[id.index()].capacity)
    }
}
