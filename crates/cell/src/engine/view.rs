//! What people are shown.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use holdall_core::{Need as Count, Protocol, RequestId};
use holdall_wire::{
    Change, GrantView, Hindrance, Name, Need, PoolView, RequestNo, State, Taken, UnitView,
    WaitView, Who,
};

use super::ledger::{Meaning, Pool, Unit, Units};
use super::{Engine, Entry, Reservation, Serving};

/// How many rivals of one kind are named in a view.
pub(super) const NAMED: usize = 32;
/// How many of those ahead are counted, for each need and kind.
const COUNTED: usize = 4096;
/// How many drained units are named for each need.
const DRAINED: usize = 4;

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// The requests that wait, in the order of service; then those for parts of grants.
    pub fn waiting(&self) -> Vec<RequestNo> {
        let waiting = self.manager.waiting_after(None);
        let waiting = waiting.filter_map(|(_, id)| self.request_of(id.user));
        let waiting = waiting.chain(self.waiting_elsewhere(None));
        waiting.chain(self.waiting_for_parts().map(|(_, part)| part)).collect()
    }

    /// The requests here that wait for other cells alone, behind one of them.
    pub(super) fn waiting_elsewhere(
        &self,
        after: Option<RequestNo>,
    ) -> impl Iterator<Item = RequestNo> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let abroad = self.cells.abroad.range((from, Bound::Unbounded));
        let elsewhere = abroad.filter(|(request, abroad)| {
            !self.is_held(**request) && !self.manager.has_waiting(abroad.id)
        });
        elsewhere.map(|(request, _)| *request)
    }

    /// How many requests hold, and how many wait.
    pub fn load(&self) -> (usize, usize) {
        (self.held.len(), self.requests.len() - self.held.len())
    }

    /// One grant, if there is such a one.
    pub fn grant(&self, request: RequestNo) -> Option<GrantView> {
        self.grant_view(request, self.requests.get(&request)?)
    }

    /// The pool that a need is for, if there is one.
    pub fn pool_of(&self, need: &Need) -> Option<&Name> {
        match self.ledger.meaning(&need.name) {
            Meaning::Unit(_, pool, _) | Meaning::Pool(_, pool) => Some(&pool.name),
            _ => None,
        }
    }

    /// Who asked for a request.
    pub fn who(&self, request: RequestNo) -> Option<&Who> {
        self.requests.get(&request).map(|entry| &*entry.who)
    }

    /// The changes that lead from no pools to the declared ones.
    pub fn declared(&self) -> Vec<Change> {
        let add = |pool: &Pool| Change::Add { name: pool.name.clone(), kind: pool.kind() };
        self.ledger.declared().map(add).collect()
    }

    /// The changes that drain what is drained: unit by unit, or a pool as a whole if all of its units are, and
    /// for the same reason.
    pub fn drained(&self) -> Vec<Change> {
        let mut all = Vec::new();
        for pool in self.ledger.declared() {
            let units = || pool.units().into_iter().flat_map(Units::iter).map(|(_, unit)| unit);
            let first = units().next().and_then(|unit| unit.drained.clone());
            if first.is_some() && units().all(|unit| unit.drained == first) {
                let whole = first.map(|drained| Change::Drain { name: pool.name.clone(), drained });
                all.extend(whole);
                continue;
            }
            all.extend(units().filter_map(|unit| {
                let (name, drained) = (unit.full_name(&pool.name), unit.drained.clone()?);
                Some(Change::Drain { name, drained })
            }));
        }
        all
    }

    /// The reservations, which must outlive the agent.
    pub fn reservations(&self) -> Vec<Reservation> {
        let lasts =
            |r: &&RequestNo| self.requests.get(r).is_some_and(|e| e.besides.until.is_some());
        self.held.iter().filter(lasts).filter_map(|request| self.kept(*request)).collect()
    }

    /// A grant as it is kept on disk.
    pub fn kept(&self, request: RequestNo) -> Option<Reservation> {
        let Reservation { request, who, needs, taken, since, until, part_of } =
            self.to_keep(request)?;
        let (who, needs, taken) = (Who::clone(who), needs.to_vec(), taken.to_vec());
        Some(Reservation { request, who, needs, taken, since, until, part_of })
    }

    /// The same, to be written down.
    pub fn to_keep(&self, request: RequestNo) -> Option<Reservation<&Arc<Who>, &[Need], &[Taken]>> {
        let entry = self.requests.get(&request)?;
        let (who, needs, taken) = (&entry.who, entry.needs(), &**entry.taken.as_ref()?);
        let (since, until, part_of) = (entry.since, entry.besides.until, entry.besides.part_of);
        Some(Reservation { request, who, needs, taken, since, until, part_of })
    }

    /// How many units all declared pools have; a lock counts as one.
    pub fn units(&self) -> usize {
        let units = |pool: &Pool| if pool.is_lock() { 1 } else { pool.size() as usize };
        self.ledger.declared().map(units).sum()
    }

    /// For each declared pool, how many units are held.
    pub fn held_units(&self) -> impl Iterator<Item = (&Name, u32)> {
        self.ledger.declared().map(|pool| {
            let held = match pool.units() {
                None => pool.holders.len(),
                Some(units) => units.iter().filter(|(_, unit)| unit.holder.is_some()).count(),
            };
            (&pool.name, held as u32)
        })
    }

    pub(super) fn wait_view(&self, request: RequestNo) -> Option<WaitView> {
        let entry = self.requests.get(&request).filter(|entry| entry.taken.is_none())?;
        Some(WaitView {
            request,
            needs: entry.needs().to_vec(),
            who: Who::clone(&entry.who),
            since: entry.since,
            within: entry.besides.within,
            part_of: entry.besides.part_of,
            hindrances: self.hindrances(request, NAMED),
        })
    }

    /// The place of a request, if it waits out of turn.
    pub(super) fn place_out_of_turn(
        &self,
        request: RequestNo,
    ) -> Option<<P::Manager as Serving>::Place> {
        let user = self.requests.get(&request)?.user;
        self.manager.place_out_of_turn(RequestId { user, seq: 1 })
    }

    /// Those who compete with a request for some of a pool and are served before it: the first `most` of
    /// them, and how many there are; of very many, not all are counted.
    pub(super) fn ahead(
        &self,
        request: RequestNo,
        count: &Count,
        most: usize,
    ) -> (Vec<RequestNo>, u32) {
        let Some(at_pool) = self.ledger.pool(count.pool) else { return (Vec::new(), 0) };
        let mine = self.place_out_of_turn(request);
        let first = self.manager.out_of_turn().take(COUNTED);
        let first = first.take_while(|(place, _)| mine.is_none_or(|mine| *place < mine));
        let first = first.filter_map(|(_, id)| self.request_of(id.user));
        let mut ahead = first.filter(|r| self.competes(*r, count));
        let mut named: Vec<RequestNo> = ahead.by_ref().take(most).collect();
        let mut total = named.len() + ahead.count();
        if mine.is_none() {
            let all_in_turn = self.manager.out_of_turn().next().is_none();
            let rest = at_pool.waiting.before(request).take(COUNTED);
            let in_turn = |r: &&RequestNo| all_in_turn || self.place_out_of_turn(**r).is_none();
            let any = count.more() > 0; // Then everybody who waits here competes.
            let rest = rest.filter(in_turn);
            let mut rest = rest.filter(|r| any || self.competes(**r, count));
            let before = named.len();
            named.extend(rest.by_ref().take(most - before));
            total += named.len() - before + rest.count();
        }
        (named, total as u32)
    }

    pub(super) fn grant_view(&self, request: RequestNo, entry: &Entry) -> Option<GrantView> {
        Some(GrantView {
            request,
            needs: entry.needs().to_vec(),
            taken: entry.taken.as_ref()?.to_vec(),
            who: Who::clone(&entry.who),
            since: entry.since,
            until: entry.besides.until,
            state: if entry.besides.until.is_some() { State::Reserved } else { State::Held },
            pids: Vec::new(),
            part_of: entry.besides.part_of,
            parts: self.parts(request).filter(|part| self.is_held(*part)).collect(),
        })
    }

    /// What keeps a waiting request, need by need: units that are held or drained, or wanted by those who
    /// are served earlier. Names at most `most` of each.
    pub(super) fn hindrances(&self, request: RequestNo, most: usize) -> Vec<Hindrance> {
        let Some(entry) = self.requests.get(&request) else { return Vec::new() };
        if let Some(of) = entry.besides.part_of {
            return self.hindrances_of_part(request, of, most);
        }
        // What is kept for it already, while it waits for other cells, is in nobody's way.
        let abroad = self.cells.abroad.get(&request);
        let is_kept = abroad.is_some_and(|abroad| abroad.own.is_some());
        let lacking = entry.needs().iter().filter(|need| !is_kept || need.name.cell().is_some());
        lacking.filter_map(|need| self.hindrance(request, entry, need, most)).collect()
    }

    /// That another cell has not given what is needed of it.
    fn hindrance_elsewhere(&self, request: RequestNo, need: &Need) -> Option<Hindrance> {
        let guard = self.cells.named(need.name.cell()?).ok()?;
        if self.cells.abroad.get(&request)?.given.contains_key(&guard) {
            return None;
        }
        Some(Hindrance {
            need: need.clone(),
            wanted: 1,
            free: 0,
            holders: Vec::new(),
            holders_total: 0,
            ahead: Vec::new(),
            ahead_total: 0,
            drained: Vec::new(),
        })
    }

    fn hindrance(
        &self,
        request: RequestNo,
        entry: &Entry,
        need: &Need,
        most: usize,
    ) -> Option<Hindrance> {
        if need.name.cell().is_some() {
            return self.hindrance_elsewhere(request, need);
        }
        let (pool, count) = match self.ledger.meaning(&need.name) {
            Meaning::Unit(id, pool, unit) => {
                (pool, Count { pool: id, units: 1, named: BTreeSet::from([unit]) })
            }
            Meaning::Pool(id, pool) => (pool, Count::any(id, entry.counts.of(id)?.more())),
            _ => return None,
        };
        let own = &entry.counts.of(count.pool)?.named;
        let free = match pool.units() {
            None => pool.free(),
            Some(units) if count.named.is_empty() => units.free_beside(own),
            Some(units) => u32::from(!units.lacks(&count)),
        };
        let lacks = count.units > free;
        let (ahead, ahead_total) = self.ahead(request, &count, most);
        if !lacks && ahead_total == 0 {
            return None;
        }
        let (mut holders, mut drained) = (Vec::new(), Vec::new());
        if let Some(units) = pool.units().filter(|_| lacks) {
            let named = count.named.iter().filter_map(|number| units.get(*number));
            holders.extend(named.clone().flat_map(|unit| units.in_the_way_of(unit)));
            let others = units.iter().take_while(|_| count.named.is_empty());
            let others = others.filter(|(number, _)| !own.contains(number)).map(|(_, unit)| unit);
            let why = |unit: &Unit| Some((unit.full_name(&pool.name), unit.drained.clone()?));
            drained.extend(named.chain(others).filter_map(why).take(most.min(DRAINED)));
        }
        let mut holders_total = holders.len();
        if lacks && count.named.is_empty() {
            holders_total = pool.holders.len();
            holders.extend(pool.holders.keys().take(most).copied());
        }
        let (wanted, free) =
            if pool.is_lock() { (1, u32::from(!lacks)) } else { (count.units, free) };
        Some(Hindrance {
            need: need.clone(),
            wanted,
            free,
            holders,
            holders_total: holders_total as u32,
            ahead,
            ahead_total,
            drained,
        })
    }
}

pub(super) fn pool_view(pool: &Pool) -> PoolView {
    let units = pool.units().into_iter().flat_map(Units::iter);
    PoolView {
        name: pool.name.clone(),
        lock: pool.is_lock(),
        declared: pool.declared,
        removed: pool.removed,
        units: units.map(|(_, unit)| unit_view(unit)).collect(),
        free: if pool.is_lock() { u32::from(pool.holders.is_empty()) } else { pool.free() },
        holders: pool.holders.keys().copied().collect(),
        waiting: pool.waiting.len() as u32,
    }
}

fn unit_view(unit: &Unit) -> UnitView {
    let Unit { name, holder, retiring, drained, .. } = unit.clone();
    UnitView { name, holder, retiring, drained }
}
