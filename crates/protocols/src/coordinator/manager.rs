//! The coordinator: all pools, all holders, all who wait.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use holdall_core::{
    Addr, Broken, Event, Needs, Never, Outbox, Party, Picked, Pool, PoolId, Request, RequestId,
    Resize, Role, Unit,
};
use serde::{Deserialize, Serialize};

use super::{Coordinator, ToManager, ToUser};
use crate::early::EarlyReleases;
use crate::stock::{Claims, Stock, Taken};

type Out = Outbox<Coordinator, Never>;

/// Guards every pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    pools: Vec<Stock>,
    /// What they hold, with every unit of listed pools by name.
    pub(super) holders: BTreeMap<RequestId, Needs>,
    /// In the order they came.
    pub(super) waiting: Vec<Request>,
    pub(super) early: EarlyReleases,
}

impl Manager {
    pub(super) fn new(pools: &[Pool]) -> Self {
        Self {
            pools: pools.iter().map(Stock::of).collect(),
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
        if at >= self.pools.len() {
            self.pools.resize(at + 1, Stock::none());
        }
        self.pools[at].resize(capacity);
        self.scan(cfg, out);
    }

    fn feasible(&self, needs: &Needs) -> bool {
        needs
            .iter()
            .all(|need| self.pools.get(need.pool.index()).is_some_and(|pool| pool.has(need)))
    }

    /// Frees or withdraws the requests meant; false if there are none.
    fn forget(&mut self, meant: impl Fn(RequestId) -> bool) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|request| !meant(request.id));
        let withdrawn = self.waiting.len() < before;
        let pools = &mut self.pools;
        let held = self.holders.len();
        self.holders.retain(|id, needs| {
            if meant(*id) {
                for need in needs.iter() {
                    pools[need.pool.index()].give_back(need.units, Some(&need.named));
                }
            }
            !meant(*id)
        });
        withdrawn || self.holders.len() < held
    }

    /// Grants, oldest first, what fits beside the held and the reserved. The oldest that do not
    /// fit reserve; their reservations count only within the scan.
    fn scan(&mut self, cfg: &Coordinator, out: &mut Out) {
        let named_by = match cfg.rules.by_name {
            true => first_to_name(&self.waiting),
            false => FirstToName::new(),
        };
        let (mut reserving, mut reserved) = (0, BTreeMap::new());
        for request in core::mem::take(&mut self.waiting) {
            if !cfg.rules.room || self.fits(cfg, &reserved, &request.needs) {
                self.hold(request, &named_by, out);
                continue;
            }
            if reserving < cfg.reserving {
                reserving += 1;
                self.reserve(cfg, &mut reserved, &request.needs);
            }
            self.waiting.push(request);
        }
    }

    fn fits(&self, cfg: &Coordinator, reserved: &Reserved, needs: &Needs) -> bool {
        needs.iter().all(|need| {
            let stock = &self.pools[need.pool.index()];
            let nothing = Claims::default();
            let claims = reserved.get(&need.pool).unwrap_or(&nothing);
            let only_named = !cfg.rules.by_count && need.more() == 0;
            stock.fits(claims, need) || only_named && stock.names_are_free(claims, need)
        })
    }

    fn reserve(&self, cfg: &Coordinator, reserved: &mut Reserved, needs: &Needs) {
        for need in needs.iter() {
            let claims = reserved.entry(need.pool).or_default();
            if cfg.rules.by_name {
                claims.add(&self.pools[need.pool.index()], need);
            } else {
                claims.add_count(need.units.into());
            }
        }
    }

    fn hold(&mut self, request: Request, named_by: &FirstToName, out: &mut Out) {
        let Request { id, needs } = request;
        let mut units = Picked::new();
        for need in needs.iter() {
            let stock = &mut self.pools[need.pool.index()];
            let picked = stock.pick(need, |unit| named_by.get(&(need.pool, unit)).copied());
            stock.take(need.units, picked.as_ref());
            units.extend(picked.map(|picked| (need.pool, picked)));
        }
        self.holders.insert(id, needs.with(&units));
        out.to_user(id.user, ToUser::Grant { request: id, units });
    }
}

/// By pool, what is reserved.
type Reserved = BTreeMap<PoolId, Claims>;

/// By unit, the place of the first who waits for it by name.
type FirstToName = BTreeMap<(PoolId, Unit), usize>;

fn first_to_name(waiting: &[Request]) -> FirstToName {
    let mut first = BTreeMap::new();
    for (place, request) in waiting.iter().enumerate() {
        for need in request.needs.iter() {
            for unit in &need.named {
                first.entry((need.pool, *unit)).or_insert(place);
            }
        }
    }
    first
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
        let mut held: BTreeMap<PoolId, Taken> = BTreeMap::new();
        for need in self.holders.values().flat_map(|needs| needs.iter()) {
            held.entry(need.pool).or_default().add(need.units, &need.named);
        }
        let same = (0..).map(PoolId).zip(&self.pools).all(|(id, stock)| match held.get(&id) {
            Some(held) => stock.is_used_by(held),
            None => stock.used() == 0,
        });
        Broken::unless(same, "C1: what is held makes up what is used of each pool")
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.early.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use holdall_core::{Capacity, Effect, Need, Options, Protocol, Topology, UserId};

    use super::*;

    #[test]
    fn a_pool_grows_at_once_and_shrinks_as_units_come_back() {
        let options = Options { variant: Some("skip".into()), ..Options::default() };
        let cfg = Coordinator::new(&Topology::of_pools(vec![]), &options).expect("a variant");
        let mut manager = Manager::new(&[]);
        let mut step = |event| {
            let mut out = Outbox::default();
            manager.step(&cfg, event, &mut out);
            assert_eq!(manager.check(&cfg), Ok(()));
            out.drain().filter(|effect| matches!(effect, Effect::ToUser(..))).count()
        };
        let resize = |capacity| {
            Event::Call(Resize { pool: PoolId(0), capacity: Capacity::Counted(capacity) })
        };
        let user = UserId::first(0);
        let id = |seq| RequestId { user, seq };
        let message = |msg| Event::Message { from: Addr::User(user), msg };
        let ask = |seq, units| {
            let needs = Needs::new(vec![Need::any(PoolId(0), units)]).expect("sensible");
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
