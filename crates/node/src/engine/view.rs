//! What people are shown.

use std::collections::BTreeSet;

use holdall_core::Protocol;
use holdall_wire::{
    Amount, Change, GrantView, Hindrance, Name, PoolView, RequestNo, State, Status, UnitView,
    WaitView, Who,
};

use super::ledger::{Pool, Stock};
use super::{Engine, Entry, Reservation, Serving};

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Pools, grants and waiting requests; all, or those that concern some names.
    pub fn status(&self, names: &[Name]) -> Status {
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
                .filter_map(|request| self.wait_view(request))
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

    pub(super) fn wait_view(&self, request: RequestNo) -> Option<WaitView> {
        let entry = self.requests.get(&request).filter(|entry| entry.taken.is_none())?;
        Some(WaitView {
            request,
            needs: entry.needs.clone(),
            who: entry.who.clone(),
            since: entry.since,
            within: entry.within,
            hindrances: self.hindrances(request),
        })
    }

    /// What keeps a waiting request, need by need: units that are held, or wanted by those who
    /// are served earlier.
    pub(super) fn hindrances(&self, request: RequestNo) -> Vec<Hindrance> {
        let Some(entry) = self.requests.get(&request) else { return Vec::new() };
        let order = self.waiting();
        let earlier: BTreeSet<_> = order.iter().take_while(|r| **r != request).collect();
        let mut all = Vec::new();
        for (need, count) in entry.needs.iter().zip(entry.counts.iter()) {
            let Some(pool) = self.ledger.pool(count.pool) else { continue };
            let lacks = count.units > pool.free();
            let holders: Vec<_> =
                if lacks { pool.holders.keys().copied().collect() } else { Vec::new() };
            let ahead: Vec<_> = order
                .iter()
                .filter(|r| earlier.contains(r) && pool.waiting.contains(r))
                .copied()
                .collect();
            if lacks || !ahead.is_empty() {
                let (wanted, free) = match need.amount {
                    _ if pool.is_lock() => (1, u32::from(!lacks)),
                    Amount::One | Amount::Units(_) | Amount::All | Amount::Shared => {
                        (count.units, pool.free())
                    }
                };
                all.push(Hindrance { need: need.clone(), wanted, free, holders, ahead });
            }
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
