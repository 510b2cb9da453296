//! After a look: giving up a window, or entering it, for oneself or for somebody who is hungry.

use super::layout::{Entry, trail};
use super::rules::Rules;
use super::seat::{At, Open, Seat};
use crate::machine::Do;

impl<V: Rules> Seat<V> {
    /// The look is over and all that could be closed is: was it good enough to enter?
    pub(super) fn judge(&mut self) -> Option<Do> {
        self.newest = self.newest.max(self.reached);
        if self.only_learn {
            self.at = if self.look_again() { At::Fence } else { At::Publish };
        } else if V::VALIDATE && self.reached > self.want {
            return self.failed();
        } else if self.must_save() {
            self.needs.clear();
            self.at = At::Needs;
        } else {
            self.at = At::Choose;
        }
        None
    }

    /// Whether who only learns looks once more: more windows have been left behind than it knew.
    fn look_again(&mut self) -> bool {
        let more = self.open.get(self.left).is_some_and(|open| open.window < self.newest);
        let first = self.fails == 0;
        self.fails = 1;
        first && more
    }

    /// Somebody went beyond the window wanted. What was learned or given meanwhile will do;
    /// otherwise the newest window is wanted, and help after some failures.
    #[cold]
    fn failed(&mut self) -> Option<Do> {
        self.fails += 1;
        if !self.won.is_empty() {
            self.at = At::Publish;
            self.hungry = false;
            return Some(self.show_last());
        }
        if V::HELP && self.fails >= V::PATIENCE {
            self.hungry = true;
            self.watch = self.others();
        }
        self.want = self.newest;
        self.at = At::Intend;
        None
    }

    /// The next hungry worker in turn, if this lot may be given.
    #[inline]
    pub(super) fn choose(&mut self) -> Option<Do> {
        self.at = At::List;
        if self.asking == 0 || self.gave {
            return None;
        }
        let after = self.asking & !(u64::MAX >> (63 - self.turn));
        let q = if after != 0 { after } else { self.asking }.trailing_zeros() as usize;
        self.turn = q;
        self.at = At::Chosen;
        Some(Do::Get { owner: q, slot: self.layout.taken(self.me) })
    }

    #[cold]
    pub(super) fn chosen(&mut self, taken: u64) {
        let q = self.turn;
        if taken == self.given[q] || !V::ACKNOWLEDGE {
            self.to = Some(q);
        }
        self.at = At::List;
    }

    /// Lists the window as open, in a free place.
    pub(super) fn list(&mut self) -> Do {
        let used = self.open.iter().fold(self.closed, |used, open| used | 1 << open.place);
        let place = used.trailing_ones() as usize;
        assert!(place < self.layout.open_len(), "there are places enough for an operation");
        let (window, present) = (self.want, 1 << self.me);
        self.open.push(Open { window, place, present, unknown: self.others(), doubt: false });
        self.at = At::Record;
        let value = Entry { window, closed: false }.pack();
        Do::Put { slot: self.layout.open(place), value }
    }

    pub(super) fn record(&mut self) -> Do {
        let window = self.want;
        self.ring[self.layout.place(window)] = window;
        self.at = if self.to.is_some() { At::Give } else { At::Show };
        Do::Put { slot: self.layout.record(window), value: window }
    }

    #[cold]
    pub(super) fn give(&mut self, to: usize) -> Do {
        self.given[to] = self.want;
        self.at = At::Show;
        Do::Put { slot: self.layout.gift(to), value: self.want }
    }

    /// Shows the entry. The lot is this worker's; if it was given away, what was won by the look
    /// must do, or another try.
    ///
    /// So no look follows one that won something: from each worker at most one gift is taken in
    /// an operation, and the register that says so is enough to find it again after a restart.
    pub(super) fn show(&mut self) -> Do {
        self.trail = trail(self.last, self.trail, self.want);
        self.last = self.want;
        self.newest = self.newest.max(self.last);
        self.hungry = false;
        let shown = self.show_last();
        let given = self.to.is_some();
        if !given || !V::PART_WITH {
            self.won.push(self.layout.lot(self.last, self.me));
        }
        if self.won.is_empty() || given && !V::ENOUGH {
            self.gave = true;
            self.begin_try();
        } else {
            self.at = At::Publish;
        }
        shown
    }
}
