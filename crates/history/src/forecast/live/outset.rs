//! From where it goes on: the queue at a moment, with pools in numbers.
//!
//! Only the pools count that somebody wants who waits. A unit that is drained is held for as long as it is; whoever still
//! uses it has one unit less here, so that it is nobody's when that use ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_core::{Need, Needs, PoolId};
use holdall_sim::TracePool;
use holdall_wire::{Amount, Name, Need as Wanted, RequestNo, Taken};

use super::super::{Course, FAR, Known, Queue, WAITING_MAX, course};
use super::{Live, Open};
use crate::words::count;

/// The units of a lock: who has it alone takes all, who shares it one.
const LOCK: u32 = 1 << 20;
/// With more grants than this nothing is played.
const HELD_MAX: usize = 20_000;

/// With fewer uses to go by nothing is said.
const LEAST: u64 = 5;

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Nobody waits.
    #[error("nobody waits")]
    Nobody,
    /// Hardly any use has ended.
    #[error("only {} recorded from which it could be told, and it takes {LEAST}", uses(*.0))]
    NoPast(u64),
    /// What happened is not known as a whole.
    #[error(
        "more happened at once than could be followed; estimates are made again in a few seconds"
    )]
    LostTrack,
    /// There is too much to be played.
    #[error("too much is held to play on")]
    TooMuch,
}

fn uses(number: u64) -> String {
    format!("{} {}", count(number, "use"), if number == 1 { "is" } else { "are" })
}

/// The queue at a moment.
#[derive(Clone, Debug)]
pub struct Outset {
    queue: Queue,
    /// Who waits, in the order of the queue.
    pub waiting: Vec<RequestNo>,
    /// Who waits for what is drained without an end. It is in nobody's way, and not played.
    pub stuck: Vec<RequestNo>,
    /// The last of those who were looked at.
    last: Option<RequestNo>,
    numbers: Numbers,
    now: u64,
    /// How often the clock had been set.
    clock_sets: u64,
}

/// Pools by number.
#[derive(Clone, Debug, Default)]
struct Numbers {
    pools: BTreeMap<Name, usize>,
    capacities: Vec<u32>,
    /// Those of which somebody who waits wants a certain unit.
    listed: BTreeSet<usize>,
    /// The units that are drained without an end.
    gone: Vec<BTreeSet<u32>>,
}

impl Live {
    /// The queue now, in milliseconds since 1970.
    ///
    /// # Errors
    /// If there is nothing to be played.
    pub fn outset(&self, now: u64) -> Result<Outset, Unknown> {
        if self.lost_track {
            return Err(Unknown::LostTrack);
        }
        if self.waiting.is_empty() {
            return Err(Unknown::Nobody);
        }
        if self.past.added() < LEAST {
            return Err(Unknown::NoPast(self.past.added()));
        }
        if self.held.len() > HELD_MAX {
            return Err(Unknown::TooMuch);
        }
        let numbers = self.numbers();
        let (mut requests, mut waiting): (Vec<Known>, Vec<(u64, RequestNo)>) = Default::default();
        let mut stuck = Vec::new();
        for (request, one) in self.waiting.iter().take(WAITING_MAX) {
            match self.known(&numbers, &self.open_of(one), None, now) {
                Some(known) if numbers.have(&known.needs) => {
                    waiting.push((known.asked, *request));
                    requests.push(known);
                }
                Some(_) => stuck.push(*request),
                None => {}
            }
        }
        for open in self.held.values() {
            requests.extend(self.known(&numbers, open, None, now));
        }
        for over in &self.recent {
            requests.extend(self.known(&numbers, &over.open, Some(over.ended), now));
        }
        // In the order of asking, the oldest first; both in the same way.
        requests.sort_by_key(|known| Reverse(known.asked));
        waiting.sort_by_key(|(asked, _)| Reverse(*asked));
        let lead = self.lead(&requests, now);
        requests.retain(|known| known.ended.is_none_or(|ended| ended <= lead));
        requests.splice(..0, self.drained(&numbers, lead, now));
        let pools = numbers.trace_pools();
        let queue = Queue { pools, lead, requests };
        let waiting = waiting.into_iter().map(|(_, request)| request).collect();
        let (last, clock_sets) = (self.last_looked_at(), self.clock_sets);
        Ok(Outset { queue, waiting, stuck, last, numbers, now, clock_sets })
    }

    /// The last of the first who wait. Numbers grow.
    fn last_looked_at(&self) -> Option<RequestNo> {
        self.waiting.keys().take(WAITING_MAX).next_back().copied()
    }

    /// Whether somebody is among the first who wait who was not when it was set out from there.
    pub fn awaits_others(&self, from: &Outset) -> bool {
        self.last_looked_at() > from.last
    }

    /// Whether the times from there on are still those of the clock.
    pub fn is_by_the_clock(&self, from: &Outset) -> bool {
        self.clock_sets == from.clock_sets
    }

    /// A way in which it may go on from there, if that can be told.
    pub fn course(&self, from: &Outset, draw: &mut impl FnMut(u64) -> u64) -> Option<Course> {
        if self.lost_track || !self.is_by_the_clock(from) {
            return None;
        }
        let in_numbers = |needs: &Arc<[Wanted]>| {
            self.in_numbers(&from.numbers, needs).filter(|needs| from.numbers.have(needs))
        };
        course(&from.queue, &self.past, from.now, in_numbers, draw)
    }

    /// Numbers for the pools of those who wait.
    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        let needs = self.waiting.values().take(WAITING_MAX).flat_map(|one| one.ask.needs.iter());
        for need in needs {
            let (pool, unit) = self.pools.of(&need.name);
            let next = numbers.capacities.len();
            let number = *numbers.pools.entry(pool.clone()).or_insert(next);
            if number == next {
                let known = self.pools.get(&pool);
                let units = known.and_then(|pool| pool.units);
                let drained = known.into_iter().flat_map(|pool| &pool.drained);
                let gone = drained.filter(|(_, until)| until.is_none()).map(|(unit, _)| *unit);
                numbers.gone.push(gone.collect());
                numbers.capacities.push(units.unwrap_or(LOCK).max(1));
            }
            if unit.is_some() {
                numbers.listed.insert(number);
            }
        }
        numbers
    }

    /// A request in numbers, if it is about any of these pools.
    fn known(&self, numbers: &Numbers, open: &Open, ended: Option<u64>, now: u64) -> Option<Known> {
        let ago = |at: u64| now.saturating_sub(at);
        let needs = match &open.held {
            Some((_, taken)) if ended.is_none() => self.taken(numbers, open, taken)?,
            _ => self.in_numbers(numbers, &open.needs)?,
        };
        Some(Known {
            needs,
            kind: (*open.kind).clone(),
            asked: ago(open.asked),
            granted: open.held.as_ref().map(|(granted, _)| ago(*granted)),
            ended: ended.map(ago),
            lasts: open.lasts,
            limit: open.limit,
        })
    }

    /// What is needed, of these pools.
    fn in_numbers(&self, numbers: &Numbers, needs: &[Wanted]) -> Option<Needs> {
        let mut all = Sum::new(numbers);
        for need in needs {
            let (pool, unit) = self.pools.of(&need.name);
            let Some(number) = numbers.pools.get(&pool).copied() else { continue };
            let capacity = numbers.capacities[number];
            let is_lock = self.pools.get(&pool).is_none_or(|pool| pool.units.is_none());
            match need.amount {
                Amount::Units(units) => all.add(number, units, []),
                Amount::All => all.add(number, capacity, []),
                Amount::One if is_lock => all.add(number, capacity, []),
                Amount::One | Amount::Shared => all.add(number, 1, unit),
            }
        }
        all.needs()
    }

    /// What is held, of these pools, but for what is drained.
    fn taken(&self, numbers: &Numbers, open: &Open, taken: &[Taken]) -> Option<Needs> {
        let mut all = Sum::new(numbers);
        for Taken { name, units } in taken {
            let Some(number) = numbers.pools.get(name).copied() else { continue };
            let Some(pool) = self.pools.get(name).filter(|pool| pool.units.is_some()) else {
                let is_shared = |need: &Wanted| need.name == *name && need.amount == Amount::Shared;
                let is_shared = open.needs.iter().any(is_shared);
                all.add(number, if is_shared { 1 } else { numbers.capacities[number] }, []);
                continue;
            };
            // Units of which the pool has no more are nobody's after that, either.
            let kept = units.iter().filter_map(|(unit, _)| pool.unit(name, unit.as_str()));
            let kept: Vec<u32> = kept.filter(|unit| !pool.drained.contains_key(unit)).collect();
            if !kept.is_empty() {
                all.add(number, kept.len() as u32, kept);
            }
        }
        all.needs()
    }

    /// What is drained, as if it were held.
    fn drained(&self, numbers: &Numbers, lead: u64, now: u64) -> Vec<Known> {
        let mut held = Vec::new();
        for (name, number) in &numbers.pools {
            let Some(pool) = self.pools.get(name) else { continue };
            let mut groups: BTreeMap<Option<u64>, Vec<u32>> = BTreeMap::new();
            for (unit, until) in &pool.drained {
                groups.entry(*until).or_default().push(*unit);
            }
            for (until, units) in groups {
                let mut all = Sum::new(numbers);
                all.add(*number, units.len() as u32, units);
                let left = until.map_or(FAR, |until| until.saturating_sub(now));
                held.extend(all.needs().map(|needs| Known {
                    needs,
                    kind: super::Kind::default(),
                    asked: lead,
                    granted: Some(lead),
                    ended: None,
                    lasts: Some(lead + left),
                    limit: None,
                }));
            }
        }
        held
    }

    /// For how long before now it is played what came: since the oldest asked of those who wait; and if others waited then,
    /// since the oldest of these, and so on, as far as all is known. The requests come oldest first.
    fn lead(&self, requests: &[Known], now: u64) -> u64 {
        let known = requests.len().saturating_sub(super::LEAD_MAX);
        let known = requests.get(known).map_or(0, |known| known.asked);
        let complete = known.min(now.saturating_sub(self.forgotten));
        let mut lead = 0;
        for known in requests.iter().rev() {
            let waited = known.granted.or(known.ended).is_none_or(|over| over < lead);
            if known.asked <= complete && waited {
                lead = lead.max(known.asked);
            }
        }
        lead
    }
}

impl Numbers {
    /// Whether there will be so much some time, as far as is known.
    fn have(&self, needs: &Needs) -> bool {
        needs.iter().all(|need| {
            let pool = need.pool.index();
            let (all, gone) = (self.capacities[pool], &self.gone[pool]);
            need.units as usize + gone.len() <= all as usize && need.named.is_disjoint(gone)
        })
    }

    fn trace_pools(&self) -> Vec<TracePool> {
        let pools = self.capacities.iter().enumerate();
        let pool = |(at, capacity): (usize, &u32)| TracePool {
            capacity: *capacity,
            listed: self.listed.contains(&at),
        };
        pools.map(pool).collect()
    }
}

/// Needs that are being added up.
struct Sum<'a> {
    numbers: &'a Numbers,
    needs: Vec<Need>,
}

impl<'a> Sum<'a> {
    fn new(numbers: &'a Numbers) -> Self {
        Self { numbers, needs: Vec::new() }
    }

    fn add(&mut self, number: usize, units: u32, named: impl IntoIterator<Item = u32>) {
        let pool = PoolId(number as u64);
        let at = self.needs.iter().position(|need| need.pool == pool).unwrap_or_else(|| {
            self.needs.push(Need::any(pool, 0));
            self.needs.len() - 1
        });
        let capacity = self.numbers.capacities[number];
        let need = &mut self.needs[at];
        need.units = need.units.saturating_add(units).min(capacity);
        if self.numbers.listed.contains(&number) {
            need.named.extend(named.into_iter().filter(|unit| *unit < capacity));
        }
    }

    fn needs(self) -> Option<Needs> {
        Needs::new(self.needs).ok()
    }
}
