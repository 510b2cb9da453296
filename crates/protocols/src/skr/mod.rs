//! Rhee's queues of positions, with the order of selections kept at the managers.
//!
//! Source: our own, from two parts. The queues are those of I. Rhee's modular algorithm (1998) with
//! its two improvements (see `rhee`). His subroutine, which keeps the selections of conflicting
//! users apart, is here a queue of selections at each manager, in the order of agreed times
//! (Skeen's, see `skeen`): when it is a request's turn, the manager opens the selection and sends
//! the marks, which saves the subroutine's grant and the report; and the end of the selection is
//! what ends its turn, which saves the subroutine's release.
//!
//! # Invariants
//! Those of the queues (Q1 to Q3), and S2 of `skeen`: selections are in one order everywhere.
//!
//! Costs six messages a pool when nobody else is there, and two a pool for each position moved up.

mod manager;
mod user;

use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Clock, ManagerId, NodeId, Options, PoolId, Property, Protocol, RequestId,
    Topology, Unsupported, UserId,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;
use crate::line::LineRules;
use crate::plain;
use crate::positions::{Move, News, QueueRules};

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// This is the time of the request's selection at all its managers.
    Agreed {
        /// The request.
        request: RequestId,
        /// Its time.
        time: Clock,
    },
    /// Join the queue of selections, at a time yet to be agreed.
    Join {
        /// For this request.
        request: RequestId,
        /// This many units.
        units: u32,
    },
    /// A move in the queue of positions.
    Move(Move),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// From the queue of positions.
    News(News),
    /// The request's selection is not before this time here.
    Proposed {
        /// The request.
        request: RequestId,
        /// The time.
        time: Clock,
    },
}

/// The configuration.
#[derive(Debug)]
pub struct Skr {
    topology: Topology,
    line: LineRules,
    queues: QueueRules,
}

impl Skr {
    /// Each pool has a manager of its own, with the same number.
    const fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }
}

impl Protocol for Skr {
    const FAMILY: &'static str = "skr";
    const NAMES: &'static [&'static str] = &["skr"];
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
            summary: "queues of positions, selected in an order agreed among the managers",
            source: "after Rhee 1998 and Skeen's agreed order",
            assumes: Assumes::RELIABLE,
            promises: Property::sound_and(&[Property::NoStarvation, Property::CurrentConflicts]),
            with_patience: Vec::new(),
            rules: [LineRules::ALL, QueueRules::ALL].concat(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        plain(Self::FAMILY, options.variant.as_deref())?;
        Ok(Self {
            topology: topology.clone(),
            line: LineRules::new(options),
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
        Manager::new(self.topology.pools[id.index()].capacity, self.topology.origin)
    }
}
