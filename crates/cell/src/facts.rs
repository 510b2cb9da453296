//! What has become of requests and sessions, apart from how that was decided.
//!
//! Facts are kept with the inputs that led to them. The same code must come to the same facts again;
//! other code, after an upgrade, goes on from them ([`crate::books`]).

use std::sync::Arc;

use holdall_wire::holder::Record;
use holdall_wire::{Ask, Drained, Kind, Name, Place, Refusal, Reply, RequestNo, Taken, Who};
use serde::{Deserialize, Serialize};

use crate::session::{CallNo, Means, Secret, SessionId};

/// Something that is so from now on. New kinds are added at the end: their order is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The host has started, and nobody is connected.
    Started {
        /// Numbers and fences are above it.
        epoch: u32,
        /// The boot of the machine.
        boot: Arc<str>,
    },
    /// A client is here for the first time.
    Session {
        /// Its session.
        session: SessionId,
        /// What only it knows.
        secret: Secret,
        /// The user.
        uid: u32,
        /// What the session lasts as long as.
        means: Means,
    },
    /// A session is over.
    SessionOver(SessionId),
    /// A call has its last reply. (That of one that asked follows from the end of its request.)
    Answered {
        /// Whose.
        session: SessionId,
        /// The call.
        call: CallNo,
        /// The reply.
        reply: Reply,
    },
    /// A client has heard the end of all its calls up to one.
    Heard {
        /// Whose.
        session: SessionId,
        /// The call.
        upto: CallNo,
    },
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
        taken: Arc<[Taken]>,
        /// Since when.
        since: u64,
        /// Until when, if it is a reservation.
        until: Option<u64>,
    },
    /// A grant for a command may be told: what was to be made for it is made.
    Ready {
        /// The grant.
        request: RequestNo,
        /// The cgroup that was made, as a holder.
        holder: Option<Record>,
        /// Where the command starts, if its client may start it there.
        place: Option<Place>,
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
        holder: Record,
    },
    /// A grant was taken away from its client, which has until then to stop using it.
    TakenAway {
        /// The grant.
        request: RequestNo,
        /// The time at which its processes are killed.
        kill_at: u64,
    },
    /// The client of a grant has ended or given it back, its processes have not ended.
    Left {
        /// The grant.
        request: RequestNo,
        /// How it will end, with them.
        how: How,
        /// The call that is answered then.
        call: Option<CallNo>,
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
        /// Whether that is so because the configuration says it.
        configured: bool,
    },
    /// These units are given to nobody, and no others.
    Drained(Vec<(Name, Drained)>),
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
    /// It does not fit the pools any more, and is not moved to other units.
    Unrestored,
    /// It was not wanted any more before it was granted.
    Withdrawn,
}

impl How {
    /// What the call that asked is told in the end.
    pub fn reply(&self, request: RequestNo) -> Reply {
        match self {
            Self::Expired | Self::Gone | Self::Lost | Self::Unrestored => Reply::Lost(request),
            Self::Refused(why) => Reply::Refused(why.clone()),
            Self::Released => Reply::Done,
            Self::Withdrawn => Reply::Refused(Refusal::Withdrawn),
        }
    }
}
