//! What clients say when they come, and what they are told.

use holdall_wire::RequestNo;
use serde::{Deserialize, Serialize};

use super::{CallNo, ConnNo, Secret, SessionId, UNACKNOWLEDGED_MAX, UNACKNOWLEDGED_OF_USER_MAX};
use crate::facts::Answer;

/// What keeps a session alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Means {
    /// Its connection.
    Connection,
    /// A connection that is not away for longer than so many milliseconds.
    Lease(u64),
    /// A process of this boot of the machine.
    Process {
        /// Its number.
        pid: u32,
        /// When it started, in ticks after the start of the machine.
        start: u64,
    },
    /// The same, and it does not come back over another connection. When its host has started again it
    /// keeps what it holds, and its place in the queue is gone.
    Once {
        /// Its number.
        pid: u32,
        /// When it started, in ticks after the start of the machine.
        start: u64,
    },
}

/// What a client says when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The session.
    pub session: SessionId,
    /// What only its client knows.
    pub secret: Secret,
    /// The user, vouched for by the host.
    pub uid: u32,
    /// What keeps the session alive, a process vouched for by the host; that of one that is known
    /// stays.
    pub means: Means,
    /// Whether it was here before.
    pub returns: bool,
    /// It has heard the end of all calls up to this one.
    pub heard: CallNo,
}

/// What a client is told when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The last call that was taken.
    pub last: CallNo,
    /// Its requests that wait or hold, by the call that asked: whoever knows how these stand tells.
    /// A grant that its client has heard of and that is missing here is over.
    pub open: Vec<(CallNo, RequestNo)>,
    /// What came of calls since the last that it has heard of.
    pub replied: Vec<(CallNo, Answer)>,
    /// Its calls that are being done.
    pub pending: Vec<CallNo>,
    /// The connection that it has taken the session over from.
    pub displaced: Option<ConnNo>,
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Turned {
    /// It was here before, and nobody knows it.
    #[error(
        "the session is over, or was forgotten with the memory of the cell: what it held is not \
         held any more"
    )]
    Forgotten,
    /// It is not the one it says it is.
    #[error("the session is another's: the secret or the user is not the one it began with")]
    Stranger,
    /// Its connection is that of another session.
    #[error("this connection has a session already; connect again for another")]
    Attached,
    /// Its user has too many.
    #[error("this user has {0} sessions, which is as many as it may; end some of them")]
    TooMany(u32),
    /// It wants a lease that is too long.
    #[error("a lease lasts {0} milliseconds at most; ask for a shorter one")]
    TooLong(u64),
}

/// What to do with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Do it, and say what came of it: [`super::Sessions::opened`] or [`super::Sessions::replied`].
    New,
    /// It was done: tell again how its request stands.
    Open(RequestNo),
    /// It was done: tell this again.
    Replied(Answer),
    /// It is being done, and is answered then.
    Pending,
    /// It was done, and its client has heard so.
    Heard,
}

/// Why a call is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Calls are numbered from 1 on.
    #[error("a call has the number 0; the first is 1")]
    Zero,
    /// It comes over a connection that has no session, or not this one any more.
    #[error("this connection has no session; connect again")]
    NotAttached,
    /// Too much is kept for this client.
    #[error("{UNACKNOWLEDGED_MAX} calls are not acknowledged; acknowledge some first")]
    TooMany,
    /// Too much is kept for the clients of its user.
    #[error(
        "{UNACKNOWLEDGED_OF_USER_MAX} calls of this user are not acknowledged; end some of its \
         clients first"
    )]
    TooManyOfUser,
}
