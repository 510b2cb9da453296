//! Parts of grants: whoever holds things, mostly by a reservation, has commands use some of them at a time.
//!
//! The protocol knows nothing of it: what is granted stays granted as a whole. Requests for parts of one grant are
//! served in the order in which they came, at each of its pools: whoever waits for some of a pool keeps later
//! ones from it. So nobody starves; and whoever waits holds nothing, so nothing stands still.
//!
//! # Invariants
//! - **P1.** What a part holds, its grant holds, and no other part of it, unless they share a lock.
//! - **P2.** A grant ends when its last part has; from the moment in which it is to end, no part begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_core::{Need as Count, Needs, PoolId, Protocol, Unit as Number};
use holdall_wire::{Amount, Ask, Hindrance, Need, Refusal, RequestNo, Taken, Who};

use super::entry::{Besides, for_needs};
use super::ledger::{LOCK_UNITS, Meaning};
use super::needs::{ALL, add};
use super::{Defect, Effect, Engine, Entry, Serving};

/// What is in use of a grant by its parts.
#[derive(Default)]
struct Used {
    units: BTreeMap<PoolId, BTreeSet<Number>>,
    /// Locks: whether exclusively, and the fence.
    locks: BTreeMap<PoolId, (bool, u64)>,
}

impl Used {
    fn add(&mut self, entry: &Entry) {
        for (count, taken) in entry.counts.iter().zip(entry.taken.iter().flat_map(|t| t.iter())) {
            if count.named.is_empty() {
                let fence = taken.units.first().map_or(0, |(_, fence)| *fence);
                self.locks.insert(count.pool, (count.units == LOCK_UNITS, fence));
            } else {
                self.units.entry(count.pool).or_default().extend(&count.named);
            }
        }
    }

    /// The units of a need out of those that a grant has; none if they are not free. Of a lock, no units.
    fn pick(&self, whole: &Count, count: &Count) -> Option<BTreeSet<Number>> {
        if whole.named.is_empty() {
            let free = match self.locks.get(&count.pool) {
                None => true,
                Some((exclusive, _)) => !exclusive && count.units != LOCK_UNITS,
            };
            return free.then(BTreeSet::new);
        }
        let used = self.units.get(&count.pool);
        let is_free = |unit: &Number| used.is_none_or(|used| !used.contains(unit));
        let mut picked = count.named.clone();
        if !picked.iter().all(is_free) {
            return None;
        }
        let others = whole.named.iter().filter(|unit| is_free(unit) && !count.named.contains(unit));
        picked.extend(others.take(count.more() as usize));
        (picked.len() == count.units as usize).then_some(picked)
    }
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// The parts of a grant, in the order in which they were asked for.
    pub fn parts(&self, grant: RequestNo) -> impl Iterator<Item = RequestNo> {
        self.parts.get(&grant).into_iter().flatten().copied()
    }

    /// Those who wait for parts, by grant.
    pub(super) fn waiting_for_parts(&self) -> impl Iterator<Item = (RequestNo, RequestNo)> {
        let all = self.parts.iter().flat_map(|(of, parts)| parts.iter().map(|part| (*of, *part)));
        all.filter(|(_, part)| !self.is_held(*part))
    }

    pub(super) fn on_ask_part(
        &mut self,
        request: RequestNo,
        who: Arc<Who>,
        ask: &Arc<Ask>,
        of: RequestNo,
    ) -> Result<(), Defect> {
        let counts = match self.resolve_part(&who, &ask.needs, of) {
            Ok(counts) => counts,
            Err(why) => {
                self.effects.push(Effect::Refused { request, why });
                return Ok(());
            }
        };
        self.enter_part(request, ask.clone(), counts, who, of, ask.within);
        if let Some(why) = self.part_waits_for_itself(request, of) {
            return self.refuse(request, why);
        }
        self.serve_parts(of);
        if self.is_held(request) {
            return Ok(());
        }
        if ask.now {
            let why = Refusal::Busy(self.busy(request));
            return self.refuse(request, why);
        }
        self.effects.push(Effect::Queued(request));
        Ok(())
    }

    fn enter_part(
        &mut self,
        request: RequestNo,
        ask: Arc<Ask>,
        counts: Needs,
        who: Arc<Who>,
        of: RequestNo,
        within: Option<RequestNo>,
    ) {
        let user = self.fresh_user(); // The protocol never hears of it.
        let within = self.nest(request, who.uid, within);
        let mut entry = Entry::new(user, ask, counts, who, self.now);
        entry.besides.change(|besides| (besides.within, besides.part_of) = (within, Some(of)));
        self.requests.insert(request, Box::new(entry));
        self.parts.entry(of).or_default().insert(request);
    }

    /// The grant that a user may have parts of.
    fn whole(&self, who: &Who, of: RequestNo) -> Result<&Entry, Refusal> {
        let conflict = |why: &str| Err(Refusal::Conflict(format!("{of} {why}")));
        let Some(whole) = self.requests.get(&of).filter(|whole| whole.taken.is_some()) else {
            return conflict("is no grant; `holdall status` shows what there is");
        };
        if whole.who.uid != who.uid {
            let text = format!("{of} belongs to {}, and only its owner uses it", whole.who.user);
            return Err(Refusal::Denied(text));
        }
        match &*whole.besides {
            Besides { part_of: Some(_), .. } => {
                conflict("is itself a part of a grant, and has none")
            }
            Besides { closing: true, .. } => conflict("is ending"),
            _ => Ok(whole),
        }
    }

    /// What a request wants of a grant, if the grant has that at all.
    fn resolve_part(&self, who: &Who, needs: &[Need], of: RequestNo) -> Result<Needs, Refusal> {
        let whole = self.whole(who, of)?;
        self.sensible(needs)?;
        let (mut counts, mut seen) = (Vec::with_capacity(needs.len()), BTreeSet::new());
        for need in needs {
            if !seen.insert(&need.name) {
                return Err(Refusal::Senseless(format!("'{}' is named twice", need.name)));
            }
            if need.name.cell().is_some() {
                return Err(Refusal::Never(format!(
                    "'{need}' is another cell's, and parts of a grant cannot span cells: have a part of what it has here, or ask for \
                     everything at once"
                )));
            }
            let units = self.feasible(need).map_err(Refusal::Never)?;
            let is_lock = units.is_none();
            let count = units.or_else(|| match self.ledger.meaning(&need.name) {
                Meaning::Pool(id, _) if need.amount == Amount::Shared => Some(Count::any(id, 1)),
                Meaning::Pool(id, _) => Some(Count::any(id, LOCK_UNITS)),
                _ => None,
            });
            match count.filter(|count| whole.counts.of(count.pool).is_some()) {
                None => return Err(not_part(need, of)),
                Some(lock) if is_lock => counts.push(lock),
                Some(count) => add(&mut counts, count, need)?,
            }
        }
        for count in &mut counts {
            self.fits_the_whole(count, whole)
                .map_err(|why| Refusal::Never(format!("{of} {why}")))?;
        }
        Needs::new(counts).map_err(|bad| Refusal::Senseless(bad.to_string()))
    }

    /// Whether a grant has as much of a pool as is wanted; if that is all of it, how much that is.
    fn fits_the_whole(&self, count: &mut Count, whole: &Entry) -> Result<(), String> {
        let Some(has) = whole.counts.of(count.pool) else { return Ok(()) };
        let is_lock = has.named.is_empty();
        if count.units == ALL && !is_lock {
            count.units = has.units;
        }
        if count.units <= has.units && count.named.is_subset(&has.named) {
            return Ok(());
        }
        let pool = self.ledger.pool(count.pool).map_or("", |pool| pool.name.as_str());
        Err(if is_lock {
            format!("only shares '{pool}'; ask for '{pool}:shared'")
        } else {
            format!("has {} units of '{pool}', not all that is wanted", has.units)
        })
    }

    /// Whether a part wants what a part around it holds.
    fn part_waits_for_itself(&self, request: RequestNo, of: RequestNo) -> Option<Refusal> {
        let (whole, part) = (self.requests.get(&of)?, self.requests.get(&request)?);
        let mut used = Used::default();
        let around = self.outer(request).filter_map(|outer| self.requests.get(&outer));
        around.filter(|outer| outer.besides.part_of == Some(of)).for_each(|outer| used.add(outer));
        let fits = part.counts.iter().all(|count| {
            whole.counts.of(count.pool).is_some_and(|has| used.pick(has, count).is_some())
        });
        (!fits).then(|| {
            let text = "it would wait for itself: it is asked inside a part of the same grant that holds it";
            Refusal::Never(text.into())
        })
    }

    fn used(&self, of: RequestNo) -> Used {
        let mut used = Used::default();
        let parts = self.parts(of).filter_map(|part| self.requests.get(&part));
        parts.filter(|part| part.taken.is_some()).for_each(|part| used.add(part));
        used
    }

    /// Grants what fits, in the order in which it was asked for.
    fn serve_parts(&mut self, of: RequestNo) {
        let Some(whole) = self.requests.get(&of).filter(|whole| !whole.besides.closing) else {
            return;
        };
        let (whole, mut used) = (whole.clone(), self.used(of));
        let mut kept: BTreeSet<PoolId> = BTreeSet::new();
        for part in self.parts(of).collect::<Vec<_>>() {
            let Some(entry) = self.requests.get(&part).filter(|part| part.taken.is_none()) else {
                continue;
            };
            let counts = entry.counts.clone();
            let picked = |count: &Count| {
                let units = used.pick(whole.counts.of(count.pool)?, count)?;
                (!kept.contains(&count.pool)).then_some(Count { named: units, ..count.clone() })
            };
            let picked: Option<Vec<_>> = counts.iter().map(picked).collect();
            match picked.and_then(|picked| Needs::new(picked).ok()) {
                Some(picked) => {
                    self.grant_part(part, picked, &whole, &used);
                    self.requests.get(&part).into_iter().for_each(|part| used.add(part));
                }
                None => kept.extend(counts.iter().map(|count| count.pool)),
            }
        }
    }

    fn grant_part(&mut self, part: RequestNo, counts: Needs, whole: &Entry, used: &Used) {
        let fence = self.draw();
        let mut taken = Vec::with_capacity(counts.len());
        for count in counts.iter() {
            let Some(pool) = self.ledger.pool(count.pool) else { continue };
            let units = match pool.units() {
                Some(units) => {
                    let named = count.named.iter().filter_map(|unit| units.get(*unit));
                    named.map(|unit| (unit.name.clone(), fence)).collect()
                }
                None => {
                    // Whoever shares a lock carries the fence of those it shares it with.
                    let shared = whole.counts.of(count.pool).is_some_and(|has| has.units == 1);
                    let outer = whole.taken.iter().flat_map(|taken| taken.iter());
                    let outer = outer.filter(|taken| shared && taken.name == pool.name);
                    let outer =
                        outer.flat_map(|taken| &taken.units).map(|(_, fence)| *fence).next();
                    let beside = used.locks.get(&count.pool).map(|(_, fence)| *fence);
                    vec![(pool.name.clone(), outer.or(beside).unwrap_or(fence))]
                }
            };
            taken.push(Taken { name: pool.name.clone(), units });
        }
        let taken: Arc<[Taken]> = taken.into();
        self.held.insert(part);
        if let Some(entry) = self.requests.get_mut(&part) {
            (entry.since, entry.taken, entry.counts) = (self.now, Some(taken.clone()), counts);
        }
        self.effects.push(Effect::Granted { request: part, taken, overtook: 0 });
    }

    /// A part is over, whether it held or waited; perhaps its grant was only waiting for that.
    pub(super) fn end_part(
        &mut self,
        request: RequestNo,
        entry: &Entry,
        of: RequestNo,
    ) -> Result<(), Defect> {
        self.lanes.push(entry.user);
        if entry.taken.is_some() {
            self.effects.push(Effect::Ended(request));
        }
        if let Some(parts) = self.parts.get_mut(&of) {
            parts.remove(&request);
            if parts.is_empty() {
                self.parts.remove(&of);
            }
        }
        let closing = self.requests.get(&of).is_some_and(|whole| whole.besides.closing);
        if closing && !self.parts.contains_key(&of) {
            return self.end(of);
        }
        self.serve_parts(of);
        Ok(())
    }

    /// A grant is to end. Who waits for a part of it is told; whether others still use it.
    pub(super) fn closes(&mut self, grant: RequestNo) -> Result<bool, Defect> {
        let waiting: Vec<_> = self.parts(grant).filter(|part| !self.is_held(*part)).collect();
        if let Some(whole) = self.requests.get_mut(&grant) {
            whole.besides.change(|besides| besides.closing = true);
        }
        for part in waiting {
            self.refuse(part, Refusal::Never(format!("{grant} has ended")))?;
        }
        // The last who waited may have been the last part of all, and the grant have ended with it.
        Ok(self.parts.contains_key(&grant) || !self.requests.contains_key(&grant))
    }

    /// Puts a part of a former life in force again, if its grant is there and has what it had.
    pub(super) fn restore_part(
        &mut self,
        request: RequestNo,
        who: Arc<Who>,
        needs: Vec<Need>,
        taken: Arc<[Taken]>,
        of: RequestNo,
    ) -> bool {
        let Some(whole) = self.requests.get(&of).filter(|whole| whole.taken.is_some()) else {
            return false;
        };
        let shared = |taken: &Taken| {
            let need = needs.iter().find(|need| need.name == taken.name);
            need.is_some_and(|need| need.amount == Amount::Shared)
        };
        let used = self.used(of);
        let count = |taken: &Taken| {
            let count = self.ledger.as_named(taken, shared(taken))?;
            let has = whole.counts.of(count.pool)?;
            let there = count.units <= has.units && count.named.is_subset(&has.named);
            (there && used.pick(has, &count).is_some()).then_some(count)
        };
        let counts: Option<Vec<_>> = taken.iter().map(count).collect();
        let Some(counts) = counts.and_then(|counts| Needs::new(counts).ok()) else { return false };
        self.enter_part(request, for_needs(needs), counts, who, of, None);
        self.held.insert(request);
        if let Some(entry) = self.requests.get_mut(&request) {
            entry.taken = Some(taken.clone());
        }
        self.effects.push(Effect::Granted { request, taken, overtook: 0 });
        true
    }

    /// What keeps a request from a part of a grant: other parts of it.
    pub(super) fn hindrances_of_part(
        &self,
        request: RequestNo,
        of: RequestNo,
        most: usize,
    ) -> Vec<Hindrance> {
        let (Some(whole), Some(entry)) = (self.requests.get(&of), self.requests.get(&request))
        else {
            return Vec::new();
        };
        let used = self.used(of);
        let all = entry.counts.iter().filter_map(|count| {
            let has = whole.counts.of(count.pool)?;
            let wants = |part: &RequestNo| {
                self.requests.get(part).is_some_and(|part| part.counts.of(count.pool).is_some())
            };
            let (held, before): (Vec<_>, Vec<_>) =
                self.parts(of).filter(wants).partition(|part| self.is_held(*part));
            let ahead: Vec<_> = before.into_iter().filter(|part| *part < request).collect();
            let lacks = used.pick(has, count).is_none();
            if !lacks && ahead.is_empty() {
                return None;
            }
            let holders = if lacks { held } else { Vec::new() };
            let pool = self.ledger.pool(count.pool)?;
            let need = entry.needs().iter().find(|need| self.pool_of(need) == Some(&pool.name))?;
            let in_use = used.units.get(&count.pool).map_or(0, BTreeSet::len) as u32;
            Some(Hindrance {
                need: need.clone(),
                wanted: if pool.is_lock() { 1 } else { count.units },
                free: if pool.is_lock() {
                    u32::from(!lacks)
                } else {
                    has.units.saturating_sub(in_use)
                },
                holders_total: holders.len() as u32,
                holders: holders.into_iter().take(most).collect(),
                ahead_total: ahead.len() as u32,
                ahead: ahead.into_iter().take(most).collect(),
                drained: Vec::new(),
            })
        });
        all.collect()
    }
}

fn not_part(need: &Need, of: RequestNo) -> Refusal {
    Refusal::Never(format!("'{need}' is no part of {of}; `holdall status` shows what it holds"))
}
