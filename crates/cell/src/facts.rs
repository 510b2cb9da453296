//! What has become of requests and sessions, apart from how that was decided.
//!
//! Facts are kept with the inputs that led to them. The same code must come to the same facts again;
//! other code, after an upgrade, goes on from them ([`crate::books`]).

use std::sync::Arc;

use holdall_core::{CellId, RequestId};
use holdall_wire::holder::Record;
use holdall_wire::{
    Ask, Change, Drained, Fault, Kind, Name, Place, Refusal, Reply, RequestNo, Taken, Who,
};
use serde::{Deserialize, Serialize};

use crate::greeting::Presence;
use crate::session::{CallNo, Means, Secret, SessionId};

/// Something that is so from now on.
///
/// This is the form of the log, by position and not by name, and so are the types of the wire that
/// are in it. New kinds are added at the end; what needs another field becomes a new kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The host has started, and nobody is connected.
    Started {
        /// Numbers and fences are above it.
        epoch: u32,
        /// New whenever memory may have been lost.
        life: u128,
        /// When.
        at: u64,
        /// What times mean from now on.
        clock: Clock,
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
        answer: Answer,
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
        ask: Arc<Ask>,
        /// When.
        at: u64,
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
        /// When its time is over, if it is for a time.
        limit_at: Option<u64>,
        /// How many older requests it has passed that want some of the same; of many, not all are
        /// counted.
        overtook: u32,
    },
    /// A grant for a command may be told: what was to be made for it is made.
    Ready {
        /// The grant.
        request: RequestNo,
        /// The cgroup that was made, as a holder; without one, whoever is known to use it stays.
        holder: Option<Box<Record>>,
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
        holder: Box<Record>,
    },
    /// A grant was taken away from its client, which has until then to stop using it.
    TakenAway {
        /// The grant.
        request: RequestNo,
        /// Why.
        how: How,
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
    /// Somebody has changed the pools; what came of it follows.
    Changed {
        /// Who; nobody if it was time.
        by: Option<Arc<Who>>,
        /// What was wanted.
        change: Change,
    },
    /// Somebody does something to a grant by force, or to that of another; what follows.
    Forced {
        /// The grant.
        request: RequestNo,
        /// Who.
        by: Arc<Who>,
    },
    /// A grant has ended, and lasts until the parts of it have that are still in use.
    Closing {
        /// The grant.
        request: RequestNo,
        /// How it has ended.
        how: How,
    },
    /// A part may outlast its grant until then.
    Overtime {
        /// The part.
        request: RequestNo,
        /// The time.
        until: u64,
    },
    /// The wall is ahead of the time of the cell by so many milliseconds from now on.
    Clock {
        /// By how many.
        ahead: i64,
    },
    /// A grant of an agent that had no log.
    Imported(Box<Imported>),
    /// A request has to wait, and its client is told.
    Queued {
        /// The request.
        request: RequestNo,
    },
    /// Another cell was heard of in a certain life, or is gone for good.
    Peer {
        /// The cell.
        cell: CellId,
        /// Its life.
        life: Option<u128>,
    },
    /// A grant is known to other cells, which guard a part of it.
    Spans {
        /// The grant.
        request: RequestNo,
        /// As what.
        id: RequestId,
    },
    /// Something is held for a request of another home.
    HeldFor(Box<GivenAbroad>),
    /// Nothing is granted until these cells have said what they hold here, because that may have been forgotten; or if
    /// there are none, from now on.
    Recovery {
        /// The cells.
        missing: Vec<CellId>,
        /// When they will not be waited for any more; as long as it takes if nothing is said.
        until: Option<u64>,
        /// Whatever has a fence up to this one is remembered: if it is not among those that follow, it was given up.
        horizon: u64,
        /// The requests of others for which something was held, as far as is remembered.
        held: Vec<RequestId>,
    },
    /// There was a link to another cell, in a certain life and start of it.
    Met {
        /// The cell.
        cell: CellId,
        /// Which start, and how long its log was.
        presence: Presence,
    },
    /// What a grant holds at these cells they keep until its home is back.
    NotLeased {
        /// The grant.
        request: RequestNo,
        /// The cells.
        cells: Vec<CellId>,
    },
    /// A reservation lasts until then, or its client may be told of it, as soon as these cells have confirmed it.
    Keeping {
        /// The reservation.
        request: RequestNo,
        /// Until when it then lasts.
        until: u64,
        /// The cells.
        missing: Vec<CellId>,
        /// The call that is answered then.
        call: Option<(SessionId, CallNo)>,
    },
    /// An operator has given up another cell. What came of it are other facts; this is so that the word counts once, whoever
    /// hosts this cell when it is heard again.
    GivenUp {
        /// The cell.
        cell: CellId,
        /// The life that was meant, if that is known.
        life: Option<u128>,
        /// What was said with it, which tells it from the next time.
        word: Vec<u8>,
    },
    /// This start of a cell that is among others, or was in this life.
    Begun {
        /// What others know it by.
        nonce: u128,
        /// How many records there ever were before it.
        began: u64,
        /// Which cell it is for others, if it is among them.
        cell: Option<CellId>,
    },
    /// The cell that there is a link to since the last [`Fact::Met`] has said what it knew of this one. From now on it knows the present
    /// start of this one, or what it knew; and this one tells what it knows of it.
    Agreed {
        /// The cell.
        cell: CellId,
        /// How many records of this life it knew of.
        upto: u64,
    },
    /// Another cell has said how long its log is, in the start that there is a link to.
    CameTo {
        /// The cell.
        cell: CellId,
        /// How many records it has had.
        length: u64,
    },
}

/// What is held for a request of another home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenAbroad {
    /// Its number here.
    pub request: RequestNo,
    /// The request.
    pub id: RequestId,
    /// What its user said last, as the protocol writes it.
    pub stance: Vec<u8>,
    /// Whether it is given to others some time after its home was last heard of.
    pub leased: bool,
    /// Who asked, at the other cell.
    pub who: Arc<Who>,
    /// What was asked for here.
    pub ask: Ask,
    /// What is held.
    pub taken: Arc<[Taken]>,
    /// Since when.
    pub since: u64,
    /// Until when, if it is a reservation.
    pub until: Option<u64>,
}

/// A grant of an agent that had no log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Its number.
    pub request: RequestNo,
    /// Whose.
    pub who: Arc<Who>,
    /// What it asked for.
    pub ask: Ask,
    /// What it holds.
    pub taken: Arc<[Taken]>,
    /// Since when.
    pub since: u64,
    /// Until when, if it is a reservation.
    pub until: Option<u64>,
    /// The processes that use it, if it is none, and how it ends with them.
    pub holder: Option<(Record, How)>,
}

/// What the times of a cell mean. They are steady: nobody can set them. They go on with the time since
/// the boot of the machine, and from one boot to the next with the wall, if that has gone on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The boot of the machine.
    pub boot: Arc<str>,
    /// The time of the cell when the machine booted.
    pub base: i64,
    /// By how many milliseconds the wall, which counts from 1970, is ahead of the time of the cell.
    pub ahead: i64,
}

impl Clock {
    /// The time of the cell so many milliseconds after the boot of the machine.
    pub fn steady(&self, boottime: u64) -> u64 {
        boottime.saturating_add_signed(self.base)
    }

    /// The time on the wall at a time of the cell.
    pub fn wall(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.ahead)
    }
}

/// The last reply of a call, as it is kept. It is small, since most calls that are kept have none yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// It could not be done.
    Failed(Box<Fault>),
    /// The command has left these processes behind.
    Leftovers(Box<[u32]>),
    /// A grant was taken away.
    Lost(RequestNo),
    /// It will not be granted.
    Refused(Box<Refusal>),
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Done => Self::Done,
            Answer::Failed(fault) => Self::Failed(*fault),
            Answer::Leftovers(pids) => Self::Leftovers(pids.into()),
            Answer::Lost(request) => Self::Lost(request),
            Answer::Refused(why) => Self::Refused(*why),
        }
    }
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
    /// It was used for longer than it may be.
    Overrun,
    /// The grant that it was a part of has ended.
    WithItsGrant,
}

impl How {
    /// What the call that asked is told in the end.
    pub fn answer(&self, request: RequestNo) -> Answer {
        match self {
            Self::Expired
            | Self::Gone
            | Self::Lost
            | Self::Overrun
            | Self::Unrestored
            | Self::WithItsGrant => Answer::Lost(request),
            Self::Refused(why) => Answer::Refused(why.clone().into()),
            Self::Released => Answer::Done,
            Self::Withdrawn => Answer::Refused(Refusal::Withdrawn.into()),
        }
    }
}
