//! How much waits to be said to other cells while the log stands still.
//!
//! What is said rests on the log, and waits for it. A member that asks and asks meanwhile would be answered from memory without
//! end: it has so much room, whatever becomes of its links, and is cut off when that is used up.

use std::collections::BTreeMap;

use holdall_core::CellId;

use crate::cluster::frame::Frame;

/// How many bytes may wait for one cell, about: as many as its link takes.
const MOST: usize = 16 << 20;
/// What a frame counts for, at least.
const LEAST: usize = 4096;

/// About how many bytes wait for which cell.
#[derive(Default)]
pub(super) struct Backlog(BTreeMap<CellId, usize>);

/// Answers are as long as the asker likes; all else is short, or bounded by what a cell has at another.
fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::Answers { .. } => {
            postcard::experimental::serialized_size(frame).unwrap_or(MOST).max(LEAST)
        }
        _ => LEAST,
    }
}

impl Backlog {
    /// Whether anything may wait for a cell.
    pub(super) fn has_room(&self, cell: CellId) -> bool {
        self.0.get(&cell).is_none_or(|waits| *waits < MOST)
    }

    /// Something waits, if there is room for it.
    pub(super) fn add(&mut self, cell: CellId, frame: &Frame) -> bool {
        if !self.has_room(cell) {
            return false;
        }
        *self.0.entry(cell).or_default() += weight(frame);
        true
    }

    /// Something has left, or is not said any more.
    pub(super) fn remove(&mut self, cell: CellId, frame: &Frame) {
        if let Some(waits) = self.0.get_mut(&cell) {
            *waits = waits.saturating_sub(weight(frame));
            if *waits == 0 {
                self.0.remove(&cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdall_wire::{Fault, Reply};

    use super::*;

    #[test]
    fn who_asks_without_end_has_room_of_its_own_and_no_more() {
        let (mut backlog, loud, quiet) = (Backlog::default(), CellId(1), CellId(2));
        let reply = Box::new(Reply::Failed(Fault::Failed("x".repeat(1 << 20))));
        let (long, short) = (Frame::Answers { number: 1, reply }, Frame::Beaten { sent: 1 });
        let answers = (0..100).take_while(|_| backlog.add(loud, &long)).count();
        assert!((15..18).contains(&answers), "{answers}");
        assert!(!backlog.has_room(loud) && !backlog.add(loud, &short));
        assert!(backlog.add(quiet, &short), "others have theirs");
        for _ in 0..answers {
            backlog.remove(loud, &long);
        }
        assert!(backlog.has_room(loud) && !backlog.0.contains_key(&loud));
        let beats = (0..10_000).take_while(|_| backlog.add(loud, &short)).count();
        assert_eq!(beats, MOST / LEAST);
    }
}
