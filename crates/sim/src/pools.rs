//! Who uses what and who waits for what, as the clients see it.
//!
//! Exclusion is checked here at every entry, the use is measured, and it is counted how often a
//! waiting request is overtaken: by every grant to a request that was asked for at a later tick
//! and shares a pool with it, once each, however many pools they share. A grant looks at nobody
//! but its older rivals, so its cost does not grow with the number of users.

use holdall_core::{Needs, PoolId, Unit};
use rustc_hash::FxHashSet;

use super::waiting::{Waiter, Waiting};

/// All pools, and all who wait.
#[derive(Debug)]
pub(super) struct Pools {
    capacity: u32,
    pools: Vec<Pool>,
    /// Units of listed pools in use.
    units: FxHashSet<(PoolId, Unit)>,
    /// Uses before this time are not measured.
    from: u64,
    /// Units times ticks.
    busy: u128,
    violations: u64,
    /// By lane, for the request that waits.
    overtaken: Vec<Overtaken>,
    overtaken_max: u64,
    grants: u64,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Pool {
    /// Units in use.
    used: u32,
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, Default)]
struct Overtaken {
    times: u64,
    /// The grant that was counted last.
    last: u64,
}

impl Pools {
    pub(super) fn new(resources: u32, capacity: u32, users: u32, from: u64) -> Self {
        Self {
            capacity,
            pools: vec![Pool::default(); resources as usize],
            units: FxHashSet::default(),
            from,
            busy: 0,
            violations: 0,
            overtaken: vec![Overtaken::default(); users as usize],
            overtaken_max: 0,
            grants: 0,
        }
    }

    /// Reads a little of what a change for a user will read, and returns something made of it.
    pub(super) fn touch(&self, lane: usize, needs: &Needs) -> u64 {
        let used = needs.iter().map(|need| u64::from(self.pools[need.pool.index()].used));
        used.sum::<u64>() + self.overtaken[lane].times
    }

    /// There is one more user.
    pub(super) fn add_user(&mut self) {
        self.overtaken.push(Overtaken::default());
    }

    /// A user asks, and waits from now on.
    pub(super) fn ask(&mut self, lane: u32, needs: &Needs, now: u64) {
        self.overtaken[lane as usize].times = 0;
        for need in needs.iter() {
            self.pools[need.pool.index()].waiting.push(Waiter::new(now, lane));
        }
    }

    /// A waiting user waits no more.
    pub(super) fn withdraw(&mut self, lane: u32, needs: &Needs, asked: u64) {
        for need in needs.iter() {
            self.pools[need.pool.index()].waiting.remove(Waiter::new(asked, lane));
        }
    }

    /// A waiting user is granted what it asked for, and its use begins. Each pool in which there
    /// is no room for it is a violation, and so is each unit that is in use.
    pub(super) fn grant(&mut self, lane: u32, needs: &Needs, asked: u64) {
        self.grants += 1;
        for need in needs.iter() {
            let pool = &mut self.pools[need.pool.index()];
            pool.waiting.remove(Waiter::new(asked, lane));
            pool.used = pool.used.saturating_add(need.units);
            if pool.used > self.capacity {
                self.violations += 1;
            }
            let units = need.named.iter().map(|unit| (need.pool, *unit));
            self.violations += units.map(|unit| u64::from(!self.units.insert(unit))).sum::<u64>();
            for rival in pool.waiting.older_than(asked) {
                let overtaken = &mut self.overtaken[rival.lane()];
                if overtaken.last != self.grants {
                    overtaken.last = self.grants;
                    overtaken.times += 1;
                    self.overtaken_max = self.overtaken_max.max(overtaken.times);
                }
            }
        }
    }

    /// A use ends.
    pub(super) fn leave(&mut self, needs: &Needs, entered: u64, now: u64) {
        for need in needs.iter() {
            self.pools[need.pool.index()].used -= need.units;
            for unit in &need.named {
                self.units.remove(&(need.pool, *unit));
            }
        }
        self.measure(needs, entered, now);
    }

    /// Counts a use up to now.
    pub(super) fn measure(&mut self, needs: &Needs, entered: u64, now: u64) {
        let units: u64 = needs.iter().map(|need| u64::from(need.units)).sum();
        let ticks = now.saturating_sub(entered.max(self.from));
        self.busy += u128::from(units) * u128::from(ticks);
    }

    pub(super) fn violations(&self) -> u64 {
        self.violations
    }

    /// The most times any request was overtaken so far.
    pub(super) fn overtaken_max(&self) -> u64 {
        self.overtaken_max
    }

    /// The share of all unit-time up to `end` that was used.
    pub(super) fn utilisation(&self, end: u64) -> f64 {
        let units = u128::from(self.capacity) * self.pools.len() as u128;
        self.busy as f64 / (units * u128::from(end - self.from)) as f64
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::Need;
    use proptest::prelude::*;

    use super::*;

    fn needs(pools: impl IntoIterator<Item = u32>) -> Needs {
        let needs = pools.into_iter().map(|pool| Need::any(PoolId(pool.into()), 1)).collect();
        Needs::new(needs).expect("sensible")
    }

    #[test]
    fn a_pool_is_a_cache_line() {
        assert_eq!(size_of::<Pool>(), 64);
    }

    #[test]
    fn a_full_pool_is_noticed() {
        let mut pools = Pools::new(3, 1, 3, 0);
        pools.grant(0, &needs([0, 1]), 0);
        pools.grant(1, &needs([2]), 0);
        assert_eq!(pools.violations(), 0);
        pools.grant(2, &needs([1, 2]), 0);
        assert_eq!(pools.violations(), 2);
    }

    #[test]
    fn a_unit_in_use_is_noticed() {
        let unit = |unit| {
            let need = Need { named: [unit].into(), ..Need::any(PoolId(0), 1) };
            Needs::new(vec![need]).expect("sensible")
        };
        let mut pools = Pools::new(1, 3, 3, 0);
        pools.grant(0, &unit(1), 0);
        pools.grant(1, &unit(2), 0);
        assert_eq!(pools.violations(), 0);
        pools.leave(&unit(1), 0, 5);
        pools.grant(0, &unit(1), 6);
        assert_eq!(pools.violations(), 0);
        pools.grant(2, &unit(2), 6);
        assert_eq!(pools.violations(), 1, "though there is room in the pool");
    }

    #[test]
    fn use_counts_after_the_warm_up() {
        let mut pools = Pools::new(2, 2, 1, 10);
        pools.grant(0, &needs([0, 1]), 0);
        pools.leave(&needs([0, 1]), 5, 15);
        assert_eq!(pools.utilisation(20), 10.0 / 40.0);
    }

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
        fn overtaking_agrees_with_a_naive_count(
            steps in prop::collection::vec((0..USERS, 0u64..2, 1u32..32, 0u32..5), 1..300),
        ) {
            let (mut quick, mut naive) = (Pools::new(5, 1, USERS, 0), Naive::default());
            let mut now = 0;
            for (lane, pause, pools, chance) in steps {
                now += pause;
                let entry = naive.waiting.iter().find(|w| w.0 == lane).cloned();
                match entry {
                    None => {
                        let needs = needs((0..5).filter(|p| pools & 1 << p != 0));
                        quick.ask(lane, &needs, now);
                        naive.waiting.push((lane, needs, now, 0));
                    }
                    Some((_, needs, asked, _)) if chance > 0 => {
                        quick.grant(lane, &needs, asked);
                        quick.leave(&needs, now, now);
                        naive.grant(lane);
                    }
                    Some((_, needs, asked, _)) => {
                        quick.withdraw(lane, &needs, asked);
                        naive.waiting.retain(|w| w.0 != lane);
                    }
                }
                prop_assert_eq!(quick.overtaken_max(), naive.max);
            }
        }
    }
}
