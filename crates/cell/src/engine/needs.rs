//! Needs are matched with pools: which units of which pool a request is for.

use std::collections::BTreeSet;

use holdall_core::{Need as Count, Needs, Protocol, UserId};
use holdall_wire::{Amount, NEEDS_MAX, Name, Need, Refusal, Taken};

use super::ledger::{LOCK_UNITS, Meaning, Pool};
use super::pools::no_unit;
use super::resemblance::resemble;
use super::{Engine, Serving};

/// Among so few needs each is compared with each.
const FEW: usize = 8;
/// All units of a pool, as long as it is not looked at how many that are.
pub(super) const ALL: u32 = u32::MAX;
/// With how many declared names another is compared.
const DECLARED_MAX: usize = 4096;

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Matches needs with pools, making locks on first use; nothing is made if any need fails.
    pub(super) fn resolve(&mut self, needs: &[Need]) -> Result<Needs, Refusal> {
        self.sensible(needs)?;
        let mut seen = BTreeSet::new();
        let mut units = Vec::new();
        for (at, need) in needs.iter().enumerate() {
            let again = match needs.len() {
                ..=FEW => needs[..at].iter().any(|other| other.name == need.name),
                _ => !seen.insert(&need.name),
            };
            if again {
                return Err(Refusal::Senseless(format!("'{}' is named twice", need.name)));
            }
            if let Some(count) = self.feasible(need).map_err(Refusal::Never)? {
                add(&mut units, count, need)?;
            }
        }
        for count in &mut units {
            self.fits_the_pool(count).map_err(Refusal::Never)?;
        }
        let with_units = !units.is_empty();
        let mut counts: Vec<Count> = Vec::with_capacity(needs.len());
        for need in needs {
            if with_units && let Some(pool) = self.pool_with_units(need) {
                let together = units.iter().position(|count| count.pool == pool);
                counts.extend(together.map(|at| units.swap_remove(at)));
                continue;
            }
            let (pool, resize) = self.ledger.lock(&need.name);
            self.resizes.extend(resize);
            let units = if need.amount == Amount::Shared { 1 } else { LOCK_UNITS };
            counts.push(Count::any(pool, units));
        }
        Needs::new(counts).map_err(|bad| Refusal::Senseless(bad.to_string()))
    }

    /// Whether there are needs, not too many, and room for one more request.
    pub(super) fn sensible(&self, needs: &[Need]) -> Result<(), Refusal> {
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
        Ok(())
    }

    /// The pool that a need is for, if it has units.
    fn pool_with_units(&self, need: &Need) -> Option<holdall_core::PoolId> {
        match self.ledger.meaning(&need.name) {
            Meaning::Unit(id, ..) => Some(id),
            Meaning::Pool(id, pool) if !pool.is_lock() => Some(id),
            _ => None,
        }
    }

    /// What a need wants of a pool with units; none if it is for a lock. Says why if it can never be met.
    pub(super) fn feasible(&self, need: &Need) -> Result<Option<Count>, String> {
        let name = &need.name;
        match self.ledger.meaning(name) {
            Meaning::Unit(id, pool, unit) => {
                is_there(pool)?;
                let staying = pool.units().and_then(|units| units.get(unit));
                if staying.is_none_or(|unit| unit.retiring) {
                    return Err(format!("'{name}' is being removed"));
                }
                match need.amount {
                    Amount::One | Amount::Units(1) => {
                        Ok(Some(Count { pool: id, units: 1, named: BTreeSet::from([unit]) }))
                    }
                    _ => Err(format!(
                        "'{need}': '{name}' is one unit of the pool '{0}'; ask for '{name}', and for \
                         others with '{0}:N'",
                        pool.name
                    )),
                }
            }
            Meaning::NoUnit(pool) => {
                Err(is_there(pool).err().unwrap_or_else(|| no_unit(name, pool)))
            }
            Meaning::UnitAlone(pool, unit) => {
                let full = pool.units().and_then(|units| units.get(unit));
                let full = full.map(|unit| unit.full_name(&pool.name).to_string());
                let full = full.unwrap_or_default();
                Err(format!("'{name}' is a unit of the pool '{}'; ask for '{full}'", pool.name))
            }
            Meaning::Pool(id, pool) => {
                is_there(pool)?;
                let units = match (need.amount, pool.is_lock()) {
                    (Amount::One | Amount::Shared, true) => return Ok(None),
                    (Amount::Units(_) | Amount::All, true) => {
                        return Err(format!(
                            "'{need}': '{name}' is a lock; ask for '{name}' or '{name}:shared'"
                        ));
                    }
                    (Amount::Shared, false) => {
                        return Err(format!(
                            "'{need}': '{name}' is a pool, and its units are never shared; ask for \
                             '{name}:N'"
                        ));
                    }
                    (Amount::One, false) => 1,
                    (Amount::Units(n), false) => n,
                    (Amount::All, false) => ALL,
                };
                Ok(Some(Count::any(id, units)))
            }
            Meaning::Nothing => match need.amount {
                _ if !self.ephemeral => Err(format!(
                    "there is no pool '{name}', and this agent makes no locks on first use \
                     (ephemeral = false); `holdall pool list` shows what there is{}",
                    self.resembling(name)
                        .map(|like| format!(", like '{like}'"))
                        .unwrap_or_default()
                )),
                Amount::One | Amount::Shared => Ok(None),
                Amount::Units(_) | Amount::All => Err(format!(
                    "'{need}': there is no pool '{name}'; declare it with `holdall pool add {name} \
                     --units N`, or ask for the lock '{name}'"
                )),
            },
        }
    }

    /// Whether a pool has as many units as are wanted of it; if it is all of them, how many that is.
    fn fits_the_pool(&self, count: &mut Count) -> Result<(), String> {
        let Some(pool) = self.ledger.pool(count.pool) else { return Ok(()) };
        let (name, has) = (&pool.name, pool.size());
        if has == 0 {
            return Err(format!("'{name}' has no units"));
        }
        if count.units == ALL {
            count.units = has;
        }
        if count.units > has {
            // Whoever asks may be elsewhere, and have asked several cells.
            let name =
                self.cells.own.as_ref().map_or_else(|| name.clone(), |own| name.at(own.as_str()));
            return Err(format!("'{name}:{}': '{name}' has only {has} units", count.units));
        }
        Ok(())
    }

    /// A warning, if a need is for a lock that is made on first use, and perhaps something else is meant.
    pub fn doubt(&self, need: &Need) -> Option<String> {
        let name = &need.name;
        let is_lock = match self.ledger.meaning(name) {
            Meaning::Nothing => self.ephemeral,
            Meaning::Pool(_, pool) => !pool.declared && !pool.removed,
            _ => false,
        };
        let like = if is_lock { self.resembling(name)? } else { return None };
        Some(format!(
            "'{name}' is a lock that nobody has declared; is '{like}' meant? (With `ephemeral = false` \
             an agent refuses what is not declared.)"
        ))
    }

    /// The declared pool or lock that a name resembles.
    fn resembling(&self, name: &Name) -> Option<&Name> {
        let declared = self.ledger.declared().take(DECLARED_MAX).map(|pool| &pool.name);
        declared.into_iter().find(|other| resemble(name.as_str(), other.as_str()))
    }

    /// What a grant of a former life had, if all of it is there and free; never anything else.
    pub(super) fn as_it_was(&mut self, needs: &[Need], taken: &[Taken]) -> Option<Needs> {
        let shared = |taken: &Taken| {
            let need = needs.iter().find(|need| need.name == taken.name);
            need.is_some_and(|need| need.amount == Amount::Shared)
        };
        // A lock that was made on first use is made again.
        let is_new = |taken: &Taken| {
            taken.units.iter().all(|(unit, _)| *unit == taken.name)
                && matches!(self.ledger.meaning(&taken.name), Meaning::Nothing | Meaning::NoUnit(_))
                && self.ledger.find(&taken.name).is_none()
                && self.ledger.unit_called(taken.name.as_str()).is_none()
        };
        let fits =
            |taken: &Taken| is_new(taken) || self.ledger.as_it_was(taken, shared(taken)).is_some();
        if !taken.iter().all(fits) {
            return None;
        }
        let mut counts = Vec::with_capacity(taken.len());
        for taken in taken {
            if self.ledger.find(&taken.name).is_none() {
                self.resizes.extend(self.ledger.lock(&taken.name).1);
            }
            counts.push(self.ledger.as_it_was(taken, shared(taken))?);
        }
        Needs::new(counts).ok()
    }
}

/// Adds what a need wants to what others of the same request want of the same pool.
pub(super) fn add(units: &mut Vec<Count>, wanted: Count, need: &Need) -> Result<(), Refusal> {
    let Some(count) = units.iter_mut().find(|count| count.pool == wanted.pool) else {
        units.push(wanted);
        return Ok(());
    };
    count.units = count.units.saturating_add(wanted.units); // All and some are all.
    for unit in wanted.named {
        if !count.named.insert(unit) {
            return Err(Refusal::Senseless(format!("'{}' is named twice", need.name)));
        }
    }
    Ok(())
}

fn is_there(pool: &Pool) -> Result<(), String> {
    if pool.removed { Err(format!("'{}' is being removed", pool.name)) } else { Ok(()) }
}
