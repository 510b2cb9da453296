//! What went wrong, where, and how to see it again.

use holdall_core::{Addr, PoolId, Request, RequestId};

use crate::Mode;

/// A run that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{protocol} failed at step {step}: {problem}\n{}\nto see it again: holdall fuzz '{protocol}'{} \
     --mode {} --seed {seed} --runs 1",
    trace.join("\n"),
    without.iter().map(|rule| format!(" --without {rule}")).collect::<String>(),
    mode.name()
)]
pub struct Failure {
    /// The protocol.
    pub protocol: String,
    /// The rules it had to do without.
    pub without: Vec<String>,
    /// What was tried.
    pub mode: Mode,
    /// Of the run.
    pub seed: u64,
    /// When.
    pub step: u64,
    /// What.
    pub problem: Problem,
    /// What happened last.
    pub trace: Vec<String>,
}

/// What can go wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A role panicked.
    #[error("{who:?} panicked: {what}")]
    Panic {
        /// Who.
        who: Addr,
        /// With which message.
        what: String,
    },
    /// An invariant of a role does not hold.
    #[error("an invariant of {who:?} is broken: {statement}")]
    Invariant {
        /// Whose.
        who: Addr,
        /// Which.
        statement: &'static str,
    },
    /// An invariant of the whole system does not hold.
    #[error("an invariant of the system is broken: {0}")]
    System(&'static str),
    /// More units of a pool are in use than it has, or one of them twice.
    #[error("{granted:?} was granted, but {pool:?} has no room: exclusion is lost")]
    Exclusion {
        /// To whom.
        granted: RequestId,
        /// Of which pool.
        pool: PoolId,
    },
    /// A request was granted that its client does not wait for.
    #[error("{0:?} was granted, which nobody waits for")]
    UnaskedGrant(Request),
    /// A request ended that its client has not ended.
    #[error("{0:?} was released, whose use has not ended")]
    UnaskedRelease(RequestId),
    /// A request was lost though nobody was suspected.
    #[error("{0:?} was lost, though its user was never suspected")]
    Lost(RequestId),
    /// An honest party was called dishonest.
    #[error("{by:?} accuses {who:?}, which is honest: {what}")]
    Accused {
        /// By whom.
        by: Addr,
        /// Who.
        who: Addr,
        /// Of what.
        what: &'static str,
    },
    /// A role takes itself for idle while it acts for a client, or guards what is used.
    #[error("{0:?} says that it is idle, but is not")]
    Idle(Addr),
    /// A role does what its kind cannot do, or writes to nobody.
    #[error("{by:?} wants what cannot be: {what}")]
    Absurd {
        /// Who.
        by: Addr,
        /// What it wants.
        what: String,
    },
    /// Nothing moves any more, and somebody waits.
    #[error("nothing moves any more, but {0:?} waits")]
    Stuck(RequestId),
    /// Somebody waits, and things move for ever.
    #[error("{0:?} still waits long after all faults are over")]
    Waiting(RequestId),
    /// All is over, and something is left of it.
    #[error("all is over, but {0:?} is not idle")]
    Residue(Addr),
    /// All is over, and messages are sent for ever.
    #[error("all is over, but messages go to and fro for ever")]
    Chatter,
}
