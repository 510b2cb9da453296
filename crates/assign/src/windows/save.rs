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
use crate::machine::Do;

impl<V: Rules> Seat<V> {
    /// Whether the record that the wanted window will overwrite was not yet looked after.
    #[inline]
    pub(super) fn must_save(&self) -> bool {
        let old = self.ring[self.layout.place(self.want)];
        V::SAVE && old != 0 && old >= self.passed && self.layout.workers() > 1
    }

    /// One access of a pass.
    #[cold]
    pub(super) fn save(&mut self, read: u64) -> Option<Do> {
        match self.at {
            At::Needs if self.q == self.me => self.q += 1,
            At::Needs if self.q == self.layout.workers() => self.forget(),
            At::Needs => {
                self.at = At::NeedsSign;
                return Some(Do::Get { owner: self.q, slot: Layout::SIGN });
            }
            At::NeedsSign => {
                self.need(Sign(read).window());
                self.at = At::NeedsOpen;
                return Some(Do::Get { owner: self.q, slot: self.layout.open(0) });
            }
            At::NeedsOpen => {
                self.need(Entry::unpack(read).window);
                self.k += 1;
                if self.k < self.layout.open_len() {
                    return Some(Do::Get { owner: self.q, slot: self.layout.open(self.k) });
                }
                self.k = 0;
                self.q += 1;
                self.at = At::Needs;
            }
            _ => return self.copy(),
        }
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
        self.q = 0;
        self.passed = self.floor;
        for saved in &mut self.saved {
            if *saved != 0 && !self.needs.contains(saved) {
                *saved = 0;
            }
        }
        let (saved, passed) = (&self.saved, self.passed);
        self.needs.retain(|window| *window < passed && !saved.contains(window));
        // The order in which needs were found has no meaning.
        self.needs.sort_unstable();
        self.at = At::Save;
    }

    /// Copies one needed record to a free place.
    fn copy(&mut self) -> Option<Do> {
        let Some(window) = self.needs.pop() else {
            self.at = At::Choose;
            return None;
        };
        let k = self.saved.iter().position(|saved| *saved == 0);
        let k = k.expect("there is a place for all that others can need at once");
        self.saved[k] = window;
        Some(Do::Put { slot: self.layout.saved(k), value: window })
    }
}
