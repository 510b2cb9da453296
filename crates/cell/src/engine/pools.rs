//! Pools come, go and change while they are in use.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{PoolId, Protocol, Resize, Unit as Number};
use holdall_wire::{Change, Drained, Fault, Kind, Name, Refusal, RequestNo, Taken, UNITS_MAX};

use super::ledger::{Meaning, Pool, Stock, Unit, Units};
use super::{Defect, Effect, Engine, Serving};

type Fresh = BTreeMap<Number, Unit>;

impl<P: Protocol<Manager: Serving>> Engine<P> {
    pub(super) fn on_change(&mut self, change: &Change) -> Result<(), Defect> {
        let done = match change {
            Change::Add { name, kind } => self.add(name, kind),
            Change::Drain { name, drained } => self.drain(name, Some(drained)),
            Change::Remove { name, force } => self.remove(name, *force),
            Change::Resize { name, units } => self.resize(name, *units),
            Change::Undrain { name } => self.drain(name, None),
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
                self.effects.push(Effect::Changed(Err(Fault::Conflict(wrong))));
                Ok(())
            }
        }
    }

    /// Units that are drained are not for the moment; the changes that drain them again.
    pub(super) fn lift_drains(&mut self, taken: &[Taken]) -> Result<Vec<Change>, Defect> {
        let units =
            taken.iter().flat_map(|taken| taken.units.iter().map(move |(unit, _)| (taken, unit)));
        let drained = units.filter_map(|(taken, unit)| {
            let (id, of, number) = self.ledger.unit_called(unit.as_str())?;
            let unit = self.ledger.pool(id)?.units()?.get(number)?;
            let drained = unit.drained.clone().filter(|_| of.name == taken.name)?;
            Some(Change::Drain { name: unit.full_name(&of.name), drained })
        });
        let drained: Vec<_> = drained.collect();
        for change in &drained {
            if let Change::Drain { name, .. } = change {
                self.put_change(&Change::Undrain { name: name.clone() })?;
            }
        }
        Ok(drained)
    }

    /// Drains a unit or lets it be given out again, and nobody is told.
    pub(super) fn put_change(&mut self, change: &Change) -> Result<(), Defect> {
        let resize = match change {
            Change::Drain { name, drained } => self.drain(name, Some(drained)),
            Change::Undrain { name } => self.drain(name, None),
            _ => return Ok(()),
        };
        self.resizes.extend(resize.ok().flatten());
        self.tell_manager()
    }

    fn add(&mut self, name: &Name, kind: &Kind) -> Result<Option<Resize>, String> {
        let units = if let Kind::Named(units) = kind { &units[..] } else { &[] };
        if let Some(odd) = units.iter().chain([name]).find(|name| name.cell().is_some()) {
            return Err(format!(
                "'{odd}' names a cell; what is declared here has a name without '@'"
            ));
        }
        let stock = match kind {
            Kind::Lock => Stock::Lock { fence: 0 },
            Kind::Numbered(n) => {
                count(*n)?;
                let all = (0..*n).map(|i| numbered(name, i)).collect::<Result<_, _>>()?;
                Stock::Units(Box::new(Units::new(all, true)))
            }
            Kind::Named(names) => Stock::Units(Box::new(Units::new(named(name, names)?, false))),
        };
        let is_unit = match self.ledger.meaning(name) {
            Meaning::Unit(_, pool, _) | Meaning::UnitAlone(pool, _) => Some(&pool.name),
            _ => self.ledger.unit_called(name.as_str()).map(|(_, pool, _)| &pool.name),
        };
        if let Some(pool) = is_unit.filter(|pool| *pool != name) {
            return Err(format!("'{name}' is a unit of the pool '{pool}'; choose another name"));
        }
        if let Stock::Units(units) = &stock {
            if let Some(unit) = self.ledger.unit_below(name) {
                return Err(format!("'{unit}' would be taken for a unit of '{name}'; rename one"));
            }
            self.unambiguous(name, units.iter().map(|(_, unit)| unit))?;
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
    fn unambiguous<'a>(
        &self,
        pool: &Name,
        units: impl Iterator<Item = &'a Unit>,
    ) -> Result<(), String> {
        for unit in units {
            let (name, full) = (&unit.name, unit.full_name(pool));
            let other = self.ledger.unit_called(name.as_str()).map(|(_, other, _)| &other.name);
            let in_use = |name: &Name| name != pool && self.ledger.find(name).is_some();
            let before = self.ledger.pool_before(full.as_str()).map(|(_, other)| &other.name);
            if let Some(longer) = before.filter(|other| other.as_str().len() > pool.as_str().len())
            {
                return Err(format!(
                    "'{full}' would be taken for a unit of '{longer}'; rename one"
                ));
            }
            let is = match other.filter(|other| *other != pool) {
                Some(other) => format!("a unit of the pool '{other}'"),
                None if in_use(name) || in_use(&full) => "in use as a lock or pool".into(),
                None => continue,
            };
            return Err(format!("'{pool}' would have a unit '{name}', which is {is}; rename one"));
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
        if let Some(units) = self.ledger.pool_mut(id).and_then(Pool::units_mut) {
            units.shrink(u32::MAX);
        }
        Ok(self.ledger.tidy(id).or_else(|| Some(Resize { pool: id, capacity: 0.into() })))
    }

    fn resize(&mut self, name: &Name, units: u32) -> Result<Option<Resize>, String> {
        count(units)?;
        let (id, pool) = self.known(name)?;
        let Some(all) = pool.units() else {
            return Err(format!("'{name}' is a lock and has no size"));
        };
        let now = pool.size();
        if units > now && !all.numbered {
            return Err(format!(
                "the units of '{name}' have names of their own; remove it and add it with all"
            ));
        }
        let fresh = fresh_units(name, all, units.saturating_sub(now) as usize)?;
        self.unambiguous(name, fresh.values())?;
        let waiting: Vec<_> = pool.waiting.keys().copied().collect();
        let mut going = BTreeSet::new();
        if let Some(all) = self.ledger.pool_mut(id).and_then(Pool::units_mut) {
            all.keep(units.saturating_sub(now));
            going = all.shrink(now.saturating_sub(units));
        }
        self.ledger.add_units(id, fresh);
        for request in waiting {
            let entry = self.requests.get(&request);
            let Some(count) = entry.and_then(|entry| entry.counts.of(id)) else { continue };
            if count.units > units {
                let why = format!("'{name}' has only {units} units from now on");
                self.refuse_all(&[request], &why);
            } else if !count.named.is_disjoint(&going) {
                self.refuse_all(&[request], &format!("a unit of '{name}' that it wants is gone"));
            }
        }
        let capacity = self.ledger.pool(id).map(Pool::capacity);
        Ok(capacity.map(|capacity| Resize { pool: id, capacity }))
    }

    /// Units are given to nobody any more, or are again. Whoever has them keeps them.
    fn drain(&mut self, name: &Name, drained: Option<&Drained>) -> Result<Option<Resize>, String> {
        let (id, unit) = match self.ledger.meaning(name) {
            Meaning::Unit(id, _, unit) => (id, Some(unit)),
            Meaning::UnitAlone(pool, unit) => {
                let full = pool.units().and_then(|units| units.get(unit));
                let full = full.map_or_else(|| name.clone(), |unit| unit.full_name(&pool.name));
                return Err(format!(
                    "'{name}' is a unit of the pool '{}': say '{full}'",
                    pool.name
                ));
            }
            Meaning::NoUnit(pool) => return Err(no_unit(name, pool)),
            Meaning::Pool(..) | Meaning::Nothing => (self.known(name)?.0, None),
        };
        let Some(pool) = self.ledger.pool_mut(id) else { return Ok(None) };
        let Some(units) = pool.units_mut() else {
            return Err(format!("'{name}' is a lock; only units of pools can be drained"));
        };
        let meant: Vec<_> = match unit {
            Some(unit) => vec![unit],
            None => units.iter().map(|(number, _)| number).collect(),
        };
        for number in meant {
            if let Some(unit) = units.get_mut(number) {
                unit.drained = drained.cloned();
            }
        }
        Ok(Some(Resize { pool: id, capacity: pool.capacity() }))
    }

    fn known(&self, name: &Name) -> Result<(PoolId, &Pool), String> {
        let found = self.ledger.find(name).filter(|(_, pool)| pool.declared);
        found.ok_or_else(|| {
            Fault::unknown(format_args!("pool '{name}'; `holdall pool list` shows what there is"))
                .to_string()
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
}

/// Why a unit is not there.
pub(super) fn no_unit(name: &Name, pool: &Pool) -> String {
    let units = pool.units().into_iter().flat_map(Units::staying);
    let some: Vec<_> = units.take(4).map(|(_, unit)| unit.name.to_string()).collect();
    let more = if pool.size() as usize > some.len() { ", ..." } else { "" };
    format!("'{name}': the pool '{}' has no such unit; it has {}{more}", pool.name, some.join(", "))
}

fn count(units: u32) -> Result<(), String> {
    match units {
        1..=UNITS_MAX => Ok(()),
        0 => Err("a pool has at least one unit; `holdall pool remove` removes it".into()),
        _ => Err(format!("a pool has at most {UNITS_MAX} units")),
    }
}

fn numbered(pool: &Name, i: Number) -> Result<(Number, Unit), String> {
    let name = format!("{pool}/{i}").parse().map_err(|bad| format!("{bad}"))?;
    Ok((i, Unit::new(name)))
}

fn named(pool: &Name, names: &[Name]) -> Result<Fresh, String> {
    count(names.len() as u32)?;
    let mut seen = BTreeSet::new();
    let mut all = Fresh::new();
    for (number, name) in (0..).zip(names) {
        if !seen.insert(name) {
            return Err(format!("the unit '{name}' of '{pool}' is named twice"));
        }
        format!("{pool}/{name}").parse::<Name>().map_err(|bad| format!("{bad}"))?;
        all.insert(number, Unit::new(name.clone()));
    }
    Ok(all)
}

/// The new units if so many more are wanted than those on their way out: under the lowest free numbers.
fn fresh_units(pool: &Name, units: &Units, wanted: usize) -> Result<Fresh, String> {
    let going = units.iter().filter(|(_, unit)| unit.retiring).count();
    let free = (0..).filter(|i| units.get(*i).is_none()).map(|i| numbered(pool, i));
    free.take(wanted.saturating_sub(going)).collect()
}
