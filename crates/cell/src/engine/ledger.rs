//! The ledger: which name is which pool, which unit is whose, and the fences.
//!
//! Protocols count; the ledger knows names. It picks the units of a grant, and its picture of who
//! waits for and holds what is what people are shown.
//!
//! # Invariants
//! - **L1.** A unit has at most one holder, and a lock has one exclusive or any number of sharing
//!   holders ([`Ledger::assign`] refuses anything else).
//! - **L2.** A fence handed out for a unit is larger than every fence of that unit before; holders
//!   that share a lock carry the same one.
//! - **L3.** An undeclared lock is known only while somebody waits for it or holds it. The protocol
//!   keeps its pool, without a name, for the next one.
//! - **L4.** A name means one thing: a pool, a lock, or a unit of one pool. (A pool may have a unit of
//!   its own name; whoever asks for that name means the pool.)

use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;
use std::ops::Bound;

use hashbrown::HashMap;
use holdall_core::{Broken, PoolId, Resize};
use holdall_wire::{Kind, Name, RequestNo, Taken};
use serde::{Deserialize, Serialize};

use super::Defect;
use super::few::Few;
use super::state::sorted;

/// A lock is a pool of so many units: exclusive takes all, shared takes one.
pub(crate) const LOCK_UNITS: u32 = u32::MAX;

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
    /// How many they hold together.
    held: u64,
}

/// What a pool consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Stock {
    /// The fence of its present holders.
    Lock { fence: u64 },
    /// Units in the order they are handed out, and how the pool came by their names.
    Units { units: Vec<Unit>, numbered: bool },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unit {
    pub(crate) name: Name,
    pub(crate) holder: Option<RequestNo>,
    /// It goes when it comes back.
    pub(crate) retiring: bool,
}

impl Pool {
    fn new(name: Name, stock: Stock, declared: bool) -> Self {
        let (waiting, holders) = (Few::default(), Few::default());
        Self { name, declared, removed: false, stock, waiting, holders, held: 0 }
    }

    pub(crate) fn is_lock(&self) -> bool {
        matches!(self.stock, Stock::Lock { .. })
    }

    /// How many units may be held at a time.
    pub(crate) fn capacity(&self) -> u32 {
        match &self.stock {
            _ if self.removed => 0,
            Stock::Lock { .. } => LOCK_UNITS,
            Stock::Units { units, .. } => units.iter().filter(|unit| !unit.retiring).count() as u32,
        }
    }

    /// How many units a newcomer could have now if nobody waited.
    pub(crate) fn free(&self) -> u32 {
        u64::from(self.capacity()).saturating_sub(self.held) as u32
    }

    fn hold(&mut self, request: RequestNo, units: u32) {
        self.held += u64::from(units);
        self.held -= self.holders.insert(request, units).map_or(0, u64::from);
    }

    fn unwanted(&self) -> bool {
        self.waiting.is_empty() && self.holders.is_empty()
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.stock {
            Stock::Lock { .. } => Kind::Lock,
            Stock::Units { numbered: true, .. } => Kind::Numbered(self.capacity()),
            Stock::Units { units, .. } => {
                Kind::Named(units.iter().filter(|u| !u.retiring).map(|u| u.name.clone()).collect())
            }
        }
    }
}

/// All pools of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    /// By id. An id is given out once; that of a lock stands for another lock when it is forgotten.
    pools: Vec<Option<Box<Pool>>>,
    #[serde(with = "sorted")]
    names: HashMap<Name, PoolId>,
    /// Those that are declared, or being removed.
    listed: BTreeMap<Name, PoolId>,
    /// The pool that last had a unit of a name; whether it still has is to be looked at.
    #[serde(with = "sorted")]
    unit_names: HashMap<Name, PoolId>,
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

    /// The pool that has a unit of this name, like `gpu` for `gpu/0`.
    pub(crate) fn pool_of_unit(&self, unit: &Name) -> Option<&Name> {
        let pool = self.pool(*self.unit_names.get(unit)?)?;
        let Stock::Units { units, .. } = &pool.stock else { return None };
        units.iter().any(|one| one.name == *unit).then_some(&pool.name)
    }

    /// Adds units to a pool. Nothing else may have their names.
    pub(super) fn add_units(&mut self, id: PoolId, fresh: Vec<Unit>) {
        self.unit_names.extend(fresh.iter().map(|unit| (unit.name.clone(), id)));
        if let Some(Pool { stock: Stock::Units { units, .. }, .. }) = self.pool_mut(id) {
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
        if let Stock::Units { units, .. } = &pool.stock {
            self.unit_names.extend(units.iter().map(|unit| (unit.name.clone(), id)));
        }
        if declared {
            self.listed.insert(name.clone(), id);
        }
        self.pools.push(Some(Box::new(pool)));
        self.names.insert(name.clone(), id);
        (id, Resize { pool: id, capacity: capacity.into() })
    }

    /// A request takes its place at a pool.
    pub(super) fn join(&mut self, id: PoolId, request: RequestNo) {
        if let Some(pool) = self.pool_mut(id) {
            pool.waiting.insert(request, ());
        }
    }

    /// Hands `units` of a pool to a request: the first free ones.
    pub(super) fn assign(
        &mut self,
        id: PoolId,
        request: RequestNo,
        units: u32,
        fence: u64,
    ) -> Result<Taken, Defect> {
        let pool = self.pool_mut(id).ok_or(Defect::UnknownPool(id))?;
        let free = pool.free();
        if units > free {
            return Err(Defect::TooMany { pool: pool.name.clone(), units, free });
        }
        pool.waiting.remove(&request);
        let shared_with_others = !pool.holders.is_empty();
        pool.hold(request, units);
        let taken = match &mut pool.stock {
            Stock::Lock { fence: present } => {
                if !shared_with_others {
                    *present = fence;
                }
                vec![(pool.name.clone(), *present)]
            }
            Stock::Units { units: all, .. } => {
                let free = all.iter_mut().filter(|unit| unit.holder.is_none() && !unit.retiring);
                let picked = free.take(units as usize).map(|unit| {
                    unit.holder = Some(request);
                    (unit.name.clone(), fence)
                });
                picked.collect()
            }
        };
        let all = pool.is_lock() || taken.len() == units as usize;
        Broken::unless(all, "L1: a grant has as many units as it asked for")?;
        Ok(Taken { name: pool.name.clone(), units: taken })
    }

    /// Whether exactly these units are there and free.
    pub(super) fn can_retake(&self, id: PoolId, count: u32, taken: &Taken) -> bool {
        let Some(pool) = self.pool(id).filter(|pool| count <= pool.free()) else { return false };
        match &pool.stock {
            Stock::Lock { .. } => taken.units.iter().all(|(unit, _)| *unit == pool.name),
            Stock::Units { units, .. } => {
                let free = units.iter().filter(|unit| unit.holder.is_none() && !unit.retiring);
                let meant =
                    free.filter(|unit| taken.units.iter().any(|(name, _)| *name == unit.name));
                meant.count() == taken.units.len() && taken.units.len() == count as usize
            }
        }
    }

    /// Takes exactly these units, with their old fences, for a grant of a former life of the node;
    /// false if that cannot be.
    pub(super) fn retake(
        &mut self,
        id: PoolId,
        request: RequestNo,
        count: u32,
        taken: &Taken,
    ) -> bool {
        if !self.can_retake(id, count, taken) {
            return false;
        }
        let Some(pool) = self.pool_mut(id) else { return false };
        match &mut pool.stock {
            Stock::Lock { fence } => *fence = taken.units.iter().fold(*fence, |f, u| f.max(u.1)),
            Stock::Units { units, .. } => {
                let meant = |unit: &Unit| taken.units.iter().any(|(name, _)| *name == unit.name);
                for unit in units.iter_mut().filter(|unit| meant(unit)) {
                    unit.holder = Some(request);
                }
            }
        }
        pool.waiting.remove(&request);
        pool.hold(request, count);
        true
    }

    /// A request leaves a pool, wherever it stood; retiring units and unwanted locks go.
    pub(super) fn leave(&mut self, id: PoolId, request: RequestNo) -> Option<Resize> {
        let pool = self.pool_mut(id)?;
        pool.waiting.remove(&request);
        pool.held -= pool.holders.remove(&request).map_or(0, u64::from);
        if let Stock::Units { units, .. } = &mut pool.stock {
            for unit in units.iter_mut().filter(|unit| unit.holder == Some(request)) {
                unit.holder = None;
            }
            units.retain(|unit| !unit.retiring || unit.holder.is_some());
        }
        self.tidy(id)
    }

    /// Forgets a pool that is neither declared nor wanted.
    pub(super) fn tidy(&mut self, id: PoolId) -> Option<Resize> {
        let pool = self.pool(id)?;
        if pool.declared || !pool.unwanted() {
            return None;
        }
        let (lock, removed) = (pool.is_lock(), pool.removed);
        if !lock {
            self.unit_names.retain(|_, pool| *pool != id);
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
            if let Stock::Units { units, .. } = &pool.stock {
                for unit in units.iter().map(|unit| &unit.name).filter(|unit| **unit != pool.name) {
                    let alone = seen.insert(unit) && !self.names.contains_key(unit);
                    Broken::unless(alone, "L4: a name means one thing")?;
                }
            }
            Broken::unless(pool.declared || !pool.unwanted(), "L3: an unwanted lock is forgotten")?;
            let held: u64 = pool.holders.values().map(|units| u64::from(*units)).sum();
            Broken::unless(held == pool.held, "L1: what the holders hold is what is held")?;
            if let Stock::Units { units, .. } = &pool.stock {
                for (holder, count) in pool.holders.iter() {
                    let named = units.iter().filter(|unit| unit.holder == Some(*holder)).count();
                    Broken::unless(named == *count as usize, "L1: counts and names agree")?;
                }
                let held = units.iter().filter_map(|unit| unit.holder);
                let known = held.into_iter().all(|holder| pool.holders.get(&holder).is_some());
                Broken::unless(known, "L1: a unit's holder is known")?;
            } else {
                let exclusive = pool.holders.values().any(|units| *units == LOCK_UNITS);
                Broken::unless(!exclusive || pool.holders.len() == 1, "L1: exclusive is alone")?;
            }
        }
        Ok(())
    }
}
