//! `printed-winkowski`: the game of tasks for resources as it is printed.
//!
//! Source: Józef Winkowski, "Failure-resistant resource management in a distributed multi-agent
//! system", the complete variant: the local states and the actions of Section 3, one by one, under
//! their names there. Every place where the text cannot be executed or errs has a repair, named
//! after the defect in `docs/errata.md`; with all of them the game can be played to its end.
//!
//! Actions are carried out as soon as they are possible, in the order of the text; only releasing
//! forms are sent one after another. Everything that goes wrong so also goes wrong in the paper's
//! own model, where actions take their time. Tickets are the numbers of the lanes.

mod manager;
mod task;

use std::collections::BTreeSet;

use holdall_core::{
    About, Assumes, LinkStamp, ManagerId, NodeId, Options, PoolId, Property, Protocol, RequestId,
    Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::task::{Timer, User};

/// Numbers the forms of a task to a manager; only repairs look at it.
pub type Number = LinkStamp<0>;
/// Numbers the messages of a manager to a task; only repairs look at it.
pub type Version = LinkStamp<1>;

/// The forms that tasks send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A registration form.
    Registration,
    /// An admission form.
    Admission,
    /// A request.
    Request,
    /// An order form.
    Order,
    /// An advancing form.
    Advancing,
    /// A withdrawal.
    Withdrawal,
    /// A winning form.
    Winning,
    /// A releasing form.
    Releasing,
}

/// What a manager may receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Form {
    kind: Kind,
    task: RequestId,
    units: u32,
    number: Number,
}

/// A request in a queue, or a use. The ticket of a task is its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    task: RequestId,
    units: u32,
}

impl Claim {
    /// Its priority: the lower, the higher.
    const fn ticket(&self) -> u32 {
        self.task.user.lane().number
    }
}

/// What a user may receive: the local state of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Situation {
    /// To whom.
    task: RequestId,
    version: Version,
    /// The latest form of the task that was received.
    heard: Number,
    /// Whether its registration form is in Applications.
    registered: bool,
    admissions: BTreeSet<RequestId>,
    requests: Vec<Claim>,
    orders: BTreeSet<RequestId>,
    /// InUse, with the users.
    uses: Vec<Claim>,
}

rules! {
    /// The rules in force.
    struct Repairs {
        d1 "d1": "a registration form that was sent is off the list of destinations",
        d2 "d2": "a task is admitted only when all its pools have answered",
        d3 "d3": "order forms are learned about, too",
        d4 "d4": "the alarm clock is set to a later moment, and only when blocked",
        d5 "d5": "orders are placed only when all requests are within what is accessible",
        d6 "d6": "a task wins only when it has seen all its order forms",
        d7 "d7": "what is withdrawn is what was sent",
        d8 "d8": "after a withdrawal, and after advancing, a task tries again",
        d9 "d9": "on access, admission, request and order form are withdrawn",
        d10 "d10": "a task leaves when all its pools have confirmed the release",
        d11 "d11": "a task decides on what the pools knew after its latest form",
        d12 "d12": "forms are taken in the order sent; older situations are dropped",
        d13 "d13": "blocking requests are compared with requests without order forms",
        d14 "d14": "a request advances past all of lower priority, and no others",
        d15 "d15": "an order form is accepted only within what is accessible",
        d16 "d16": "whoever gives its ticket back stays under control of its agent",
        d18 "d18": "a task learns who uses a pool, not only what is in use",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct PrintedWinkowski {
    topology: Topology,
    repairs: Repairs,
}

impl PrintedWinkowski {
    const fn manager_of(pool: PoolId) -> ManagerId {
        ManagerId(pool.0)
    }

    fn capacity(&self, pool: PoolId) -> u64 {
        self.topology.pools.get(pool.index()).map_or(0, |pool| u64::from(pool.capacity))
    }
}

impl Protocol for PrintedWinkowski {
    const FAMILY: &'static str = "printed-winkowski";
    const NAMES: &'static [&'static str] = &["printed-winkowski"];
    type ToUser = Situation;
    type ToManager = Form;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        if let Some(variant) = variant {
            return Err(Unsupported::NoVariants { family: Self::FAMILY, variant: variant.into() });
        }
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "specimen: the game of tasks for resources as printed, with a repair for each defect",
            source: "Winkowski, failure-resistant resource management, Section 3",
            assumes: Assumes { departures: false, ..Assumes::RELIABLE },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Repairs::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self { topology: topology.clone(), repairs: Repairs::new(options) })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.topology.pools.iter().map(|pool| pool.node).collect()
    }

    fn user(&self, _: UserId) -> User {
        User::default()
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(id, self.topology.pools[id.index()].capacity)
    }
}
