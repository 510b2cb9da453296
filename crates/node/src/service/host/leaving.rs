//! What leaves when the log says so, and to whom.

use holdall_cell::Effect;
use holdall_cell::session::ConnNo;
use holdall_core::CellId;
use holdall_log::Index;
use holdall_wire::{Answer, Reply};

use crate::cluster::frame::Frame;

/// What waits to leave. It is small, since it is moved some times on its way.
pub(in crate::service) enum Leaving {
    /// What follows from an input.
    Effect(Box<Effect>),
    /// A reply to a call.
    Answer(ConnNo, Box<Answer>),
    /// What has happened by a record, for people: so many of the events that come next ([`next_event`](super::Host::next_event)).
    Events(Index, usize),
    /// Something is said to another cell, over the link with this number.
    Said(CellId, u64, Box<Frame>),
}

/// What is told to the same one leaves in the order in which it came up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Conn(ConnNo),
    Cell(CellId),
}

impl Leaving {
    /// A reply to the call of this number.
    pub(in crate::service) fn answer(conn: ConnNo, id: u64, reply: Reply) -> Self {
        Self::Answer(conn, Box::new(Answer { id, reply }))
    }

    /// The connection that it goes to, if it goes to one.
    pub(super) fn conn(&self) -> Option<ConnNo> {
        match self {
            Self::Answer(conn, ..) => Some(*conn),
            Self::Events(..) | Self::Said(..) => None,
            Self::Effect(effect) => match &**effect {
                Effect::Reply { conn, .. } | Effect::Welcome { conn, .. } => Some(*conn),
                Effect::TurnedAway(conn, _) | Effect::NotTaken(conn, ..) => Some(*conn),
                Effect::Close(conn) => Some(*conn),
                Effect::Forget(_, conn) => *conn,
                _ => None,
            },
        }
    }

    pub(super) fn lane(&self) -> Option<Lane> {
        match self {
            Self::Said(cell, ..) => Some(Lane::Cell(*cell)),
            other => other.conn().map(Lane::Conn),
        }
    }
}
