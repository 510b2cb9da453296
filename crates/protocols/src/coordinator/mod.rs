//! One manager decides everything: it sees every request, and grants what fits.
//!
//! A request costs three messages. What differs is who may pass whom:
//! - `coordinator:fifo`: every waiting request reserves what it needs, so nobody is passed by a
//!   later request it shares a pool with;
//! - `coordinator:skip`: nothing is reserved; whatever fits goes. Fast, and a wide request may
//!   starve;
//! - `coordinator:reserve=G`: only the `G` oldest waiting requests reserve. The oldest is
//!   therefore always served in the end, and then the next is the oldest.
//!
//! Source: conservative two-phase locking at one site; backfilling with reservations as in batch
//! schedulers (Lifka 1995 reserves for the first).
//!
//! # Invariants
//! - **C1, units.** What is held makes up what is used of each pool (`Manager::check`).
//! - **C2.** A waiting request does not fit beside what is held and what older requests reserve
//!   (the scan after every change).
//!
//! Assumes that every message arrives once, in any order. Nothing happens without the coordinator:
//! that is what the other protocols are for.

mod manager;
mod seen;
#[cfg(test)]
mod tests;
mod user;

use alloc::format;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, ManagerId, NodeId, Options, Picked, Property, Protocol, Request, RequestId,
    Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::User;

/// What the coordinator may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Queue this.
    Ask(Request),
    /// Withdraw this, or take it back.
    Release(RequestId),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// All of it is held.
    Grant {
        /// This request.
        request: RequestId,
        /// With these units of listed pools.
        units: Picked,
    },
}

rules! {
    /// The rules in force.
    struct Rules {
        room "room": "units must be free to be granted",
        by_name "by-name": "units that the oldest have named are kept for them",
        by_count "by-count": "whoever names units leaves as many others as the oldest wait for",
        scan "scan": "a release lets the waiting be looked at again",
        session "session": "a release names its request, not only its user",
        early "early": "a release that overtakes its request is remembered",
        purge "purge": "whoever is reported gone loses its units and its place",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Coordinator {
    topology: Topology,
    /// How many of the oldest waiting requests reserve what they need.
    reserving: usize,
    rules: Rules,
}

impl Coordinator {
    const VARIANTS: &str = "coordinator:fifo, coordinator:skip or coordinator:reserve=G";
    /// The only manager.
    const MANAGER: ManagerId = ManagerId(0);

    fn reserving(variant: Option<&str>) -> Result<usize, Unsupported> {
        match variant {
            Some("fifo") => Ok(usize::MAX),
            Some("skip") => Ok(0),
            Some(other) => other
                .strip_prefix("reserve=")
                .and_then(|g| g.parse::<u32>().ok())
                .map(|g| g as usize)
                .ok_or_else(|| Unsupported::variant(Self::FAMILY, other, Self::VARIANTS)),
            None => {
                Err(Unsupported::VariantMissing { family: Self::FAMILY, known: Self::VARIANTS })
            }
        }
    }
}

impl Protocol for Coordinator {
    const FAMILY: &'static str = "coordinator";
    const NAMES: &'static [&'static str] =
        &["coordinator:fifo", "coordinator:skip", "coordinator:reserve=2"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let reserving = Self::reserving(variant)?;
        let promises = Property::sound_and(match reserving {
            0 => &[Property::Concurrency],
            usize::MAX => &[Property::NoStarvation, Property::BoundedOvertaking(0)],
            _ => &[Property::NoStarvation],
        });
        Ok(About {
            name: format!("{}:{}", Self::FAMILY, variant.unwrap_or_default()),
            summary: match reserving {
                0 => "one manager grants whatever fits",
                usize::MAX => "one manager grants in order of arrival; the disjoint may pass",
                _ => "one manager grants whatever fits beside what the G oldest reserve",
            },
            source: "common practice; backfilling as in batch schedulers",
            assumes: Assumes { named: true, ..Assumes::RELIABLE },
            promises,
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self {
            topology: topology.clone(),
            reserving: Self::reserving(options.variant.as_deref())?,
            rules: Rules::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        alloc::vec![self.topology.pools.first().map_or(NodeId(0), |pool| pool.node)]
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, _: ManagerId) -> Manager {
        Manager::new(&self.topology.pools)
    }
}
