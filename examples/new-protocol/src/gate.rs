//! One at a time through the gate: whoever wants pools first passes a gate, behind which there is room
//! for one, then takes its pools one after another in the order in which it named them, waiting at each
//! in a first-in-first-out queue, and leaves the room when it has them all. It uses them outside.
//!
//! Nobody waits in a circle: the one in the room waits only for those who use their pools, and they wait
//! for nobody. But while it waits there, everybody waits, also those who want something else (no
//! *concurrency*); and if it stops there for good, all others do (`locality`).
//!
//! # Invariants
//! - **G1, units.** No more units of a pool are held than there are (`Manager::check`).
//! - **G2, room.** One user at most is in the room (`Gate::check_system`).
//!
//! Assumes links that keep order: so a release never arrives before the request it is for.

mod manager;
mod questions;
mod user;

use holdall_core::{
    About, Assumes, Broken, ManagerId, NodeId, Options, Order, PoolId, Property, Protocol,
    RequestId, System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

use self::manager::Manager;
pub use self::questions::QUESTIONS;
use self::user::User;

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Join the queue for so many units.
    Acquire { request: RequestId, units: u32 },
    /// Leave the queue, or give the units back.
    Release(RequestId),
}

/// What a user may receive: the units are held for this request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held(RequestId);

rules! {
    /// The rules in force.
    struct Rules {
        gate "gate": "whoever takes pools has passed the gate, one at a time",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Gate {
    topology: Topology,
    rules: Rules,
}

impl Gate {
    /// Each pool has a manager of its own, with the same number.
    fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }

    /// The gate is a pool of one unit, after all others.
    fn gate(&self) -> ManagerId {
        ManagerId(self.topology.pools.len() as u64)
    }
}

impl Protocol for Gate {
    const FAMILY: &'static str = "gate";
    const NAMES: &'static [&'static str] = &["gate"];
    type ToUser = Held;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        if let Some(variant) = variant {
            let variant = variant.into();
            return Err(Unsupported::NoVariants { family: Self::FAMILY, variant });
        }
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "pools taken one after another as asked, by one user at a time",
            source: "an example",
            assumes: Assumes { order: Order::Fifo, order_asked: true, ..Assumes::RELIABLE },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self { topology: topology.clone(), rules: Rules::new(options) })
    }

    fn managers(&self) -> Vec<NodeId> {
        let pools = self.topology.pools.iter().map(|pool| pool.node);
        pools.chain([NodeId(0)]).collect()
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(self.topology.pools.get(id.index()).map_or(1, |pool| pool.capacity))
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let in_the_room = system.users().filter(|user| user.is_in_the_room()).count();
        Broken::unless(!self.rules.gate || in_the_room <= 1, "G2: one at most is in the room")
    }
}
