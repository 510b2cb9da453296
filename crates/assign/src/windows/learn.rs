//! What a look at another worker teaches: of open windows, whether it entered; of gifts, what it
//! gave.

use std::mem::take;

use super::layout::{Entry, Layout, Sign};
use super::rules::Rules;
use super::seat::{At, Open, Seat};
use crate::machine::Do;

/// The seats whose lots fall to `me`, who was in this window, because their workers were not: the
/// absent lots are dealt out among those present in turn, beginning with another one each window.
#[inline]
fn share(window: u64, present: u64, me: usize, workers: usize) -> impl Iterator<Item = usize> {
    let among = u64::from(present.count_ones());
    let rank = u64::from((present & ((1 << me) - 1)).count_ones());
    let mut before_mine = (rank + among - window % among) % among;
    let mut absent = u64::MAX >> (64 - workers) & !present;
    std::iter::from_fn(move || {
        while absent != 0 {
            let seat = absent.trailing_zeros() as usize;
            absent &= absent - 1;
            if before_mine == 0 {
                before_mine = among - 1;
                return Some(seat);
            }
            before_mine -= 1;
        }
        None
    })
}

impl<V: Rules> Seat<V> {
    /// Goes on to the next window left behind, from the i-th, of which nothing is known about `q`,
    /// whose sign this is.
    ///
    /// Only windows left behind: of those, and no others, it is certain that whoever shows an
    /// intent later gives it up (I2).
    #[inline(always)]
    pub(super) fn learn(&mut self, sign: Sign, from: usize) -> Option<Do> {
        let (q, bit) = (self.q, 1 << self.q);
        for (i, open) in self.open[..self.left].iter_mut().enumerate().skip(from) {
            if open.unknown & bit == 0 {
                continue;
            }
            let Some(entered) = sign.tells(open.window, &self.layout) else {
                (self.sign, self.i) = (sign, i);
                self.at = At::Recorded;
                return Some(Do::Get { owner: q, slot: self.layout.record(open.window) });
            };
            // If it did not, and intends to now, it will see that the window was left behind.
            open.learned(bit, entered);
        }
        if self.watch & bit != 0 {
            self.sign = sign;
            self.at = At::Boxed;
            return Some(Do::Get { owner: q, slot: self.layout.gift(self.me) });
        }
        self.q += 1;
        self.ask()
    }

    /// Goes on after a look at more than the sign.
    fn learn_on(&mut self) -> Option<Do> {
        let (sign, i) = (take(&mut self.sign), take(&mut self.i));
        self.learn(sign, i + 1)
    }

    /// The record of `q` in the place of the i-th open window.
    pub(super) fn recorded(&mut self, found: u64) -> Option<Do> {
        let q = self.q;
        let open = &mut self.open[self.i];
        if found > open.window {
            self.at = At::Scanned;
            return Some(Do::Get { owner: q, slot: self.layout.saved(0) });
        }
        let entered = found == open.window;
        if entered || self.sign.window() > open.window {
            // It is there, or went on without recording this window.
            open.learned(1 << q, entered);
        }
        // Otherwise it wants this very window: entered or given up, it will say.
        self.learn_on()
    }

    /// The k-th saved window of `q`. Saving precedes overwriting, and what is needed stays saved.
    #[cold]
    pub(super) fn scanned(&mut self, found: u64) -> Option<Do> {
        let q = self.q;
        let open = &mut self.open[self.i];
        let entered = found == open.window;
        if !entered && self.k + 1 < self.layout.saved_len() {
            self.k += 1;
            return Some(Do::Get { owner: q, slot: self.layout.saved(self.k) });
        }
        open.learned(1 << q, entered);
        self.k = 0;
        self.learn_on()
    }

    /// What `q` has in its box for this worker.
    #[cold]
    pub(super) fn boxed(&mut self, found: u64) -> Option<Do> {
        let q = self.q;
        // The flag was down, and fenced, before the sign was read, and the sign says that q is
        // in no try: what q looks at from now on has no flag, so this was the last word.
        let sign = take(&mut self.sign);
        if !self.hungry && sign.entered() {
            self.watch &= !(1 << q);
        }
        self.q += 1;
        self.at = At::Ask;
        if found == self.taken[q] {
            return None;
        }
        self.taken[q] = found;
        self.won.push(self.layout.lot(found, q));
        Some(Do::Put { slot: self.layout.taken(q), value: found })
    }

    /// Closes one window of which all is known, and marks it before its lots are used.
    #[inline]
    pub(super) fn close(&mut self) -> Option<Do> {
        let Some(i) = self.open[..self.left].iter().position(|open| open.unknown == 0) else {
            self.at = At::Judge;
            return None;
        };
        let open = self.open.remove(i);
        self.left -= 1;
        self.closed |= 1 << open.place;
        let lots = if open.doubt { &mut self.doubts } else { &mut self.won };
        let seats = share(open.window, open.present, self.me, self.layout.workers());
        lots.extend(seats.map(|seat| self.layout.lot(open.window, seat)));
        let value = Entry { window: open.window, closed: true }.pack();
        Some(Do::Put { slot: self.layout.open(open.place), value })
    }

    /// A worker that starts again, from its own registers, which `own` reads.
    ///
    /// Its first operation has begun and must be driven to its end: it takes back an intent that
    /// was not sealed, or shows an entry that was (I3), and learns what is doubtful.
    ///
    /// ```
    /// use holdall_assign::machine::drive;
    /// use holdall_assign::registers::{Atomics, Memory, Registers};
    /// use holdall_assign::windows::{Layout, Seat};
    ///
    /// let layout = Layout::new(2, 16, 1)?;
    /// let mut regs = Atomics::new(2, layout.slots()).handle(1)?;
    /// let mut seat: Seat = Seat::new(layout, 1);
    /// seat.acquire();
    /// drive(&mut seat, &mut regs)?;
    /// let mut again: Seat = Seat::resume(layout, 1, &mut |slot| regs.get(1, slot).unwrap_or(0));
    /// drive(&mut again, &mut regs)?;
    /// assert_eq!(again.last(), 1);
    /// assert_eq!(*again.doubts(), [1], "only the caller knows whether it was used");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(layout: Layout, me: usize, own: &mut dyn FnMut(usize) -> u64) -> Self {
        let mut seat = Self::new(layout, me);
        let n = layout.workers();
        for q in 0..n {
            seat.given[q] = own(layout.gift(q));
            seat.taken[q] = own(layout.taken(q));
        }
        for window in 0..layout.ring() as u64 {
            seat.ring[layout.place(window)] = own(layout.record(window));
        }
        for k in 0..layout.saved_len() {
            seat.saved[k] = own(layout.saved(k));
        }
        seat.last = seat.ring.iter().copied().max().unwrap_or(0);
        seat.newest = seat.last.max(Sign(own(Layout::SIGN)).reached());
        seat.watch = seat.others();
        for k in 0..layout.open_len() {
            seat.resume_open(k, Entry::unpack(own(layout.open(k))));
        }
        seat.open.sort_unstable_by_key(|open| open.window);
        for back in (1..=layout.trail()).filter(|back| *back < seat.last) {
            let before = seat.last - back;
            let entered = seat.ring[layout.place(before)] == before;
            seat.trail |= u8::from(entered) << (back - 1);
        }
        if seat.last > 0 && !seat.given.contains(&seat.last) {
            seat.doubts.push(layout.lot(seat.last, me));
        }
        for q in (0..n).filter(|q| seat.taken[*q] > 0) {
            seat.doubts.push(layout.lot(seat.taken[q], q));
        }
        seat.at = At::Settle;
        seat
    }

    fn resume_open(&mut self, place: usize, entry: Entry) {
        if entry.window > self.last {
            // Listed, not recorded: it was not entered. It must not look so later.
            self.stale.push(place);
        } else if entry.window > 0 {
            self.open.push(Open {
                window: entry.window,
                place,
                present: 1 << self.me,
                unknown: self.others(),
                doubt: entry.closed,
            });
        }
    }

    /// Puts the registers in order after a restart.
    #[cold]
    pub(super) fn settle(&mut self) -> Do {
        if let Some(place) = self.stale.pop() {
            return Do::Put { slot: self.layout.open(place), value: 0 };
        }
        self.begin_poll();
        self.show_last()
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn absent_lots_are_shared_by_all_present_and_evenly() {
        for workers in 1..=6 {
            for present in 1..1_u64 << workers {
                for window in 1..9 {
                    let here = (0..workers).filter(|seat| present >> seat & 1 == 1);
                    let shares: Vec<Vec<_>> =
                        here.map(|me| share(window, present, me, workers).collect()).collect();
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
        let of_first = |window| share(window, 0b0011, 0, 5).count();
        assert_eq!([1, 2, 3, 4].map(of_first), [1, 2, 1, 2]);
        assert_eq!(share(1, 1 << 63, 63, 64).count(), 63);
    }
}
