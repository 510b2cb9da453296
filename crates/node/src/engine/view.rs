//! What people are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_core::{PoolId, Protocol};
use holdall_wire::{
    Change, GrantView, Hindrance, Name, Need, PoolView, RequestNo, State, Status, Taken, UnitView,
    WaitView, Who,
};

use super::ledger::{Pool, Stock};
use super::{Engine, Entry, Reservation, Serving};

/// Who waits, in the order of service: in all, and for each pool. Made once for a view, it keeps
/// the cost of a view linear in what is shown.
pub(super) struct Queues {
    places: BTreeMap<RequestNo, usize>,
    by_pool: BTreeMap<PoolId, Vec<RequestNo>>,
}

impl Queues {
    /// Those who want some of a pool and are served before a request.
    pub(super) fn ahead(&self, request: RequestNo, pool: PoolId) -> &[RequestNo] {
        let all = self.by_pool.get(&pool).map_or(&[][..], Vec::as_slice);
        let place = |request: RequestNo| self.places.get(&request).copied().unwrap_or(usize::MAX);
        let mine = place(request);
        &all[..all.partition_point(|rival| place(*rival) < mine)]
    }
}

/// How many rivals of one kind are named in a view.
const NAMED: usize = 32;
/// About how many bytes a view has at most; the rest is counted, not shown.
pub(super) const VIEW_MAX: usize = 1 << 24;

/// Adds to a view while there is room for it.
pub(super) struct Room {
    left: usize,
    pub(super) left_out: u32,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { left: VIEW_MAX, left_out: 0 }
    }

    /// As many of some things as there is room for.
    pub(super) fn take<T>(
        &mut self,
        things: impl Iterator<Item = T>,
        size: impl Fn(&T) -> usize,
    ) -> Vec<T> {
        let fits = |thing: &T| {
            let size = size(thing);
            let fits = size <= self.left;
            self.left = if fits { self.left - size } else { 0 };
            self.left_out += u32::from(!fits);
            fits
        };
        things.filter(fits).collect()
    }
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Pools, grants and waiting requests; all, or those that concern some names.
    pub fn status(&self, names: &[Name]) -> Status {
        let (queues, names) = (self.queues(), names.iter().collect::<BTreeSet<_>>());
        let meant = |name: &Name| names.is_empty() || names.contains(name);
        let concerns = |entry: &Entry| entry.needs.iter().any(|need| meant(&need.name));
        let mut room = Room::new();
        let mut pools: Vec<&Pool> = self.ledger.pools().filter(|pool| meant(&pool.name)).collect();
        pools.sort_by(|one, other| one.name.cmp(&other.name));
        let pools = room.take(pools.into_iter().map(pool_view), PoolView::size);
        let held = self.held.iter().filter_map(|r| Some((*r, self.requests.get(r)?)));
        let held = held.filter(|(_, entry)| concerns(entry));
        let grants = held.filter_map(|(request, entry)| grant_view(request, entry));
        let grants = room.take(grants, GrantView::size);
        let waiting = self.waiting().into_iter();
        let waiting = waiting.filter(|r| self.requests.get(r).is_some_and(concerns));
        let waiting = waiting.filter_map(|request| self.wait_view(request, &queues));
        let waiting = room.take(waiting, WaitView::size);
        Status { pools, grants, waiting, left_out: room.left_out }
    }

    /// The requests that wait, in the order of service.
    pub fn waiting(&self) -> Vec<RequestNo> {
        let ids = self.manager.waiting().into_iter();
        ids.filter_map(|id| self.users.get(&id.user)?.request).collect()
    }

    /// How many requests hold, and how many wait.
    pub fn load(&self) -> (usize, usize) {
        (self.held.len(), self.requests.len() - self.held.len())
    }

    /// One grant, if there is such a one.
    pub fn grant(&self, request: RequestNo) -> Option<GrantView> {
        grant_view(request, self.requests.get(&request)?)
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

    /// The reservations, which must outlive the agent.
    pub fn reservations(&self) -> Vec<Reservation> {
        let lasts = |r: &&RequestNo| self.requests.get(r).is_some_and(|e| e.until.is_some());
        self.held.iter().filter(lasts).filter_map(|request| self.kept(*request)).collect()
    }

    /// A grant as it is kept on disk.
    pub fn kept(&self, request: RequestNo) -> Option<Reservation> {
        let Reservation { request, who, needs, taken, since, until } = self.to_keep(request)?;
        let (who, needs, taken) = (Who::clone(who), needs.to_vec(), taken.to_vec());
        Some(Reservation { request, who, needs, taken, since, until })
    }

    /// The same, to be written down.
    pub fn to_keep(&self, request: RequestNo) -> Option<Reservation<&Arc<Who>, &[Need], &[Taken]>> {
        let entry = self.requests.get(&request)?;
        let (who, needs, taken) = (&entry.who, &entry.needs[..], &**entry.taken.as_ref()?);
        Some(Reservation { request, who, needs, taken, since: entry.since, until: entry.until })
    }

    /// How many units all declared pools have; a lock counts as one.
    pub fn units(&self) -> usize {
        let units = |pool: &Pool| if pool.is_lock() { 1 } else { pool.capacity() as usize };
        self.ledger.declared().map(units).sum()
    }

    /// For each declared pool, how many units are held.
    pub fn held_units(&self) -> impl Iterator<Item = (&Name, u32)> {
        self.ledger.declared().map(|pool| {
            let units = match &pool.stock {
                Stock::Lock { .. } => pool.holders.len(),
                Stock::Units { units, .. } => units.iter().filter(|u| u.holder.is_some()).count(),
            };
            (&pool.name, units as u32)
        })
    }

    pub(super) fn wait_view(&self, request: RequestNo, queues: &Queues) -> Option<WaitView> {
        let entry = self.requests.get(&request).filter(|entry| entry.taken.is_none())?;
        Some(WaitView {
            request,
            needs: entry.needs.clone(),
            who: Who::clone(&entry.who),
            since: entry.since,
            within: entry.within,
            hindrances: self.hindrances(request, queues, NAMED),
        })
    }

    /// Who waits, in the order of service.
    pub(super) fn queues(&self) -> Queues {
        let mut queues = Queues { places: BTreeMap::new(), by_pool: BTreeMap::new() };
        for (place, request) in self.waiting().into_iter().enumerate() {
            let Some(entry) = self.requests.get(&request) else { continue };
            queues.places.insert(request, place);
            for count in entry.counts.iter() {
                queues.by_pool.entry(count.pool).or_default().push(request);
            }
        }
        queues
    }

    /// What keeps a waiting request, need by need: units that are held, or wanted by those who
    /// are served earlier. Names at most `most` of each.
    pub(super) fn hindrances(
        &self,
        request: RequestNo,
        queues: &Queues,
        most: usize,
    ) -> Vec<Hindrance> {
        let Some(entry) = self.requests.get(&request) else { return Vec::new() };
        let mut all = Vec::new();
        for (need, count) in entry.needs.iter().zip(entry.counts.iter()) {
            let Some(pool) = self.ledger.pool(count.pool) else { continue };
            let lacks = count.units > pool.free();
            let ahead = queues.ahead(request, count.pool);
            if !lacks && ahead.is_empty() {
                continue;
            }
            let holders = if lacks { pool.holders.len() } else { 0 };
            let (wanted, free) =
                if pool.is_lock() { (1, u32::from(!lacks)) } else { (count.units, pool.free()) };
            all.push(Hindrance {
                need: need.clone(),
                wanted,
                free,
                holders_total: holders as u32,
                holders: pool.holders.keys().take(most.min(holders)).copied().collect(),
                ahead_total: ahead.len() as u32,
                ahead: ahead.iter().take(most).copied().collect(),
            });
        }
        all
    }
}

fn pool_view(pool: &Pool) -> PoolView {
    let (units, free) = match &pool.stock {
        Stock::Lock { .. } => (Vec::new(), u32::from(pool.holders.is_empty())),
        Stock::Units { units, .. } => (units.iter().map(unit_view).collect(), pool.free()),
    };
    PoolView {
        name: pool.name.clone(),
        lock: pool.is_lock(),
        declared: pool.declared,
        removed: pool.removed,
        units,
        free,
        holders: pool.holders.keys().copied().collect(),
        waiting: pool.waiting.len() as u32,
    }
}

fn unit_view(unit: &super::ledger::Unit) -> UnitView {
    UnitView { name: unit.name.clone(), holder: unit.holder, retiring: unit.retiring }
}

fn grant_view(request: RequestNo, entry: &Entry) -> Option<GrantView> {
    Some(GrantView {
        request,
        needs: entry.needs.clone(),
        taken: entry.taken.as_ref()?.to_vec(),
        who: Who::clone(&entry.who),
        since: entry.since,
        until: entry.until,
        state: if entry.until.is_some() { State::Reserved } else { State::Held },
        pids: Vec::new(),
    })
}
