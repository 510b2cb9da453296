//! Who uses which units, and whether that can be.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::Equivalent;
use holdall_wire::{Amount, Ask, Name, Need, Part, RequestNo, Taken};
use serde::{Deserialize, Serialize};

use super::{Books, Contradiction, Entry};
use crate::few::{Few, as_set};

/// Among so few units each is compared with each.
const FEW: usize = 4;

/// A unit that is held: a pool and one of its units, or a lock, which is its own.
pub(super) type UnitName = (Name, Name);

/// How a unit is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Use {
    fence: u64,
    shared: bool,
    #[serde(with = "as_set")]
    holders: Few<RequestNo>,
    /// Of grants that hold it.
    parts: BTreeMap<RequestNo, PartOf>,
}

impl Use {
    /// Whether nobody uses it beside somebody who does not share it: among grants, and among the parts of each.
    fn is_exclusive(&self) -> bool {
        let mut parts: BTreeMap<RequestNo, (u32, bool)> = BTreeMap::new();
        for part in self.parts.values() {
            let (count, shared) = parts.entry(part.of).or_insert((0, true));
            (*count, *shared) = (*count + 1, *shared && part.shared);
        }
        (self.shared || self.holders.len() == 1)
            && parts.values().all(|(count, shared)| *shared || *count == 1)
    }
}

/// How a part of a grant uses a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartOf {
    of: RequestNo,
    fence: u64,
    shared: bool,
}

/// Where the fences of a grant come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fences {
    /// They were drawn for it.
    New,
    /// It had them before.
    Kept,
    /// It had them before a loss of memory, and they may have been forgotten here.
    Recalled,
}

/// A unit of a grant.
#[derive(Clone, Copy)]
struct Unit<'a> {
    pool: &'a Name,
    name: &'a Name,
    fence: u64,
    shared: bool,
}

impl Unit<'_> {
    fn key(&self) -> UnitName {
        (self.pool.clone(), self.name.clone())
    }

    fn is_same(&self, other: &Unit<'_>) -> bool {
        (self.pool, self.name) == (other.pool, other.name)
    }

    /// The same to look for, without a clone.
    fn named(&self) -> Named<'_> {
        Named(self.pool, self.name)
    }
}

/// Hashes and compares as a [`UnitName`] does.
#[derive(Hash)]
struct Named<'a>(&'a Name, &'a Name);

impl Equivalent<UnitName> for Named<'_> {
    fn equivalent(&self, other: &UnitName) -> bool {
        *self.1 == other.1 && *self.0 == other.0
    }
}

impl Books {
    /// Whether a request can be granted this.
    pub(super) fn check_grant(
        &self,
        request: RequestNo,
        taken: &[Taken],
    ) -> Result<(), Contradiction> {
        let entry = self.requests.get(&request).ok_or(Contradiction::Unknown(request))?;
        if entry.held.is_some() {
            return Err(Contradiction::Again(request));
        }
        if !is_what_was_asked_for(&entry.ask.needs, taken) {
            return Err(Contradiction::Other(request));
        }
        self.check_units(request, &entry.ask, taken, Fences::New)
    }

    /// Whether a request can have these units, with these fences.
    pub(super) fn check_units(
        &self,
        request: RequestNo,
        ask: &Ask,
        taken: &[Taken],
        fences: Fences,
    ) -> Result<(), Contradiction> {
        let mut seen = BTreeSet::new();
        let count: usize = taken.iter().map(|taken| taken.units.len()).sum();
        for (at, unit) in units(ask, taken).enumerate() {
            let again = match count {
                ..=FEW => units(ask, taken).take(at).any(|other| other.is_same(&unit)),
                _ => !seen.insert((unit.pool, unit.name)),
            };
            if again {
                return Err(Contradiction::Other(request));
            }
            let same = match ask.part {
                Some(part) => self.check_part(request, part, &unit)?,
                None => self.check_whole(request, &unit)?,
            };
            match same {
                Some(highest) if fences != Fences::Recalled && unit.fence != highest => {
                    return Err(Contradiction::Behind { request, number: unit.fence, highest });
                }
                None if fences == Fences::New => self.above(request, unit.fence)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a request can have a unit. The fence of those it shares it with, if it does.
    fn check_whole(
        &self,
        request: RequestNo,
        unit: &Unit<'_>,
    ) -> Result<Option<u64>, Contradiction> {
        match self.uses.get(&unit.named()) {
            None => Ok(None),
            Some(used) if unit.shared && used.shared => Ok(Some(used.fence)),
            Some(used) => {
                let holder = used.holders.keys().next().copied().unwrap_or(request);
                Err(double(request, holder, unit))
            }
        }
    }

    /// The same for a part of a grant.
    fn check_part(
        &self,
        request: RequestNo,
        part: Part,
        unit: &Unit<'_>,
    ) -> Result<Option<u64>, Contradiction> {
        let of = part.of;
        let is_closing = self.requests.get(&of).is_none_or(|whole| whole.closing.is_some());
        let used = self.uses.get(&unit.named());
        let Some(used) = used.filter(|used| !is_closing && used.holders.get(&of).is_some()) else {
            let (pool, unit) = unit.key();
            return Err(Contradiction::NotPart { pool, unit, request, of });
        };
        let mut beside = used.parts.iter().filter(|(_, other)| other.of == of);
        if let Some((other, _)) = beside.clone().find(|(_, other)| !(unit.shared && other.shared)) {
            return Err(double(request, *other, unit));
        }
        let same = used.shared.then_some(used.fence);
        Ok(same.or_else(|| beside.next().map(|(_, other)| other.fence)))
    }

    /// Whether a request can end.
    pub(super) fn check_end(&self, request: RequestNo) -> Result<(), Contradiction> {
        let entry = self.requests.get(&request).ok_or(Contradiction::Unknown(request))?;
        if entry.parts > 0 { Err(Contradiction::InParts(request)) } else { Ok(()) }
    }

    pub(super) fn take(&mut self, request: RequestNo, taken: &[Taken]) {
        let Some(entry) = self.requests.get(&request) else { return };
        for unit in units(&entry.ask, taken) {
            let Unit { fence, shared, .. } = unit;
            let used = match self.uses.get_mut(&unit.named()) {
                Some(used) => used,
                None => {
                    let (holders, parts) = Default::default();
                    let fresh = Use { fence, shared, holders, parts };
                    self.uses.entry(unit.key()).or_insert(fresh)
                }
            };
            used.fence = used.fence.max(if entry.ask.part.is_none() { fence } else { 0 });
            match entry.ask.part {
                Some(Part { of, .. }) => {
                    used.parts.insert(request, PartOf { of, fence, shared });
                }
                None => drop(used.holders.insert(request, ())),
            }
            self.highest = self.highest.max(fence);
        }
        let part = entry.ask.part;
        if let Some(whole) = part.and_then(|part| self.requests.get_mut(&part.of)) {
            whole.change(|granted| granted.parts += 1);
        }
    }

    pub(super) fn give_back(&mut self, request: RequestNo, ended: &Entry) {
        let Some(held) = &ended.held else { return };
        let part = ended.ask.part;
        if let Some(whole) = part.and_then(|part| self.requests.get_mut(&part.of)) {
            whole.change(|granted| granted.parts -= 1);
        }
        for unit in units(&ended.ask, &held.taken) {
            if let Some(used) = self.uses.get_mut(&unit.named()) {
                used.holders.remove(&request);
                used.parts.remove(&request);
                if used.holders.is_empty() {
                    self.uses.remove(&unit.named());
                }
            }
        }
    }

    /// Whether the units that are used are those that are held, each as its grant says, and by no two that do not share it.
    pub(super) fn check_uses(&self) -> Result<(), &'static str> {
        let (mut held, mut parts) = (BTreeMap::new(), BTreeMap::new());
        for (request, entry, grant) in self.grants() {
            for unit in units(&entry.ask, &grant.taken) {
                let (key, how) = ((unit.pool, unit.name, request), (unit.fence, unit.shared));
                let before = match entry.ask.part {
                    Some(Part { of, .. }) => parts.insert(key, (of, how)).map(drop),
                    None => held.insert(key, how).map(drop),
                };
                if before.is_some() {
                    return Err("B1: a grant holds a unit twice");
                }
            }
        }
        let used = self.uses.iter();
        let holders = used.clone().flat_map(|((pool, unit), used)| {
            used.holders.keys().map(move |request| (pool, unit, *request))
        });
        let in_parts = used.flat_map(|((pool, unit), used)| {
            let one = |part: &PartOf| (part.of, (part.fence, part.shared));
            used.parts.iter().map(move |(request, part)| ((pool, unit, *request), one(part)))
        });
        if !held.keys().copied().eq(holders.collect::<BTreeSet<_>>()) || parts != in_parts.collect()
        {
            return Err("B1: what is held is other than what the holders have");
        }
        for ((pool, unit, _), (fence, shared)) in held {
            let used = self.uses.get(&Named(pool, unit)).filter(|used| used.shared == shared);
            if used.is_none_or(|used| !used.is_exclusive()) {
                return Err("B1: a unit has holders that do not share it");
            }
            if used.is_some_and(|used| fence > used.fence || used.fence > self.highest) {
                return Err("B2: a fence is above all that there were");
            }
        }
        self.check_parts()
    }

    /// Whether parts have what their grants have, and are counted.
    fn check_parts(&self) -> Result<(), &'static str> {
        let of_holder =
            |used: &Use| used.parts.values().all(|part| used.holders.get(&part.of).is_some());
        let mut parts_of: BTreeMap<RequestNo, u32> = BTreeMap::new();
        for part in self.grants().filter_map(|(_, entry, _)| entry.ask.part) {
            *parts_of.entry(part.of).or_default() += 1;
        }
        let counted = self
            .requests
            .iter()
            .all(|(whole, entry)| entry.parts == parts_of.get(whole).copied().unwrap_or_default());
        if !self.uses.values().all(of_holder) || !counted {
            return Err("B1: a part has what its grant has not");
        }
        Ok(())
    }
}

fn double(request: RequestNo, holder: RequestNo, unit: &Unit<'_>) -> Contradiction {
    let (pool, unit) = unit.key();
    Contradiction::Double { pool, unit, request, holder }
}

/// Whether this is what needs are for, in their order.
pub(crate) fn is_what_was_asked_for(needs: &[Need], taken: &[Taken]) -> bool {
    // Mostly each need names a pool or lock of its own.
    let same = |(need, taken): (&Need, &Taken)| need.name == taken.name && is_enough(need, taken);
    if needs.len() == taken.len() && needs.iter().zip(taken).all(same) {
        return true;
    }
    let met = |need: &Need| taken.iter().any(|taken| is_for(need, taken));
    let first = |taken| needs.iter().position(|need| is_for(need, taken));
    let in_order = taken.is_sorted_by(|one, other| first(one) < first(other));
    in_order && taken.iter().all(|taken| is_asked_for(needs, taken)) && needs.iter().all(met)
}

fn is_enough(need: &Need, taken: &Taken) -> bool {
    match need.amount {
        Amount::One | Amount::Shared => taken.units.len() == 1,
        Amount::Units(units) => taken.units.len() == units as usize,
        Amount::All => !taken.units.is_empty(),
    }
}

/// Whether this is what a need is for: its pool or lock, or the pool of its unit; in the same cell.
pub(crate) fn is_for(need: &Need, taken: &Taken) -> bool {
    if need.name == taken.name {
        return true;
    }
    let (name, pool) = (need.name.here(), taken.name.here());
    let rest = name.as_str().strip_prefix(pool.as_str());
    let unit = rest.and_then(|rest| rest.strip_prefix('/'));
    let named = |unit: &str| {
        let mut units = taken.units.iter().map(|(unit, _)| unit.here());
        units.any(|one| one.as_str() == unit || one == name)
    };
    need.name.cell() == taken.name.cell() && unit.is_some_and(named)
}

/// Whether this is as much of a pool or lock as was asked for.
fn is_asked_for(needs: &[Need], taken: &Taken) -> bool {
    let of_it = needs.iter().filter(|need| is_for(need, taken));
    let (mut units, mut all) = (0, false);
    for need in of_it {
        units += match need.amount {
            Amount::One | Amount::Shared | Amount::All => 1,
            Amount::Units(units) => units as usize,
        };
        all |= need.amount == Amount::All;
    }
    units > 0 && (taken.units.len() == units || (all && taken.units.len() > units))
}

/// Each unit of a grant that this cell guards: what others say of theirs is their word alone.
fn units<'a>(ask: &'a Ask, taken: &'a [Taken]) -> impl Iterator<Item = Unit<'a>> {
    let own = taken.iter().enumerate().filter(|(_, taken)| taken.name.cell().is_none());
    own.flat_map(|(at, taken)| {
        // Mostly they come in the order of the needs.
        let same = |need: &&Need| need.name == taken.name;
        let need = ask.needs.get(at).filter(same).or_else(|| ask.needs.iter().find(same));
        let shared = need.is_some_and(|need| need.amount == Amount::Shared);
        let pool = &taken.name;
        taken.units.iter().map(move |(name, fence)| Unit { pool, name, fence: *fence, shared })
    })
}
