//! What must never happen in an engine.

use holdall_core::{Addr, Broken, PoolId, RequestId, Unit};
use holdall_wire::Name;

/// An engine, or a role in it, is not what it must be. Nothing may be granted any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// A role accuses another. All roles of a node are honest.
    #[error("{by:?} says that {who:?} misbehaves: {what}")]
    Accusation {
        /// The accuser.
        by: Addr,
        /// The accused.
        who: Addr,
        /// Of what.
        what: &'static str,
    },
    /// An invariant of the ledger is broken.
    #[error("the ledger: {0}")]
    Ledger(#[from] Broken),
    /// A request is lost, which happens only to the suspected.
    #[error("{0:?} is lost, though nobody was suspected")]
    Lost(RequestId),
    /// A unit is granted that is not free, or not there.
    #[error("L1: unit {unit} of {pool} is granted, and is not free")]
    NotFree {
        /// The pool.
        pool: Name,
        /// The unit.
        unit: Unit,
    },
    /// An invariant of a role is broken.
    #[error("{who:?}: {broken}")]
    Role {
        /// The role.
        who: Addr,
        /// The invariant.
        broken: Broken,
    },
    /// More is granted than is free.
    #[error("L1: {units} units of {pool} are granted, and only {free} are free")]
    TooMany {
        /// The pool.
        pool: Name,
        /// How many are granted.
        units: u32,
        /// How many are free.
        free: u32,
    },
    /// Units of a pool are granted that is not there.
    #[error("units of {0:?} are granted, and there is no such pool")]
    UnknownPool(PoolId),
}
