//! The event queue: a timing wheel over whole ticks.
//!
//! # Invariants
//! - What is due at one tick is in a list of batches, in the order it was pushed, so events come out ordered by
//!   (time, order of pushing). All batches of a list but the last are full.
//! - The lists of the ticks `now .. now + SLOTS` are in the wheel's slots; those of later ticks are in `far`, and
//!   move as they come within reach, whole.
//! - A batch that is used up is the next to be filled: it is warm in the cache. What is being filled is then one
//!   batch for each tick within reach, however many events there are, and stays warm as well; a processor that writes
//!   to what is in no cache has to wait for it sooner or later.

use std::collections::BTreeMap;
use std::mem;

const SLOTS: u64 = 4096;
const MASK: u64 = SLOTS - 1;
/// No batch.
const NONE: u32 = u32::MAX;
/// How many items a batch has at most: as many as can well be looked ahead.
const BATCH: usize = 16;

/// Items by the tick they are due at.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    now: u64,
    /// For each tick within reach, what is due.
    slots: Vec<Due>,
    /// How many slots have something.
    near: u32,
    far: BTreeMap<u64, Due>,
    /// The first tick in `far`.
    far_first: u64,
    batches: Vec<Batch<T>>,
    /// Those that are empty.
    spare: Vec<u32>,
    /// The one that was taken out last, if it is not back yet.
    taken: u32,
}

/// A list of batches.
#[derive(Clone, Copy, Debug)]
struct Due {
    first: u32,
    last: u32,
}

impl Due {
    const NOTHING: Self = Self { first: NONE, last: NONE };
}

#[derive(Debug)]
struct Batch<T> {
    items: Vec<T>,
    /// The next of its list.
    next: u32,
}

impl<T> Wheel<T> {
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            slots: vec![Due::NOTHING; SLOTS as usize],
            near: 0,
            far: BTreeMap::new(),
            far_first: u64::MAX,
            batches: Vec::new(),
            spare: Vec::new(),
            taken: NONE,
        }
    }

    /// Puts an item where it will come out at `time`; what is overdue comes out now.
    pub(super) fn push(&mut self, time: u64, item: T) {
        let time = time.max(self.now);
        if time - self.now >= SLOTS {
            return self.push_far(time, item);
        }
        let due = self.slots[slot(time)];
        match self.batches.get_mut(due.last as usize) {
            Some(batch) if batch.items.len() < BATCH => batch.items.push(item),
            _ => {
                self.near += u32::from(due.last == NONE);
                self.slots[slot(time)] = self.extend(due, item);
            }
        }
    }

    fn push_far(&mut self, time: u64, item: T) {
        let due = self.far.get(&time).copied().unwrap_or(Due::NOTHING);
        match self.batches.get_mut(due.last as usize) {
            Some(batch) if batch.items.len() < BATCH => batch.items.push(item),
            _ => {
                let due = self.extend(due, item);
                self.far.insert(time, due);
                self.far_first = self.far_first.min(time);
            }
        }
    }

    /// One batch more for a tick, with its first item.
    fn extend(&mut self, due: Due, item: T) -> Due {
        let fresh = self.spare.pop().unwrap_or_else(|| {
            self.batches.push(Batch { items: Vec::new(), next: NONE });
            (self.batches.len() - 1) as u32
        });
        self.batches[fresh as usize].items.push(item);
        match self.batches.get_mut(due.last as usize) {
            Some(last) => {
                last.next = fresh;
                Due { last: fresh, ..due }
            }
            None => Due { first: fresh, last: fresh },
        }
    }

    /// Takes out the next items that are due before `end`, at most [`BATCH`], all at one tick, and that tick. They are
    /// to be gone through in order, and what they were in is to be [given back](Self::give_back), before more are taken.
    pub(super) fn take_before(&mut self, end: u64) -> Option<(u64, Vec<T>)> {
        debug_assert_eq!(self.taken, NONE, "what was taken before is back");
        if self.now >= end {
            return None;
        }
        while self.slots[slot(self.now)].first == NONE {
            self.turn(end)?;
        }
        let due = &mut self.slots[slot(self.now)];
        let batch = &mut self.batches[due.first as usize];
        self.taken = due.first;
        due.first = mem::replace(&mut batch.next, NONE);
        if due.first == NONE {
            due.last = NONE;
            self.near -= 1;
        }
        Some((self.now, mem::take(&mut batch.items)))
    }

    /// Gives back what the last items came in.
    pub(super) fn give_back(&mut self, mut items: Vec<T>) {
        items.clear();
        if let Some(batch) = self.batches.get_mut(self.taken as usize) {
            batch.items = items;
            self.spare.push(mem::replace(&mut self.taken, NONE));
        }
    }

    /// Goes on to the next tick, or straight to the next that has something to do if that is far;
    /// `None` if that is not before `end`.
    fn turn(&mut self, end: u64) -> Option<()> {
        let next = if self.near == 0 { self.far_first } else { self.now + 1 };
        if next >= end {
            return None;
        }
        self.now = next;
        while self.far_first - self.now < SLOTS {
            let Some((time, due)) = self.far.pop_first() else { break };
            self.slots[slot(time)] = due;
            self.near += 1;
            self.far_first = self.far.first_key_value().map_or(u64::MAX, |(time, _)| *time);
        }
        Some(())
    }
}

const fn slot(time: u64) -> usize {
    (time & MASK) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list sorted by (time, order of pushing), with pushes between the items that are taken out, also
        /// for the tick that these are of.
        #[test]
        fn comes_out_in_order(
            ops in prop::collection::vec((0u64..3 * SLOTS, 1..2 * BATCH, 0..3 * BATCH), 1..60),
        ) {
            let mut wheel = Wheel::new();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let (mut now, mut number, mut at_hand) = (0, 0, VecDeque::new());
            for (ahead, pushes, pops) in ops {
                for same in 0..pushes {
                    let ahead = if same % 3 == 0 { 0 } else { ahead };
                    wheel.push(now + ahead, number);
                    list.push((now + ahead, number));
                    number += 1;
                }
                for _ in 0..pops {
                    list.sort_unstable();
                    let expected = (!list.is_empty()).then(|| list.remove(0));
                    prop_assert_eq!(next(&mut wheel, &mut at_hand), expected);
                    now = expected.map_or(now, |(time, _)| time);
                }
            }
            list.sort_unstable();
            for expected in list {
                prop_assert_eq!(next(&mut wheel, &mut at_hand), Some(expected));
            }
            prop_assert_eq!(next(&mut wheel, &mut at_hand), None);
            prop_assert_eq!(wheel.spare.len(), wheel.batches.len(), "none is lost");
        }
    }

    /// The next item, one by one.
    fn next<T>(wheel: &mut Wheel<T>, at_hand: &mut VecDeque<(u64, T)>) -> Option<(u64, T)> {
        if at_hand.is_empty() {
            let (time, mut items) = wheel.take_before(u64::MAX)?;
            at_hand.extend(items.drain(..).map(|item| (time, item)));
            wheel.give_back(items);
        }
        at_hand.pop_front()
    }

    #[test]
    fn the_end_is_not_passed() {
        let mut wheel = Wheel::new();
        let take = |wheel: &mut Wheel<char>, end| {
            let (time, items) = wheel.take_before(end)?;
            wheel.give_back(items.clone());
            Some((time, items))
        };
        wheel.push(9, 'a');
        wheel.push(10, 'b');
        wheel.push(10 * SLOTS, 'c');
        assert_eq!(take(&mut wheel, 10), Some((9, vec!['a'])));
        assert_eq!(take(&mut wheel, 10), None);
        assert_eq!(take(&mut wheel, 11), Some((10, vec!['b'])));
        assert_eq!(take(&mut wheel, 10 * SLOTS), None);
        assert_eq!(take(&mut wheel, 10 * SLOTS + 1), Some((10 * SLOTS, vec!['c'])));
    }
}
