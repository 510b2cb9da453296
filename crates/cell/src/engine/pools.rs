//! Pools come, go and change while they are in use; needs are matched with them.

use std::collections::BTreeSet;

use holdall_core::{Need as Count, Needs, PoolId, Protocol, Resize, UserId};
use holdall_wire::{
    Amount, Change, Fault, Kind, NEEDS_MAX, Name, Need, Refusal, RequestNo, Taken, UNITS_MAX,
};

use super::ledger::{LOCK_UNITS, Pool, Stock, Unit};
use super::{Defect, Effect, Engine, Serving};

/// Among so few needs each is compared with each.
const FEW: usize = 8;

impl<P: Protocol<Manager: Serving>> Engine<P> {
    pub(super) fn on_change(&mut self, change: &Change) -> Result<(), Defect> {
        let done = match change {
            Change::Add { name, kind } => self.add(name, kind),
            Change::Remove { name, force } => self.remove(name, *force),
            Change::Resize { name, units } => self.resize(name, *units),
        };
        match done {
            Ok(resize) => {
                self.effects.push(Effect::Changed(Ok(())));
                // The protocol first: whoever has become hopeless is granted nothing on its way out.
                self.resizes.extend(resize);
                self.tell_manager()?;
                self.refuse_doomed()
            }
            Err(wrong) => {
                self.effects.push(Effect::Changed(Err(Fault::Wrong(wrong))));
                Ok(())
            }
        }
    }

    fn add(&mut self, name: &Name, kind: &Kind) -> Result<Option<Resize>, String> {
        let stock = match kind {
            Kind::Lock => Stock::Lock { fence: 0 },
            Kind::Numbered(n) => {
                count(*n)?;
                let units = (0..*n).map(|i| numbered(name, i)).collect::<Result<_, _>>()?;
                Stock::Units { units, numbered: true }
            }
            Kind::Named(names) => named(name, names)?,
        };
        if let Some(pool) = self.ledger.pool_of_unit(name).filter(|pool| *pool != name) {
            return Err(format!("'{name}' is a unit of the pool '{pool}'; choose another name"));
        }
        if let Stock::Units { units, .. } = &stock {
            self.unambiguous(name, units)?;
        }
        match self.ledger.find(name) {
            None => Ok(Some(self.ledger.insert(name, stock, true).1)),
            Some((_, pool)) if pool.removed => {
                Err(format!("'{name}' is being removed, and some of it is still held"))
            }
            Some((_, pool)) if pool.declared => Err(format!(
                "there is a {} '{name}' already; `holdall pool resize` changes its size",
                if pool.is_lock() { "lock" } else { "pool" }
            )),
            Some((id, _)) if matches!(kind, Kind::Lock) => {
                self.ledger.declare(id);
                Ok(None)
            }
            Some(_) => Err(format!("'{name}' is in use as a lock; try again when it is free")),
        }
    }

    /// Whether units of a pool may have their names: each shall mean one thing alone.
    fn unambiguous(&self, pool: &Name, units: &[Unit]) -> Result<(), String> {
        for unit in units.iter().map(|unit| &unit.name).filter(|unit| *unit != pool) {
            let other = self.ledger.pool_of_unit(unit).filter(|other| *other != pool);
            let is = match other {
                Some(other) => format!("a unit of the pool '{other}'"),
                None if self.ledger.find(unit).is_some() => "in use as a lock or pool".into(),
                None => continue,
            };
            return Err(format!("'{pool}' would have a unit '{unit}', which is {is}; rename one"));
        }
        Ok(())
    }

    fn remove(&mut self, name: &Name, force: bool) -> Result<Option<Resize>, String> {
        let (id, pool) = self.known(name)?;
        if !pool.holders.is_empty() && !force {
            let held: Vec<_> = pool.holders.keys().map(ToString::to_string).collect();
            return Err(format!(
                "'{name}' is held by {}; --force removes it when that comes back",
                held.join(", ")
            ));
        }
        let waiting: Vec<_> = pool.waiting.keys().copied().collect();
        self.refuse_all(&waiting, &format!("'{name}' was removed"));
        self.ledger.undeclare(id);
        let Some(pool) = self.ledger.pool_mut(id) else { return Ok(None) };
        if let Stock::Units { units, .. } = &mut pool.stock {
            units.retain_mut(|unit| {
                unit.retiring = true;
                unit.holder.is_some()
            });
        }
        Ok(self.ledger.tidy(id).or_else(|| Some(Resize { pool: id, capacity: 0.into() })))
    }

    fn resize(&mut self, name: &Name, units: u32) -> Result<Option<Resize>, String> {
        count(units)?;
        let (id, pool) = self.known(name)?;
        let Stock::Units { numbered: is_numbered, .. } = pool.stock else {
            return Err(format!("'{name}' is a lock and has no size"));
        };
        let now = pool.capacity();
        if units > now && !is_numbered {
            return Err(format!(
                "the units of '{name}' have names of their own; remove it and add it with all"
            ));
        }
        let fresh = fresh_units(pool, units.saturating_sub(now) as usize)?;
        self.unambiguous(name, &fresh)?;
        let hopeless: Vec<_> =
            pool.waiting.keys().copied().filter(|r| self.wants(*r, id) > units).collect();
        self.refuse_all(&hopeless, &format!("'{name}' has only {units} units from now on"));
        if let Some(pool) = self.ledger.pool_mut(id) {
            if units < now { shrink(pool, now - units) } else { keep_going(pool, units - now) }
        }
        self.ledger.add_units(id, fresh);
        Ok(Some(Resize { pool: id, capacity: units.into() }))
    }

    fn known(&self, name: &Name) -> Result<(PoolId, &Pool), String> {
        let found = self.ledger.find(name).filter(|(_, pool)| pool.declared);
        found.ok_or_else(|| {
            format!("there is no pool '{name}'; `holdall pool list` shows what there is")
        })
    }

    fn refuse_all(&mut self, requests: &[RequestNo], why: &str) {
        self.doomed.extend(requests.iter().map(|r| (*r, Refusal::Never(why.into()))));
    }

    fn refuse_doomed(&mut self) -> Result<(), Defect> {
        for (request, why) in std::mem::take(&mut self.doomed) {
            self.end(request)?;
            self.effects.push(Effect::Refused { request, why });
        }
        Ok(())
    }

    /// Matches needs with pools, making locks on first use; nothing is made if any need fails.
    pub(super) fn resolve(&mut self, needs: &[Need]) -> Result<Needs, Refusal> {
        if self.is_full() {
            let most = UserId::LANES;
            return Err(Refusal::Closed(format!(
                "there are {most} requests already; ask again when some have ended"
            )));
        }
        if needs.is_empty() {
            return Err(Refusal::Senseless("nothing is asked for".into()));
        }
        if needs.len() > NEEDS_MAX {
            let most = format!("{} needs; at most {NEEDS_MAX} are allowed", needs.len());
            return Err(Refusal::Senseless(most));
        }
        let mut seen = BTreeSet::new();
        for (at, need) in needs.iter().enumerate() {
            let again = match needs.len() {
                ..=FEW => needs[..at].iter().any(|other| other.name == need.name),
                _ => !seen.insert(&need.name),
            };
            if again {
                return Err(Refusal::Senseless(format!("'{}' is named twice", need.name)));
            }
            self.feasible(need).map_err(Refusal::Never)?;
        }
        let mut counts = Vec::with_capacity(needs.len());
        for need in needs {
            let (pool, resize) = self.ledger.lock(&need.name);
            self.resizes.extend(resize);
            let found = self.ledger.pool(pool);
            let units = match need.amount {
                Amount::One if found.is_some_and(Pool::is_lock) => LOCK_UNITS,
                Amount::One | Amount::Shared => 1,
                Amount::Units(n) => n,
                Amount::All => found.map_or(0, Pool::capacity),
            };
            counts.push(Count::any(pool, units));
        }
        Needs::new(counts).map_err(|bad| Refusal::Senseless(bad.to_string()))
    }

    /// What a grant of a former life had, if all of it is there and free; never anything else.
    pub(super) fn as_it_was(&mut self, needs: &[Need], taken: &[Taken]) -> Option<Needs> {
        if needs.len() != taken.len() {
            return None;
        }
        let units = |lock: bool, need: &Need, taken: &Taken| match need.amount {
            Amount::Shared => 1,
            _ if lock => LOCK_UNITS,
            _ => taken.units.len() as u32,
        };
        let fits = |(need, taken): (&Need, &Taken)| match self.ledger.find(&need.name) {
            Some((id, pool)) => {
                self.ledger.can_retake(id, units(pool.is_lock(), need, taken), taken)
            }
            None => {
                taken.units.iter().all(|(unit, _)| *unit == need.name)
                    && self.ledger.pool_of_unit(&need.name).is_none()
            }
        };
        if !needs.iter().zip(taken).all(fits) {
            return None;
        }
        let mut counts = Vec::with_capacity(needs.len());
        for (need, taken) in needs.iter().zip(taken) {
            let (pool, resize) = self.ledger.lock(&need.name);
            self.resizes.extend(resize);
            let lock = self.ledger.pool(pool).is_some_and(Pool::is_lock);
            counts.push(Count::any(pool, units(lock, need, taken)));
        }
        Needs::new(counts).ok()
    }

    fn feasible(&self, need: &Need) -> Result<(), String> {
        let name = &need.name;
        let Some((_, pool)) = self.ledger.find(name) else {
            if let Some(pool) = self.ledger.pool_of_unit(name) {
                return Err(format!("'{name}' is a unit of the pool '{pool}'; ask for '{pool}'"));
            }
            return match need.amount {
                _ if !self.ephemeral => Err(format!(
                    "there is no pool '{name}', and this agent makes no locks on first use; \
                     `holdall pool list` shows what there is"
                )),
                Amount::One | Amount::Shared => Ok(()),
                Amount::Units(_) | Amount::All => Err(format!(
                    "'{need}': there is no pool '{name}'; declare it with `holdall pool add {name} \
                     --units N`, or ask for the lock '{name}'"
                )),
            };
        };
        if pool.removed {
            return Err(format!("'{name}' is being removed"));
        }
        match need.amount {
            Amount::Units(_) | Amount::All if pool.is_lock() => {
                Err(format!("'{need}': '{name}' is a lock; ask for '{name}' or '{name}:shared'"))
            }
            Amount::Shared if !pool.is_lock() => Err(format!(
                "'{need}': '{name}' is a pool, and its units are never shared; ask for '{name}:N'"
            )),
            Amount::Units(n) if n > pool.capacity() => {
                Err(format!("'{need}': '{name}' has only {} units", pool.capacity()))
            }
            _ if pool.capacity() == 0 => Err(format!("'{name}' has no units")),
            _ => Ok(()),
        }
    }
}

fn count(units: u32) -> Result<(), String> {
    match units {
        1..=UNITS_MAX => Ok(()),
        0 => Err("a pool has at least one unit; `holdall pool remove` removes it".into()),
        _ => Err(format!("a pool has at most {UNITS_MAX} units")),
    }
}

fn numbered(name: &Name, i: u32) -> Result<Unit, String> {
    let name = format!("{name}/{i}").parse().map_err(|bad| format!("{bad}"))?;
    Ok(Unit { name, holder: None, retiring: false })
}

fn named(name: &Name, names: &[Name]) -> Result<Stock, String> {
    count(names.len() as u32)?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(format!("the unit '{twice}' of '{name}' is named twice"));
    }
    let unit = |name: &Name| Unit { name: name.clone(), holder: None, retiring: false };
    Ok(Stock::Units { units: names.iter().map(unit).collect(), numbered: false })
}

/// The last units go: at once if they are free, else when they come back.
fn shrink(pool: &mut Pool, by: u32) {
    let Stock::Units { units, .. } = &mut pool.stock else { return };
    let staying = units.iter_mut().rev().filter(|unit| !unit.retiring);
    for unit in staying.take(by as usize) {
        unit.retiring = true;
    }
    units.retain(|unit| !unit.retiring || unit.holder.is_some());
}

/// Units on their way out stay after all, as many as are wanted.
fn keep_going(pool: &mut Pool, wanted: u32) {
    let Stock::Units { units, .. } = &mut pool.stock else { return };
    for unit in units.iter_mut().filter(|unit| unit.retiring).take(wanted as usize) {
        unit.retiring = false;
    }
}

/// The new units if so many more are wanted than those on their way out: under the lowest free numbers.
fn fresh_units(pool: &Pool, wanted: usize) -> Result<Vec<Unit>, String> {
    let Stock::Units { units, .. } = &pool.stock else { return Ok(Vec::new()) };
    let going = units.iter().filter(|unit| unit.retiring).count();
    let taken: BTreeSet<&Name> = units.iter().map(|unit| &unit.name).collect();
    let all = (0..).map(|i| numbered(&pool.name, i));
    let free = all.filter(|unit| unit.as_ref().map_or(true, |unit| !taken.contains(&unit.name)));
    free.take(wanted.saturating_sub(going)).collect()
}
