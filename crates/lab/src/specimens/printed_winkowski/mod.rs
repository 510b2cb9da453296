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
    Rule, Topology, Unsupported, UserId,
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

const RULES: &[Rule] = &[
    Rule { name: "d1", says: "a registration form that was sent is off the list of destinations" },
    Rule { name: "d2", says: "a task is admitted only when all its pools have answered" },
    Rule { name: "d3", says: "order forms are learned about, too" },
    Rule { name: "d4", says: "the alarm clock is set to a later moment, and only when blocked" },
    Rule {
        name: "d5",
        says: "orders are placed only when all requests are within what is accessible",
    },
    Rule { name: "d6", says: "a task wins only when it has seen all its order forms" },
    Rule { name: "d7", says: "what is withdrawn is what was sent" },
    Rule { name: "d8", says: "after a withdrawal, and after advancing, a task tries again" },
    Rule { name: "d9", says: "on access, admission, request and order form are withdrawn" },
    Rule { name: "d10", says: "a task leaves when all its pools have confirmed the release" },
    Rule { name: "d11", says: "a task decides on what the pools knew after its latest form" },
    Rule { name: "d12", says: "forms are taken in the order sent; older situations are dropped" },
    Rule { name: "d13", says: "blocking requests are compared with requests without order forms" },
    Rule { name: "d14", says: "a request advances past all of lower priority, and no others" },
    Rule { name: "d15", says: "an order form is accepted only within what is accessible" },
    Rule { name: "d16", says: "whoever gives its ticket back stays under control of its agent" },
    Rule { name: "d18", says: "a task learns who uses a pool, not only what is in use" },
];

/// The repairs in force; see [`RULES`].
#[derive(Debug)]
struct Repairs {
    d1: bool,
    d2: bool,
    d3: bool,
    d4: bool,
    d5: bool,
    d6: bool,
    d7: bool,
    d8: bool,
    d9: bool,
    d10: bool,
    d11: bool,
    d12: bool,
    d13: bool,
    d14: bool,
    d15: bool,
    d16: bool,
    d18: bool,
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
            return Err(Unsupported(format!(
                "printed-winkowski has no variants, so no '{variant}'"
            )));
        }
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "specimen: the game of tasks for resources as printed, with a repair for each defect",
            source: "Winkowski, failure-resistant resource management, Section 3",
            assumes: Assumes { departures: false, ..Assumes::RELIABLE },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: RULES.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let keeps = |rule| options.keeps(rule);
        Ok(Self {
            topology: topology.clone(),
            repairs: Repairs {
                d1: keeps("d1"),
                d2: keeps("d2"),
                d3: keeps("d3"),
                d4: keeps("d4"),
                d5: keeps("d5"),
                d6: keeps("d6"),
                d7: keeps("d7"),
                d8: keeps("d8"),
                d9: keeps("d9"),
                d10: keeps("d10"),
                d11: keeps("d11"),
                d12: keeps("d12"),
                d13: keeps("d13"),
                d14: keeps("d14"),
                d15: keeps("d15"),
                d16: keeps("d16"),
                d18: keeps("d18"),
            },
        })
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
