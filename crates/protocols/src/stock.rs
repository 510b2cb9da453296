//! The units of one pool, and what is left of them beside what those who come first have claimed.
//!
//! A pool is *counted* or *listed*. Of a counted pool only the number of units matters. The units of a
//! listed one have numbers; a request may name some, and is told all that it gets.
//!
//! # What is left
//! A request that waits may claim the units that it named and so many others. Whoever comes later gets
//! the units it named if they are free and not named before it, and others of those that are free and
//! not named before it, beside as many as are claimed before it by count. A claim by count is met by any
//! unit, so that is all there is to match: [`Claims`] counts it.
//!
//! Which units make up a count is chosen so that it harms nobody who waits, as far as possible
//! ([`Stock::pick`]).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use holdall_core::{Capacity, Need, Picked, Pool, Unit};
use serde::{Deserialize, Serialize};

/// The units of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Stock {
    /// So many.
    Counted { capacity: u32, used: u64 },
    /// These. Elsewhere, since most pools are counted, and small where there are many.
    Listed(Box<Listing>),
}

/// The units of a listed pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Listing {
    units: BTreeSet<Unit>,
    /// Those that are not given to anybody for now.
    away: BTreeSet<Unit>,
    /// Those in use, also if they no longer belong to the pool.
    held: BTreeSet<Unit>,
    /// Those that can be given to somebody.
    free: BTreeSet<Unit>,
}

impl Listing {
    fn new(units: BTreeSet<Unit>, away: BTreeSet<Unit>, held: BTreeSet<Unit>) -> Self {
        let free = units.iter().filter(|unit| !away.contains(unit) && !held.contains(unit));
        Self { free: free.copied().collect(), units, away, held }
    }

    /// Those that are not away, used or not.
    fn available(&self) -> usize {
        self.units.len() - self.units.intersection(&self.away).count()
    }

    fn is_available(&self, unit: Unit) -> bool {
        self.units.contains(&unit) && !self.away.contains(&unit)
    }
}

/// Units of a pool that somebody is to have, or does not give back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    count: u64,
    /// Those of them whose numbers are known.
    units: BTreeSet<Unit>,
}

impl Taken {
    pub(crate) fn add<'a>(&mut self, count: u32, units: impl IntoIterator<Item = &'a Unit>) {
        self.count += u64::from(count);
        self.units.extend(units);
    }
}

/// What those who come first have claimed of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    /// Units by name.
    named: BTreeSet<Unit>,
    /// How many of those are free.
    free: i64,
    /// Units by count.
    counted: i64,
}

impl Claims {
    /// Somebody comes before who needs this.
    pub(crate) fn add(&mut self, stock: &Stock, need: &Need) {
        self.add_count(need.more().into());
        need.named.iter().for_each(|unit| self.add_name(stock, *unit));
    }

    /// So many units are claimed, whichever they are.
    pub(crate) fn add_count(&mut self, units: u64) {
        self.counted = self.counted.saturating_add_unsigned(units);
    }

    /// A unit is claimed by name, perhaps not for the first time.
    pub(crate) fn add_name(&mut self, stock: &Stock, unit: Unit) {
        if self.named.insert(unit) && stock.is_free(unit) {
            self.free += 1;
        }
    }

    /// How many of some units would do for a need by count: they are not claimed by name, nor named by it.
    pub(crate) fn spare(&self, units: &BTreeSet<Unit>, need: &Need) -> u64 {
        let spare = |unit: &&Unit| !self.named.contains(unit) && !need.named.contains(unit);
        units.iter().filter(spare).count() as u64
    }
}

impl Stock {
    pub(crate) fn of(pool: &Pool) -> Self {
        if pool.listed {
            let units = (0..pool.capacity).collect();
            Self::Listed(Box::new(Listing::new(units, BTreeSet::new(), BTreeSet::new())))
        } else {
            Self::Counted { capacity: pool.capacity, used: 0 }
        }
    }

    /// A pool that nobody has been told of yet.
    pub(crate) const fn none() -> Self {
        Self::Counted { capacity: 0, used: 0 }
    }

    /// The pool has other units from now on. What is used stays in use; and while it is, a counted pool
    /// does not become a listed one, nor the other way round.
    pub(crate) fn resize(&mut self, to: Capacity) {
        match (to, &mut *self) {
            (Capacity::Counted(units), Self::Counted { capacity, .. }) => *capacity = units,
            (Capacity::Listed { units, away }, Self::Listed(listing)) => {
                **listing = Listing::new(units, away, core::mem::take(&mut listing.held));
            }
            (Capacity::Counted(0), Self::Listed(listing)) => {
                let held = core::mem::take(&mut listing.held);
                **listing = Listing { held, ..Listing::default() };
            }
            (Capacity::Counted(units), Self::Listed(listing)) if listing.held.is_empty() => {
                *self = Self::Counted { capacity: units, used: 0 };
            }
            (Capacity::Listed { units, away }, Self::Counted { used: 0, .. }) => {
                *self = Self::Listed(Box::new(Listing::new(units, away, BTreeSet::new())));
            }
            _ => {}
        }
    }

    /// Units in use.
    pub(crate) fn used(&self) -> u64 {
        match self {
            Self::Counted { used, .. } => *used,
            Self::Listed(listing) => listing.held.len() as u64,
        }
    }

    /// Units that can be given to somebody. Below zero while a pool that has shrunk waits for its units.
    pub(crate) fn free(&self) -> i64 {
        match self {
            Self::Counted { capacity, used } => i64::from(*capacity).saturating_sub_unsigned(*used),
            Self::Listed(listing) => listing.free.len() as i64,
        }
    }

    fn is_free(&self, unit: Unit) -> bool {
        matches!(self, Self::Listed(listing) if listing.free.contains(&unit))
    }

    /// Whether the pool has, in use or not, what is needed.
    pub(crate) fn has(&self, need: &Need) -> bool {
        let sensible = need.units > 0 && need.named.len() <= need.units as usize;
        sensible
            && match self {
                Self::Counted { capacity, .. } => need.units <= *capacity && need.named.is_empty(),
                Self::Listed(listing) => {
                    let units = &listing.units;
                    need.units as usize <= units.len() && need.named.is_subset(units)
                }
            }
    }

    /// Whether the pool has no units at all.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Counted { capacity, .. } => *capacity == 0,
            Self::Listed(listing) => listing.units.is_empty(),
        }
    }

    /// Whether units are away.
    pub(crate) fn is_reduced(&self) -> bool {
        matches!(self, Self::Listed(listing) if !listing.away.is_empty())
    }

    /// Whether what is needed is not there while some units are away.
    pub(crate) fn is_too_reduced(&self, need: &Need) -> bool {
        let Self::Listed(listing) = self else { return false };
        self.is_reduced()
            && (need.units as usize > listing.available()
                || need.named.iter().any(|unit| !listing.is_available(*unit)))
    }

    /// Whether what is needed is not there beside units that others have taken, if they have any.
    pub(crate) fn is_too_small(&self, need: &Need, taken: &Taken) -> bool {
        let unknown = taken.count.saturating_sub(taken.units.len() as u64);
        let left = match self {
            Self::Counted { capacity, .. } => u64::from(*capacity).saturating_sub(taken.count),
            Self::Listed(listing) => {
                let there = taken.units.iter().filter(|unit| listing.is_available(**unit)).count();
                (listing.available() as u64).saturating_sub(there as u64 + unknown)
            }
        };
        let too_few = u64::from(need.units) > left;
        taken.count > 0 && (too_few || !need.named.is_disjoint(&taken.units))
    }

    /// How many units are missing for a need and for what is claimed, all by count; not above zero if
    /// there are enough.
    pub(crate) fn lacking(&self, claims: &Claims, need: &Need) -> i64 {
        let named = need.named.iter().filter(|unit| self.is_spare(claims, **unit)).count();
        let others = self.free() - claims.free - named as i64;
        (claims.counted + i64::from(need.more())).saturating_sub(others)
    }

    /// Whether the units that are named are free, and not claimed.
    pub(crate) fn names_are_free(&self, claims: &Claims, need: &Need) -> bool {
        need.named.iter().all(|unit| self.is_spare(claims, *unit))
    }

    /// Whether a unit is free, and not claimed by name.
    fn is_spare(&self, claims: &Claims, unit: Unit) -> bool {
        self.is_free(unit) && !claims.named.contains(&unit)
    }

    /// Whether what is needed is free beside what is claimed.
    pub(crate) fn fits(&self, claims: &Claims, need: &Need) -> bool {
        self.names_are_free(claims, need) && self.lacking(claims, need) <= 0
    }

    /// Whether nothing fits beside what is claimed, nor will beside more claims.
    pub(crate) fn is_exhausted(&self, claims: &Claims) -> bool {
        claims.counted >= self.free() - claims.free
    }

    /// The units to give for a need that fits; none of a counted pool. Those that make up a count are
    /// such that nobody waits for by name, as far as there are; then those that are waited for by the last,
    /// which is why `waited_for_by` tells the place of the first that waits for a unit by name.
    ///
    /// So whoever comes later, and has not fitted before, does not fit now: if a unit is picked that was named before it, no
    /// other is left that was not.
    pub(crate) fn pick<P: Ord>(
        &self,
        need: &Need,
        waited_for_by: impl Fn(Unit) -> Option<P>,
    ) -> Option<BTreeSet<Unit>> {
        let Self::Listed(listing) = self else { return None };
        let mut picked = need.named.clone();
        let others = || listing.free.iter().copied().filter(|unit| !need.named.contains(unit));
        let (mut missing, mut waited_for) = (need.more() as usize, Vec::new());
        for unit in others() {
            if missing == 0 {
                break;
            }
            match waited_for_by(unit) {
                Some(place) => waited_for.push((Reverse(place), unit)),
                None => missing -= usize::from(picked.insert(unit)),
            }
        }
        if missing > 0 {
            waited_for.sort_unstable();
            picked.extend(waited_for.into_iter().take(missing).map(|(_, unit)| unit));
        }
        Some(picked)
    }

    /// Takes the units of a need; the caller has looked that it fits.
    pub(crate) fn take(&mut self, units: u32, picked: Option<&BTreeSet<Unit>>) {
        match self {
            Self::Counted { used, .. } => *used = used.saturating_add(units.into()),
            Self::Listed(listing) => {
                for unit in picked.into_iter().flatten() {
                    listing.free.remove(unit);
                    listing.held.insert(*unit);
                }
            }
        }
    }

    /// The opposite of [`Self::take`].
    pub(crate) fn give_back(&mut self, units: u32, picked: Option<&BTreeSet<Unit>>) {
        match self {
            Self::Counted { used, .. } => *used = used.saturating_sub(units.into()),
            Self::Listed(listing) => {
                for unit in picked.into_iter().flatten() {
                    if listing.held.remove(unit) && listing.is_available(*unit) {
                        listing.free.insert(*unit);
                    }
                }
            }
        }
    }

    /// Whether these are the units in use: so many of a counted pool, each of these once of a listed one.
    pub(crate) fn is_used_by(&self, holders: &Taken) -> bool {
        let Taken { count, units: held } = holders;
        match self {
            Self::Counted { used, .. } => used == count && held.is_empty(),
            Self::Listed(listing) => {
                let free = |unit| listing.is_available(unit) && !held.contains(&unit);
                listing.held == *held
                    && held.len() as u64 == *count
                    && listing.units.iter().filter(|unit| free(**unit)).eq(&listing.free)
            }
        }
    }
}

/// Whether these may be the units that were picked for a need: what it names is among them, and there are as
/// many as it needs; or nothing was picked, since the pool is counted.
pub(crate) fn may_be_picked(need: &Need, picked: &Picked, listed: Option<bool>) -> bool {
    match picked.get(&need.pool) {
        Some(units) => {
            let enough = units.len() == need.units as usize && need.named.is_subset(units);
            enough && listed != Some(false)
        }
        None => need.named.is_empty() && listed != Some(true),
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{NodeId, PoolId};

    use super::*;

    fn need(units: u32, named: &[Unit]) -> Need {
        Need { named: named.iter().copied().collect(), ..Need::any(PoolId(0), units) }
    }

    fn listed(capacity: u32) -> Stock {
        Stock::of(&Pool { capacity, node: NodeId(0), listed: true })
    }

    fn take(stock: &mut Stock, need: &Need) -> BTreeSet<Unit> {
        let picked = stock.pick(need, |_| None::<()>).expect("listed");
        stock.take(need.units, Some(&picked));
        picked
    }

    fn claims(stock: &Stock, needs: &[Need]) -> Claims {
        let mut claims = Claims::default();
        needs.iter().for_each(|need| claims.add(stock, need));
        claims
    }

    /// By trying: whether the claims by count can all be met by free units that nobody named before, once
    /// the newcomer has got its own.
    fn fits_by_trying(free: &[Unit], before: &[Need], newcomer: &Need) -> bool {
        let named: BTreeSet<Unit> = before.iter().flat_map(|need| need.named.clone()).collect();
        let spare: Vec<Unit> = free.iter().copied().filter(|unit| !named.contains(unit)).collect();
        let all = 1_u32 << spare.len();
        let counted: u32 = before.iter().map(Need::more).sum();
        (0..all).any(|given| {
            let given = |(at, _): &(usize, &Unit)| given >> at & 1 == 1;
            let units: BTreeSet<Unit> =
                spare.iter().enumerate().filter(given).map(|(_, unit)| *unit).collect();
            units.len() == newcomer.units as usize
                && newcomer.named.is_subset(&units)
                && spare.len() - units.len() >= counted as usize
        })
    }

    #[test]
    fn what_fits_is_what_can_be_matched() {
        let names: [&[Unit]; 4] = [&[], &[0], &[2], &[0, 2]];
        let some = || {
            let more = |named: &&'static [Unit]| {
                let least = named.len() as u32;
                (least.max(1)..=least + 2).map(|units| need(units, named)).collect::<Vec<_>>()
            };
            names.iter().flat_map(more).collect::<Vec<Need>>()
        };
        for held in [need(1, &[0]), need(1, &[1]), need(2, &[0, 3]), need(1, &[3])] {
            let mut stock = listed(5);
            take(&mut stock, &held);
            let free: Vec<Unit> = (0..5).filter(|unit| !held.named.contains(unit)).collect();
            for (first, second, newcomer) in some().into_iter().flat_map(|a| {
                some().into_iter().flat_map(move |b| {
                    let a = a.clone();
                    some().into_iter().map(move |c| (a.clone(), b.clone(), c))
                })
            }) {
                let before = [first, second];
                let fits = stock.fits(&claims(&stock, &before), &newcomer);
                let tried = fits_by_trying(&free, &before, &newcomer);
                assert_eq!(fits, tried, "{newcomer:?} behind {before:?} beside {held:?}");
            }
        }
    }

    #[test]
    fn what_nobody_waits_for_is_picked_first_and_then_what_the_last_waits_for() {
        let stock = listed(4);
        let places = [Some(1), None, Some(3), Some(2)];
        let pick = |units, named| {
            let picked = stock.pick(&need(units, named), |unit| places[unit as usize]);
            picked.expect("listed").into_iter().collect::<Vec<Unit>>()
        };
        assert_eq!(pick(1, &[]), [1]);
        assert_eq!(pick(2, &[]), [1, 2]);
        assert_eq!(pick(3, &[]), [1, 2, 3]);
        assert_eq!(pick(2, &[0]), [0, 1], "what is named is given, whoever waits for it");
    }

    #[test]
    fn units_that_are_away_or_removed_do_not_come_back() {
        let mut stock = listed(4);
        let picked = take(&mut stock, &need(3, &[]));
        let units: BTreeSet<Unit> = [0, 2, 3].into();
        stock.resize(Capacity::Listed { units, away: [2].into() });
        assert_eq!(stock.used(), 3, "what is used stays in use");
        stock.give_back(3, Some(&picked));
        assert_eq!(stock.free(), 2, "1 was removed, 2 is away");
        assert!(stock.has(&need(3, &[2])), "it may come back");
        assert!(!stock.fits(&Claims::default(), &need(1, &[2])));
        assert!(!stock.has(&need(1, &[1])));
        stock.resize(Capacity::Counted(0));
        assert_eq!((stock.free(), stock.has(&need(1, &[]))), (0, false));
    }

    #[test]
    fn a_pool_in_use_stays_counted_or_listed() {
        let mut stock = Stock::none();
        stock.resize(Capacity::Listed { units: [7].into(), away: BTreeSet::new() });
        let picked = take(&mut stock, &need(1, &[]));
        assert_eq!(picked, [7].into());
        stock.resize(Capacity::Counted(3));
        assert_eq!((stock.used(), stock.free()), (1, 0));
        stock.give_back(1, Some(&picked));
        stock.resize(Capacity::Counted(3));
        assert_eq!((stock.used(), stock.free()), (0, 3));
    }
}
