//! Starting again from one's own registers.

use super::layout::{Entry, Layout, Sign};
use super::rules::Rules;
use super::seat::{At, Op, Open, Seat};
use crate::machine::Access;

impl<V: Rules> Seat<V> {
    /// A worker that starts again, from its own registers, which `get` reads.
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
    pub fn resume(layout: Layout, me: usize, get: &mut dyn FnMut(usize) -> u64) -> Self {
        let mut seat = Self::new(layout, me);
        let mut stale = 0;
        let n = layout.workers();
        for q in 0..n {
            seat.given[q] = get(layout.gift(q));
            seat.taken[q] = get(layout.taken(q));
        }
        for window in 0..layout.ring() as u64 {
            seat.ring[layout.place(window)] = get(layout.record(window));
        }
        for k in 0..layout.saved_len() {
            seat.saved[k] = get(layout.saved(k));
        }
        seat.last = seat.ring.iter().copied().max().unwrap_or(0);
        seat.newest = seat.last.max(Sign(get(Layout::SIGN)).reached());
        seat.watch = seat.others();
        for k in 0..layout.open_len() {
            let entry = Entry::unpack(get(layout.open(k)));
            if entry.window > seat.last {
                // Listed, not recorded: it was not entered. It must not look so later.
                stale |= 1 << k;
            } else if entry.window > 0 {
                let open = seat.reopened(k, entry);
                seat.open.push(open);
            }
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
        seat.at = At::Settle { stale };
        seat
    }

    /// A window of the table of open ones, of which all is to be learned again.
    fn reopened(&self, place: usize, entry: Entry) -> Open {
        Open {
            window: entry.window,
            place,
            present: 1 << self.me,
            unknown: self.others(),
            doubt: entry.closed,
        }
    }

    /// Puts the registers in order after a restart.
    #[cold]
    pub(super) fn settle(&mut self, stale: u128) -> Access {
        if stale != 0 {
            self.at = At::Settle { stale: stale & (stale - 1) };
            return Access::Put {
                slot: self.layout.open(stale.trailing_zeros() as usize),
                value: 0,
            };
        }
        self.op = Op::learn();
        self.at = At::Fence;
        self.show_last()
    }
}
