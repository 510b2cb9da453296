//! How often a waiting request is overtaken.
//!
//! A request is overtaken by every grant to a request that was asked for at a later tick and
//! shares a pool with it, once each, however many pools they share. Each pool has a list of those
//! who wait for it, in the order they asked, so a grant looks at nobody but its older rivals.

use std::collections::VecDeque;

use holdall_core::Needs;

/// Who waits, and how often each was overtaken.
#[derive(Debug)]
pub(super) struct Overtaking {
    /// By pool, sorted by the time of asking.
    waiting: Vec<VecDeque<Waiter>>,
    /// By lane.
    counts: Vec<Count>,
    grants: u64,
    max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    asked: u64,
    lane: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    overtaken: u64,
    /// The grant that was counted last.
    last: u64,
}

impl Overtaking {
    pub(super) fn new(resources: u32, users: u32) -> Self {
        Self {
            waiting: vec![VecDeque::new(); resources as usize],
            counts: vec![Count::default(); users as usize],
            grants: 0,
            max: 0,
        }
    }

    /// A user asks, not before anybody who asked already.
    pub(super) fn ask(&mut self, lane: u32, needs: &Needs, asked: u64) {
        self.counts[lane as usize].overtaken = 0;
        for need in needs.iter() {
            self.waiting[need.pool.index()].push_back(Waiter { asked, lane });
        }
    }

    /// A waiting user is granted what it asked for.
    pub(super) fn grant(&mut self, lane: u32, needs: &Needs, asked: u64) {
        self.withdraw(lane, needs, asked);
        self.grants += 1;
        for need in needs.iter() {
            let older =
                self.waiting[need.pool.index()].iter().take_while(|waiter| waiter.asked < asked);
            for waiter in older {
                let count = &mut self.counts[waiter.lane as usize];
                if count.last != self.grants {
                    count.last = self.grants;
                    count.overtaken += 1;
                    self.max = self.max.max(count.overtaken);
                }
            }
        }
    }

    /// A waiting user waits no more.
    pub(super) fn withdraw(&mut self, lane: u32, needs: &Needs, asked: u64) {
        for need in needs.iter() {
            let list = &mut self.waiting[need.pool.index()];
            let first = list.partition_point(|waiter| waiter.asked < asked);
            let at = list.iter().skip(first).position(|waiter| waiter.lane == lane);
            if let Some(at) = at {
                list.remove(first + at);
            }
        }
    }

    /// The largest count of any request so far.
    pub(super) fn max(&self) -> u64 {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{Need, PoolId};
    use proptest::prelude::*;

    use super::*;

    /// Every request that waits, and how often it was overtaken, counted anew from all of them.
    #[derive(Default)]
    struct Naive {
        waiting: Vec<(u32, Needs, u64, u64)>,
        max: u64,
    }

    impl Naive {
        fn grant(&mut self, lane: u32) {
            let at = self.waiting.iter().position(|w| w.0 == lane).expect("it waits");
            let (_, needs, asked, _) = self.waiting.remove(at);
            for other in &mut self.waiting {
                if other.2 < asked && other.1.share_a_pool_with(&needs) {
                    other.3 += 1;
                    self.max = self.max.max(other.3);
                }
            }
        }
    }

    const USERS: u32 = 8;

    proptest! {
        /// Users ask, and are granted or withdrawn, in any order.
        #[test]
        fn agrees_with_a_naive_count(
            steps in prop::collection::vec((0..USERS, 0u64..2, 1u32..32, 0u32..5), 1..300),
        ) {
            let (mut quick, mut naive) = (Overtaking::new(5, USERS), Naive::default());
            let mut now = 0;
            for (lane, pause, pools, fate) in steps {
                now += pause;
                let entry = naive.waiting.iter().find(|w| w.0 == lane).cloned();
                match entry {
                    None => {
                        let needs = (0..5).filter(|p| pools & 1 << p != 0);
                        let needs = needs.map(|p| Need { pool: PoolId(p), units: 1 }).collect();
                        let needs = Needs::new(needs).expect("sensible");
                        quick.ask(lane, &needs, now);
                        naive.waiting.push((lane, needs, now, 0));
                    }
                    Some((_, needs, asked, _)) if fate > 0 => {
                        quick.grant(lane, &needs, asked);
                        naive.grant(lane);
                    }
                    Some((_, needs, asked, _)) => {
                        quick.withdraw(lane, &needs, asked);
                        naive.waiting.retain(|w| w.0 != lane);
                    }
                }
                prop_assert_eq!(quick.max(), naive.max);
            }
        }
    }
}
