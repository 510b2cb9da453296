//! The manager: a pool with a first-in-first-out queue.

use alloc::collections::VecDeque;

use holdall_core::{Addr, Broken, Event, Never, Outbox, Party, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::{Ordered, ToManager, ToUser};
use crate::early::EarlyReleases;
use crate::pool::{Share, Units};

type Out = Outbox<Ordered, Never>;

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    pool: Units,
    queue: VecDeque<Share>,
    early: EarlyReleases,
}

impl Manager {
    pub(super) fn new(capacity: u32) -> Self {
        Self { pool: Units::new(capacity), queue: VecDeque::new(), early: EarlyReleases::default() }
    }

    fn on_acquire(&mut self, cfg: &Ordered, from: Addr, share: Share, out: &mut Out) {
        let Share { request, units } = share;
        if from != Addr::User(request.user) || units == 0 || units > self.pool.capacity() {
            return out.misbehaved(from, "acquire: for another user, or for units there are not");
        }
        if self.early.take(request) {
            return;
        }
        if self.pool.held_by(request) || self.queue.iter().any(|s| s.request == request) {
            return out.misbehaved(from, "acquire: twice for one request");
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
        if !self.pool.give_back(request) {
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
        self.pool.forget(who);
        self.queue.retain(|share| !who.includes(share.request.user));
        self.early.forget(who);
        self.serve(cfg, out);
    }

    /// Serves the head of the queue as long as its units are free.
    fn serve(&mut self, cfg: &Ordered, out: &mut Out) {
        while let Some(&head) = self.queue.front() {
            let enough = if cfg.rules.whole { head.units } else { 1 };
            if self.pool.free() < enough {
                return;
            }
            self.queue.pop_front();
            self.pool.take(head);
            out.to_user(head.request.user, ToUser::Held(head.request));
        }
    }
}

impl Role for Manager {
    type P = Ordered;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Ordered, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg: ToManager::Acquire { request, units } } => {
                self.on_acquire(cfg, from, Share { request, units }, out);
            }
            Event::Message { from, msg: ToManager::Release(request) } => {
                self.on_release(cfg, from, request, out);
            }
            Event::Gone(gone) => self.on_gone(cfg, gone.who(), out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Ordered) -> Result<(), Broken> {
        self.pool.check()
    }

    fn is_idle(&self) -> bool {
        self.pool.is_free() && self.queue.is_empty() && self.early.is_empty()
    }
}
