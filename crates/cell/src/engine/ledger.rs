//! The ledger: which name is which pool, which unit is whose, and the fences.
//!
//! Protocols know numbers; the ledger knows names. It notes which units the manager has picked for a grant,
//! and its picture of who waits for and holds what is what people are shown.
//!
//! What a name means is in `names`.
//!
//! # Invariants
//! - **L1.** A unit has at most one holder, and a lock has one exclusive or any number of sharing
//!   holders ([`Ledger::assign`] refuses anything else).
//! - **L2.** A fence handed out for a unit is larger than every fence of that unit before; holders
//!   that share a lock carry the same one.
//! - **L3.** An undeclared lock is known only while somebody waits for it or holds it. The protocol
//!   keeps its pool, without a name, for the next one.
//! - **L4.** A name means one thing: a pool, a lock, or a unit of one pool, with the pool in front or not. (A pool
//!   may have a unit of its own name; whoever asks for that name means the pool.)

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hashbrown::HashMap;
use holdall_core::{
    Broken, Capacity, Need as Count, Needs, Picked, PoolId, Resize, Unit as Number,
};
use holdall_wire::{Kind, Name, RequestNo, Taken};
use serde::{Deserialize, Serialize};

use super::Defect;
pub(crate) use super::names::Meaning;
pub(crate) use super::stock::{LOCK_UNITS, Stock, Unit, Units};
use crate::few::Few;
use crate::sorted;

/// A pool or a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(crate) name: Name,
    pub(crate) declared: bool,
    /// Nothing may be asked of it any more; it goes when its last unit is back.
    pub(crate) removed: bool,
    pub(crate) stock: Stock,
    pub(crate) waiting: Few<RequestNo>,
    /// How many units each grant holds.
    pub(crate) holders: Few<RequestNo, u32>,
    /// Those of them that wait for something elsewhere: what is claimed for them has no fence yet.
    claims: Few<RequestNo>,
    /// How many they hold together.
    held: u64,
}

impl Pool {
    fn new(name: Name, stock: Stock, declared: bool) -> Self {
        let (waiting, holders, claims) = Default::default();
        Self { name, declared, removed: false, stock, waiting, holders, claims, held: 0 }
    }

    pub(crate) fn is_lock(&self) -> bool {
        matches!(self.stock, Stock::Lock { .. })
    }

    /// Its units, unless it is a lock.
    pub(crate) fn units(&self) -> Option<&Units> {
        match &self.stock {
            Stock::Lock { .. } => None,
            Stock::Units(units) => Some(&**units),
        }
    }

    pub(super) fn units_mut(&mut self) -> Option<&mut Units> {
        match &mut self.stock {
            Stock::Lock { .. } => None,
            Stock::Units(units) => Some(&mut **units),
        }
    }

    /// How many units may be held at a time, also if some are drained.
    pub(crate) fn size(&self) -> u32 {
        match &self.stock {
            _ if self.removed => 0,
            Stock::Lock { .. } => LOCK_UNITS,
            Stock::Units(units) => units.len(),
        }
    }

    /// What the protocol is to know of it.
    pub(super) fn capacity(&self) -> Capacity {
        match &self.stock {
            _ if self.removed => Capacity::Counted(0),
            Stock::Lock { .. } => Capacity::Counted(LOCK_UNITS),
            Stock::Units(units) => units.capacity(),
        }
    }

    /// Whether a newcomer could not have what it needs, whoever waits.
    pub(crate) fn lacks(&self, count: &Count) -> bool {
        match &self.stock {
            Stock::Lock { .. } => count.units > self.free(),
            Stock::Units(units) => units.lacks(count),
        }
    }

    /// How many units a newcomer could have now if nobody waited.
    pub(crate) fn free(&self) -> u32 {
        match &self.stock {
            _ if self.removed => 0,
            Stock::Lock { .. } => u64::from(LOCK_UNITS).saturating_sub(self.held) as u32,
            Stock::Units(units) => units.free_beside(&BTreeSet::new()),
        }
    }

    fn hold(&mut self, request: RequestNo, units: u32) {
        self.held += u64::from(units);
        self.held -= self.holders.insert(request, units).map_or(0, u64::from);
    }

    /// Whether somebody holds some of it with a fence.
    fn has_fenced_holders(&self) -> bool {
        self.holders.len() > self.claims.len()
    }

    /// Units, or a share of a lock, go to a request: those that are named.
    fn give(&mut self, count: &Count, request: RequestNo) -> Result<(), Defect> {
        match &mut self.stock {
            Stock::Lock { .. } => {
                let free = u64::from(LOCK_UNITS).saturating_sub(self.held) as u32;
                if count.units > free || self.removed {
                    let (pool, units) = (self.name.clone(), count.units);
                    return Err(Defect::TooMany { pool, units, free });
                }
            }
            Stock::Units(units) => {
                let all = count.named.len() == count.units as usize;
                Broken::unless(all, "L1: a grant has as many units as it asked for")?;
                for number in &count.named {
                    let unit = units.get_mut(*number).filter(|unit| unit.is_free());
                    let Some(unit) = unit else {
                        return Err(Defect::NotFree { pool: self.name.clone(), unit: *number });
                    };
                    unit.holder = Some(request);
                }
            }
        }
        self.waiting.remove(&request);
        self.hold(request, count.units);
        Ok(())
    }

    /// What was given to a request, with a fence: that of those it shares a lock with, or another one.
    fn taken(&mut self, count: &Count, shared_with_others: bool, fence: u64) -> Taken {
        let units = match &mut self.stock {
            Stock::Lock { fence: present } => {
                if !shared_with_others {
                    *present = fence;
                }
                vec![(self.name.clone(), *present)]
            }
            Stock::Units(units) => {
                let named = count.named.iter().filter_map(|number| units.get(*number));
                named.map(|unit| (unit.name.clone(), fence)).collect()
            }
        };
        Taken { name: self.name.clone(), units }
    }

    fn unwanted(&self) -> bool {
        self.waiting.is_empty() && self.holders.is_empty()
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.stock {
            Stock::Lock { .. } => Kind::Lock,
            Stock::Units(units) => units.kind(),
        }
    }
}

/// All pools of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    /// By id. An id is given out once; that of a lock stands for another lock when it is forgotten.
    pools: Vec<Option<Box<Pool>>>,
    #[serde(with = "sorted")]
    pub(super) names: HashMap<Name, PoolId>,
    /// Those that are declared, or being removed.
    listed: BTreeMap<Name, PoolId>,
    /// The unit that last had a name; whether it still has is to be looked at.
    #[serde(with = "sorted")]
    pub(super) unit_names: HashMap<Name, (PoolId, Number)>,
    /// Locks that nobody wants, which the protocol still knows as pools.
    spare: Vec<(PoolId, Option<Box<Pool>>)>,
}

/// How many spare locks keep the room that they had.
const KEPT: usize = 4096;

impl Ledger {
    pub(crate) fn find(&self, name: &Name) -> Option<(PoolId, &Pool)> {
        let id = *self.names.get(name)?;
        Some((id, self.pool(id)?))
    }

    pub(crate) fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(id.index())?.as_deref()
    }

    pub(super) fn pool_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.pools.get_mut(id.index())?.as_deref_mut()
    }

    /// All pools and locks, from an id on.
    pub(crate) fn pools(&self, from: PoolId) -> impl Iterator<Item = (PoolId, &Pool)> {
        let ids = (from.0..self.pools.len() as u64).map(PoolId);
        ids.filter_map(|id| Some((id, self.pool(id)?)))
    }

    /// Those that are declared or being removed, by name, from one on.
    pub(crate) fn listed(&self, after: Option<&Name>) -> impl Iterator<Item = &Pool> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.listed.range::<Name, _>((start, Bound::Unbounded)).map(|(_, id)| *id);
        ids.filter_map(|id| self.pool(id))
    }

    /// How many these are.
    pub(crate) fn listed_len(&self) -> usize {
        self.listed.len()
    }

    /// The declared ones, by name.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &Pool> {
        self.listed(None).filter(|pool| pool.declared)
    }

    /// A lock that is in use shall stay when nobody wants it any more.
    pub(super) fn declare(&mut self, id: PoolId) {
        if let Some(pool) = self.pool_mut(id) {
            pool.declared = true;
            let name = pool.name.clone();
            self.listed.insert(name, id);
        }
    }

    /// A pool goes as soon as nobody has to do with it any more.
    pub(super) fn undeclare(&mut self, id: PoolId) {
        if let Some(pool) = self.pool_mut(id) {
            (pool.removed, pool.declared) = (true, false);
        }
    }

    /// Adds units to a pool. Nothing else may have their names.
    pub(super) fn add_units(&mut self, id: PoolId, fresh: BTreeMap<Number, Unit>) {
        let named = fresh.iter().map(|(number, unit)| (unit.name.clone(), (id, *number)));
        self.unit_names.extend(named);
        if let Some(units) = self.pool_mut(id).and_then(Pool::units_mut) {
            units.extend(fresh);
        }
    }

    /// The lock of this name, made if it is not there.
    pub(super) fn lock(&mut self, name: &Name) -> (PoolId, Option<Resize>) {
        if let Some(id) = self.names.get(name) {
            return (*id, None);
        }
        let Some((id, kept)) = self.spare.pop() else {
            let (id, resize) = self.insert(name, Stock::Lock { fence: 0 }, false);
            return (id, Some(resize));
        };
        let pool = match kept {
            Some(mut pool) => {
                (pool.name, pool.stock) = (name.clone(), Stock::Lock { fence: 0 });
                pool
            }
            None => Box::new(Pool::new(name.clone(), Stock::Lock { fence: 0 }, false)),
        };
        self.pools[id.index()] = Some(pool);
        self.names.insert(name.clone(), id);
        (id, None)
    }

    /// Adds a pool, and says what the protocol must be told.
    pub(super) fn insert(&mut self, name: &Name, stock: Stock, declared: bool) -> (PoolId, Resize) {
        let id = PoolId(self.pools.len() as u64);
        let pool = Pool::new(name.clone(), stock, declared);
        let capacity = pool.capacity();
        if let Some(units) = pool.units() {
            let named = units.iter().map(|(number, unit)| (unit.name.clone(), (id, number)));
            self.unit_names.extend(named);
        }
        if declared {
            self.listed.insert(name.clone(), id);
        }
        self.pools.push(Some(Box::new(pool)));
        self.names.insert(name.clone(), id);
        (id, Resize { pool: id, capacity })
    }

    /// A request takes its place at a pool.
    pub(super) fn join(&mut self, id: PoolId, request: RequestNo) {
        if let Some(pool) = self.pool_mut(id) {
            pool.waiting.insert(request, ());
        }
    }

    /// Hands units of a pool to a request: those that are named.
    pub(super) fn assign(
        &mut self,
        count: &Count,
        request: RequestNo,
        fence: u64,
    ) -> Result<Taken, Defect> {
        let pool = self.pool_mut(count.pool).ok_or(Defect::UnknownPool(count.pool))?;
        let shared_with_others = pool.has_fenced_holders();
        pool.give(count, request)?;
        Ok(pool.taken(count, shared_with_others, fence))
    }

    /// Keeps units of a pool for a request that waits elsewhere: they have no fence before it is granted.
    pub(super) fn claim(&mut self, count: &Count, request: RequestNo) -> Result<(), Defect> {
        let pool = self.pool_mut(count.pool).ok_or(Defect::UnknownPool(count.pool))?;
        pool.give(count, request)?;
        pool.claims.insert(request, ());
        Ok(())
    }

    /// What was claimed for a request is granted.
    pub(super) fn confirm(
        &mut self,
        count: &Count,
        request: RequestNo,
        fence: u64,
    ) -> Result<Taken, Defect> {
        let pool = self.pool_mut(count.pool).ok_or(Defect::UnknownPool(count.pool))?;
        let claimed = pool.claims.get(&request).is_some();
        Broken::unless(claimed, "L1: what is granted was claimed")?;
        let shared_with_others = pool.has_fenced_holders();
        pool.claims.remove(&request);
        Ok(pool.taken(count, shared_with_others, fence))
    }

    /// Picks units for what was only counted: the first that are free.
    pub(super) fn picked(&self, counts: &Needs) -> Needs {
        let mut picked = Picked::new();
        for count in counts.iter() {
            let Some(units) = self.pool(count.pool).and_then(Pool::units) else { continue };
            let free = units.iter().filter(|(_, unit)| unit.is_free()).map(|(number, _)| number);
            picked.insert(count.pool, free.take(count.units as usize).collect());
        }
        counts.with(&picked)
    }

    /// What to ask for so that a grant of a former life has exactly what it had; none if that is not there
    /// and free. `shared` is of locks.
    pub(super) fn as_it_was(&self, taken: &Taken, shared: bool) -> Option<Count> {
        let count = self.as_named(taken, shared)?;
        self.pool(count.pool).filter(|pool| !pool.lacks(&count)).map(|_| count)
    }

    /// The same, free or not.
    pub(super) fn as_named(&self, taken: &Taken, shared: bool) -> Option<Count> {
        let (id, pool) = self.find(&taken.name)?;
        let count = match &pool.stock {
            Stock::Lock { .. } => {
                let itself = taken.units.iter().all(|(unit, _)| *unit == pool.name);
                itself.then(|| Count::any(id, if shared { 1 } else { LOCK_UNITS }))?
            }
            Stock::Units(_) => {
                let number = |unit: &Name| {
                    let (of, _, number) = self.unit_called(unit.as_str())?;
                    (of == id).then_some(number)
                };
                let named = taken.units.iter().map(|(unit, _)| number(unit));
                let named: BTreeSet<_> = named.collect::<Option<_>>()?;
                Count { pool: id, units: named.len() as u32, named }
            }
        };
        (count.units > 0).then_some(count)
    }

    /// Hands out the same as a grant of a former life had, with its old fences.
    pub(super) fn assign_again(
        &mut self,
        count: &Count,
        request: RequestNo,
        former: &Taken,
    ) -> Result<(), Defect> {
        let present = self.pool(count.pool).map(|pool| &pool.stock);
        let least = if let Some(Stock::Lock { fence }) = present { *fence } else { 0 };
        let fence = former.units.iter().fold(least, |fence, unit| fence.max(unit.1));
        let again = self.assign(count, request, fence)?;
        let units = |taken: &Taken| -> BTreeSet<Name> {
            taken.units.iter().map(|(unit, _)| unit.clone()).collect()
        };
        let same = units(&again) == units(former);
        Broken::unless(same, "L1: a grant that comes back has the units it had")?;
        if let Some(Stock::Lock { fence: present }) =
            self.pool_mut(count.pool).map(|pool| &mut pool.stock)
        {
            *present = fence;
        }
        Ok(())
    }

    /// A request waits at a pool again, of which it held something.
    pub(super) fn back_to_waiting(&mut self, count: &Count, request: RequestNo) -> Option<Resize> {
        self.join(count.pool, request);
        self.let_go(count, request)
    }

    /// A request leaves a pool, wherever it stood; retiring units and unwanted locks go.
    pub(super) fn leave(&mut self, count: &Count, request: RequestNo) -> Option<Resize> {
        self.pool_mut(count.pool)?.waiting.remove(&request);
        self.let_go(count, request)
    }

    fn let_go(&mut self, count: &Count, request: RequestNo) -> Option<Resize> {
        let pool = self.pool_mut(count.pool)?;
        let held = pool.holders.remove(&request);
        pool.claims.remove(&request);
        pool.held -= held.map_or(0, u64::from);
        if let Some(units) = pool.units_mut().filter(|_| held.is_some()) {
            let mut going = false;
            for number in &count.named {
                let Some(unit) = units.get_mut(*number) else { continue };
                if unit.holder == Some(request) {
                    unit.holder = None;
                }
                going |= unit.retiring;
            }
            if going {
                units.tidy();
                let resize = Resize { pool: count.pool, capacity: pool.capacity() };
                return self.tidy(count.pool).or(Some(resize));
            }
        }
        self.tidy(count.pool)
    }

    /// Forgets a pool that is neither declared nor wanted.
    pub(super) fn tidy(&mut self, id: PoolId) -> Option<Resize> {
        let pool = self.pool(id)?;
        if pool.declared || !pool.unwanted() {
            return None;
        }
        let (lock, removed) = (pool.is_lock(), pool.removed);
        if !lock {
            self.unit_names.retain(|_, (pool, _)| *pool != id);
        }
        let forgotten = self.pools.get_mut(id.index())?.take()?;
        self.names.remove(&forgotten.name);
        if removed {
            self.listed.remove(&forgotten.name);
        }
        if lock && !removed {
            let kept = Some(forgotten).filter(|_| self.spare.len() < KEPT);
            self.spare.push((id, kept));
            return None;
        }
        Some(Resize { pool: id, capacity: 0.into() })
    }

    /// The invariants, all of them. For tests; a step keeps those it touches.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), Broken> {
        let mut seen = BTreeSet::new();
        for (_, pool) in self.pools(PoolId(0)) {
            Broken::unless(pool.declared || !pool.unwanted(), "L3: an unwanted lock is forgotten")?;
            let held: u64 = pool.holders.values().map(|units| u64::from(*units)).sum();
            Broken::unless(held == pool.held, "L1: what the holders hold is what is held")?;
            let Some(units) = pool.units() else {
                let exclusive = pool.holders.values().any(|units| *units == LOCK_UNITS);
                Broken::unless(!exclusive || pool.holders.len() == 1, "L1: exclusive is alone")?;
                continue;
            };
            for (number, unit) in units.iter() {
                let alone = unit.name == pool.name
                    || (seen.insert(unit.name.clone()) && !self.names.contains_key(&unit.name));
                Broken::unless(alone, "L4: a name means one thing")?;
                let full = unit.full_name(&pool.name);
                let meant = matches!(self.meaning(&full), Meaning::Unit(_, of, unit)
                    if of.name == pool.name && unit == number);
                Broken::unless(meant, "L4: a unit is found by its name")?;
                let known = unit.holder.is_none_or(|holder| pool.holders.get(&holder).is_some());
                Broken::unless(known, "L1: a unit's holder is known")?;
            }
            for (holder, count) in pool.holders.iter() {
                let named = units.iter().filter(|(_, unit)| unit.holder == Some(*holder)).count();
                Broken::unless(named == *count as usize, "L1: counts and names agree")?;
            }
        }
        Ok(())
    }
}
