//! What happens to a cell, and what is to be done about it.

use std::sync::Arc;

use holdall_core::{CellId, Length, Rung};
use holdall_wire::event::What;
use holdall_wire::holder::Record;
use holdall_wire::{Ask, Change, Drained, Kind, Name, Place, Reply, RequestNo, Who};
use serde::{Deserialize, Serialize};

use crate::engine::{Member, Reservation, TimerNo};
use crate::facts::Fact;
use crate::greeting::{First, Presence};
use crate::peer::PeerMessage;
use crate::session::{CallNo, ConnNo, Hello, Means, SessionId, Turned, Wrong};

/// What happens to a cell. The log has it by position: with any change of this, or of the types of the
/// wire in it, comes another [`LOGIC`](crate::replay::LOGIC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// The host has started, and replayed the log.
    Started(Box<Start>),
    /// A client comes over a connection.
    Attach {
        /// The connection.
        conn: ConnNo,
        /// What it says.
        hello: Hello,
    },
    /// A call of a session.
    Call {
        /// The connection it comes over.
        conn: ConnNo,
        /// Its number.
        call: CallNo,
        /// The client has heard the end of all calls up to this one.
        heard: CallNo,
        /// What is wanted.
        wish: Wish,
    },
    /// The client of a connection has heard the end of all calls up to one.
    Heard {
        /// The connection.
        conn: ConnNo,
        /// The call.
        upto: CallNo,
    },
    /// A connection is gone.
    Detach(ConnNo),
    /// What keeps a session alive has ended.
    Over(SessionId),
    /// What [`Effect::Prepare`] asked for is done.
    Prepared {
        /// The grant.
        request: RequestNo,
        /// The cgroup that was made, as a holder.
        holder: Option<Box<Record>>,
        /// Where the command starts, if its client may start it there.
        place: Option<Place>,
    },
    /// Nothing of what used a grant is left.
    HolderEnded(RequestNo),
    /// A timer rings.
    Timer(TimerNo),
    /// It is time to look at deadlines ([`crate::Cell::next_due`]).
    Due,
    /// All who wait are told to go.
    Dismiss,
    /// The clock on the wall was set.
    Clock {
        /// By how many milliseconds it is ahead of the time of the cell.
        ahead: i64,
    },
    /// A call that has broken an invariant fails when it comes again, and is not done.
    Spare {
        /// Whose.
        session: SessionId,
        /// The call.
        call: CallNo,
    },
    /// What an agent without a log has left: once, before the first [`Input::Started`], which builds
    /// the engine from it ([`Start::rebuilt`]).
    Import(Import),
    /// The start that follows, with this epoch, is that of a program which has taken the place of another one
    /// in its process, with the connections of these sessions.
    Keep {
        /// The epoch of the start.
        epoch: u32,
        /// The sessions.
        sessions: Vec<SessionId>,
    },
    /// There is a link to another cell.
    Linked {
        /// The cell.
        cell: CellId,
        /// In which life, and which start of it this is; it was looked at ([`Presence::check`]).
        presence: Presence,
        /// What it has said first, if it does; what it knows of this one was looked at ([`Books::check_known`](crate::books::Books)).
        first: Option<First>,
    },
    /// The link to another cell is gone.
    Unlinked(CellId),
    /// Another cell says something over its link.
    Said {
        /// The cell.
        cell: CellId,
        /// What.
        message: Box<PeerMessage>,
        /// How long its log was then.
        length: u64,
    },
    /// Another cell says over its link how long its log is.
    CameTo {
        /// The cell.
        cell: CellId,
        /// How many records it has had.
        length: u64,
    },
    /// Another cell knows more of this one than its log tells: nothing is given to anybody until it has said what it holds, as another life
    /// alone would make it, or is forgotten.
    Outdone(CellId),
    /// These are other cells, besides those that are known.
    Members(Vec<Member>),
    /// Another cell was not heard of for a while.
    Suspected(CellId),
    /// Another cell was not heard of for so long that it has stopped using what it held here.
    Lapsed(CellId),
    /// What is held at another cell must not be used much longer: it has not confirmed the lease.
    LeaseOver(CellId),
    /// Another cell is gone for good, as an operator says.
    Forget {
        /// The cell.
        cell: CellId,
        /// The life that is meant, if that is known.
        life: Option<u128>,
        /// What was said with it, which tells it from the next time.
        word: Vec<u8>,
    },
    /// Another cell is no member any more: there will be no link to it. What it holds here stays its own for as long as its lease would.
    Removed(CellId),
}

/// The cells that this one is among.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// What others know this one by.
    pub own: Member,
    /// The others. Who is missing is no member any more ([`Input::Removed`]).
    pub members: Vec<Member>,
    /// Cells that an operator has given up, and that have not come back ([`Input::Forget`]).
    pub forgotten: Vec<CellId>,
    /// How many milliseconds before the end of a lease whoever uses what others guard begins to stop.
    pub stopping: u64,
}

/// What an agent without a log has left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Pools that were made at run time.
    pub pools: Vec<(Name, Kind)>,
    /// Units that are given to nobody.
    pub drained: Vec<(Name, Drained)>,
    /// Reservations.
    pub reservations: Vec<Reservation>,
    /// What processes hold that still run.
    pub held: Vec<Former>,
}

/// A grant of a former agent that processes still use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The grant.
    pub grant: Reservation,
    /// The processes.
    pub holder: Record,
    /// Whether their client was killed: then they are, too.
    pub abandoned: bool,
}

/// How a host starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The epoch; numbers are above it.
    pub epoch: u32,
    /// New whenever memory may have been lost.
    pub life: u128,
    /// What others know this start by.
    pub nonce: u128,
    /// How many records there ever were before it.
    pub began: u64,
    /// Whether memory may have been lost: sessions are over then, but for those that have a lease.
    pub lost: bool,
    /// Whether the log may be a copy, and others know more of it: then nothing is given to anybody until every other cell has let
    /// this one in and said what it holds here, or its lease would have run out.
    pub doubtful: bool,
    /// The boot of the machine.
    pub boot: Arc<str>,
    /// How long ago that was, in milliseconds.
    pub boottime: u64,
    /// The time on the wall, in milliseconds since 1970.
    pub wall: u64,
    /// Whether the engine is built again from the facts.
    pub rebuilt: bool,
    /// Whether locks are made on first use.
    pub ephemeral: bool,
    /// The pools of the configuration.
    pub pools: Vec<Declared>,
    /// The limits of the configuration.
    pub limits: Limits,
    /// The other cells, if there are some.
    pub cluster: Option<Cluster>,
    /// For how many milliseconds at most other cells are waited for: a lease, and what is added to it; also when there are none any more.
    pub patience: u64,
    /// The pools of which other cells keep what they hold when they are not heard of (`on_partition = "wait"`).
    pub waits: Vec<Name>,
}

/// A pool of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Its name.
    pub name: Name,
    /// What it consists of.
    pub kind: Kind,
    /// For how many milliseconds anybody has some of it at most, unless by reservation.
    pub limit: Option<u64>,
}

/// What the configuration limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// For how many milliseconds parts may outlast their grant.
    pub overtime: u64,
    /// How many sessions a user has at most.
    pub sessions: u32,
    /// The longest lease, in milliseconds.
    pub lease: u64,
    /// How many requests of a user wait at most.
    pub waiting: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { overtime: 0, sessions: u32::MAX, lease: u64::MAX, waiting: u32::MAX }
    }
}

/// What a client wants that changes something. What its host has found out about processes comes along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// A set of things, all or nothing.
    Ask {
        /// Who asks.
        who: Arc<Who>,
        /// For what.
        ask: Arc<Ask>,
        /// How long its use will probably take, as far as that is known at this moment.
        length: Option<Length>,
    },
    /// A child is about to become the command that uses a grant.
    Child {
        /// The grant.
        request: RequestNo,
        /// The child.
        holder: Box<Record>,
    },
    /// A grant is given back.
    End {
        /// The grant.
        request: RequestNo,
        /// What still runs under it.
        rest: Option<Rest>,
    },
    /// What a call asked for is not wanted any more, granted or not.
    Withdraw {
        /// The call.
        asked: CallNo,
        /// What runs under it, if it was granted.
        rest: Option<Rest>,
    },
    /// A change of the pools.
    Change {
        /// Who wants it.
        by: Arc<Who>,
        /// What.
        change: Change,
    },
    /// A reservation shall last for so many milliseconds from now.
    Renew {
        /// The reservation.
        request: RequestNo,
        /// How long.
        millis: u64,
        /// Who wants it.
        by: Arc<Who>,
        /// Whether the caller may do that with the grants of others.
        may: bool,
    },
    /// A grant of whatever session shall end.
    Release {
        /// The grant.
        request: RequestNo,
        /// Even if it is somebody else's, or still in use.
        force: bool,
        /// Who wants it.
        by: Arc<Who>,
        /// Whether the caller may do that with the grants of others.
        may: bool,
        /// Whether those who use it cannot be seen from here: then it ends without them.
        unseen: bool,
        /// What will not end with it, in words, for the caller.
        beyond: Option<String>,
    },
    /// The session is over.
    Leave,
}

/// What a command has left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// How it is known.
    pub holder: Box<Record>,
    /// For people.
    pub pids: Vec<u32>,
}

/// What follows from an input, for the host to do when the log says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A client is told something.
    Reply {
        /// Over which connection.
        conn: ConnNo,
        /// The call it belongs to.
        call: CallNo,
        /// What.
        reply: Reply,
    },
    /// A client is let in, and told all that it may have missed.
    Welcome {
        /// Over which connection.
        conn: ConnNo,
        /// Another than it knows: memory was lost since.
        life: u128,
        /// The last call that was taken.
        last: CallNo,
        /// How its calls stand that were taken and that it has not heard the end of; none if that will
        /// be told. What is missing here was not taken, or is over if it was told of it before.
        answers: Vec<(CallNo, Option<Reply>)>,
    },
    /// A client is not let in.
    TurnedAway(ConnNo, Turned),
    /// A call is not taken.
    NotTaken(ConnNo, CallNo, Wrong),
    /// Another connection has taken over the session of this one.
    Close(ConnNo),
    /// The host shall tell when what keeps a session alive has ended ([`Input::Over`]).
    WatchSession(SessionId, Means),
    /// A session is over: nothing of it is watched any more, and its connection is closed after what
    /// it was told.
    Forget(SessionId, Option<ConnNo>),
    /// A grant is for a command: what it needs shall be made before it is told ([`Input::Prepared`]).
    Prepare(RequestNo),
    /// The host shall tell when nothing is left of what uses a grant ([`Input::HolderEnded`]).
    Watch(RequestNo, Box<Record>),
    /// The same, and first ask it to end, and kill it if it does not.
    End(RequestNo, Box<Record>),
    /// The same, and first kill it.
    Kill(RequestNo, Box<Record>),
    /// Nothing is held for this any more: what was made for it can go when it is empty.
    Unused(Box<Record>),
    /// A timer shall ring after the delay of a rung, counted from a time.
    Arm(TimerNo, Rung, u64),
    /// A timer shall not ring.
    Disarm(TimerNo),
    /// A pool is not as the configuration wants it, and why.
    Unfit(Name, String),
    /// Another cell is told something, over the link that there is, or not at all.
    Send(CellId, Box<PeerMessage>),
    /// Another cell says what no honest one would: the link to it is to be cut.
    Unlink(CellId, &'static str),
    /// A grant of an agent without a log could not be taken over: what it is, and why.
    LeftOut(RequestNo, String),
}

/// Whose a request was that is not in the books any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The request.
    pub request: RequestNo,
    /// Its user.
    pub uid: u32,
    /// The call that asked, if its session is still there.
    pub asked: Option<(SessionId, CallNo)>,
}

/// What an input leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// What is so from now on.
    pub facts: Vec<Fact>,
    /// The same for people, each with the time on the wall. They leave with the effects.
    pub events: Vec<(u64, What)>,
    /// What is to be done.
    pub effects: Vec<Effect>,
    /// Whose the requests were that have ended, in that order.
    pub ended: Vec<Over>,
    /// Whether something has changed: the input belongs into the log.
    pub is_new: bool,
    /// Whether it is to be synced before its effects leave.
    pub sync: bool,
}
