//! What a protocol says of itself, and what it is told at the start.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use crate::ids::{NodeId, PoolId};
use crate::rules::Rule;
use crate::stamp::Origin;

/// What a protocol is, assumes and promises. The registry prints it; the checker holds the
/// protocol to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// The full name, with the variant.
    pub name: String,
    /// One line for people.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What it assumes.
    pub assumes: Assumes,
    /// What it promises in return.
    pub promises: Vec<Property>,
    /// What it promises besides if timers ring only when nothing else can move (`--timers quiet`).
    pub with_patience: Vec<Property>,
    /// Its rules that can be taken away, to see what each is for.
    pub rules: Vec<Rule>,
}

impl About {
    /// How often a settled request may be overtaken, if that is promised.
    pub fn overtaking_bound(&self) -> Option<u32> {
        self.promises.iter().find_map(|p| match p {
            Property::BoundedOvertaking(n) => Some(*n),
            _ => None,
        })
    }
}

/// What a protocol takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Assumes {
    /// The order in which a link delivers.
    pub order: Order,
    /// Whether every message must arrive exactly once.
    pub exactly_once: bool,
    /// Whether every message must arrive.
    pub no_loss: bool,
    /// Whether users must know whom they may conflict with.
    pub participants: Known,
    /// The largest number of needs in one request.
    pub needs_max: Option<u32>,
    /// Whether pools may have several units.
    pub units: bool,
    /// Whether pools may be listed, and requests name units of them.
    pub named: bool,
    /// Whether users may depart at any stage.
    pub departures: bool,
    /// Whether managers may be told of a user that is only suspected: that it may be alive, and be
    /// heard of later. Otherwise they must be told only of those who are certainly gone.
    pub suspicions: bool,
    /// Whether the order in which a client names its needs makes a difference.
    pub order_asked: bool,
}

impl Assumes {
    /// That every message arrives once, in any order, and that nobody names units; nothing else: whoever
    /// asks may ask for as much as there is, is known to nobody, and may depart at any time.
    pub const RELIABLE: Self = Self {
        order: Order::Unordered,
        exactly_once: true,
        no_loss: true,
        participants: Known::Unknown,
        needs_max: None,
        units: true,
        named: false,
        departures: true,
        suspicions: false,
        order_asked: false,
    };
}

/// In which order messages between two roles arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As they were sent.
    Fifo,
    /// In any order.
    Unordered,
}

/// Whether the users that may conflict know each other from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Known {
    /// Each knows its neighbours.
    Known,
    /// Nobody knows anybody.
    Unknown,
}

/// What a protocol may promise. `docs/checking.md` says exactly how each is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// No pool has more units in use than it has, and no unit of a listed pool is in use twice.
    Exclusion,
    /// A grant covers one pending request, all of it, once.
    AllOrNothing,
    /// The roles' own invariants hold, and no honest party is called dishonest.
    Local,
    /// The system never comes to rest while a request is unsatisfied and every use ends.
    NoDeadlock,
    /// When all is over, nothing of it is left in any role.
    NoResidue,
    /// Whoever has ended its use may ask again in the end, and when all is over, the system comes to
    /// rest.
    NoLivelock,
    /// If every use ends, every request is satisfied.
    NoStarvation,
    /// If the uses of those who share a pool with it end, a request is satisfied: whoever holds
    /// or waits elsewhere for ever does not block it.
    Concurrency,
    /// A request that conflicts with nobody who waits or uses at the moment is satisfied, whoever uses
    /// whatever else for ever. (Rhee's concurrency, Theorem 5.11; weaker than the one before, which
    /// also takes those into account who wait.)
    CurrentConflicts,
    /// If the uses of those end that it depends on, a request is satisfied, whoever else uses whatever
    /// for ever: it depends on all whom it reaches at the moment over pools that are waited for or used.
    /// (What Winkowski's Facts 2 to 4 say; more than `NoStarvation`, and less than `Concurrency`.)
    Independence,
    /// A request that has settled is overtaken by later ones at most this often.
    BoundedOvertaking(u32),
}

impl Property {
    /// What every sound protocol promises, and these others besides.
    pub fn sound_and(others: &[Self]) -> Vec<Self> {
        let sound = [
            Self::Exclusion,
            Self::AllOrNothing,
            Self::Local,
            Self::NoDeadlock,
            Self::NoResidue,
            Self::NoLivelock,
        ];
        [&sound, others].concat()
    }

    /// The name without a number.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::AllOrNothing => "all-or-nothing",
            Self::Local => "local",
            Self::NoDeadlock => "no-deadlock",
            Self::NoResidue => "no-residue",
            Self::NoLivelock => "no-livelock",
            Self::NoStarvation => "no-starvation",
            Self::Concurrency => "concurrency",
            Self::CurrentConflicts => "current-conflicts",
            Self::Independence => "independence",
            Self::BoundedOvertaking(_) => "bounded-overtaking",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BoundedOvertaking(n) => write!(f, "{}={n}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl Serialize for Property {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The system a protocol is to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The pools, in their global order.
    pub pools: Vec<Pool>,
    /// The pools that the users of each lane may ever ask for. Known only to protocols that assume
    /// known neighbours ([`Known::Known`]); empty for all others.
    pub users: Vec<BTreeSet<PoolId>>,
    /// Where its clocks start.
    pub origin: Origin,
}

impl Topology {
    /// A system whose users are unknown.
    pub fn of_pools(pools: Vec<Pool>) -> Self {
        Self { pools, users: Vec::new(), origin: Origin::default() }
    }

    /// Whether a pool is listed, if it is known.
    pub fn is_listed(&self, pool: PoolId) -> Option<bool> {
        self.pools.get(pool.index()).map(|pool| pool.listed)
    }
}

/// A pool as a protocol sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// How many units it has.
    pub capacity: u32,
    /// Where it is.
    pub node: NodeId,
    /// Whether it is listed: its units are known by their numbers, from 0 on, and may be asked for by
    /// them. Of others, which are counted, nobody tells one unit from another.
    pub listed: bool,
}

/// How a protocol is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The part of the name after the colon.
    pub variant: Option<String>,
    /// Rules to take away. Only the lab does that.
    pub without: Vec<String>,
}

/// A protocol cannot do what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// It has no such variant, or no such setting.
    #[error("{family} has no variant '{variant}': use {known}")]
    Variant {
        /// The family of protocols.
        family: &'static str,
        /// What was asked for.
        variant: String,
        /// What there is.
        known: &'static str,
    },
    /// It has no variants at all.
    #[error("{family} has no variants, so no '{variant}': use {family}")]
    NoVariants {
        /// The family.
        family: &'static str,
        /// What was asked for.
        variant: String,
    },
    /// It is nothing without a variant.
    #[error("{family} needs a variant: use {known}")]
    VariantMissing {
        /// The family.
        family: &'static str,
        /// What there is.
        known: &'static str,
    },
    /// A setting has no number.
    #[error("{family}:{setting}: '{value}' is no number")]
    Number {
        /// The family.
        family: &'static str,
        /// The setting, whole.
        setting: String,
        /// What is no number.
        value: String,
    },
}

impl Unsupported {
    /// There is no such variant.
    pub fn variant(family: &'static str, variant: &str, known: &'static str) -> Self {
        Self::Variant { family, variant: variant.into(), known }
    }
}
