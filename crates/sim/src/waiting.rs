//! Who waits for a pool, in the order they asked.

use std::collections::VecDeque;

use holdall_core::UserId;

/// A waiting request: when it was made, above the [`LANE_BITS`] of who made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiter(u64);

const LANE_BITS: u32 = UserId::LANES.ilog2();

/// The first time that a waiter has no room for.
pub(super) const END_OF_TIME: u64 = 1 << (u64::BITS - LANE_BITS);

impl Waiter {
    pub(super) const fn new(asked: u64, lane: u32) -> Self {
        Self(asked << LANE_BITS | lane as u64)
    }

    pub(super) const fn asked(self) -> u64 {
        self.0 >> LANE_BITS
    }

    pub(super) const fn lane(self) -> usize {
        (self.0 & (UserId::LANES - 1) as u64) as usize
    }
}

/// How many waiters have a place in the list itself. With these and its neighbours in
/// [`super::pools`], a pool fills a cache line.
const NEAR: usize = 5;

/// A list sorted by the time of asking. The first few are kept in place, because in a large system
/// every look elsewhere is a wait for memory, and most lists are short.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    near: [Waiter; NEAR],
    /// How many of `near` there are; if there are more in all, then all of them.
    filled: u32,
    #[expect(clippy::box_collection, reason = "in place it would not fit into the cache line")]
    far: Option<Box<VecDeque<Waiter>>>,
}

impl Waiting {
    /// Adds one who asked no earlier than those in the list.
    pub(super) fn push(&mut self, waiter: Waiter) {
        match self.near.get_mut(self.filled as usize) {
            Some(place) => {
                *place = waiter;
                self.filled += 1;
            }
            None => self.far.get_or_insert_default().push_back(waiter),
        }
    }

    /// Those who asked before a time, oldest first.
    pub(super) fn older_than(&self, time: u64) -> impl Iterator<Item = &Waiter> {
        let near = &self.near[..self.filled as usize];
        near.iter()
            .chain(self.far.iter().flat_map(|far| far.iter()))
            .take_while(move |w| w.asked() < time)
    }

    /// Takes one out, if it is there.
    pub(super) fn remove(&mut self, waiter: Waiter) {
        let filled = self.filled as usize;
        if let Some(at) = self.near[..filled].iter().position(|w| *w == waiter) {
            self.near.copy_within(at + 1..filled, at);
            self.filled -= 1;
            if let Some(next) = self.far.as_mut().and_then(|far| far.pop_front()) {
                self.near[filled - 1] = next;
                self.filled += 1;
            }
        } else if let Some(far) = &mut self.far {
            let first = far.partition_point(|w| w.asked() < waiter.asked());
            if let Some(at) = far.iter().skip(first).position(|w| *w == waiter) {
                far.remove(first + at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain list.
        #[test]
        fn is_a_list(steps in prop::collection::vec((any::<bool>(), 0usize..12, 0u64..3), 1..200)) {
            let (mut list, mut waiting) = (Vec::new(), Waiting::default());
            let mut now = 0;
            for (lane, (ask, at, pause)) in (0..).zip(steps) {
                now += pause;
                if ask {
                    list.push(Waiter::new(now, lane));
                    waiting.push(Waiter::new(now, lane));
                } else if at < list.len() {
                    waiting.remove(list.remove(at));
                }
                let all: Vec<_> = waiting.older_than(END_OF_TIME).copied().collect();
                prop_assert_eq!(&all, &list);
                let older = list.iter().filter(|w| w.asked() < now).count();
                prop_assert_eq!(waiting.older_than(now).count(), older);
            }
        }
    }
}
