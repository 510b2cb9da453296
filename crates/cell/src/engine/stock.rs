//! What a pool consists of: a lock, or units, each with a number and a name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{Capacity, Need as Count, Unit as Number};
use holdall_wire::{Drained, Kind, Name, RequestNo};
use serde::{Deserialize, Serialize};

/// A lock is a counted pool of so many units: exclusive takes all, shared takes one.
pub(crate) const LOCK_UNITS: u32 = u32::MAX;

/// What a pool consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Stock {
    /// The fence of its present holders.
    Lock { fence: u64 },
    /// Units that can be told apart. Elsewhere, since most are locks, and small where there are many.
    Units(Box<Units>),
}

/// The units of a pool. A unit keeps its number as long as it belongs to the pool: the protocol knows it by
/// that. Of `gpu/3` it is 3, of units with names of their own their place in the list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Units {
    all: BTreeMap<Number, Unit>,
    /// How many of them go when they come back.
    retiring: usize,
    /// Whether they are called by their numbers, so that more can be made.
    pub(crate) numbered: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unit {
    pub(crate) name: Name,
    pub(crate) holder: Option<RequestNo>,
    /// It goes when it comes back.
    pub(crate) retiring: bool,
    /// It is given to nobody for now.
    pub(crate) drained: Option<Drained>,
    /// Neither is it, since one that goes is still held.
    withheld: bool,
}

impl Unit {
    pub(crate) fn new(name: Name) -> Self {
        Self { name, holder: None, retiring: false, drained: None, withheld: false }
    }

    /// Whether a newcomer could have it if nobody waited.
    pub(crate) fn is_free(&self) -> bool {
        self.holder.is_none() && !self.retiring && !self.is_away()
    }

    fn is_away(&self) -> bool {
        self.withheld || self.drained.is_some()
    }

    /// Its name with that of its pool in front, as people ask for it.
    pub(crate) fn full_name(&self, pool: &Name) -> Name {
        let own = self.name.as_str().strip_prefix(pool.as_str());
        if own.is_some_and(|rest| rest.starts_with('/')) {
            return self.name.clone();
        }
        // Whoever made the pool has looked that it is a name.
        format!("{pool}/{}", self.name).parse().unwrap_or_else(|_| self.name.clone())
    }
}

impl Units {
    pub(crate) fn new(all: BTreeMap<Number, Unit>, numbered: bool) -> Self {
        Self { all, retiring: 0, numbered }
    }

    pub(crate) fn get(&self, number: Number) -> Option<&Unit> {
        self.all.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut Unit> {
        self.all.get_mut(&number)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Number, &Unit)> {
        self.all.iter().map(|(number, unit)| (*number, unit))
    }

    pub(crate) fn extend(&mut self, fresh: BTreeMap<Number, Unit>) {
        self.all.extend(fresh);
    }

    /// How many stay.
    pub(crate) fn len(&self) -> u32 {
        (self.all.len() - self.retiring) as u32
    }

    /// Those that stay.
    pub(crate) fn staying(&self) -> impl DoubleEndedIterator<Item = (Number, &Unit)> {
        self.iter().filter(|(_, unit)| !unit.retiring)
    }

    /// How many units are free beside some.
    pub(crate) fn free_beside(&self, some: &BTreeSet<Number>) -> u32 {
        let free = |(number, unit): &(Number, &Unit)| unit.is_free() && !some.contains(number);
        self.iter().filter(free).count() as u32
    }

    /// Those of some that are not free.
    pub(crate) fn missing<'a>(
        &'a self,
        some: &'a BTreeSet<Number>,
    ) -> impl Iterator<Item = (Number, &'a Unit)> {
        let units = some.iter().filter_map(|number| Some((*number, self.get(*number)?)));
        units.filter(|(_, unit)| !unit.is_free())
    }

    /// Whether what is needed is not free, whoever waits.
    pub(crate) fn lacks(&self, count: &Count) -> bool {
        self.missing(&count.named).next().is_some()
            || (count.more() > 0 && count.more() > self.free_beside(&count.named))
    }

    /// What the protocol is to know of them.
    pub(crate) fn capacity(&self) -> Capacity {
        let away = self.staying().filter(|(_, unit)| unit.is_away());
        Capacity::Listed {
            units: self.staying().map(|(number, _)| number).collect(),
            away: away.map(|(number, _)| number).collect(),
        }
    }

    /// The last units go, so many: at once if they are free, else when they come back. Returns them.
    pub(crate) fn shrink(&mut self, by: u32) -> BTreeSet<Number> {
        let last = self.staying().rev().take(by as usize);
        let going: BTreeSet<_> = last.map(|(number, _)| number).collect();
        for number in &going {
            if let Some(unit) = self.all.get_mut(number) {
                unit.retiring = true;
                self.retiring += 1;
            }
        }
        self.tidy();
        going
    }

    /// Units on their way out stay after all, as many as are wanted.
    pub(crate) fn keep(&mut self, wanted: u32) {
        let going = self.all.values_mut().filter(|unit| unit.retiring);
        for unit in going.take(wanted as usize) {
            unit.retiring = false;
            self.retiring -= 1;
        }
        self.withhold();
    }

    /// What is on its way out and back goes.
    pub(crate) fn tidy(&mut self) {
        self.all.retain(|_, unit| !unit.retiring || unit.holder.is_some());
        self.retiring = self.all.values().filter(|unit| unit.retiring).count();
        self.withhold();
    }

    /// As long as units are held that go, as many others are given to nobody: no more are in use than the pool
    /// is to have, or fewer and fewer. Those that are withheld already stay so: the protocol hears of a change
    /// after it was made, and until then gives nothing out that it does not know to be free. Then the last of
    /// those that nobody could have now are chosen.
    fn withhold(&mut self) {
        let mut staying: Vec<_> = self.all.iter_mut().filter(|(_, unit)| !unit.retiring).collect();
        staying.sort_by_key(|(number, unit)| {
            let rest = (unit.drained.is_none(), unit.holder.is_some(), Reverse(**number));
            (!unit.withheld, rest)
        });
        for (at, (_, unit)) in staying.into_iter().enumerate() {
            unit.withheld = at < self.retiring;
        }
    }

    /// Who holds a unit, or keeps it from being given to anybody.
    pub(crate) fn in_the_way_of(&self, unit: &Unit) -> BTreeSet<RequestNo> {
        let retiring = self.all.values().filter(|one| one.retiring);
        match unit.holder {
            Some(holder) => BTreeSet::from([holder]),
            None if unit.withheld => retiring.filter_map(|one| one.holder).collect(),
            None => BTreeSet::new(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.numbered {
            Kind::Numbered(self.len())
        } else {
            Kind::Named(self.staying().map(|(_, unit)| unit.name.clone()).collect())
        }
    }
}
