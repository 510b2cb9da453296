//! Calls of clients and replies of nodes.
//!
//! A call has a number that the client picks; every reply names the call it belongs to, so many
//! calls share one connection. An `Ask` gets [`Reply::Granted`] or [`Reply::Refused`] in the end, and before
//! that [`Reply::Queued`] if it has to wait, and perhaps a [`Reply::Warning`]; every other call gets one reply,
//! but for [`Body::Heard`], which gets none.
//!
//! # Sessions
//! A connection may be attached to a session ([`Body::Attach`]), and after its end another one. Within a
//! session, calls that change something ([`Body::is_numbered`]) have growing numbers, from 1 on: so each is
//! done once, however often it is made. All other calls are queries, which
//! belong to their connection, with numbers from [`FIRST_QUERY`] on. Without a session numbers mean
//! nothing, and what is asked for lasts as long as the connection.
//!
//! New variants are added at the end of these enums: postcard numbers them, and programs of the version
//! before go on. A struct grows only where it is the last of its frame, at its end, by fields that may be
//! missing (as [`AgentView::waits_for`] and [`Explanation::outlook`]): older programs do not read it, and do not say it.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterCall, ClusterView, HostedView, JoinTokenView};
use crate::name::{Name, Need};
use crate::nested::nested;
use crate::request_no::RequestNo;
use crate::view::{
    AgentView, Drained, Explanation, HistoryPage, HistoryPlace, Prospects, Status, if_said,
};

/// The first of the numbers that queries of a session have.
pub const FIRST_QUERY: u64 = 1 << 63;

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Picked by the client; not in use by an unfinished call of the same connection or session.
    pub id: u64,
    /// What is wanted.
    pub body: Body,
}

/// What a client may want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// A set of things, all or nothing.
    Ask(Ask),
    /// A child of the caller is about to become the command that uses a grant of this connection.
    /// It needs not be told if it starts in the cgroup that came with the grant.
    Child {
        /// The grant.
        request: RequestNo,
        /// The child, as the caller numbers it: it may be in a pid namespace of its own.
        pid: u32,
    },
    /// A grant of this connection is given back.
    End {
        /// The grant.
        request: RequestNo,
        /// Whether the caller still has children, which the command has left behind.
        left: bool,
    },
    /// What this call of the same connection asked for is not wanted any more, granted or not.
    Withdraw(u64),
    /// Who holds and who waits, a page of it.
    Status {
        /// What concerns these names, or everything.
        names: Vec<Name>,
        /// Whether the page is wanted that follows on the last one of this connection.
        more: bool,
    },
    /// Why a request waits.
    Explain {
        /// The request.
        request: RequestNo,
        /// How many of those who wait along the way are followed and shown.
        most: u32,
    },
    /// A change of the pools.
    Change(Change),
    /// A unit, or all units of a pool, shall be given to nobody any more.
    Drain {
        /// The unit or pool.
        name: Name,
        /// Why, in a few words.
        reason: String,
        /// For so many milliseconds, or until it is undone.
        millis: Option<u64>,
    },
    /// A reservation shall last for so many milliseconds from now.
    Renew {
        /// The reservation.
        request: RequestNo,
        /// How long.
        millis: u64,
    },
    /// A grant of whatever connection shall end.
    Release {
        /// The grant.
        request: RequestNo,
        /// Even if it is somebody else's, or still in use.
        force: bool,
        /// Why, if it is forced; of at most [`TEXT_MAX`] bytes. Older clients do not say it.
        #[serde(deserialize_with = "if_said")]
        reason: Option<String>,
    },
    /// About the agent itself.
    Agent,
    /// The agent shall end, as clients without sessions say it: when nothing is held any more
    /// ([`Shutdown::Drain`]), or at once ([`Shutdown::AtOnce`]).
    Stop {
        /// At once.
        now: bool,
    },
    /// A descriptor comes along with the reply. As long as it is open, agents that come later know
    /// that the caller may still use what it was granted over this connection. No other comes along
    /// if there is one that lasts at least as long: that of another connection of the same process.
    Lock {
        /// The number of that lock.
        beside: Option<u64>,
    },
    /// This connection is that of a session from now on, and the one that was is closed. The reply is
    /// [`Reply::Attached`], or [`Fault::Forgotten`] if the session should be known and is not.
    Attach(Attach),
    /// The session is over: what it holds is given back, what it waits for is not wanted any more.
    Leave,
    /// The client has heard the end of all calls of its session up to this one; their replies need not be
    /// kept any more.
    Heard(u64),
    /// The agent shall end.
    Shutdown(Shutdown),
    /// The agent shall go on as another process image, with everything that is held and waits.
    Restart {
        /// The program; the one that it runs if none is named.
        exe: Option<String>,
    },
    /// When everybody who waits will probably be granted what it asks for.
    Prospects,
    /// A page of the history of the agent: one's own, or everybody's if one has the right to it.
    History {
        /// Where it begins; with the first file that is not older than this if it is its first byte.
        from: HistoryPlace,
    },
    /// Something about the cluster that the agent is a member of.
    Cluster(ClusterCall),
    /// A question that another cell answers: [`Body::Status`], [`Body::Explain`], [`Body::ExplainAs`] or [`Body::Agent`]. Of a
    /// replicated cell also a change of its pools, and who is to lead it; of any host of one, how it stands with it.
    At {
        /// The name of the cell.
        cell: String,
        /// The question.
        #[serde(deserialize_with = "nested")]
        question: Box<Self>,
    },
    /// Why a request of another home waits here, by the id that cells know it by.
    ExplainAs {
        /// The id, as [`Elsewhere::known_as`](crate::Elsewhere) has it.
        id: Vec<u8>,
        /// How many of those who wait along the way are followed and shown.
        most: u32,
    },
}

impl Body {
    /// Whether the call changes something for its session or others, and so has a place in the order of
    /// the session's calls.
    pub fn is_numbered(&self) -> bool {
        match self {
            Self::Ask(_) | Self::Child { .. } | Self::End { .. } | Self::Withdraw(_) => true,
            Self::Change(_) | Self::Drain { .. } | Self::Renew { .. } => true,
            Self::Release { .. } | Self::Leave => true,
            Self::Status { .. } | Self::Explain { .. } | Self::Agent => false,
            Self::Stop { .. } | Self::Lock { .. } | Self::Attach(_) | Self::Heard(_) => false,
            Self::Shutdown(_) | Self::Restart { .. } => false,
            Self::Prospects | Self::History { .. } => false,
            Self::Cluster(_) | Self::At { .. } | Self::ExplainAs { .. } => false,
        }
    }
}

/// A client comes, or comes back.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The session, as the client has named it: a random number.
    pub session: u128,
    /// What only the client knows; another random number.
    pub secret: u128,
    /// Whether it was attached before.
    pub returns: bool,
    /// It has heard the end of all calls up to this one.
    pub heard: u64,
    /// The session lasts as long as it is never away for more than so many milliseconds; if nothing is
    /// said, as long as the process that made the connection.
    pub lease: Option<u64>,
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Attach");
        shown.field("session", &self.session).field("returns", &self.returns);
        shown.field("heard", &self.heard).field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// How an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shutdown {
    /// At once. What is held stays held, and what waits waits for the next agent.
    AtOnce,
    /// At once, after it has told those who wait to go.
    Dismiss,
    /// When nothing is held any more; until then it takes no requests.
    Drain,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// What is needed, in the order named.
    pub needs: Vec<Need>,
    /// Refuse at once what cannot be granted at once.
    pub now: bool,
    /// What the grant is tied to.
    pub lasting: Lasting,
    /// Who asks, and why, for people to read.
    pub from: From,
    /// The grant inside which this is asked: its holder waits for us.
    pub within: Option<RequestNo>,
    /// It is used for so many milliseconds at most; pools may allow less.
    pub limit: Option<u64>,
    /// It is for a part of what a grant holds.
    pub part: Option<Part>,
}

/// A part of what a grant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The grant.
    pub of: RequestNo,
    /// Whether it may outlast its grant, as long as the agent allows.
    pub outlasts: bool,
}

/// The longest text a client may say of itself, in bytes.
pub const TEXT_MAX: usize = 4096;

/// What a client says of itself; each text has at most [`TEXT_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct From {
    /// The command or program.
    pub command: String,
    /// A name for the request.
    pub name: Option<String>,
    /// The reason for it.
    pub reason: Option<String>,
}

/// How long a grant lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lasting {
    /// Until given back, or the connection ends.
    Connection,
    /// As long, and then until everything that was started under it is gone, or as it says.
    Command(Leftovers),
    /// For so many milliseconds, whatever becomes of the connection and of the agent.
    Reservation(u64),
}

/// What becomes of processes that a command leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leftovers {
    /// The grant lasts until they are gone.
    #[default]
    Wait,
    /// The grant ends without them, and whoever gave it back is told.
    Warn,
    /// They are ended, and the grant with them.
    Kill,
}

/// Where the command of a grant starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The directory of a cgroup.
    pub path: String,
    /// Its inode: what else is found there is not meant.
    pub inode: u64,
}

/// The kind of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A lock.
    Lock,
    /// So many units, numbered from 0.
    Numbered(u32),
    /// Units with names.
    Named(Vec<Name>),
}

/// A change of the pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A new pool.
    Add {
        /// Its name.
        name: Name,
        /// Its units.
        kind: Kind,
    },
    /// A pool is no more.
    Remove {
        /// Its name.
        name: Name,
        /// Even if some of it is held: that comes back later.
        force: bool,
    },
    /// A pool has another number of units.
    Resize {
        /// Its name.
        name: Name,
        /// How many.
        units: u32,
    },
    /// A unit, or all units of a pool, are given to nobody any more.
    Drain {
        /// The unit or pool.
        name: Name,
        /// Why, and until when.
        drained: Drained,
    },
    /// The opposite.
    Undrain {
        /// The unit or pool.
        name: Name,
    },
}

/// A reply of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// About the agent.
    Agent(Box<AgentView>),
    /// Done.
    Done,
    /// It could not be done.
    Failed(Fault),
    /// Why a request waits.
    Explanation(Explanation),
    /// All of it is held.
    Granted {
        /// The grant.
        request: RequestNo,
        /// For each pool and lock in the order named, what is held.
        taken: Arc<[Taken]>,
        /// For a command: the cgroup in which it starts, if the caller may start it there.
        place: Option<Place>,
        /// What the administrator wants a command to find in its environment.
        variables: Vec<(String, String)>,
        /// After how many milliseconds it is taken away.
        limit: Option<u64>,
    },
    /// The command of the grant that was given back has left these processes behind.
    Leftovers(Vec<u32>),
    /// The number of the lock that the caller has.
    Locked(u64),
    /// Something about a request that its client should know; it goes on all the same.
    Warning(String),
    /// A grant was taken away. Its use must stop at once.
    Lost(RequestNo),
    /// It has to wait.
    Queued(RequestNo),
    /// It will not be granted.
    Refused(Refusal),
    /// Who holds and who waits.
    Status {
        /// A page of it.
        page: Status,
        /// Whether there is more.
        more: bool,
    },
    /// The connection is that of the session.
    Attached {
        /// Random, and another one whenever the agent's memory may have been lost.
        life: u128,
        /// The last call that was taken.
        last: u64,
        /// How each call stands that was taken and whose end the client has not heard, and each request
        /// that waits or holds; nothing is said of what is being done, and will be told. A call that is
        /// missing was not taken, if the client has heard nothing of it, and else is over.
        #[serde(deserialize_with = "nested")]
        answers: Vec<(u64, Option<Self>)>,
    },
    /// What everybody who waits can expect.
    Prospects(Prospects),
    /// A page of the history.
    History(HistoryPage),
    /// Until when a grant may be used of which other cells guard a part: said before it is granted, and again to the call
    /// that asked whenever it moves. Who hears nothing more stops in time.
    Until {
        /// The grant.
        request: RequestNo,
        /// By `CLOCK_BOOTTIME` of the agent's machine, in milliseconds, without the offset of a time namespace.
        boottime_millis: u64,
    },
    /// The cluster, as the agent knows it.
    Cluster(ClusterView),
    /// A join token that was made. It is shown once.
    JoinToken(String),
    /// The join tokens that there are.
    JoinTokens(Vec<JoinTokenView>),
    /// Replicated cells, as a host of them sees them.
    Hosted(Vec<HostedView>),
}

/// What is held of one pool or lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The pool or lock.
    pub name: Name,
    /// Its units by name, each with its fence; for a lock, the lock itself.
    pub units: Vec<(Name, u64)>,
}

/// Why a request is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// It would have to wait, and was asked not to.
    #[error("not free: {0}")]
    Busy(String),
    /// It was given up before it was granted.
    #[error("the request was withdrawn")]
    Withdrawn,
    /// It can never be granted.
    #[error("{0}")]
    Never(String),
    /// The needs make no sense.
    #[error("{0}")]
    Senseless(String),
    /// The agent takes no requests now.
    #[error("{0}")]
    Closed(String),
    /// Whoever asks has no right to.
    #[error("{0}")]
    Denied(String),
    /// It does not fit what there is: there is no such grant.
    #[error("{0}")]
    Conflict(String),
}

/// Why a call was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// The call makes no sense.
    #[error("{0}")]
    Wrong(String),
    /// It does not fit what there is: there is no such grant or pool, or it is held.
    #[error("{0}")]
    Conflict(String),
    /// The caller has no right to it.
    #[error("{0}")]
    Denied(String),
    /// The agent could not do it.
    #[error("{0}")]
    Failed(String),
    /// The session is over, or the agent has lost its memory.
    #[error("the agent has forgotten this session: what it held is not held any more")]
    Forgotten,
}

impl Fault {
    /// How a conflict begins that is about something which is not there.
    const NONE: &str = "there is no ";
    /// What a failure says of a cell that cannot be asked.
    const SILENT: &str = " does not answer";

    /// There is no such thing. That is a conflict, as logs and older programs know it, and begins with these words.
    pub fn unknown(what: impl Display) -> Self {
        Self::Conflict(format!("{}{what}", Self::NONE))
    }

    /// Whether it was made by [`unknown`](Self::unknown).
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Conflict(why) if why.starts_with(Self::NONE))
    }

    /// Another cell does not answer. That is a failure, as older programs know it, and says so in these words.
    pub fn silent(cell: impl Display, why: impl Display) -> Self {
        Self::Failed(format!("{cell}{}{why}", Self::SILENT))
    }

    /// Whether it was made by [`silent`](Self::silent).
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Failed(why) if why.contains(Self::SILENT))
    }
}

/// A reply and the call it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the call.
    pub id: u64,
    /// The reply.
    pub reply: Reply,
}
