//! A request's place in the queues of all its pools, kept by whoever acts for it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{News, QueueRules};

/// What a request waits for: the marks of all its queues, then at each position word from all of
/// them that it may go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    /// 0 while a position is being selected.
    position: u32,
    /// The queues heard of since the last move.
    heard: Vec<bool>,
    /// What no position may be selected from, of the queues heard of.
    marked: Vec<u32>,
}

/// What comes of a piece of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is to be waited for more.
    Wait,
    /// This position is free in all queues.
    Select(u32),
    /// There is room in all queues to leave this position.
    Advance(u32),
    /// The request stands at position 1 everywhere.
    Enter,
    /// It was said twice, or not of this position.
    Wrong,
}

impl Place {
    pub(crate) fn selecting(queues: usize) -> Self {
        Self { position: 0, heard: alloc::vec![false; queues], marked: Vec::new() }
    }

    /// Whether no position is selected yet.
    pub(crate) fn is_selecting(&self) -> bool {
        self.position == 0
    }

    /// Takes the news of one of its queues.
    pub(crate) fn on_news(&mut self, queue: usize, news: &News, rules: QueueRules) -> Word {
        match news {
            News::Dec { from, .. } => self.on_dec(queue, *from, rules.align),
            News::Grant(_) => self.on_grant(queue),
            News::Marked { positions, .. } => self.on_marked(queue, positions),
        }
    }

    /// Figure 4, lines 07 and 08: with the last marks, the least position that none of them has.
    fn on_marked(&mut self, queue: usize, positions: &[u32]) -> Word {
        if self.position != 0 || !self.hear(queue) {
            return Word::Wrong;
        }
        self.marked.extend(positions);
        if !self.heard_all() {
            return Word::Wait;
        }
        let free = (1..).find(|position| !self.marked.contains(position)).unwrap_or(u32::MAX);
        self.marked.clear();
        self.go_to(free);
        Word::Select(free)
    }

    /// Figure 4, lines 14 and 15. With `align` off, the first word will do.
    fn on_dec(&mut self, queue: usize, from: u32, align: bool) -> Word {
        if self.position < 2 || self.position != from || !self.hear(queue) {
            return Word::Wrong;
        }
        if align && !self.heard_all() {
            return Word::Wait;
        }
        self.go_to(from - 1);
        Word::Advance(from)
    }

    /// Figure 4, lines 12 and 13.
    fn on_grant(&mut self, queue: usize) -> Word {
        if self.position != 1 || !self.hear(queue) {
            return Word::Wrong;
        }
        if self.heard_all() { Word::Enter } else { Word::Wait }
    }

    fn go_to(&mut self, position: u32) {
        self.position = position;
        self.heard.fill(false);
    }

    fn hear(&mut self, queue: usize) -> bool {
        self.heard.get_mut(queue).is_some_and(|heard| !core::mem::replace(heard, true))
    }

    fn heard_all(&self) -> bool {
        self.heard.iter().all(|heard| *heard)
    }
}
