//! The event queue: a timing wheel over whole ticks.
//!
//! # Invariants
//! - Everything that is due at one tick is in one buffer, in the order it was pushed, so events
//!   come out ordered by (time, order of pushing).
//! - The buffers of the ticks `now .. now + SLOTS` are in the wheel's slots; those of later ticks
//!   are in `far`, and move as they come within reach, whole.
//! - A buffer that is used up is handed to the next tick that needs one, last first: it is warm in
//!   the cache, and there are never more buffers than ticks with something to do.

use std::collections::{BTreeMap, VecDeque, vec_deque};

const SLOTS: u64 = 4096;
const MASK: u64 = SLOTS - 1;
/// No buffer.
const NONE: u32 = u32::MAX;

/// Items by the tick they are due at.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    now: u64,
    /// For each tick within reach, the index of its buffer.
    slots: Vec<u32>,
    /// How many slots have a buffer.
    near: u32,
    far: BTreeMap<u64, u32>,
    /// The first tick in `far`.
    far_first: u64,
    buffers: Vec<VecDeque<T>>,
    spare: Vec<u32>,
}

impl<T> Wheel<T> {
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            slots: vec![NONE; SLOTS as usize],
            near: 0,
            far: BTreeMap::new(),
            far_first: u64::MAX,
            buffers: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Puts an item where it will come out at `time`; what is overdue comes out now.
    pub(super) fn push(&mut self, time: u64, item: T) {
        let time = time.max(self.now);
        let buffer = if time - self.now < SLOTS {
            match self.slots[slot(time)] {
                NONE => {
                    let buffer = self.fresh_buffer();
                    self.slots[slot(time)] = buffer;
                    self.near += 1;
                    buffer
                }
                buffer => buffer,
            }
        } else {
            self.far_buffer(time)
        };
        self.buffers[buffer as usize].push_back(item);
    }

    /// Takes the next item that is due before `end`, and the tick it is due at.
    pub(super) fn pop_before(&mut self, end: u64) -> Option<(u64, T)> {
        if self.now >= end {
            return None;
        }
        loop {
            let buffer = self.slots[slot(self.now)];
            if buffer != NONE {
                if let Some(item) = self.buffers[buffer as usize].pop_front() {
                    return Some((self.now, item));
                }
                self.slots[slot(self.now)] = NONE;
                self.near -= 1;
                self.spare.push(buffer);
            }
            if !self.turn(end) {
                return None;
            }
        }
    }

    /// What else is due at this tick, in order.
    pub(super) fn rest_of_tick(&self) -> vec_deque::Iter<'_, T> {
        let buffer = self.buffers.get(self.slots[slot(self.now)] as usize);
        buffer.map(VecDeque::iter).unwrap_or_default()
    }

    /// Goes on to the next tick, or straight to the next that has something to do if that is far;
    /// false if that is not before `end`.
    fn turn(&mut self, end: u64) -> bool {
        let next = if self.near == 0 { self.far_first } else { self.now + 1 };
        if next >= end {
            return false;
        }
        self.now = next;
        while self.far_first - self.now < SLOTS {
            let Some((time, buffer)) = self.far.pop_first() else { break };
            self.slots[slot(time)] = buffer;
            self.near += 1;
            self.far_first = self.far.first_key_value().map_or(u64::MAX, |(time, _)| *time);
        }
        true
    }

    fn far_buffer(&mut self, time: u64) -> u32 {
        if let Some(buffer) = self.far.get(&time) {
            return *buffer;
        }
        let buffer = self.fresh_buffer();
        self.far.insert(time, buffer);
        self.far_first = self.far_first.min(time);
        buffer
    }

    fn fresh_buffer(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.buffers.push(VecDeque::new());
            (self.buffers.len() - 1) as u32
        })
    }
}

const fn slot(time: u64) -> usize {
    (time & MASK) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list sorted by (time, order of pushing), with pushes between the pops.
        #[test]
        fn comes_out_in_order(ops in prop::collection::vec((0u64..3 * SLOTS, 0usize..4), 1..200)) {
            let mut wheel = Wheel::new();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (number, (ahead, pops)) in ops.into_iter().enumerate() {
                wheel.push(now + ahead, number);
                list.push((now + ahead, number));
                for _ in 0..pops {
                    list.sort_unstable();
                    let expected = (!list.is_empty()).then(|| list.remove(0));
                    prop_assert_eq!(wheel.pop_before(u64::MAX), expected);
                    now = expected.map_or(now, |(time, _)| time);
                }
            }
            list.sort_unstable();
            for expected in list {
                prop_assert_eq!(wheel.pop_before(u64::MAX), Some(expected));
            }
            prop_assert_eq!(wheel.pop_before(u64::MAX), None);
        }
    }

    #[test]
    fn the_end_is_not_passed() {
        let mut wheel = Wheel::new();
        wheel.push(9, 'a');
        wheel.push(10, 'b');
        wheel.push(10 * SLOTS, 'c');
        assert_eq!(wheel.pop_before(10), Some((9, 'a')));
        assert_eq!(wheel.pop_before(10), None);
        assert_eq!(wheel.pop_before(11), Some((10, 'b')));
        assert_eq!(wheel.pop_before(10 * SLOTS), None);
        assert_eq!(wheel.pop_before(10 * SLOTS + 1), Some((10 * SLOTS, 'c')));
    }
}
