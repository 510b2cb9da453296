//! What has become of requests, apart from how that was decided.
//!
//! Facts are kept with the inputs that led to them. The same code must come to the same facts again;
//! other code, after an upgrade, goes on from them ([`crate::books`]).

use std::sync::Arc;

use holdall_wire::{Ask, Kind, Name, Refusal, RequestNo, Taken, Who};
use serde::{Deserialize, Serialize};

use crate::session::{CallNo, SessionId};

/// Something that is so from now on. `H` is how the processes that use a grant are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact<H> {
    /// A request has come; it waits until another fact says more.
    Asked {
        /// Its number, higher than all before.
        request: RequestNo,
        /// Whose.
        session: SessionId,
        /// The call that asked.
        call: CallNo,
        /// Who asks.
        who: Arc<Who>,
        /// For what.
        ask: Ask,
    },
    /// A request holds all it asked for.
    Granted {
        /// The request.
        request: RequestNo,
        /// What it holds, for each need in the order named.
        taken: Vec<Taken>,
        /// Since when.
        since: u64,
        /// Until when, if it is a reservation.
        until: Option<u64>,
    },
    /// A reservation lasts until then.
    Renewed {
        /// The reservation.
        request: RequestNo,
        /// The time.
        until: u64,
    },
    /// A grant is used by these processes.
    Used {
        /// The grant.
        request: RequestNo,
        /// How they are known.
        holder: H,
    },
    /// The client of a grant has ended, its processes have not.
    Left {
        /// The grant.
        request: RequestNo,
    },
    /// A request is over, whether it waited or held.
    Ended {
        /// The request.
        request: RequestNo,
        /// How.
        how: How,
    },
    /// A pool is this now, or is no more.
    Pool {
        /// Its name.
        name: Name,
        /// What it consists of.
        kind: Option<Kind>,
    },
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Its time was over.
    Expired,
    /// Its client was killed, or lost its lease.
    Gone,
    /// It was taken away.
    Lost,
    /// It is not granted.
    Refused(Refusal),
    /// It was given back.
    Released,
    /// It was not wanted any more before it was granted.
    Withdrawn,
}
