//! The pools of an agent as they are.

use std::collections::BTreeMap;

use holdall_wire::{Kind, Name, Need};

/// A pool that is declared. Whatever is not, is a lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// How many units it has; none if it is a lock.
    pub(super) units: Option<u32>,
    /// Their numbers, if they have names.
    names: BTreeMap<Name, u32>,
    /// Those that are given to nobody, and until when.
    pub(super) drained: BTreeMap<u32, Option<u64>>,
}

impl Pool {
    /// The number of a unit, which is told with the pool before it or without.
    pub(super) fn unit(&self, pool: &Name, unit: &str) -> Option<u32> {
        let own = unit.strip_prefix(pool.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let own = own.unwrap_or(unit);
        if self.names.is_empty() {
            return own.parse().ok().filter(|number| Some(*number) < self.units);
        }
        self.names.get(own).or_else(|| self.names.get(unit)).copied()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pools(BTreeMap<Name, Pool>);

impl Pools {
    pub(super) fn get(&self, pool: &Name) -> Option<&Pool> {
        self.0.get(pool)
    }

    /// A pool is this, or is no more.
    pub(super) fn tell(&mut self, name: &Name, kind: Option<&Kind>) {
        let Some(kind) = kind else {
            self.0.remove(name);
            return;
        };
        let pool = self.0.entry(name.clone()).or_default();
        (pool.units, pool.names) = match kind {
            Kind::Lock => (None, BTreeMap::new()),
            Kind::Numbered(units) => (Some(*units), BTreeMap::new()),
            Kind::Named(names) => {
                let numbered: BTreeMap<Name, u32> = names.iter().cloned().zip(0..).collect();
                (Some(u32::try_from(names.len()).unwrap_or(u32::MAX)), numbered)
            }
        };
        let units = pool.units.unwrap_or(0);
        pool.drained.retain(|unit, _| *unit < units);
    }

    /// The clock was set: what is drained comes back after the same time as before.
    pub(super) fn clock_set(&mut self, by: i64) {
        let drained = self.0.values_mut().flat_map(|pool| pool.drained.values_mut().flatten());
        drained.for_each(|until| *until = until.saturating_add_signed(by));
    }

    /// A unit, or all units of a pool, are given to nobody until then.
    pub(super) fn drain(&mut self, name: &Name, until: Option<u64>) {
        if let Some((pool, units)) = self.meant(name) {
            pool.drained.extend(units.map(|unit| (unit, until)));
        }
    }

    /// The opposite.
    pub(super) fn undrain(&mut self, name: &Name) {
        if let Some((pool, units)) = self.meant(name) {
            pool.drained.retain(|unit, _| !units.contains(unit));
        }
    }

    /// The units that a name means.
    fn meant(&mut self, name: &Name) -> Option<(&mut Pool, std::ops::Range<u32>)> {
        let (pool, unit) = self.of(name);
        let pool = self.0.get_mut(&pool)?;
        let all = 0..pool.units.unwrap_or(0);
        Some((pool, unit.map_or(all, |unit| unit..unit + 1)))
    }

    /// The pool or lock that a name is of, and the number of the unit that it means.
    pub(super) fn of(&self, name: &Name) -> (Name, Option<u32>) {
        let text = name.as_str();
        if self.0.contains_key(text) {
            return (name.clone(), None);
        }
        for (at, _) in text.rmatch_indices('/') {
            if let Some((owner, pool)) = self.0.get_key_value(&text[..at])
                && let Some(unit) = pool.unit(owner, text)
            {
                return (owner.clone(), Some(unit));
            }
        }
        (name.clone(), None)
    }

    /// The pools and locks of some needs.
    pub(super) fn of_all(&self, needs: &[Need]) -> Vec<Name> {
        let mut pools: Vec<_> = needs.iter().map(|need| self.of(&need.name).0).collect();
        pools.dedup();
        pools
    }
}
