//! How much room a log needs for a cell: new things are let in only if there is room for all that will
//! follow from them, so that on a full disk what is held can still be given back.

use holdall_core::CellId;
use holdall_wire::{Change, Kind, Name, Refusal, needs_size};

use super::Cell;
use crate::books::Entry;
use crate::input::{Input, Wish};
use crate::peer::PeerMessage;
use crate::session::ConnNo;

/// More than a record has beside what is said in it, in bytes.
const RECORD: usize = 512;
/// What is kept free though nothing is owed.
const AT_LEAST: u64 = 64 << 10;

impl Cell {
    /// For how many bytes a log must have room if an input is to be let in, and with it what follows;
    /// none if it follows itself from what was let in, and must be taken. A session that comes back
    /// some times is owed that; the host knows how often it did.
    pub fn admits(&self, input: &Input) -> Option<usize> {
        let more = match input {
            Input::Attach { .. } | Input::Heard { .. } => 0,
            Input::Call { conn, wish, .. } => match wish {
                Wish::Ask { who, ask, .. } => {
                    let said = who.size() + ask.from.size() + needs_size(&ask.needs);
                    2 * said + self.books.owed_for(ask) as usize
                }
                Wish::Renew { by, .. } => 2 * by.size(),
                Wish::Change { by, change } => 2 * by.size() + 3 * self.size(change),
                _ if self.follows(*conn, wish) => return None,
                _ => 0,
            },
            Input::Said { message, .. } => match &**message {
                // Its needs, with what is said of it now and held later.
                PeerMessage::ToManager { message, order: Some(order) }
                    if self.engine.known_as(message.request()).is_none() =>
                {
                    3 * (order.who.size() + needs_size(&order.needs)) + 1024
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(RECORD + more)
    }

    /// What another cell is told if what it says is not let in, for want of room: its request comes to nothing here.
    pub fn turns_down(&self, input: &Input, why: Refusal) -> Option<(CellId, PeerMessage)> {
        let Input::Said { cell, message, .. } = input else { return None };
        let PeerMessage::ToManager { message, order: Some(_) } = &**message else { return None };
        Some((*cell, PeerMessage::Refused { request: message.request(), why }))
    }

    /// Whether a wish follows from what was let in: it is the end of a grant, or its use.
    fn follows(&self, conn: ConnNo, wish: &Wish) -> bool {
        match wish {
            Wish::Child { request, .. } => {
                let session = self.books.sessions.of(conn);
                session.is_some_and(|session| self.has_in_hand(session, *request))
            }
            Wish::Release { request, .. } => {
                self.books.get(*request).is_some_and(Entry::can_be_released)
            }
            _ => self.gives_back(conn, wish),
        }
    }

    /// How many bytes a log should keep room for: for what follows from what was let in.
    pub fn owed(&self) -> u64 {
        AT_LEAST + self.books.owed()
    }

    /// About how many bytes it takes to say what a change of the pools leads to.
    fn size(&self, change: &Change) -> usize {
        let named = |units: &[Name]| units.iter().map(|unit| unit.as_str().len() + 4).sum();
        let each = |name: &Name, units: usize| units * (name.as_str().len() + 16);
        match change {
            Change::Add { kind: Kind::Named(units), .. } => named(units),
            Change::Drain { name, drained } => {
                let units = match self.books.pool(name).map(|pool| &pool.kind) {
                    Some(Kind::Numbered(units)) => each(name, *units as usize),
                    Some(Kind::Named(units)) => named(units),
                    _ => each(name, 1),
                };
                let why = drained.reason.len() + drained.by.len() + 16;
                units + why * (units / (name.as_str().len() + 4) + 1)
            }
            _ => 0,
        }
    }
}
