//! The manager: a pool with a first-in-first-out queue.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Event, Need, Never, Outbox, Party, Pool, RequestId, Role, Unit};
use serde::{Deserialize, Serialize};

use super::{Ordered, ToManager, ToUser};
use crate::early::EarlyReleases;
use crate::stock::{Claims, Stock, Taken};

type Out = Outbox<Ordered, Never>;

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    pool: Stock,
    /// What they hold, with every unit of a listed pool by name.
    pub(super) holders: Vec<Share>,
    pub(super) queue: VecDeque<Share>,
    pub(super) early: EarlyReleases,
}

/// Some units, held by or wanted for a request.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Share {
    request: RequestId,
    need: Need,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.request, self.need)
    }
}

impl Manager {
    pub(super) fn new(pool: &Pool) -> Self {
        Self {
            pool: Stock::of(pool),
            holders: Vec::new(),
            queue: VecDeque::new(),
            early: EarlyReleases::default(),
        }
    }

    fn on_acquire(&mut self, cfg: &Ordered, from: Addr, share: Share, out: &mut Out) {
        let request = share.request;
        if from != Addr::User(request.user) || !self.pool.has(&share.need) {
            return out.misbehaved(from, "acquire: for another user, or for units there are not");
        }
        if self.early.take(request) {
            return;
        }
        if self.holders.iter().chain(&self.queue).any(|share| share.request == request) {
            return out.misbehaved(from, "acquire: twice for one request");
        }
        if self.queue.is_empty() {
            if self.has_room_for(cfg, &share.need) {
                return self.hold(share, out);
            }
            // Mostly it waits alone; a queue that makes room by itself makes some for four.
            self.queue.reserve_exact(1);
        }
        if cfg.rules.fifo {
            self.queue.push_back(share);
        } else {
            self.queue.push_front(share);
        }
        self.serve(cfg, out);
    }

    fn on_release(&mut self, cfg: &Ordered, from: Addr, request: RequestId, out: &mut Out) {
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "release: for another user");
        }
        if !self.give_back(|id| id == request) {
            let before = self.queue.len();
            self.queue.retain(|share| share.request != request);
            if self.queue.len() == before && cfg.rules.early {
                self.early.remember(request);
            }
        }
        self.serve(cfg, out);
    }

    fn on_gone(&mut self, cfg: &Ordered, who: Party, out: &mut Out) {
        if !cfg.rules.purge {
            return;
        }
        self.give_back(|id| who.includes(id.user));
        self.queue.retain(|share| !who.includes(share.request.user));
        self.early.forget(who);
        self.serve(cfg, out);
    }

    /// Frees what the requests meant hold; false if that is nothing.
    fn give_back(&mut self, meant: impl Fn(RequestId) -> bool) -> bool {
        let theirs = self.holders.extract_if(.., |share| meant(share.request));
        let pool = &mut self.pool;
        theirs.map(|Share { need, .. }| pool.give_back(need.units, Some(&need.named))).count() > 0
    }

    /// Serves the head of the queue as long as its units are free.
    fn serve(&mut self, cfg: &Ordered, out: &mut Out) {
        while let Some(head) = self.queue.front()
            && self.has_room_for(cfg, &head.need)
            && let Some(head) = self.queue.pop_front()
        {
            self.hold(head, out);
        }
    }

    fn has_room_for(&self, cfg: &Ordered, need: &Need) -> bool {
        let enough = if cfg.rules.whole { i64::from(need.units) } else { 1 };
        let named = !cfg.rules.named || self.pool.names_are_free(&Claims::default(), need);
        self.pool.free() >= enough && named
    }

    fn hold(&mut self, Share { request, need }: Share, out: &mut Out) {
        let units = self.pick(&need);
        self.pool.take(need.units, Some(&units));
        out.to_user(request.user, ToUser::Held { request, units: units.clone() });
        if self.holders.is_empty() {
            // Mostly it is one at a time, and where there are very many pools, room for more is felt.
            self.holders.reserve_exact(1);
        }
        self.holders.push(Share { request, need: Need { named: units, ..need } });
    }

    /// The units to give; none of a counted pool.
    fn pick(&self, need: &Need) -> BTreeSet<Unit> {
        let named_by = |unit: Unit| self.queue.iter().position(|s| s.need.named.contains(&unit));
        self.pool.pick(need, named_by).unwrap_or_default()
    }
}

impl Role for Manager {
    type P = Ordered;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Ordered, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg: ToManager::Acquire { request, need } } => {
                self.on_acquire(cfg, from, Share { request, need }, out);
            }
            Event::Message { from, msg: ToManager::Release(request) } => {
                self.on_release(cfg, from, request, out);
            }
            Event::Gone(gone) => self.on_gone(cfg, gone.who(), out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Ordered) -> Result<(), Broken> {
        let mut held = Taken::default();
        self.holders.iter().for_each(|Share { need, .. }| held.add(need.units, &need.named));
        Broken::unless(self.pool.is_used_by(&held), "O1: what is held makes up what is used")?;
        Broken::unless(self.pool.free() >= 0, "O1: no more is held than there is")
    }

    fn touch(&self) -> u64 {
        let seq = |share: &Share| share.request.seq + u64::from(share.need.units);
        self.holders.first().map_or(0, seq) + self.queue.front().map_or(0, seq)
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty() && self.early.is_empty()
    }
}
