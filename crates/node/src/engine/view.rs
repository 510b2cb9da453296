//! What people are shown.

use std::collections::BTreeMap;

use holdall_core::Protocol;
use holdall_wire::{
    Change, GrantView, Hindrance, Name, PoolView, RequestNo, State, Status, UnitView, WaitView, Who,
};

use super::ledger::{Pool, Stock};
use super::{Engine, Entry, Reservation, Serving};

/// The place of each waiting request in the order of service.
pub(super) type Places = BTreeMap<RequestNo, usize>;

/// How many rivals of one kind are named in a view.
const NAMED: usize = 32;

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Pools, grants and waiting requests; all, or those that concern some names.
    pub fn status(&self, names: &[Name]) -> Status {
        let places = self.places();
        let meant = |name: &Name| names.is_empty() || names.contains(name);
        let concerns = |entry: &Entry| entry.needs.iter().any(|need| meant(&need.name));
        let pools = self.ledger.pools().map(|(_, pool)| pool);
        Status {
            pools: pools.filter(|pool| meant(&pool.name)).map(pool_view).collect(),
            grants: self
                .requests
                .iter()
                .filter(|(_, entry)| concerns(entry))
                .filter_map(|(request, entry)| grant_view(*request, entry))
                .collect(),
            waiting: self
                .waiting()
                .into_iter()
                .filter(|request| self.requests.get(request).is_some_and(concerns))
                .filter_map(|request| self.wait_view(request, &places))
                .collect(),
        }
    }

    /// The requests that wait, in the order of service.
    pub fn waiting(&self) -> Vec<RequestNo> {
        let ids = self.manager.waiting().into_iter();
        ids.filter_map(|id| self.by_user.get(&id.user).copied()).collect()
    }

    /// How many requests hold, and how many wait.
    pub fn load(&self) -> (usize, usize) {
        let held = self.requests.values().filter(|entry| entry.taken.is_some()).count();
        (held, self.requests.len() - held)
    }

    /// One grant, if there is such a one.
    pub fn grant(&self, request: RequestNo) -> Option<GrantView> {
        grant_view(request, self.requests.get(&request)?)
    }

    /// Who asked for a request.
    pub fn who(&self, request: RequestNo) -> Option<&Who> {
        self.requests.get(&request).map(|entry| &entry.who)
    }

    /// The changes that lead from no pools to the declared ones.
    pub fn declared(&self) -> Vec<Change> {
        let declared = self.ledger.pools().filter(|(_, pool)| pool.declared);
        declared.map(|(_, p)| Change::Add { name: p.name.clone(), kind: p.kind() }).collect()
    }

    /// What must outlive the agent.
    pub fn reservations(&self) -> Vec<Reservation> {
        let all = self.requests.iter().filter_map(|(request, entry)| {
            Some(Reservation {
                request: *request,
                who: entry.who.clone(),
                needs: entry.needs.clone(),
                taken: entry.taken.clone()?,
                since: entry.since,
                until: entry.until?,
            })
        });
        all.collect()
    }

    /// For each declared pool and wanted lock, how many units are held.
    pub fn held_units(&self) -> impl Iterator<Item = (&Name, bool, u32)> {
        self.ledger.pools().map(|(_, pool)| {
            let units = match &pool.stock {
                Stock::Lock { .. } => pool.holders.len(),
                Stock::Units { units, .. } => units.iter().filter(|u| u.holder.is_some()).count(),
            };
            (&pool.name, pool.declared, units as u32)
        })
    }

    pub(super) fn wait_view(&self, request: RequestNo, places: &Places) -> Option<WaitView> {
        let entry = self.requests.get(&request).filter(|entry| entry.taken.is_none())?;
        Some(WaitView {
            request,
            needs: entry.needs.clone(),
            who: entry.who.clone(),
            since: entry.since,
            within: entry.within,
            hindrances: self.hindrances(request, places, NAMED),
        })
    }

    /// The place of each waiting request in the order of service.
    pub(super) fn places(&self) -> Places {
        self.waiting().into_iter().enumerate().map(|(place, request)| (request, place)).collect()
    }

    /// What keeps a waiting request, need by need: units that are held, or wanted by those who
    /// are served earlier. Names at most `most` of each.
    pub(super) fn hindrances(
        &self,
        request: RequestNo,
        places: &Places,
        most: usize,
    ) -> Vec<Hindrance> {
        let Some(entry) = self.requests.get(&request) else { return Vec::new() };
        let mine = places.get(&request).copied().unwrap_or(usize::MAX);
        let mut all = Vec::new();
        for (need, count) in entry.needs.iter().zip(entry.counts.iter()) {
            let Some(pool) = self.ledger.pool(count.pool) else { continue };
            let lacks = count.units > pool.free();
            let mut ahead: Vec<_> = pool
                .waiting
                .iter()
                .filter_map(|rival| Some((*places.get(rival)?, *rival)))
                .filter(|(place, _)| *place < mine)
                .collect();
            if !lacks && ahead.is_empty() {
                continue;
            }
            ahead.sort_unstable();
            let holders = pool.holders.keys().filter(|_| lacks).copied();
            let (wanted, free) =
                if pool.is_lock() { (1, u32::from(!lacks)) } else { (count.units, pool.free()) };
            all.push(Hindrance {
                need: need.clone(),
                wanted,
                free,
                holders_total: holders.clone().count() as u32,
                holders: holders.take(most).collect(),
                ahead_total: ahead.len() as u32,
                ahead: ahead.into_iter().take(most).map(|(_, rival)| rival).collect(),
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
        taken: entry.taken.clone()?,
        who: entry.who.clone(),
        since: entry.since,
        until: entry.until,
        state: if entry.until.is_some() { State::Reserved } else { State::Held },
        group: None,
    })
}
