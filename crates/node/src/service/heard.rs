//! What other cells say that is for the cell here, and when their beats are confirmed.
//!
//! # Invariants
//! - A home that holds something here goes on as long as somebody leads: its beats are confirmed also while the log stands still,
//!   over a link whose assertion is in it.
//! - None is confirmed before what its home asserts over this very link is in the log, nor before it was told of all that was taken from
//!   it since.

use holdall_cell::Input;
use holdall_cell::peer::PeerMessage;
use holdall_core::CellId;
use holdall_log::Error;
use holdall_wire::Refusal;

use super::Service;
use crate::cluster::frame::Frame;

/// A log that has grown only by what beats of others told. That is not told with beats in turn: two cells that keep each other's word would never
/// come to rest. It may always be told later.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Still {
    /// How long it was before.
    since: u64,
    /// And is.
    now: u64,
}

impl Still {
    /// What a beat told made the log so much longer.
    fn grows(&mut self, before: u64, now: u64) {
        let since = self.told(before);
        *self = Self { since, now };
    }

    /// What a beat tells of a log that is so long.
    pub(super) fn told(self, length: u64) -> u64 {
        if length == self.now { self.since } else { length }
    }
}

impl Service {
    /// What a cell says is taken, or if there is no room for it, turned down. That rests on nothing, and waits for nothing.
    fn on_said(&mut self, said: Input) {
        let full = match self.host.admit(&said) {
            Ok(()) => return self.input(said),
            // The log of a replicated cell that stands still for a while takes in what comes meanwhile, unless nobody waits for it.
            Err(Error::Failed { .. }) if self.hosted.is_some() && !is_now(&said) => {
                return self.input(said);
            }
            Err(full) => full,
        };
        match self.cell().turns_down(&said, Refusal::Closed(full.to_string())) {
            // Nobody is to know more of the log by it: that there is a link may not be in there yet.
            Some((cell, message)) => {
                self.say_at_once(cell, &Frame::Said { length: 0, message: Box::new(message) });
            }
            None => self.input(said),
        }
    }

    /// Takes what a cell says. What ends by that, that cell has ended itself; if it is what it holds here, its beats are confirmed
    /// when that is in the log.
    pub(super) fn hear(&mut self, cell: CellId, message: Box<PeerMessage>, length: u64) {
        // While nothing leaves, what is said again only makes more of what waits. It is said once more until it is answered.
        if let PeerMessage::ToManager { message, .. } = &*message
            && self.engine().has_heard(message)
            && self.host.held_up().is_some()
        {
            return;
        }
        let (asserts, all) = match &*message {
            PeerMessage::Assert(some) => (true, some.last),
            _ => (false, false),
        };
        if let Some(cells) = &mut self.cells {
            cells.hears = Some(cell).filter(|_| !asserts);
        }
        self.on_said(Input::Said { cell, message, length });
        let last = self.host.last();
        let Some(cells) = &mut self.cells else { return };
        cells.hears = None;
        if all && let Some(link) = cells.links.get_mut(&cell) {
            link.settled = Some(last);
        }
    }

    /// A beat tells how long the log of another cell is.
    pub(super) fn heard_length(&mut self, cell: CellId, length: u64) {
        let is_to_be_kept = self.books().ties().is_to_be_kept(cell, length);
        if is_to_be_kept && self.host.held_up().is_none() {
            let before = self.host.last().0;
            self.input(Input::CameTo { cell, length });
            let now = self.host.last().0;
            if let Some(cells) = &mut self.cells {
                cells.still.grows(before, now);
            }
        }
    }

    /// A beat has come. Its home goes on using what it has, also while the log stands still, unless something was taken from it that
    /// waits for the log: it is told of that before.
    pub(super) fn confirm(&mut self, cell: CellId, sent: u64) {
        let link = self.cells.as_ref().and_then(|cells| cells.links.get(&cell));
        let settled = link.and_then(|link| link.settled);
        match settled.is_some_and(|settled| self.host.has_left(settled)) && self.host.leads() {
            true => self.say_at_once(cell, &Frame::Beaten { sent }),
            false => self.say(cell, Frame::Beaten { sent }),
        }
    }

    /// What was just taken from a cell it hears of, when that is in the log, before its next beat is confirmed.
    pub(super) fn settle(&mut self, cell: CellId) {
        let last = self.host.last();
        let link = self.cells.as_mut().and_then(|cells| cells.links.get_mut(&cell));
        if let Some(settled) = link.and_then(|link| link.settled.as_mut()) {
            *settled = last;
        }
    }
}

/// Whether somebody asks who does not wait.
fn is_now(said: &Input) -> bool {
    let Input::Said { message, .. } = said else { return false };
    matches!(&**message, PeerMessage::ToManager { order: Some(order), .. } if order.now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each holds something of the others, and keeps what their beats tell.
    #[test]
    fn cells_that_do_nothing_come_to_rest() {
        let mut cells = [10, 20, 30].map(|length| (length, Still::default()));
        let mut kept = [[0; 3]; 3];
        for one in (0..3).cycle().take(100) {
            let (length, still) = cells[one];
            let told = still.told(length);
            assert!(told <= length);
            for other in (0..3).filter(|other| *other != one) {
                if told > kept[other][one] {
                    kept[other][one] = told;
                    let (length, still) = &mut cells[other];
                    still.grows(*length, *length + 1);
                    *length += 1;
                }
            }
        }
        // Each has heard of the start of the two others.
        assert_eq!(cells.map(|(length, _)| length), [12, 22, 32]);
        assert_eq!(cells.map(|(length, still)| still.told(length)), [10, 20, 30]);
        let (_, mut still) = cells[0];
        assert_eq!(still.told(13), 13, "something has happened");
        still.grows(13, 14);
        assert_eq!(still.told(14), 13);
    }
}
