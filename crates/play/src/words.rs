//! What the processes of a play say to each other.

use std::fmt;
use std::path::PathBuf;

use holdall_core::{Addr, NodeId, UserId};
use serde::{Deserialize, Serialize};

use crate::clock::Nanos;

/// Marks the processes that belong to a play; the value has no meaning.
pub(crate) const MARK: &str = "HOLDALL_PLAY";

/// A process with roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The managers of a node.
    Node(NodeId),
    /// The client of a lane, with its user.
    Client(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {}", node.0),
            Self::Client(lane) => write!(f, "client {lane}"),
        }
    }
}

/// What a process is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Which of the protocols is played.
    pub(crate) cast: usize,
    pub(crate) place: Place,
    /// The first user of a client.
    pub(crate) user: UserId,
    /// How many rounds of its lane were begun before.
    pub(crate) rounds: u64,
    /// Known to the processes of this play only.
    pub(crate) secret: Secret,
    /// Where the lock files are.
    pub(crate) locks: PathBuf,
}

pub(crate) type Secret = [u8; 16];

/// Where a process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) port: u16,
}

/// What the stage says to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToProcess {
    /// Be this.
    Part(Part),
    /// These are the others.
    Meet(Vec<Entry>),
    /// A process took the place of another; the answer is [`FromProcess::Noted`].
    Moved(Entry),
    /// Play; the play began at this time.
    Begin(Nanos),
    /// Do nothing any more; the answer is [`FromProcess::Last`].
    End,
}

/// What a process says to the stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromProcess {
    /// It listens on this port.
    Ready(u16),
    /// It has met the others.
    Met,
    Noted(Place),
    /// Its connection to this process has ended, so that should be gone.
    Cut(Entry),
    /// A user begins, in the round of this number.
    Born(UserId, u64),
    /// What was seen since the last time, and how many rounds were begun.
    Seen(Seen, u64),
    /// What was seen at the end, and since when its client waits, if it does.
    Last(Seen, Option<Nanos>),
    /// Its client dies on purpose, after that many rounds.
    Dying(Seen, u64),
    /// Something went wrong with a role.
    Wrong {
        who: String,
        what: String,
    },
}

/// A number of things and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) number: u64,
    pub(crate) sum: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, one: u64) {
        self.number += 1;
        self.sum += one;
    }

    pub(crate) fn include(&mut self, other: Self) {
        self.number += other.number;
        self.sum += other.sum;
    }

    pub(crate) fn mean(self) -> Option<f64> {
        (self.number > 0).then(|| self.sum as f64 / self.number as f64)
    }
}

/// How long something took that was to take some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pace {
    pub(crate) planned: u64,
    pub(crate) taken: u64,
}

impl Pace {
    pub(crate) fn add(&mut self, planned: Nanos, taken: Nanos) {
        self.planned += planned;
        self.taken += taken;
    }

    pub(crate) fn include(&mut self, other: Self) {
        self.planned += other.planned;
        self.taken += other.taken;
    }

    /// How many times as long it took.
    pub(crate) fn factor(self) -> f64 {
        if self.planned == 0 { 1.0 } else { self.taken as f64 / self.planned as f64 }
    }
}

/// What a process saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Requests granted: when they were asked for, and how long they waited.
    pub(crate) grants: Vec<(Nanos, Nanos)>,
    /// Messages sent to other processes.
    pub(crate) messages: u64,
    /// How long messages from other processes took.
    pub(crate) delays: Sum,
    pub(crate) think: Pace,
    pub(crate) service: Pace,
    /// Clients that left.
    pub(crate) left: u64,
}

impl Seen {
    pub(crate) fn include(&mut self, other: Self) {
        self.grants.extend(other.grants);
        self.messages += other.messages;
        self.delays.include(other.delays);
        self.think.include(other.think);
        self.service.include(other.service);
        self.left += other.left;
    }
}

/// The first frame on a link: who sends on it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) secret: Secret,
    pub(crate) from: Place,
}

/// No hello is longer.
pub(crate) const HELLO_MOST: usize = 64;

/// What travels on a link after that. A link has one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// A user begins.
    Born(UserId),
    /// A user that left is idle, and over.
    Over(UserId),
    /// A message between roles.
    Message { from: Addr, to: Addr, sent: Nanos, body: Vec<u8> },
}
