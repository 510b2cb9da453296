//! Who uses what: exclusion is checked here at every entry, and the use is measured.

use holdall_core::Needs;

/// The units in use, as the clients see it: from the grant to the end of the use.
#[derive(Debug)]
pub(super) struct Pools {
    capacity: u32,
    used: Vec<u32>,
    /// Uses before this time are not measured.
    from: u64,
    /// Units times ticks.
    busy: u128,
    violations: u64,
}

impl Pools {
    pub(super) fn new(resources: u32, capacity: u32, from: u64) -> Self {
        Self { capacity, used: vec![0; resources as usize], from, busy: 0, violations: 0 }
    }

    /// A use begins. Each pool in which there is no room for it is a violation.
    pub(super) fn enter(&mut self, needs: &Needs) {
        for need in needs.iter() {
            let used = &mut self.used[need.pool.index()];
            *used = used.saturating_add(need.units);
            if *used > self.capacity {
                self.violations += 1;
            }
        }
    }

    /// A use ends.
    pub(super) fn leave(&mut self, needs: &Needs, entered: u64, now: u64) {
        for need in needs.iter() {
            self.used[need.pool.index()] -= need.units;
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

    /// The share of all unit-time up to `end` that was used.
    pub(super) fn utilisation(&self, end: u64) -> f64 {
        let units = u128::from(self.capacity) * self.used.len() as u128;
        self.busy as f64 / (units * u128::from(end - self.from)) as f64
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{Need, PoolId};

    use super::*;

    fn needs(pools: &[u32]) -> Needs {
        let needs = pools.iter().map(|pool| Need { pool: PoolId(*pool), units: 1 }).collect();
        Needs::new(needs).expect("sensible")
    }

    #[test]
    fn a_full_pool_is_noticed() {
        let mut pools = Pools::new(3, 1, 0);
        pools.enter(&needs(&[0, 1]));
        pools.enter(&needs(&[2]));
        assert_eq!(pools.violations(), 0);
        pools.enter(&needs(&[1, 2]));
        assert_eq!(pools.violations(), 2);
    }

    #[test]
    fn use_counts_after_the_warm_up() {
        let mut pools = Pools::new(2, 2, 10);
        pools.enter(&needs(&[0, 1]));
        pools.leave(&needs(&[0, 1]), 5, 15);
        assert_eq!(pools.utilisation(20), 10.0 / 40.0);
    }
}
