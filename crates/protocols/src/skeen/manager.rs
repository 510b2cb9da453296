//! The manager: a pool with a queue sorted by agreed time.

use holdall_core::{Addr, Broken, Clock, Event, Never, Origin, Outbox, Party, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::{Skeen, ToManager, ToUser};
use crate::early::EarlyReleases;
use crate::line::Line;
use crate::pool::{Share, Units};

type Out = Outbox<Skeen, Never>;

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    pool: Units,
    line: Line,
    early: EarlyReleases,
}

impl Manager {
    pub(super) fn new(capacity: u32, origin: Origin) -> Self {
        Self {
            pool: Units::new(capacity),
            line: Line::new(origin),
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
        if self.pool.held_by(request) || self.line.contains(request) {
            return out.misbehaved(from, "join: twice for one request");
        }
        let time = self.line.join(cfg.line, share);
        out.to_user(request.user, ToUser::Proposed { request, time });
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
        if !self.line.agree(cfg.line, request, time) {
            return out.misbehaved(from, "agreed: twice, or before the time proposed");
        }
        self.serve(cfg, out);
    }

    fn on_release(&mut self, cfg: &Skeen, from: Addr, request: RequestId, out: &mut Out) {
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "release: for another user");
        }
        if !self.pool.give_back(request) && !self.line.remove(request) && cfg.rules.early {
            self.early.remember(request);
        }
        self.serve(cfg, out);
    }

    fn on_gone(&mut self, cfg: &Skeen, who: Party, out: &mut Out) {
        if !cfg.rules.purge {
            return;
        }
        self.pool.forget(who);
        self.line.forget(who);
        self.early.forget(who);
        self.serve(cfg, out);
    }

    /// Serves the head of the queue as long as its time is agreed and its units are free.
    fn serve(&mut self, cfg: &Skeen, out: &mut Out) {
        while let Some(share) = self.line.head(cfg.line) {
            if self.pool.free() < share.units {
                return;
            }
            self.line.remove(share.request);
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
            Event::Gone(gone) => self.on_gone(cfg, gone.who(), out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Skeen) -> Result<(), Broken> {
        self.pool.check()?;
        self.line.check()
    }

    fn is_idle(&self) -> bool {
        self.pool.is_free() && self.line.is_empty() && self.early.is_empty()
    }
}
