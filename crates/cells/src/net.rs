//! Connections between machines. What arrives over one is a beginning of what was sent, in order and once.

use std::collections::BTreeMap;

use holdall_cell::greeting::First;
use holdall_cell::peer::PeerMessage;

/// What goes over a connection.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// What a machine knows of the other, and since when of itself, first of all.
    First(First),
    /// A message of a cell.
    Peer(Box<PeerMessage>),
    /// A home beats, at a time of its own.
    Beat(u64),
    /// A guard sends it back.
    Beaten(u64),
}

/// What goes over a connection, with how long the log of its sender was.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) length: u64,
    pub(crate) body: Body,
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    /// Whether nothing arrives any more, from the first to the second and back; nobody has noticed yet.
    pub(crate) stalled: [bool; 2],
    /// When the last message arrives, each way.
    last: [u64; 2],
}

/// All connections.
#[derive(Default)]
pub(crate) struct Net {
    open: BTreeMap<(usize, usize), Connection>,
    /// Until when no connection can be made.
    pub(crate) blocked: BTreeMap<(usize, usize), u64>,
    drawn: u64,
}

/// The pair of two machines, and which way it is from one to the other.
fn pair(from: usize, to: usize) -> ((usize, usize), usize) {
    if from < to { ((from, to), 0) } else { ((to, from), 1) }
}

impl Net {
    /// A connection that is there for each at its own time; the first of `last` is when what the first machine sends can arrive.
    pub(crate) fn connect(&mut self, one: usize, other: usize, last: [u64; 2]) -> u64 {
        self.drawn += 1;
        let connection = Connection { number: self.drawn, stalled: [false; 2], last };
        self.open.insert(pair(one, other).0, connection);
        self.drawn
    }

    pub(crate) fn is_open(&self, one: usize, other: usize) -> bool {
        self.open.contains_key(&pair(one, other).0)
    }

    pub(crate) fn is_blocked(&self, one: usize, other: usize, at: u64) -> bool {
        self.blocked.get(&pair(one, other).0).is_some_and(|until| at < *until)
    }

    pub(crate) fn block(&mut self, one: usize, other: usize, until: u64) {
        self.blocked.insert(pair(one, other).0, until);
    }

    /// When something that is sent now arrives; never if the connection is not there.
    pub(crate) fn arrives(
        &mut self,
        from: usize,
        to: usize,
        number: u64,
        at: u64,
        delay: u64,
    ) -> Option<u64> {
        let (pair, way) = pair(from, to);
        let connection = self.open.get_mut(&pair).filter(|open| open.number == number)?;
        if connection.stalled[way] {
            return None;
        }
        let arrival = connection.last[way].max(at + delay);
        connection.last[way] = arrival;
        Some(arrival)
    }

    /// Whether what is under way still arrives.
    pub(crate) fn delivers(&self, from: usize, to: usize, number: u64) -> bool {
        let (pair, way) = pair(from, to);
        self.open.get(&pair).is_some_and(|open| open.number == number && !open.stalled[way])
    }

    pub(crate) fn stall(&mut self, from: usize, to: usize) {
        let (pair, way) = pair(from, to);
        if let Some(connection) = self.open.get_mut(&pair) {
            connection.stalled[way] = true;
        }
    }

    /// Cuts a connection; which one it was.
    pub(crate) fn cut(&mut self, one: usize, other: usize) -> Option<u64> {
        self.open.remove(&pair(one, other).0).map(|connection| connection.number)
    }
}
