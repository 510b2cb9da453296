//! What the protocols of Datta, Devismes, Larmore, Kawala and Potop-Butucaru have in common
//! ("Multi-resource Allocation with Unknown Participants"): a manager for each resource, on a
//! rooted ring (`Ring`); a token that goes round on demand ([`token`]); and clients that know
//! nothing but the resources they ask for ([`client`]).

pub mod client;
mod early;
mod spot;
pub mod token;

use alloc::vec::Vec;

use holdall_core::{ManagerId, NodeId, Origin, PoolId, Topology};

pub use self::client::{Client, FromClient, ToUser};
pub(crate) use self::early::EarlyDepartures;
pub use self::spot::Spot;
use self::token::Lap;
pub use self::token::{RingMessage, Token};

/// The ring: the paper's functions `Root` and `Next`, and where each resource lives. Resources
/// follow each other in the order of pools; pool 0 is the root.
#[derive(Debug)]
pub(crate) struct Ring {
    nodes: Vec<NodeId>,
    origin: Origin,
}

impl Ring {
    pub(crate) fn new(topology: &Topology) -> Self {
        let nodes = topology.pools.iter().map(|pool| pool.node).collect();
        Self { nodes, origin: topology.origin }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.nodes.clone()
    }

    pub(crate) fn is_root(&self, id: ManagerId) -> bool {
        id.0 == 0
    }

    pub(crate) fn next(&self, id: ManagerId) -> ManagerId {
        ManagerId((id.0 + 1) % self.nodes.len() as u64)
    }

    /// The lap of what comes to a resource in a lap: the next one at the root.
    fn lap_after(&self, id: ManagerId, lap: Lap) -> Lap {
        if self.is_root(id) { lap.next() } else { lap }
    }
}

/// Each resource has a manager of its own, with the same number.
pub(crate) const fn manager_of(pool: PoolId) -> ManagerId {
    ManagerId(pool.0)
}
