//! What two cells say first over a link: what they know of each other's logs.
//!
//! # Invariants
//! - What is said is what is known when the link comes up: all that came over links before it has been heard.
//! - Nothing that tells how long the log is leaves before it has in it that there is this link, and what the other one knew: so what that one
//!   knows later is found there, or the log was put back ([`Met`](holdall_cell::greeting::Met)).
//! - Whoever knows more of this cell than its log tells is not linked: the agent begins once more, and grants nothing.

use holdall_cell::Input;
use holdall_cell::engine::Member;
use holdall_cell::greeting::{First, Known, Presence};
use holdall_core::CellId;
use holdall_links::{self as links, Way};
use tracing::error;

use super::Service;
use crate::cluster::frame::Frame;
use crate::cluster::number;

/// A connection over which the other cell is to say what it knows.
pub(super) struct Meeting {
    pub(super) peer: links::Cell,
    /// How it has greeted.
    pub(super) presence: Presence,
    /// Whether it has come back after it was forgotten.
    pub(super) is_back: bool,
    pub(super) way: Way,
}

impl Meeting {
    pub(super) fn way(&self) -> &Way {
        &self.way
    }
}

impl Service {
    /// There is a connection to a cell that is wanted. What is known of that is said first, to whoever does the same.
    pub(super) fn meet(&mut self, meeting: Meeting, known: Option<Known>) {
        let Some(known) = known else { return self.link_with(meeting, None) };
        let cell = number(meeting.peer.id);
        match Frame::First(self.books().ties().first(known)).encode() {
            // If it is down, that is told.
            Ok(bytes) => drop(meeting.way.send(bytes)),
            Err(error) => error!("what is known of a cell cannot be said: {error}"),
        }
        if let Some(cells) = &mut self.cells {
            cells.meetings.insert(cell, meeting);
        }
    }

    /// A cell has said what it knows of this one, and of itself.
    pub(super) fn on_first(&mut self, cell: CellId, first: First) {
        let Some(cells) = &mut self.cells else { return };
        let Some(meeting) = cells.meetings.remove(&cell) else { return };
        match self.books().check_known(cell, &first.known, self.host.last().0) {
            Ok(()) => self.link_with(meeting, Some(first)),
            Err(why) => {
                meeting.way.end("it knows more of this cell than its log tells");
                if let Some(cells) = &self.cells {
                    cells.greeter.unlinked(meeting.peer.id);
                }
                self.on_outdone(meeting.peer.id, why);
                // It is in the log that it is waited for. Nothing that it says changes that.
                if let Some(cells) = &self.cells
                    && self.hosted.is_some()
                    && self.books().ties().recovery().missing.contains(&cell)
                {
                    cells.greeter.outdoes(meeting.peer.id, meeting.presence.life);
                }
            }
        }
    }

    /// There is a link to a cell.
    fn link_with(&mut self, meeting: Meeting, first: Option<First>) {
        let Meeting { peer, presence, is_back, way } = meeting;
        let (now, cell) = (self.boottime(), number(peer.id));
        let Some(cells) = &mut self.cells else { return };
        cells.link_up(cell, way);
        let is_new = cells.ids.insert(cell, peer.id).is_none();
        cells.leases.add(now, cell);
        cells.leases.linked(now, cell);
        if is_back || is_new {
            let member = peer.name.as_str().parse().map(|name| Member { name, cell });
            self.input(Input::Members(member.into_iter().collect()));
        }
        self.input(Input::Linked { cell, presence, first });
        self.beat(cell);
    }
}
