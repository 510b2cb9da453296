//! A protocol that watches its world.
//!
//! As an allocation protocol it is as plain as can be: the first manager serves one request after
//! another, whoever comes first. Every user sends everything to every manager, numbered, so that each
//! manager can judge what reaches it.

mod manager;
mod user;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use self::user::Phase;
pub use self::{manager::Manager, user::User};
use super::Clause;
use crate::about::{About, Assumes, Options, Property, Topology, Unsupported};
use crate::ids::{ManagerId, NodeId, PoolId, RequestId, UserId};
use crate::needs::Request;
use crate::role::{Broken, Protocol, Role, System};

/// The manager that serves; the others only watch.
const SERVING: ManagerId = ManagerId(0);

/// The configuration.
#[derive(Debug)]
pub struct Probe {
    topology: Topology,
    nodes: Vec<NodeId>,
}

/// What a manager hears, the `n`-th of its user.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToManager {
    n: u64,
    user: UserId,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum What {
    Ask(Request),
    Leave,
    Release(RequestId),
}

/// What a user hears.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The request is granted.
    Granted(RequestId),
    /// A manager has heard that the user leaves.
    Farewell,
}

/// A timer that is armed while a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// Rings at some time, and nothing follows.
    Tick,
}

impl Protocol for Probe {
    const FAMILY: &'static str = "probe";
    const NAMES: &'static [&'static str] = &["probe"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(_: Option<&str>) -> Result<About, Unsupported> {
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "watches whether its world keeps the contract",
            source: "ours",
            assumes: Assumes { suspicions: true, ..Assumes::RELIABLE },
            promises: Property::sound_and(&[]),
            with_patience: Vec::new(),
            rules: Vec::new(),
        })
    }

    fn new(topology: &Topology, _: &Options) -> Result<Self, Unsupported> {
        let nodes: BTreeSet<NodeId> = topology.pools.iter().map(|pool| pool.node).collect();
        let nodes = if nodes.is_empty() { [NodeId(0)].into() } else { nodes };
        Ok(Self { topology: topology.clone(), nodes: nodes.into_iter().collect() })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.nodes.clone()
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        let pools = (0..).map(PoolId).zip(&self.topology.pools);
        Manager::new(id == SERVING, pools.map(|(id, pool)| (id, u64::from(pool.capacity))))
    }

    /// What no role can see alone: who takes part while it is said to be gone, or besides its
    /// predecessor.
    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let unless =
            |holds: bool, clause: Clause| if holds { Ok(()) } else { Err(clause.broken()) };
        for user in system.users() {
            let present = user.phase != Phase::Left;
            for manager in system.managers() {
                let gone = manager.knows_departed(user.id);
                unless(!gone || !present && user.is_idle(), Clause::Departure)?;
                unless(!(present && manager.has_reclaimed(user.id)), Clause::Lapse)?;
            }
            let predecessor =
                |other: &&User| other.id.lane() == user.id.lane() && other.id < user.id;
            let left = system.users().filter(predecessor).all(|other| other.phase == Phase::Left);
            unless(left, Clause::Succession)?;
        }
        Ok(())
    }
}
