//! After a look: giving up a window, or entering it, for oneself or for somebody who is hungry.

use super::layout::{Entry, trail};
use super::rules::Rules;
use super::seat::{At, Op, Open, Seat};
use crate::machine::Access;

impl<V: Rules> Seat<V> {
    /// The look is over and all that could be closed is: was it good enough to enter?
    pub(super) fn judge(&mut self) -> Option<Access> {
        self.newest = self.newest.max(self.look.reached);
        if self.op.only_learn {
            self.at = if self.look_again() { At::Fence } else { At::Publish };
        } else if V::VALIDATE && self.look.reached > self.op.want {
            return self.failed();
        } else if self.must_save() {
            self.at = At::Needs { q: 0 };
        } else {
            self.at = At::Choose;
        }
        None
    }

    /// Whether who only learns looks once more: more windows have been left behind than it knew.
    fn look_again(&mut self) -> bool {
        let more = self.open.get(self.left).is_some_and(|open| open.window < self.newest);
        let first = self.op.fails == 0;
        self.op.fails = 1;
        first && more
    }

    /// Somebody went beyond the window wanted. What was learned or given meanwhile will do;
    /// otherwise the newest window is wanted, and help after some failures.
    #[cold]
    fn failed(&mut self) -> Option<Access> {
        self.op.fails += 1;
        if !self.won.is_empty() {
            self.at = At::Publish;
            return Some(self.show_last());
        }
        if V::HELP && self.op.fails >= V::PATIENCE {
            self.op.hungry = true;
            self.watch = self.others();
        }
        self.op.want = self.newest;
        self.at = At::Intend;
        None
    }

    /// The next hungry worker in turn, if this lot may be given.
    #[inline]
    pub(super) fn choose(&mut self) -> Option<Access> {
        let asking = self.look.asking;
        if asking == 0 || self.op.gave {
            self.at = At::List { to: None };
            return None;
        }
        let after = asking & !(u64::MAX >> (63 - self.turn));
        let q = if after != 0 { after } else { asking }.trailing_zeros() as usize;
        self.turn = q;
        self.at = At::Chosen;
        Some(Access::Get { owner: q, slot: self.layout.taken(self.me) })
    }

    /// Whether the one whose turn it is took what it was given before.
    #[cold]
    pub(super) fn chosen(&mut self, taken: u64) {
        let q = self.turn;
        let gives = taken == self.given[q] || !V::ACKNOWLEDGE;
        self.at = At::List { to: gives.then_some(q) };
    }

    /// Lists the window as open, in a free place.
    pub(super) fn list(&mut self, to: Option<usize>) -> Access {
        let used = self.open.iter().fold(self.op.closed, |used, open| used | 1 << open.place);
        let place = used.trailing_ones() as usize;
        assert!(place < self.layout.open_len(), "there are places enough for an operation");
        let (window, present) = (self.op.want, 1 << self.me);
        self.open.push(Open { window, place, present, unknown: self.others(), doubt: false });
        self.at = At::Record { to };
        let value = Entry { window, closed: false }.pack();
        Access::Put { slot: self.layout.open(place), value }
    }

    pub(super) fn record(&mut self, to: Option<usize>) -> Access {
        let window = self.op.want;
        self.ring[self.layout.place(window)] = window;
        self.at = to.map_or(At::Show { given: false }, |to| At::Give { to });
        Access::Put { slot: self.layout.record(window), value: window }
    }

    #[cold]
    pub(super) fn give(&mut self, to: usize) -> Access {
        self.given[to] = self.op.want;
        self.at = At::Show { given: true };
        Access::Put { slot: self.layout.gift(to), value: self.op.want }
    }

    /// Shows the entry. The lot is this worker's; if it was given away, what was won by the look
    /// must do, or another try.
    ///
    /// So no look follows one that won something: from each worker at most one gift is taken in
    /// an operation, and the register that says so is enough to find it again after a restart.
    pub(super) fn show(&mut self, given: bool) -> Access {
        self.trail = trail(self.last, self.trail, self.op.want);
        self.last = self.op.want;
        self.newest = self.newest.max(self.last);
        if !given || !V::PART_WITH {
            self.won.push(self.layout.lot(self.last, self.me));
        }
        if self.won.is_empty() || given && !V::ENOUGH {
            let (want, closed) = (self.next_window(), self.op.closed);
            self.op = Op { gave: true, want, closed, ..Op::default() };
            self.at = At::Intend;
        } else {
            self.at = At::Publish;
        }
        self.show_last()
    }
}
