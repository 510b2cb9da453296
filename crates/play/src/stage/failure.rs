//! What can go wrong in a play.

use std::io;

/// Why a play has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A role went wrong, or two clients used the same.
    #[error("{protocol}: {who} in {place} (process {process}) went wrong: {what}")]
    Role {
        /// The name of the protocol.
        protocol: String,
        /// The role.
        who: String,
        /// The process it was in.
        place: String,
        /// The id of that process.
        process: u32,
        /// How.
        what: String,
    },
    /// A process ended that should not have.
    #[error("{protocol}: {place} (process {process}) has ended: {how}")]
    Ended {
        /// The name of the protocol.
        protocol: String,
        /// Which.
        place: String,
        /// Its id.
        process: u32,
        /// How.
        how: String,
    },
    /// A process does not answer.
    #[error(
        "{protocol}: {place} (process {process}) does not answer: it was stopped, or something in \
         it does not come to an end"
    )]
    Silent {
        /// The name of the protocol.
        protocol: String,
        /// Which.
        place: String,
        /// Its id.
        process: u32,
    },
    /// Messages may have been lost.
    #[error("{protocol}: {by} (process {process}) has lost its connection to {to}, which is there")]
    Cut {
        /// The name of the protocol.
        protocol: String,
        /// Who sent on it.
        by: String,
        /// Its id.
        process: u32,
        /// Who was to receive.
        to: String,
    },
    /// The system refuses something.
    #[error("cannot {what}: {error}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// For `map_err`: what the system refused.
pub(crate) fn cannot(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::System { what, error }
}
