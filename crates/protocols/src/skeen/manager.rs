//! The manager: a pool with a queue sorted by agreed time.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Clock, Event, Never, Outbox, RequestId, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{Skeen, ToManager, ToUser};
use crate::early::EarlyReleases;
use crate::pool::{Share, Units};

type Out = Outbox<Skeen, Never>;

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    clock: Clock,
    pool: Units,
    /// In the order of service.
    queue: Vec<Entry>,
    early: EarlyReleases,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    share: Share,
    time: Clock,
    agreed: bool,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}{}", self.share, self.time, if self.agreed { "" } else { "?" })
    }
}

impl Manager {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            clock: Clock::default(),
            pool: Units::new(capacity),
            queue: Vec::new(),
            early: EarlyReleases::default(),
        }
    }

    fn on_join(&mut self, cfg: &Skeen, from: Addr, share: Share, out: &mut Out) {
        let Share { request, units } = share;
        if from != Addr::User(request.user) || units == 0 || units > self.pool.capacity() {
            return out.misbehaved(from, "join: for another user, or for units there are not");
        }
        if self.early.take(request) {
            return;
        }
        if self.pool.held_by(request) || self.position(request).is_some() {
            return out.misbehaved(from, "join: twice for one request");
        }
        self.clock = self.clock.next();
        self.insert(cfg, Entry { share, time: self.clock, agreed: false });
        out.to_user(request.user, ToUser::Proposed { request, time: self.clock });
    }

    fn on_agreed(
        &mut self,
        cfg: &Skeen,
        from: Addr,
        request: RequestId,
        time: Clock,
        out: &mut Out,
    ) {
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "agreed: for another user");
        }
        if cfg.hear {
            self.clock = self.clock.max(time);
        }
        let Some(at) = self.position(request) else {
            return; // Its release overtook it.
        };
        let entry = self.queue.remove(at);
        if entry.agreed || time < entry.time {
            self.queue.insert(at, entry);
            return out.misbehaved(from, "agreed: twice, or before the time proposed");
        }
        self.insert(cfg, Entry { time, agreed: true, ..entry });
        self.serve(cfg, out);
    }

    fn on_release(&mut self, cfg: &Skeen, from: Addr, request: RequestId, out: &mut Out) {
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "release: for another user");
        }
        if !self.pool.give_back(request) {
            match self.position(request) {
                Some(at) => drop(self.queue.remove(at)),
                None if cfg.early => self.early.remember(request),
                None => {}
            }
        }
        self.serve(cfg, out);
    }

    fn on_gone(&mut self, cfg: &Skeen, user: UserId, out: &mut Out) {
        if !cfg.purge {
            return;
        }
        self.pool.forget_user(user);
        self.queue.retain(|entry| entry.share.request.user != user);
        self.early.forget_user(user);
        self.serve(cfg, out);
    }

    fn position(&self, request: RequestId) -> Option<usize> {
        self.queue.iter().position(|entry| entry.share.request == request)
    }

    fn insert(&mut self, cfg: &Skeen, entry: Entry) {
        let user = entry.share.request.user;
        let before = |e: &Entry| {
            e.time < entry.time
                || e.time == entry.time && (!cfg.ties || e.share.request.user < user)
        };
        self.queue.insert(self.queue.partition_point(before), entry);
    }

    /// Serves the head of the queue as long as its time is agreed and its units are free.
    fn serve(&mut self, cfg: &Skeen, out: &mut Out) {
        let next = |queue: &[Entry]| match cfg.tentative {
            true => queue.first().filter(|head| head.agreed).map(|_| 0),
            false => queue.iter().position(|entry| entry.agreed),
        };
        while let Some(at) = next(&self.queue) {
            let share = self.queue[at].share;
            if self.pool.free() < share.units {
                return;
            }
            self.queue.remove(at);
            self.pool.take(share);
            out.to_user(share.request.user, ToUser::Held(share.request));
        }
    }
}

impl Role for Manager {
    type P = Skeen;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Skeen, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg: ToManager::Join { request, units } } => {
                self.on_join(cfg, from, Share { request, units }, out);
            }
            Event::Message { from, msg: ToManager::Agreed { request, time } } => {
                self.on_agreed(cfg, from, request, time, out);
            }
            Event::Message { from, msg: ToManager::Release(request) } => {
                self.on_release(cfg, from, request, out);
            }
            Event::Gone { who: Addr::User(user), .. } => self.on_gone(cfg, user, out),
            Event::Gone { who: Addr::Manager(_), .. } => {}
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Skeen) -> Result<(), Broken> {
        self.pool.check()?;
        Broken::unless(
            self.queue.is_sorted_by_key(|entry| entry.time),
            "S2: the queue is in the order of time",
        )
    }

    fn quiet(&self) -> bool {
        self.pool.is_free() && self.queue.is_empty() && self.early.is_empty()
    }
}
