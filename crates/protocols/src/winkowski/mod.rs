//! The game of tasks for resources: registration, admission, requests, orders, winning.
//!
//! Source: Józef Winkowski, "Failure-resistant resource management in a distributed multi-agent
//! system" (ICS PAS reports), the complete variant (`winkowski`) and the restricted one
//! (`winkowski-restricted`), repaired: as printed they stop or err (`docs/errata.md`).
//!
//! A task (here: a request, played by its user) first *registers* at its pools and waits until all
//! whom it found competing there have left the game, its *absolute predecessors*. Then it takes a
//! numbered *ticket*, lower numbers first, and competes: it is *admitted* everywhere, puts its
//! *requests* into the queues while nobody of higher priority is in the way (p2), and *withdraws*
//! them again if somebody is; when all fit, it places *orders*, and with all orders confirmed it
//! has won and *uses*. Where somebody of lower priority stands in the way and does not move, an
//! alarm rings, and its request *advances* past it.
//!
//! Instead of the paper's nine one-way forms and its broadcast of whole states:
//!
//! - A task has one *stance* at each pool ([`Level`]), numbered, and waits for the answer before it
//!   takes the next one. Only leaving needs no waiting.
//! - A manager answers with a *view*: the little a task decides upon, computed where the facts are.
//!   It sends another when that changes. Views are numbered; older ones are dropped.
//! - The manager validates orders, so exclusion is a matter of one manager and winning cannot fail.
//!
//! # Invariants
//! - **W1, units.** What is used and what is ordered fit into the pool (`Book::check`).
//! - **W2, queue.** Exactly those who request or have ordered stand in the queue.
//! - **W3, predecessors.** Only the registered have any, and all of them compete.
//! - **W4, orders first.** Whoever wins holds confirmed orders everywhere, and whoever is granted
//!   is confirmed to use everywhere (`Task::check`, `system`).
//! - **F1, the game goes on** (the paper's Fact 1). While a task competes, something is possible for one
//!   of the tasks that it depends on, whatever strangers do (`system`).
//!
//! # Failures
//! A suspected task that does not use is *evicted*; one that uses keeps its units until its lease
//! is over. Whoever does not fit beside units held by the suspected is *stranded*: it goes back to
//! being registered, keeping its ticket, so that nobody waits for it meanwhile. That keeps the
//! damage to those in direct conflict with the suspected. Fences are the service's.
//!
//! Assumes that messages arrive in any order, once or more often.

mod book;
mod manager;
mod system;
mod task;
#[cfg(test)]
mod tests;
mod user;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Broken, Lane, LinkStamp, ManagerId, NodeId, Options, Outbox, PoolId, Property,
    Protocol, RequestId, Stamp, System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::Manager;
pub use self::user::{Timer, User};

/// The complete variant, which takes failures into account.
pub type Complete = Winkowski<true>;
/// The restricted variant, without orders and alarms.
pub type Restricted = Winkowski<false>;

/// The number on a ticket.
pub type Number = Stamp<2>;

/// Counts the stances of a task at a pool.
pub type Turn = LinkStamp<0>;

/// Counts the views of a pool that a task is sent.
pub type Version = LinkStamp<1>;

/// What decides who comes first: the lower, the sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// Above those of all competitors that its owner had heard of.
    pub number: Number,
    /// Where the agent of its owner has tickets of its own (`tickets=agents`): which of them.
    pub n: u32,
    /// The lane of its owner, so that no two tickets are the same.
    pub lane: Lane,
}

/// How far a task has got at a pool.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Level {
    /// Not there, or no more.
    #[default]
    Out,
    /// Registered: it watches, and nobody waits for it.
    Reg,
    /// Admitted: it competes; whoever registers from now on waits for it.
    Adm,
    /// Its request is in the queue.
    Req,
    /// Its order is confirmed: the units are set aside for it.
    Ord,
    /// It uses the units.
    Use,
}

/// What a manager may receive: where a task wants to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stance {
    /// The task.
    pub request: RequestId,
    /// Which of its stances at this pool this is.
    pub n: Turn,
    /// The level wanted.
    pub level: Level,
    /// How many units it needs here.
    pub units: u32,
    /// Its ticket, while it competes.
    pub ticket: Option<Ticket>,
    /// If admitted: it waits elsewhere, and nobody need wait for its turn here. If requesting: it
    /// has waited long, and is to pass those of lower priority.
    pub special: bool,
}

/// What a task decides upon at a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// Where the task stands.
    pub level: Level,
    /// If registered: some absolute predecessor is still competing.
    pub waits: bool,
    /// If competing: condition (p2), nobody who comes first is in the way.
    pub may: bool,
    /// Its units are free beside everything before it in the queue.
    pub fits: bool,
    /// It does not fit beside what the suspected hold.
    pub stranded: bool,
}

impl View {
    /// What a task must be told of when it changes. Whether a newcomer would fit is only a hint.
    const fn news(self) -> Self {
        Self { fits: self.fits && matches!(self.level, Level::Req), ..self }
    }
}

/// What a user may receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// The user was taken for dead, or believed somebody who is not honest; its task is out of the
    /// game here.
    Over(RequestId),
    /// How things stand.
    View {
        /// The task.
        request: RequestId,
        /// Its latest stance here.
        n: Turn,
        /// Which of the views since that stance this is.
        version: Version,
        /// What it sees.
        view: View,
        /// If registered: the greatest number on a ticket that was ever here.
        top: Option<Number>,
    },
}

rules! {
    /// The rules in force.
    struct Rules {
        orders "orders": "an order is confirmed only if its units are free",
        all "all": "a task wins only when all its orders are confirmed",
        predecessors "predecessors": "whoever registers waits for all who compete already",
        regress "regress": "requests are withdrawn when somebody who comes first is there",
        priority "priority": "tickets decide who comes first, not arrival",
        advance "advance": "a request that waits long passes those of lower priority",
        once "once": "orders are placed without requests at most once a task",
        strand "strand": "whoever is in the way of the suspected stops competing",
        latest "latest": "older views are dropped",
        answer "answer": "only an answer to the latest stance counts as one",
        ended "ended": "messages of a task that is over are ignored",
        purge "purge": "whoever is reported gone leaves the game",
        lease "lease": "a suspected task that uses keeps its units until they are reclaimed",
    }
}

/// What saves messages, each on unless its setting is 0; `plain` is all of them off. And `numbers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    /// Views go only to those who see something new; otherwise everybody is told of everything.
    filter: bool,
    /// A request is also an admission.
    merge: bool,
    /// The first orders are placed without requests, if all seems free.
    fast: bool,
    /// Of those who were turned away, the one with the lowest ticket comes first.
    turns: bool,
    /// Tickets are above those of all who competed before, and grow for ever; otherwise a ticket is
    /// the lane of its owner.
    numbers: bool,
    /// A ticket has the number nK+i, as the paper suggests: n is the place of the task at its agent
    /// (the number of the lane), i the agent, and K above all agents. Otherwise the agent comes first.
    agents: bool,
    /// The rung of the first alarm: how long a request waits before it tries to pass others, the
    /// paper's Γ, doubled with each.
    gamma: u8,
}

/// The longest Γ: beyond the end of any run.
const GAMMA_MAX: u8 = 20;

impl Settings {
    const PLAIN: Self =
        Self { filter: false, merge: false, fast: false, turns: false, ..Self::DEFAULT };
    const DEFAULT: Self = Self {
        filter: true,
        merge: true,
        fast: true,
        turns: true,
        numbers: false,
        agents: false,
        gamma: 0,
    };

    fn new(family: &'static str, variant: Option<&str>) -> Result<Self, Unsupported> {
        let mut s = Self::DEFAULT;
        for part in variant.unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=').unwrap_or((part, "")) {
                ("filter", "0") => s.filter = false,
                ("merge", "0") => s.merge = false,
                ("fast", "0") => s.fast = false,
                ("turns", "0") => s.turns = false,
                ("numbers", "1") => s.numbers = true,
                ("tickets", "agents") => s.agents = true,
                ("gamma", rung) if rung.parse().is_ok_and(|rung: u8| rung <= GAMMA_MAX) => {
                    s.gamma = rung.parse().unwrap_or_default();
                }
                ("plain", "") => {
                    let Self { numbers, agents, gamma, .. } = s;
                    s = Self { numbers, agents, gamma, ..Self::PLAIN };
                }
                _ => {
                    let known = "plain, filter=0, merge=0, fast=0, turns=0, numbers=1, \
                                 tickets=agents or gamma=0 to gamma=20";
                    return Err(Unsupported::variant(family, part, known));
                }
            }
        }
        Ok(s)
    }

    /// The ticket of a task of this lane.
    fn ticket(self, number: Number, lane: Lane) -> Ticket {
        Ticket { number, n: if self.agents { lane.number } else { 0 }, lane }
    }
}

/// The configuration.
#[derive(Debug)]
pub struct Winkowski<const COMPLETE: bool> {
    topology: Topology,
    settings: Settings,
    rules: Rules,
}

type Out<const COMPLETE: bool, T> = Outbox<Winkowski<COMPLETE>, T>;

/// Each pool has a manager of its own, with the same number.
const fn manager_of(pool: PoolId) -> ManagerId {
    ManagerId(pool.0)
}

impl<const COMPLETE: bool> Protocol for Winkowski<COMPLETE> {
    const FAMILY: &'static str = if COMPLETE { "winkowski" } else { "winkowski-restricted" };
    const NAMES: &'static [&'static str] = &[Self::FAMILY];
    const STAGES: u32 = 3;
    type ToUser = ToUser;
    type ToManager = Stance;
    type User = User<COMPLETE>;
    type Manager = Manager<COMPLETE>;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let patience = !Settings::new(Self::FAMILY, variant)?.turns;
        let lively = [Property::NoStarvation, Property::Independence];
        Ok(About {
            name: variant
                .map_or_else(|| String::from(Self::FAMILY), |v| format!("{}:{v}", Self::FAMILY)),
            summary: if COMPLETE {
                "a game: registered, admitted, requesting, ordering, using; failures stay local"
            } else {
                "a game: registered, admitted, requesting, using; without failures"
            },
            source: "Winkowski, failure-resistant resource management, repaired",
            assumes: Assumes { exactly_once: false, suspicions: COMPLETE, ..Assumes::RELIABLE },
            promises: Property::sound_and(if patience { &[] } else { &lively }),
            with_patience: if patience { lively.to_vec() } else { Vec::new() },
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self {
            topology: topology.clone(),
            settings: Settings::new(Self::FAMILY, options.variant.as_deref())?,
            rules: Rules::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.topology.pools.iter().map(|pool| pool.node).collect()
    }

    fn user(&self, id: UserId) -> User<COMPLETE> {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager<COMPLETE> {
        Manager::new(id, self.topology.pools[id.index()].capacity, self.topology.origin)
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        system::check(system)
    }
}
