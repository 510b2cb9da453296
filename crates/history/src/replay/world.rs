//! Pools as they are to be, in numbers, and what requests need of them.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{Need, Needs, PoolId, Unit};
use holdall_sim::{Asked, TracePool};
use holdall_wire::{Amount, Name};

use super::{BadChange, Changes};
use crate::history::{History, Use};
use crate::pools::number_of;

/// The pools as they are to be.
pub(super) struct World {
    pub(super) names: Vec<Name>,
    pub(super) capacities: Vec<u32>,
    pub(super) locks: BTreeSet<usize>,
    /// The numbers of units that have been seen.
    units: Vec<BTreeMap<Name, Unit>>,
    gone: BTreeSet<usize>,
}

impl World {
    /// Those of a history, changed like this.
    pub(super) fn of(history: &History, changes: &Changes) -> Result<Self, BadChange> {
        let pools = history.pools();
        let numbered = |pool: &crate::PoolSeen| pool.units.iter().cloned().zip(0..).collect();
        let locks = pools.values().enumerate().filter(|(_, pool)| pool.lock);
        let mut world = Self {
            names: pools.keys().cloned().collect(),
            capacities: pools.values().map(crate::PoolSeen::capacity).collect(),
            locks: locks.map(|(at, _)| at).collect(),
            units: pools.values().map(numbered).collect(),
            gone: BTreeSet::new(),
        };
        for (pool, units) in &changes.units {
            world.resize(pool, *units)?;
        }
        for name in &changes.remove {
            world.remove(history, changes, name)?;
        }
        for units in &mut world.units {
            units.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        }
        let shared = |at: &usize| pools[&world.names[*at]].shared;
        for at in world.locks.iter().copied().filter(shared) {
            // As many as could ever share it.
            world.capacities[at] = u32::try_from(history.uses.len()).unwrap_or(u32::MAX).max(2);
        }
        Ok(world)
    }

    fn at(&self, name: &Name) -> Option<usize> {
        self.names.binary_search(name).ok()
    }

    /// Lets a pool have so many units.
    fn resize(&mut self, pool: &Name, units: u32) -> Result<(), BadChange> {
        let is_lock = |at: &usize| self.locks.contains(at);
        let found = self.at(pool).ok_or_else(|| {
            let known = (0..self.names.len()).filter(|at| !is_lock(at));
            let known: Vec<_> = known.map(|at| self.names[at].to_string()).collect();
            BadChange::NoPool(pool.clone(), known.join(", "))
        })?;
        match units {
            _ if is_lock(&found) => Err(BadChange::Lock(pool.clone())),
            0 => Err(BadChange::Zero(pool.clone())),
            _ => {
                self.capacities[found] = units;
                Ok(())
            }
        }
    }

    /// Takes away a pool, a lock or a unit.
    fn remove(
        &mut self,
        history: &History,
        changes: &Changes,
        name: &Name,
    ) -> Result<(), BadChange> {
        let (pool, unit) = history.owner_of(name);
        if changes.units.contains_key(&pool) {
            return Err(BadChange::Twice(pool, name.clone()));
        }
        if let Some(found) = self.at(name) {
            self.gone.insert(found);
            return Ok(());
        }
        let is_there = |(found, unit): &(usize, Name)| {
            self.units[*found].contains_key(unit)
                || number_of(unit, &self.names[*found])
                    .is_some_and(|number| number < self.capacities[*found])
        };
        let owner = self.at(&pool).zip(unit).filter(is_there);
        let (found, unit) = owner.ok_or_else(|| BadChange::Nothing(name.clone()))?;
        self.units[found].remove(&unit);
        // There may have been more units once than there are.
        self.capacities[found] = self.capacities[found].saturating_sub(1);
        if self.capacities[found] == 0 {
            self.gone.insert(found);
        }
        Ok(())
    }

    /// What a request asks for; nothing if nothing is left of it. It is counted by pool who asks for more than there is.
    pub(super) fn needs(
        &self,
        history: &History,
        one: &Use,
        clamped: &mut BTreeMap<usize, usize>,
    ) -> Option<Needs> {
        let mut sum = Sum { world: self, needs: Vec::new() };
        for need in &one.needs {
            let (pool, unit) = history.pool_of(need);
            let Some(at) = self.at(&pool) else { continue };
            let all = self.capacities[at];
            let named = unit.and_then(|unit| self.units[at].get(&unit).copied());
            let named = named.filter(|number| *number < all);
            match need.amount {
                Amount::Units(units) => sum.add(at, units, None),
                Amount::All => sum.add(at, all, None),
                Amount::One if self.locks.contains(&at) => sum.add(at, all, None),
                Amount::One | Amount::Shared => sum.add(at, 1, named),
            }
        }
        // Of whoever asked before the history begins it is known what it got.
        for pool in one.got.keys().filter(|_| one.needs.is_empty()) {
            let Some(at) = self.at(pool) else { continue };
            let units = one.units_of(pool).max(1);
            let is_lock = self.locks.contains(&at);
            sum.add(at, if is_lock { self.capacities[at] } else { units }, None);
        }
        sum.needs(clamped)
    }

    /// The pools in which these requests are played.
    pub(super) fn pools(&self, requests: &[Asked]) -> Vec<TracePool> {
        let mut pools: Vec<TracePool> = self
            .capacities
            .iter()
            .map(|capacity| TracePool { capacity: (*capacity).max(1), listed: false })
            .collect();
        for need in requests.iter().flat_map(|asked| asked.needs.iter()) {
            pools[need.pool.index()].listed |= !need.named.is_empty();
        }
        pools
    }
}

/// Needs that are being added up.
struct Sum<'a> {
    world: &'a World,
    needs: Vec<Need>,
}

impl Sum<'_> {
    fn add(&mut self, at: usize, units: u32, named: Option<Unit>) {
        if self.world.gone.contains(&at) {
            return;
        }
        let pool = PoolId(at as u64);
        let place = self.needs.iter().position(|need| need.pool == pool).unwrap_or_else(|| {
            self.needs.push(Need { pool, units: 0, named: BTreeSet::new() });
            self.needs.len() - 1
        });
        let need = &mut self.needs[place];
        need.units = need.units.saturating_add(units);
        need.named.extend(named);
    }

    /// All of them, as far as there is so much.
    fn needs(mut self, clamped: &mut BTreeMap<usize, usize>) -> Option<Needs> {
        for need in &mut self.needs {
            let all = self.world.capacities[need.pool.index()];
            if need.units > all {
                *clamped.entry(need.pool.index()).or_default() += 1;
                need.units = all;
            }
            while need.named.len() > need.units as usize {
                need.named.pop_last();
            }
        }
        Needs::new(self.needs).ok()
    }
}
