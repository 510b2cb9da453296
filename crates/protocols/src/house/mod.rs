//! The house protocol: what the service runs.
//!
//! One manager per node guards all pools of the node. A request whose pools are all on one node is
//! *solo*: its manager decides alone, by skipping with reservations for the oldest. A request over
//! several nodes first tries all of them at once; if they cannot all serve it at once, it takes a
//! *round*, a number it chooses once from what the managers tell, and queues everywhere under it.
//! (Round, user) is the same order at every node, so waiting forms no cycle; a guess that was wrong
//! is repaired by asking unconfirmed holds back. Whoever asks for much takes several rounds in a row
//! ([`Span`]), so that those who ask for little do not use up the rounds before it, one each.
//!
//! Source: the rounds are the positions of Rhee's modular algorithm ("A modular algorithm for
//! resource allocation"), made absolute, so that nobody has to walk down from position to position.
//!
//! # Invariants
//! - **H1, units.** What is held makes up what is used of a pool, unit by unit where they have numbers
//!   (`Manager::check`).
//! - **H2, stance.** An entry follows the user's latest stance (`n`): a hold ends only by a later
//!   stance, by a release, by a later request of its lane, or by a report that the user is gone. A
//!   user enters only with an answer
//!   to its current stance from every node, and from then on sends nothing but the release. So whatever
//!   a manager has said of the latest stance is still true when it arrives, and whoever is granted is held for
//!   everywhere (`Protocol::check_system`; proven for all sizes, `docs/proof.md`).
//! - **H3.** Whoever has the least (round, user) of all that compete gets everything: larger ones
//!   give back what they hold and have not confirmed.
//!
//! # Overdue holders
//! A request that waits behind a holder that does not end must not keep other units idle. A holder
//! that others have been waiting for through two rings of the manager's timer is *overdue* for them. Whoever
//! waits behind one steps aside: it reserves nothing here, and *parks* at its other nodes, giving
//! back what it holds there but keeping its place, until those end for whom it did; whoever passes it
//! meanwhile does not keep it aside. Once it has stepped aside `PARKS_MAX` times at a node, each time with twice
//! the patience, it does so only for those who came before it. So long uses one after another cannot starve it, also if they overlap.
//!
//! Assumes that messages arrive in any order, once or more often; with `resend=1` they may also be
//! lost, are sent again until they are answered, and releases are acknowledged. The requests of one lane
//! follow each other: a later one says that the earlier are over, and what a manager must remember
//! of the past is one id for each lane.

mod arrivals;
mod entries;
mod entry;
mod manager;
mod marks;
mod parts;
mod passed;
mod places;
mod queue;
mod rest;
mod scan;
mod seen;
mod span;
#[cfg(test)]
mod tests;
mod user;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Broken, CellId, ManagerId, Needs, NodeId, Options, Picked, PoolId, Property,
    Protocol, RequestId, Stamp, System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::manager::{Manager, Timer};
pub use self::marks::Marks;
pub use self::queue::Place;
pub use self::span::Span;
pub use self::user::User;

/// A place in the order of service, the same at all nodes.
pub type Round = Stamp<1>;

/// What a manager may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Wait for these, under a round.
    Queue(Stance),
    /// Withdraw this, or take it back.
    Release(RequestId),
    /// Hold these if they are free and nobody waits for them. Number 0 of its stances.
    Try {
        /// The request.
        request: RequestId,
        /// Its needs at this node.
        needs: Needs,
        /// Whether these are all its needs; then it waits if they are not free.
        solo: bool,
        /// How many rounds it would take.
        span: Span,
    },
}

/// Where a request wants to stand at a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stance {
    /// The request.
    pub request: RequestId,
    /// Which of its stances at this node this is; the attempt was number 0.
    pub n: u32,
    /// Its round.
    pub round: Round,
    /// How many it takes from there on.
    pub span: Span,
    /// The floor above which the round was chosen.
    pub base: Round,
    /// Its needs at this node.
    pub needs: Needs,
    /// Whether it only keeps its place, because it waits elsewhere behind an overdue holder.
    pub parked: bool,
}

impl ToManager {
    /// An attempt to hold something, by a request that needs something elsewhere, too.
    pub const fn attempt(request: RequestId, needs: Needs) -> Self {
        Self::Try { request, needs, solo: false, span: Span::ONE }
    }

    /// The same message with other needs, if it has some: managers of other cells know pools by other numbers.
    #[must_use]
    pub fn with_needs(self, needs: Needs) -> Self {
        match self {
            Self::Queue(stance) => Self::Queue(Stance { needs, ..stance }),
            Self::Release(request) => Self::Release(request),
            Self::Try { request, solo, span, .. } => Self::Try { request, needs, solo, span },
        }
    }

    /// What the message is about.
    pub const fn request(&self) -> RequestId {
        match self {
            Self::Queue(Stance { request, .. })
            | Self::Release(request)
            | Self::Try { request, .. } => *request,
        }
    }
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// Choose a round above the floor that is not marked.
    No {
        /// The request.
        request: RequestId,
        /// To which stance.
        n: u32,
        /// No round up to this one is left.
        floor: Round,
        /// Rounds in which there is no room.
        marks: Marks,
    },
    /// The request is over for this manager: it was released, if that is to be acknowledged, its user
    /// was taken for dead, or it cannot be served (any more).
    Over(RequestId),
    /// A holder in the way of the request is overdue, or no longer.
    Park {
        /// The request.
        request: RequestId,
        /// How often this manager has said so; what comes late is known by it.
        turn: u32,
        /// Whether to park elsewhere.
        on: bool,
    },
    /// The units are held, as long as this is the latest stance.
    Yes {
        /// The request.
        request: RequestId,
        /// Under which stance.
        n: u32,
        /// Which they are, of listed pools.
        units: Picked,
    },
    /// Somebody who comes first needs what is held: give it back, unless all is held.
    Yield {
        /// The request.
        request: RequestId,
        /// Under which stance it is held.
        n: u32,
    },
}

impl ToUser {
    /// The same message without the units that it names: elsewhere they have other numbers.
    #[must_use]
    pub fn without_units(self) -> Self {
        match self {
            Self::Yes { request, n, .. } => Self::Yes { request, n, units: Picked::new() },
            other => other,
        }
    }

    /// What the message is about.
    pub const fn request(&self) -> RequestId {
        match self {
            Self::No { request, .. }
            | Self::Over(request)
            | Self::Park { request, .. }
            | Self::Yes { request, .. }
            | Self::Yield { request, .. } => *request,
        }
    }
}

rules! {
    /// The rules in force.
    struct Rules {
        ended "ended": "messages of a request that is over are ignored",
        stance "stance": "an older stance does not undo a later one",
        latest "latest": "a user counts only answers to its latest stance",
        firm "firm": "a user that was granted gives nothing back",
        yields "yield": "whoever comes first asks unconfirmed holds back",
        reserve "reserve": "whoever waits under a round reserves what it needs",
        by_name "by-name": "units that were named by those who come first are kept for them",
        by_count "by-count": "whoever names units leaves as many others as those who come first need",
        solo_rounds "solo-rounds": "a solo request in the way of a round takes one itself",
        floor "floor": "a round that was used is not chosen again",
        behind "behind": "an attempt does not pass those who wait",
        order "order": "rounds order the queue, not arrival",
        implied "implied": "a later request of a lane ends the earlier ones",
        purge "purge": "whoever is reported gone loses its units and its place",
        park "park": "whoever waits behind an overdue holder steps aside",
        aside "aside": "whoever has stepped aside does not stay so for those who pass it meanwhile",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct House {
    topology: Topology,
    /// The nodes that have pools; a manager is numbered by its place here.
    nodes: Vec<NodeId>,
    /// How many of the oldest solo requests reserve what they need (`reserve=`).
    reserving: usize,
    /// How often a solo request is passed at one of its pools before it takes a round (`passes=`).
    passes: u32,
    /// How often a user chooses again because its round was taken meanwhile (`bumps=`).
    bumps: u32,
    /// How often a request steps aside at a node for whoever is overdue, before it does so only for those
    /// who came before it (`parks=`).
    parks: u32,
    /// How many rounds a request takes at most (`span=`).
    span: u32,
    /// Which messages may be lost, and are therefore sent again until they are answered (`resend=`).
    resend: Resend,
    /// Whether a manager looks through everything after every change (`thorough=1`), as if it did
    /// not know what a change can affect. Nothing but the cost depends on it, as long as whoever
    /// waits reserves.
    thorough: bool,
    /// The cell whose users hear from the manager at once, and need no acknowledgement; only where others may.
    own: Option<CellId>,
    rules: Rules,
}

/// Which messages may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resend {
    /// None (`resend=0`).
    Nothing,
    /// Any (`resend=1`).
    Everything,
    /// Those between cells (`resend=2`): a user's first manager is that of its own cell.
    Abroad,
}

/// The bits of the id of a late pool below the number of its manager.
const LATE_POOL_BITS: u32 = 32;

/// Rings of patience before a holder is overdue start at this rung.
const PATIENCE: u8 = 6;
/// So often a request steps aside at a node for whoever is overdue.
const PARKS_MAX: u32 = 2;

impl House {
    /// The manager that guards a pool. Of a pool that came later, its id tells ([`House::pool_at`]).
    fn manager_of(&self, pool: PoolId) -> ManagerId {
        let Some(known) = self.topology.pools.get(pool.index()) else {
            return ManagerId(pool.0 >> LATE_POOL_BITS);
        };
        ManagerId(self.nodes.binary_search(&known.node).unwrap_or(0) as u64)
    }

    /// The id of a pool that came later: the `number`-th of a manager.
    pub const fn pool_at(manager: ManagerId, number: u32) -> PoolId {
        PoolId(manager.0 << LATE_POOL_BITS | number as u64)
    }

    /// Whether some messages may be lost: then managers acknowledge releases.
    fn resends(&self) -> bool {
        self.resend != Resend::Nothing
    }

    /// From now on a manager knows which users nothing is lost on the way to, if messages between cells alone may be.
    pub fn settle(&mut self, own: CellId) {
        self.own = Some(own);
    }

    /// Whether a manager acknowledges the releases of a user.
    fn acknowledges(&self, user: UserId) -> bool {
        match self.resend {
            Resend::Nothing => false,
            Resend::Everything => true,
            Resend::Abroad => self.own != Some(user.home().cell),
        }
    }

    /// Whether what is sent to a manager may be lost, and so may its answers.
    fn may_lose(&self, to: ManagerId) -> bool {
        match self.resend {
            Resend::Nothing => false,
            Resend::Everything => true,
            Resend::Abroad => to != ManagerId(0),
        }
    }

    fn setting(variant: Option<&str>, name: &str, default: u32) -> Result<u32, Unsupported> {
        let mut value = default;
        for part in variant.unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
            let (key, number) = part.split_once('=').unwrap_or((part, ""));
            if !["reserve", "passes", "bumps", "parks", "span", "resend", "thorough"].contains(&key)
            {
                let known = "reserve=, passes=, bumps=, parks=, span=, resend= or thorough=";
                return Err(Unsupported::variant(Self::FAMILY, part, known));
            }
            let number = number.parse().map_err(|_| Unsupported::Number {
                family: Self::FAMILY,
                setting: part.into(),
                value: number.into(),
            })?;
            if key == name {
                value = number;
            }
        }
        Ok(value)
    }
}

impl Protocol for House {
    const FAMILY: &'static str = "house";
    const NAMES: &'static [&'static str] = &["house"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        Self::setting(variant, "", 0)?;
        Ok(About {
            name: variant.map_or_else(|| Self::FAMILY.into(), |v| format!("{}:{v}", Self::FAMILY)),
            summary: "one node decides alone; several agree on rounds; nobody idles behind the overdue",
            source: "rounds after Rhee's positions; reservations as in backfilling",
            assumes: Assumes {
                exactly_once: false,
                no_loss: Self::setting(variant, "resend", 0)? != 1,
                suspicions: true,
                named: true,
                ..Assumes::RELIABLE
            },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: alloc::vec![Property::Concurrency],
            rules: Rules::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let variant = options.variant.as_deref();
        let setting = |name, default| Self::setting(variant, name, default);
        let nodes: BTreeSet<NodeId> = topology.pools.iter().map(|pool| pool.node).collect();
        Ok(Self {
            topology: topology.clone(),
            nodes: nodes.into_iter().collect(),
            reserving: setting("reserve", 2)? as usize,
            passes: setting("passes", 1024)?,
            bumps: setting("bumps", 4)?,
            parks: setting("parks", PARKS_MAX)?,
            span: setting("span", Span::MAX.into())?,
            resend: match setting("resend", 0)? {
                0 => Resend::Nothing,
                2 => Resend::Abroad,
                _ => Resend::Everything,
            },
            thorough: setting("thorough", 0)? != 0,
            own: None,
            rules: Rules::new(options),
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        if self.nodes.is_empty() { alloc::vec![NodeId(0)] } else { self.nodes.clone() }
    }

    fn user(&self, id: UserId) -> User {
        User::new(id)
    }

    fn manager(&self, id: ManagerId) -> Manager {
        let pools = (0..).map(PoolId).zip(self.topology.pools.iter());
        let own = pools.filter(|(pool, _)| self.manager_of(*pool) == id);
        Manager::new(self, own, Round::first(self.topology.origin))
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        seen::check(system)
    }
}
