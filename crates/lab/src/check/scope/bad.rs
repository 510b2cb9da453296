//! Why a scope cannot be explored.

use holdall_core::{BadNeeds, CellId, Length, Unsupported};

use super::{USERS_MAX, UnitMask};
use crate::check::Detector;

/// A scope that makes no sense, or that the protocol does not serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadScope {
    /// `--all` is not readable, or asks for too many scopes.
    #[error("--all {0}: expected CLIENTSxRESOURCES, like 3x3; at most 6x4")]
    Assignments(String),
    /// Managers are to be told of a crash, but there are none.
    #[error(
        "--detector {detector}: {protocol} has no managers that could be told; use --detector none"
    )]
    Detector {
        /// What they are to be told.
        detector: Detector,
        /// The protocol.
        protocol: String,
    },
    /// A unit of a pool whose units have no numbers.
    #[error(
        "user {lane} asks for unit {unit} of pool {pool}, which is counted; a listed one is written \
         --pools 0-{last}"
    )]
    Counted {
        /// The user.
        lane: usize,
        /// The unit.
        unit: u32,
        /// The pool.
        pool: u64,
        /// The last unit it would have.
        last: u32,
    },
    /// A pool without units.
    #[error("--pools {pools}: pool {at} has no units; give it at least 1")]
    EmptyPool {
        /// All pools, as written.
        pools: String,
        /// Its number.
        at: usize,
    },
    /// Locality of a user that never ends its use.
    #[error("user {0} never ends its use; locality is about users that do: leave out its '!'")]
    Endless(usize),
    /// Cells or nodes that do not go with what they are for, one by one.
    #[error("{option} names {named} {what} for {count} {of}s; name one for each {of}")]
    Mismatch {
        /// The option.
        option: &'static str,
        /// How many it names.
        named: usize,
        /// Of these.
        what: &'static str,
        /// How many there are to name.
        count: usize,
        /// One of those.
        of: &'static str,
    },
    /// A cell that nobody lives in.
    #[error("--reboot {}: no user is in that cell; --homes puts users in cells", .0.0)]
    NoCell(CellId),
    /// The system does not say how much memory is in use.
    #[error("--memory: how much memory is in use cannot be found out here")]
    MemoryUnknown,
    /// A manager is to crash, but there are none.
    #[error("--crash-manager {manager}: {protocol} has no managers")]
    NoManagers {
        /// The manager.
        manager: usize,
        /// The protocol.
        protocol: String,
    },
    /// Somebody is asked for a pool that there is not.
    #[error("user {lane} asks for pool {pool}, but the pools are 0 to {last}")]
    NoPool {
        /// The user.
        lane: usize,
        /// The pool.
        pool: u64,
        /// The last there is.
        last: usize,
    },
    /// A pool that is not readable.
    #[error(
        "--pools {pools}: '{part}' is neither a number of units nor, like 0-2, a list of them from 0"
    )]
    NoPools {
        /// All pools, as written.
        pools: String,
        /// This one.
        part: String,
    },
    /// A unit that a pool does not have.
    #[error("user {lane} asks for unit {unit} of pool {pool}, whose units are 0 to {last}")]
    NoUnit {
        /// The user.
        lane: usize,
        /// The unit.
        unit: u32,
        /// The pool.
        pool: u64,
        /// The last there is.
        last: u32,
    },
    /// What should be a number is none.
    #[error("{option} {text}: '{number}' is no number up to {}", u32::MAX)]
    NoNumber {
        /// The option.
        option: &'static str,
        /// Its value.
        text: String,
        /// The part that is no number.
        number: String,
    },
    /// A user or manager that there is not.
    #[error("{option} {number}: the {what}s are 0 to {last}")]
    Nobody {
        /// The option.
        option: &'static str,
        /// Its value.
        number: usize,
        /// A user or a manager.
        what: &'static str,
        /// The last there is.
        last: usize,
    },
    /// The protocol knows no units by name.
    #[error(
        "{0} takes only counted pools: it knows no units by name; house, coordinator and ordered do"
    )]
    OnlyCounted(String),
    /// The protocol serves no users that come and go.
    #[error("{0} takes only users that stay, not '^'")]
    OnlyStaying(String),
    /// The protocol serves no pools of several units.
    #[error("{0} takes only pools of 1 unit")]
    OnlySingleUnits(String),
    /// Too many units are asked for.
    #[error("user {lane} asks for {units} units of pool {pool}, which has {capacity}")]
    TooLarge {
        /// The user.
        lane: usize,
        /// How many.
        units: u32,
        /// The pool.
        pool: u64,
        /// What it has.
        capacity: u32,
    },
    /// More units than sets of them have bits.
    #[error("{0} units in listed pools are too many; at most {most}", most = UnitMask::BITS)]
    TooManyUnits(u64),
    /// More users than sets of them have bits.
    #[error("{0} users are too many; at most {USERS_MAX}")]
    TooManyUsers(usize),
    /// A request for more pools than the protocol takes.
    #[error("{protocol} takes at most {most} pools in a request, not {widest}")]
    TooWide {
        /// The protocol.
        protocol: String,
        /// What it takes.
        most: u32,
        /// The most that are asked for at once.
        widest: usize,
    },
    /// The protocol cannot be had in this form.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// `--users` cannot be read; `>` marks the place.
    #[error("--users: {why} at the mark: '{before}>{after}'")]
    Users {
        /// Why.
        why: Unreadable,
        /// What is before the place.
        before: String,
        /// What is behind it.
        after: String,
    },
}

/// Why `--users` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A user does two things after its list.
    #[error("a user repeats or respawns, not both")]
    Both,
    /// Something else should be here.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A length that no use has.
    #[error("the length of a use is a number from 1 to {most}, not {0}", most = Length::MAX)]
    Length(u32),
    /// A request that makes no sense.
    #[error(transparent)]
    Needs(#[from] BadNeeds),
}
