//! What a history tells of pools and locks.

use std::collections::{BTreeMap, BTreeSet};

use holdall_wire::{Amount, Name, Need};

use crate::note::Note;

/// A pool or a lock, as far as a history tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSeen {
    /// Whether it is a lock.
    pub lock: bool,
    /// How many units it has had from when on, as far as that was told; 0 while it was not there.
    pub sizes: Vec<(u64, u32)>,
    /// The units that were granted.
    pub units: BTreeSet<Name>,
    /// The most units that one request wanted.
    pub most: u32,
    /// Whether somebody shares it.
    pub shared: bool,
}

impl PoolSeen {
    /// How many units it has, or had before it was removed. A lock has one.
    pub fn capacity(&self) -> u32 {
        if self.lock {
            return 1;
        }
        self.told().unwrap_or_else(|| self.seen())
    }

    /// How many units it has by what was told last.
    fn told(&self) -> Option<u32> {
        self.sizes.iter().rev().map(|(_, units)| *units).find(|units| *units > 0)
    }

    /// How many there must be.
    fn seen(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX).max(self.most).max(1)
    }

    /// All of its units of which the names are known, if it is called this. Where units are numbered those are, too, that nobody got.
    pub(crate) fn all_units(&self, pool: &Name) -> BTreeSet<Name> {
        let mut units = self.units.clone();
        let are_numbered = units.iter().all(|unit| number_of(unit, pool).is_some());
        if are_numbered && !units.is_empty() {
            let name = |number| format!("{pool}/{number}").parse().ok();
            units.extend((0..self.capacity()).filter_map(name));
        }
        units
    }

    /// Whether it was there at the end.
    pub fn is_removed(&self) -> bool {
        self.sizes.last().is_some_and(|(_, units)| *units == 0)
    }

    /// The units it had, times the milliseconds for which it had them.
    pub fn unit_time(&self, from: u64, to: u64) -> u128 {
        if self.lock || self.sizes.is_empty() {
            return u128::from(self.capacity()) * u128::from(to.saturating_sub(from));
        }
        // Of the time before it was told, that is the best guess.
        let mut units = self.sizes.first().map_or(0, |(_, units)| *units).max(1);
        let (mut sum, mut since) = (0, from);
        for (at, next) in &self.sizes {
            let at = (*at).clamp(from, to);
            sum += u128::from(units) * u128::from(at.saturating_sub(since));
            (units, since) = (*next, since.max(at));
        }
        sum + u128::from(units) * u128::from(to.saturating_sub(since))
    }
}

/// The number of a unit that has one in place of a name.
pub(crate) fn number_of(unit: &Name, pool: &Name) -> Option<u32> {
    let number = unit.as_str().strip_prefix(pool.as_str())?.strip_prefix('/')?;
    number.parse().ok()
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools(pub(crate) BTreeMap<Name, PoolSeen>);

impl Pools {
    /// A pool is told to be there, or to have changed.
    pub(crate) fn tell(&mut self, at: u64, pool: Name, units: Option<u32>) {
        let seen = self.0.entry(pool).or_default();
        match units {
            Some(units) => {
                seen.lock = false;
                seen.sizes.push((at, units));
            }
            None => seen.lock = true,
        }
    }

    /// Units of it were granted.
    pub(crate) fn granted(&mut self, pool: &Name, units: &[Name]) {
        if !self.0.contains_key(pool) {
            self.0.insert(pool.clone(), PoolSeen::default());
        }
        let Some(seen) = self.0.get_mut(pool) else { return };
        if let [only] = units
            && only == pool
        {
            seen.lock = true;
        } else {
            seen.units.extend(units.iter().cloned());
        }
    }

    /// The pool or lock that a need is of, and the unit that it names. Whatever stands before a slash
    /// and is a pool, is one.
    pub(crate) fn of(&self, need: &Need) -> (Name, Option<Name>) {
        let name = need.name.as_str();
        if self.0.contains_key(name) {
            return (need.name.clone(), None);
        }
        for (at, _) in name.rmatch_indices('/') {
            let Some((pool, seen)) =
                self.0.get_key_value(&name[..at]).filter(|(_, seen)| !seen.lock)
            else {
                continue;
            };
            let own = name[at + 1..].parse::<Name>().ok().filter(|own| seen.units.contains(own));
            return (pool.clone(), Some(own.unwrap_or_else(|| need.name.clone())));
        }
        (need.name.clone(), None)
    }

    /// Takes notice of what a request wants, once all grants are known.
    pub(crate) fn wanted(&mut self, needs: &[Need]) {
        let mut counts: BTreeMap<Name, u32> = BTreeMap::new();
        for need in needs {
            let (pool, named) = self.of(need);
            let units = match need.amount {
                Amount::Units(units) => units,
                Amount::One | Amount::All | Amount::Shared => 1,
            };
            let count = counts.entry(pool.clone()).or_default();
            *count = count.saturating_add(units);
            let unknown = !self.0.contains_key(&pool);
            let seen = self.0.entry(pool).or_default();
            seen.shared |= need.amount == Amount::Shared;
            // What nobody has declared is a lock.
            let lock = unknown && matches!(need.amount, Amount::One);
            seen.lock |= lock || need.amount == Amount::Shared;
            seen.units.extend(named);
        }
        for (pool, count) in counts {
            if let Some(seen) = self.0.get_mut(&pool) {
                seen.most = seen.most.max(count);
            }
        }
    }

    /// What is odd about them.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        for (pool, seen) in self.0.iter().filter(|(_, seen)| !seen.lock) {
            for pair in seen.sizes.windows(2) {
                let [(_, from), (_, to)] = pair else { continue };
                if *from > 0 && *to > 0 && from != to {
                    notes.push(Note::Resized { pool: pool.clone(), from: *from, to: *to });
                }
            }
            if seen.is_removed() {
                notes.push(Note::Removed(pool.clone()));
            }
            if seen.told().is_none() {
                notes.push(Note::Guessed { pool: pool.clone(), units: seen.seen() });
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn needs_are_of_pools_units_or_locks() {
        let mut pools = Pools::default();
        pools.tell(0, name("gpu"), Some(4));
        pools.granted(&name("seat"), &[name("red")]);
        pools.granted(&name("db/main"), &[name("db/main")]);
        let of = |need: &str| pools.of(&need.parse().expect("a need"));
        assert_eq!(of("gpu:2"), (name("gpu"), None));
        assert_eq!(of("gpu/3"), (name("gpu"), Some(name("gpu/3"))));
        assert_eq!(of("seat/red"), (name("seat"), Some(name("red"))));
        assert_eq!(of("db/main"), (name("db/main"), None));
        assert_eq!(of("other/thing"), (name("other/thing"), None));
    }

    #[test]
    fn sizes_over_time() {
        let mut pools = Pools::default();
        pools.tell(100, name("gpu"), Some(2));
        pools.tell(200, name("gpu"), Some(4));
        pools.tell(300, name("gpu"), Some(0));
        let gpu = &pools.0["gpu"];
        assert_eq!((gpu.capacity(), gpu.is_removed()), (4, true));
        assert_eq!(gpu.unit_time(100, 400), 200 + 400);
        assert_eq!(gpu.unit_time(150, 250), 100 + 200);
        assert_eq!(gpu.unit_time(0, 100), 200);
        assert_eq!(pools.notes().len(), 2, "resized, and removed");
    }
}
