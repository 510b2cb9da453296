//! The coordinator: all pools, all holders, all who wait.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use holdall_core::{
    Addr, Broken, Event, Needs, Never, Outbox, Party, Request, RequestId, Resize, Role,
};
use serde::{Deserialize, Serialize};

use super::{Coordinator, ToManager, ToUser};
use crate::early::EarlyReleases;

type Out = Outbox<Coordinator, Never>;

/// Guards every pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    /// Free units by pool. Below zero inside a scan, while reservations are counted, and while a
    /// pool that has shrunk waits for its units.
    free: Vec<i64>,
    capacity: Vec<u32>,
    holders: BTreeMap<RequestId, Needs>,
    /// In the order they came.
    waiting: Vec<Request>,
    early: EarlyReleases,
}

impl Manager {
    pub(super) fn new(capacity: impl Iterator<Item = u32>) -> Self {
        let capacity: Vec<u32> = capacity.collect();
        Self {
            free: capacity.iter().copied().map(i64::from).collect(),
            capacity,
            holders: BTreeMap::new(),
            waiting: Vec::new(),
            early: EarlyReleases::default(),
        }
    }

    fn on_ask(&mut self, cfg: &Coordinator, from: Addr, request: Request, out: &mut Out) {
        if from != Addr::User(request.id.user) || !self.feasible(&request.needs) {
            return out.misbehaved(from, "ask: for another user, or for units there are not");
        }
        if self.early.take(request.id) {
            return;
        }
        if self.holders.contains_key(&request.id) || self.waiting.iter().any(|r| r.id == request.id)
        {
            return out.misbehaved(from, "ask: twice for one request");
        }
        self.waiting.push(request);
        self.scan(cfg, out);
    }

    fn on_release(&mut self, cfg: &Coordinator, from: Addr, request: RequestId, out: &mut Out) {
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "release: for another user");
        }
        let known = if cfg.rules.session {
            self.forget(|id| id == request)
        } else {
            self.forget(|id| id.user == request.user)
        };
        if !known && cfg.rules.early {
            self.early.remember(request);
        }
        if cfg.rules.scan {
            self.scan(cfg, out);
        }
    }

    fn on_gone(&mut self, cfg: &Coordinator, who: Party, out: &mut Out) {
        if !cfg.rules.purge {
            return;
        }
        self.forget(|id| who.includes(id.user));
        self.early.forget(who);
        self.scan(cfg, out);
    }

    fn on_resize(&mut self, cfg: &Coordinator, Resize { pool, capacity }: Resize, out: &mut Out) {
        let at = pool.index();
        if at >= self.capacity.len() {
            self.capacity.resize(at + 1, 0);
            self.free.resize(at + 1, 0);
        }
        self.free[at] += i64::from(capacity) - i64::from(self.capacity[at]);
        self.capacity[at] = capacity;
        self.scan(cfg, out);
    }

    fn feasible(&self, needs: &Needs) -> bool {
        needs.iter().all(|need| {
            self.capacity.get(need.pool.index()).is_some_and(|capacity| need.units <= *capacity)
        })
    }

    /// Frees or withdraws the requests meant; false if there are none.
    fn forget(&mut self, meant: impl Fn(RequestId) -> bool) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|request| !meant(request.id));
        let withdrawn = self.waiting.len() < before;
        let free = &mut self.free;
        let held = self.holders.len();
        self.holders.retain(|id, needs| {
            if meant(*id) {
                add(free, needs);
            }
            !meant(*id)
        });
        withdrawn || self.holders.len() < held
    }

    /// Grants, oldest first, what fits beside the held and the reserved. The oldest that do not
    /// fit reserve; their reservations count only within the scan.
    fn scan(&mut self, cfg: &Coordinator, out: &mut Out) {
        let mut reserved: Vec<Needs> = Vec::new();
        let (free, holders) = (&mut self.free, &mut self.holders);
        self.waiting.retain(|request| {
            let fits = request.needs.iter().all(|n| i64::from(n.units) <= free[n.pool.index()]);
            if fits || !cfg.rules.room {
                subtract(free, &request.needs);
                holders.insert(request.id, request.needs.clone());
                out.to_user(request.id.user, ToUser::Grant(request.id));
                return false;
            }
            if reserved.len() < cfg.reserving {
                subtract(free, &request.needs);
                reserved.push(request.needs.clone());
            }
            true
        });
        for needs in &reserved {
            add(free, needs);
        }
    }
}

fn add(free: &mut [i64], needs: &Needs) {
    for need in needs.iter() {
        free[need.pool.index()] += i64::from(need.units);
    }
}

fn subtract(free: &mut [i64], needs: &Needs) {
    for need in needs.iter() {
        free[need.pool.index()] -= i64::from(need.units);
    }
}

impl Role for Manager {
    type P = Coordinator;
    type Call = Resize;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Coordinator, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg: ToManager::Ask(request) } => {
                self.on_ask(cfg, from, request, out);
            }
            Event::Message { from, msg: ToManager::Release(id) } => {
                self.on_release(cfg, from, id, out);
            }
            Event::Gone(gone) => self.on_gone(cfg, gone.who(), out),
            Event::Call(resize) => self.on_resize(cfg, resize, out),
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Coordinator) -> Result<(), Broken> {
        let mut free: Vec<i64> = self.capacity.iter().copied().map(i64::from).collect();
        for needs in self.holders.values() {
            subtract(&mut free, needs);
        }
        Broken::unless(free == self.free, "C1: held and free units make up each pool")
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.early.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use holdall_core::{Effect, Need, Options, PoolId, Protocol, Topology, UserId};

    use super::*;

    #[test]
    fn a_pool_grows_at_once_and_shrinks_as_units_come_back() {
        let options = Options { variant: Some("skip".into()), ..Options::default() };
        let cfg = Coordinator::new(&Topology::of_pools(vec![]), &options).expect("a variant");
        let mut manager = Manager::new([].into_iter());
        let mut step = |event| {
            let mut out = Outbox::default();
            manager.step(&cfg, event, &mut out);
            assert_eq!(manager.check(&cfg), Ok(()));
            out.drain().filter(|effect| matches!(effect, Effect::ToUser(..))).count()
        };
        let resize = |capacity| Event::Call(Resize { pool: PoolId(0), capacity });
        let user = UserId::first(0);
        let id = |seq| RequestId { user, seq };
        let message = |msg| Event::Message { from: Addr::User(user), msg };
        let ask = |seq, units| {
            let needs = Needs::new(vec![Need { pool: PoolId(0), units }]).expect("sensible");
            message(ToManager::Ask(Request { id: id(seq), needs }))
        };
        assert_eq!(step(resize(2)), 0);
        assert_eq!(step(ask(1, 2)), 1);
        assert_eq!(step(ask(2, 1)), 0);
        assert_eq!(step(resize(3)), 1, "it grew, and there is room");
        assert_eq!(step(resize(1)), 0);
        assert_eq!(step(ask(3, 1)), 0);
        assert_eq!(step(message(ToManager::Release(id(1)))), 0, "one unit is left, and in use");
        assert_eq!(step(message(ToManager::Release(id(2)))), 1);
    }
}
