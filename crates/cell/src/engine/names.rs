//! What names mean: a name of a declared pool or lock means that. `POOL/UNIT` else means a unit: the longest pool
//! before a slash decides. Any other name is a lock.

use holdall_core::{PoolId, Unit as Number};
use holdall_wire::Name;

use super::ledger::{Ledger, Pool};

/// What a name means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning<'a> {
    /// A pool or a lock that is there.
    Pool(PoolId, &'a Pool),
    /// A unit of a pool, with the pool in front.
    Unit(PoolId, &'a Pool, Number),
    /// It looks like a unit of this pool, which has no such unit.
    NoUnit(&'a Pool),
    /// A unit of this pool, without the pool in front.
    UnitAlone(&'a Pool, Number),
    /// Nothing so far.
    Nothing,
}

impl Ledger {
    /// What a name means.
    pub(crate) fn meaning(&self, name: &Name) -> Meaning<'_> {
        let found = self.find(name);
        if let Some((id, pool)) = found.filter(|(_, pool)| pool.declared || pool.removed) {
            return Meaning::Pool(id, pool);
        }
        if let Some((id, pool)) = self.pool_before(name.as_str()) {
            let unit = self.unit_of(id, pool, name);
            return unit.map_or(Meaning::NoUnit(pool), |unit| Meaning::Unit(id, pool, unit));
        }
        match (found, self.unit_called(name.as_str())) {
            (Some((id, pool)), _) => Meaning::Pool(id, pool),
            (None, Some((_, pool, unit))) => Meaning::UnitAlone(pool, unit),
            (None, None) => Meaning::Nothing,
        }
    }

    /// The pool of a name, if it has units.
    fn units_called(&self, name: &str) -> Option<(PoolId, &Pool)> {
        let id = *self.names.get(name)?;
        Some((id, self.pool(id).filter(|pool| !pool.is_lock())?))
    }

    /// A pool whose name stands before a slash in another, the longest one.
    pub(super) fn pool_before(&self, mut name: &str) -> Option<(PoolId, &Pool)> {
        loop {
            name = name.rsplit_once('/')?.0;
            let found = self.units_called(name);
            if found.is_some() {
                return found;
            }
        }
    }

    /// A unit whose name, with the pool in front, begins with that of a pool to be, and a slash.
    pub(super) fn unit_below(&self, pool: &Name) -> Option<Name> {
        let (_, around) = self.pool_before(pool.as_str())?;
        let mut full = around.units()?.iter().map(|(_, unit)| unit.full_name(&around.name));
        full.find(|unit| {
            let rest = unit.as_str().strip_prefix(pool.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// The unit of a pool that a name means with the pool in front.
    fn unit_of(&self, id: PoolId, pool: &Pool, name: &Name) -> Option<Number> {
        let rest = name.as_str().strip_prefix(pool.name.as_str())?.strip_prefix('/')?;
        let units = [name.as_str(), rest].into_iter().filter_map(|name| self.unit_called(name));
        units.into_iter().find(|(of, ..)| *of == id).map(|(.., unit)| unit)
    }

    /// The unit that has this name for its own, like `gpu/0` of `gpu`, or `red`.
    pub(crate) fn unit_called(&self, name: &str) -> Option<(PoolId, &Pool, Number)> {
        let (id, number) = *self.unit_names.get(name)?;
        let pool = self.pool(id)?;
        let unit = pool.units()?.get(number)?;
        (unit.name.as_str() == name).then_some((id, pool, number))
    }
}
