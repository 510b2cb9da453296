//! Bounded memory: before the ring comes round, what somebody needs is copied aside.
//!
//! Others need a record of this worker only for windows that they have open or may still enter.
//! A worker that shows window u on its sign may; later it has u in its table of open windows, and
//! it writes the table before the sign moves on. So a pass reads each sign, then that worker's
//! table: a need that is in neither has never been or is gone for good, for windows that somebody
//! has left behind. One pass serves until the ring comes round once more.

use super::layout::{Entry, Layout, Sign};
use super::rules::Rules;
use super::seat::{At, Seat};
use crate::machine::Access;

impl<V: Rules> Seat<V> {
    /// Whether the record that the wanted window will overwrite was not yet looked after.
    #[inline]
    pub(super) fn must_save(&self) -> bool {
        let old = self.ring[self.layout.place(self.op.want)];
        V::SAVE && old != 0 && old >= self.passed && self.layout.workers() > 1
    }

    /// Looks at what the next one needs.
    #[cold]
    pub(super) fn needs(&mut self, q: usize) -> Option<Access> {
        if q == self.me {
            self.at = At::Needs { q: q + 1 };
        } else if q == self.layout.workers() {
            self.forget();
            self.at = At::Save;
        } else {
            self.at = At::NeedsSign { q };
            return Some(Access::Get { owner: q, slot: Layout::SIGN });
        }
        None
    }

    /// The sign of `q`.
    #[cold]
    pub(super) fn needs_sign(&mut self, q: usize, word: u64) -> Access {
        self.need(Sign(word).window());
        self.at = At::NeedsOpen { q, k: 0 };
        Access::Get { owner: q, slot: self.layout.open(0) }
    }

    /// The k-th open window of `q`.
    #[cold]
    pub(super) fn needs_open(&mut self, q: usize, k: usize, word: u64) -> Option<Access> {
        self.need(Entry::unpack(word).window);
        let k = k + 1;
        if k < self.layout.open_len() {
            self.at = At::NeedsOpen { q, k };
            return Some(Access::Get { owner: q, slot: self.layout.open(k) });
        }
        self.at = At::Needs { q: q + 1 };
        None
    }

    /// Notes a need, if this worker has a record of that window.
    fn need(&mut self, window: u64) {
        let recorded = self.ring[self.layout.place(window)] == window;
        let known = window != 0 && (recorded || self.saved.contains(&window));
        if known && !self.needs.contains(&window) {
            self.needs.push(window);
        }
    }

    /// All needs are known: the saved windows nobody needs are gone, and those already saved need
    /// no copy.
    ///
    /// Nobody can enter a window before `passed` any more, and could not when the first need was
    /// read: it was left behind before the look began. What the look itself found reached is too
    /// young: a register may have been read before that, and its owner have come to need a window
    /// since.
    fn forget(&mut self) {
        self.passed = self.look.floor;
        for saved in &mut self.saved {
            if *saved != 0 && !self.needs.contains(saved) {
                *saved = 0;
            }
        }
        let (saved, passed) = (&self.saved, self.passed);
        self.needs.retain(|window| *window < passed && !saved.contains(window));
        // The order in which needs were found has no meaning.
        self.needs.sort_unstable();
    }

    /// Copies one needed record to a free place.
    #[cold]
    pub(super) fn save(&mut self) -> Option<Access> {
        let Some(window) = self.needs.pop() else {
            self.at = At::Choose;
            return None;
        };
        let k = self.saved.iter().position(|saved| *saved == 0);
        let k = k.expect("there is a place for all that others can need at once");
        self.saved[k] = window;
        Some(Access::Put { slot: self.layout.saved(k), value: window })
    }
}
