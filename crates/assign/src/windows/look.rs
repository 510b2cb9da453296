//! A look at all others: of open windows, whether they entered; of gifts, what they gave.

use super::layout::{Entry, Layout, Sign};
use super::rules::Rules;
use super::seat::{At, Look, Open, Seat};
use crate::machine::Access;

/// The seats whose lots fall to `me`, who was in this window, because their workers were not: the
/// absent lots are dealt out among those present in turn, beginning with another one each window.
#[inline]
fn share(window: u64, present: u64, me: usize, workers: usize, mut mine: impl FnMut(usize)) {
    let mut absent = u64::MAX >> (64 - workers) & !present;
    if absent == 0 {
        return;
    }
    let among = u64::from(present.count_ones());
    let rank = u64::from((present & ((1 << me) - 1)).count_ones());
    let mut before_mine = (rank + among - window % among) % among;
    while absent != 0 {
        if before_mine == 0 {
            before_mine = among;
            mine(absent.trailing_zeros() as usize);
        }
        before_mine -= 1;
        absent &= absent - 1;
    }
}

impl<V: Rules> Seat<V> {
    #[inline]
    pub(super) fn first_look(&mut self) -> At {
        let floor = self.newest;
        let left = |open: &&Open| open.window < floor || !V::LEAVE_FIRST;
        self.left = self.open.iter().take_while(left).count();
        self.look = Look { floor, ..Look::default() };
        At::Ask
    }

    /// Looks at the next worker.
    #[inline(always)]
    pub(super) fn ask(&mut self) -> Option<Access> {
        if self.look.q == self.me {
            self.look.q += 1;
        }
        if self.look.q == self.layout.workers() {
            self.at = At::Close;
            return None;
        }
        self.at = At::Seen;
        Some(Access::Get { owner: self.look.q, slot: Layout::SIGN })
    }

    #[inline(always)]
    pub(super) fn seen(&mut self, word: u64) -> Option<Access> {
        let sign = Sign(word);
        self.look.reached = self.look.reached.max(sign.reached());
        if sign.hungry() {
            self.look.asking |= 1 << self.look.q;
        }
        self.learn(sign, 0)
    }

    /// Goes on to the next window left behind, from the i-th, of which nothing is known about `q`,
    /// whose sign this is.
    ///
    /// Only windows left behind: of those, and no others, it is certain that whoever shows an
    /// intent later gives it up (I2).
    #[inline(always)]
    fn learn(&mut self, sign: Sign, from: usize) -> Option<Access> {
        let (q, bit) = (self.look.q, 1 << self.look.q);
        for (i, open) in self.open[..self.left].iter_mut().enumerate().skip(from) {
            if open.unknown & bit == 0 {
                continue;
            }
            let Some(entered) = sign.tells(open.window, &self.layout) else {
                self.at = At::Recorded { sign, i };
                return Some(Access::Get { owner: q, slot: self.layout.record(open.window) });
            };
            // If it did not, and intends to now, it will see that the window was left behind.
            open.learned(bit, entered);
        }
        if self.watch & bit != 0 {
            self.at = At::Boxed { sign };
            return Some(Access::Get { owner: q, slot: self.layout.gift(self.me) });
        }
        self.look.q += 1;
        self.ask()
    }

    /// The record of `q` in the place of the i-th open window.
    pub(super) fn recorded(&mut self, sign: Sign, i: usize, found: u64) -> Option<Access> {
        let q = self.look.q;
        let open = &mut self.open[i];
        if found > open.window {
            self.at = At::Scanned { sign, i, k: 0 };
            return Some(Access::Get { owner: q, slot: self.layout.saved(0) });
        }
        let entered = found == open.window;
        if entered || sign.window() > open.window {
            // It is there, or went on without recording this window.
            open.learned(1 << q, entered);
        }
        // Otherwise it wants this very window: entered or given up, it will say.
        self.learn(sign, i + 1)
    }

    /// The k-th saved window of `q`. Saving precedes overwriting, and what is needed stays saved.
    #[cold]
    pub(super) fn scanned(&mut self, sign: Sign, i: usize, k: usize, found: u64) -> Option<Access> {
        let q = self.look.q;
        let open = &mut self.open[i];
        let (entered, k) = (found == open.window, k + 1);
        if !entered && k < self.layout.saved_len() {
            self.at = At::Scanned { sign, i, k };
            return Some(Access::Get { owner: q, slot: self.layout.saved(k) });
        }
        open.learned(1 << q, entered);
        self.learn(sign, i + 1)
    }

    /// What `q` has in its box for this worker.
    #[cold]
    pub(super) fn boxed(&mut self, sign: Sign, found: u64) -> Option<Access> {
        let q = self.look.q;
        // The flag was down, and fenced, before the sign was read, and the sign says that q is
        // in no try: what q looks at from now on has no flag, so this was the last word.
        if !self.op.hungry && sign.entered() {
            self.watch &= !(1 << q);
        }
        self.look.q += 1;
        self.at = At::Ask;
        if found == self.taken[q] {
            return None;
        }
        self.taken[q] = found;
        self.won.push(self.layout.lot(found, q));
        Some(Access::Put { slot: self.layout.taken(q), value: found })
    }

    /// Closes one window of which all is known, and marks it before its lots are used.
    #[inline]
    pub(super) fn close(&mut self) -> Option<Access> {
        let Some(i) = self.open[..self.left].iter().position(|open| open.unknown == 0) else {
            self.at = At::Judge;
            return None;
        };
        let open = self.open.remove(i);
        self.left -= 1;
        self.op.closed |= 1 << open.place;
        let lots = if open.doubt { &mut self.doubts } else { &mut self.won };
        let (layout, window) = (self.layout, open.window);
        share(window, open.present, self.me, layout.workers(), |seat| {
            lots.push(layout.lot(window, seat));
        });
        let value = Entry { window: open.window, closed: true }.pack();
        Some(Access::Put { slot: self.layout.open(open.place), value })
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    fn of(window: u64, present: u64, me: usize, workers: usize) -> Vec<usize> {
        let mut seats = Vec::new();
        share(window, present, me, workers, |seat| seats.push(seat));
        seats
    }

    #[test]
    fn absent_lots_are_shared_by_all_present_and_evenly() {
        for workers in 1..=6 {
            for present in 1..1_u64 << workers {
                for window in 1..9 {
                    let here = (0..workers).filter(|seat| present >> seat & 1 == 1);
                    let shares: Vec<_> = here.map(|me| of(window, present, me, workers)).collect();
                    let most = shares.iter().map(Vec::len).max();
                    let least = shares.iter().map(Vec::len).min();
                    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
                    let mut all = shares.concat();
                    all.sort_unstable();
                    let absent = (0..workers).filter(|seat| present >> seat & 1 == 0);
                    assert_eq!(all, absent.collect::<Vec<_>>(), "each lot goes to one");
                }
            }
        }
        // Who gets more than others changes from window to window.
        let of_first = |window| of(window, 0b0011, 0, 5).len();
        assert_eq!([1, 2, 3, 4].map(of_first), [1, 2, 1, 2]);
        assert_eq!(of(1, 1 << 63, 63, 64).len(), 63);
    }
}
