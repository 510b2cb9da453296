//! Ordered locking: a request takes its pools one after another in the global order of pools, and
//! waits at each in a first-in-first-out queue.
//!
//! Source: Havender's ordered resource allocation (1968); what practitioners do who remember to
//! sort. It is the yardstick for everything else.
//!
//! # Invariants
//! - **O1, units.** What is held makes up what is used of a pool (`Manager::check`).
//! - **O2, ascent.** A user waits only at a pool above all those it holds, so waiting forms no
//!   cycle (`User::check`).
//!
//! `ordered:coloured` takes the pools in the order of a colouring in which pools that some user may
//! ask for together differ: N. Lynch, "Upper bounds for static resource allocation in a distributed
//! system", Journal of Computer and System Sciences 23, 1981. Whoever waits is then at the end of a
//! chain that is at most as long as there are colours, not pools.
//!
//! It holds while it waits: a request that waits high up blocks those who want only what it has
//! below (no *concurrency*), and makes long convoys.
//!
//! Assumes that every message arrives once, in any order.

mod manager;
mod seen;
#[cfg(test)]
mod tests;
mod user;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Known, ManagerId, Need, NodeId, Options, PoolId, Property, Protocol, RequestId,
    Topology, Unit, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::neighbours::colours;

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Join the queue.
    Acquire {
        /// For this request.
        request: RequestId,
        /// This much of the pool.
        need: Need,
    },
    /// Leave the queue, or give the units back.
    Release(RequestId),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The units are held for this request.
    Held {
        /// The request.
        request: RequestId,
        /// Which they are, if the pool is listed.
        units: BTreeSet<Unit>,
    },
}

rules! {
    /// The rules in force.
    struct Rules {
        sorted "sorted": "needs are taken in the global order, not in the order asked",
        fifo "fifo": "a queue is served first in, first out; without it, last in",
        whole "whole": "a queue's head waits until all its units are free",
        named "named": "a queue's head waits until the units that it names are free",
        early "early": "a release that overtakes its request is remembered",
        purge "purge": "whoever is reported gone loses its units and its place",
    }
}

const COLOURED: &str = "coloured";

/// Whether pools are taken by colour.
fn is_coloured(variant: Option<&str>) -> Result<bool, Unsupported> {
    match variant {
        None => Ok(false),
        Some(COLOURED) => Ok(true),
        Some(v) => Err(Unsupported::variant("ordered", v, "ordered or ordered:coloured")),
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Ordered {
    topology: Topology,
    /// Whether some pool is listed. Where none is, none has to be looked up.
    some_listed: bool,
    /// The colour of each pool; none if all have their own.
    colours: Vec<u32>,
    rules: Rules,
}

impl Ordered {
    /// Each pool has a manager of its own, with the same number.
    const fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }

    /// Whether a pool is listed, if it is known.
    fn is_listed(&self, pool: PoolId) -> Option<bool> {
        match self.some_listed {
            true => self.topology.is_listed(pool),
            false => Some(false),
        }
    }

    /// Where a pool is in the global order.
    fn rank(&self, pool: PoolId) -> (u32, PoolId) {
        (self.colours.get(pool.index()).copied().unwrap_or(0), pool)
    }
}

/// A colour for each pool that differs from those of all pools that a user may ask for besides.
fn colour_pools(topology: &Topology) -> Vec<u32> {
    let mut together = alloc::vec![BTreeSet::new(); topology.pools.len()];
    for pools in &topology.users {
        for pool in pools.iter().filter(|pool| pool.index() < topology.pools.len()) {
            together[pool.index()].extend(pools.iter().map(|other| other.index()));
        }
    }
    colours(together.len(), |pool| {
        together[pool].iter().copied().filter(move |other| *other != pool)
    })
}

impl Protocol for Ordered {
    const FAMILY: &'static str = "ordered";
    const NAMES: &'static [&'static str] = &["ordered", "ordered:coloured"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let coloured = is_coloured(variant)?;
        let (name, summary, source, participants) = if coloured {
            let summary = "pools taken one after another by colour, a FIFO queue at each";
            ("ordered:coloured", summary, "Lynch 1981", Known::Known)
        } else {
            let summary = "pools taken one after another in a global order, a FIFO queue at each";
            ("ordered", summary, "Havender 1968; common practice", Known::Unknown)
        };
        Ok(About {
            name: name.into(),
            summary,
            source,
            assumes: Assumes { participants, named: true, ..Assumes::RELIABLE },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let coloured = is_coloured(options.variant.as_deref())?;
        Ok(Self {
            colours: if coloured { colour_pools(topology) } else { Vec::new() },
            some_listed: topology.pools.iter().any(|pool| pool.listed),
            topology: topology.clone(),
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
        Manager::new(&self.topology.pools[id.index()])
    }
}
