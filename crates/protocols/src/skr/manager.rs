//! The manager: a queue of positions, and a queue of those who wait to select one.

use holdall_core::{Addr, Broken, Clock, Event, Never, Origin, Outbox, Party, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::{Skr, ToManager, ToUser};
use crate::line::Line;
use crate::pool::Share;
use crate::positions::{Answers, Move, Queue};

type Out = Outbox<Skr, Never>;

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    queue: Queue,
    line: Line,
}

impl Manager {
    pub(super) fn new(capacity: u32, origin: Origin) -> Self {
        Self { queue: Queue::new(capacity), line: Line::new(origin) }
    }

    fn on_join(&mut self, cfg: &Skr, share: Share, out: &mut Out) -> Result<(), &'static str> {
        let request = share.request;
        if !self.queue.admits(share) || self.line.contains(request) {
            return Err("join: twice for one request, or for units there are not");
        }
        if !self.queue.was_released(request) {
            let time = self.line.join(cfg.line, share);
            out.to_user(request.user, ToUser::Proposed { request, time });
        }
        Ok(())
    }

    fn on_agreed(
        &mut self,
        cfg: &Skr,
        request: RequestId,
        time: Clock,
    ) -> Result<(), &'static str> {
        match self.line.agree(cfg.line, request, time) {
            true => Ok(()),
            false => Err("agreed: twice, or before the time proposed"),
        }
    }

    fn on_move(&mut self, cfg: &Skr, step: &Move, answers: &mut Answers) {
        if !self.line.remove(step.request()) {
            self.queue.make(cfg.queues, false, step, answers);
        } // Else it leaves before its turn came.
    }

    /// Opens the next selection, once there is none open.
    fn serve(&mut self, cfg: &Skr, answers: &mut Answers) {
        while !self.queue.is_selecting() {
            let Some(share) = self.line.head(cfg.line) else { return };
            self.line.remove(share.request);
            self.queue.open(cfg.queues, share, answers);
        }
    }

    fn on_gone(&mut self, cfg: &Skr, who: Party, answers: &mut Answers) {
        if cfg.queues.purge {
            self.line.forget(who);
            self.queue.forget(cfg.queues, who, answers);
        }
    }

    fn on_message(
        &mut self,
        cfg: &Skr,
        from: Addr,
        msg: ToManager,
        answers: &mut Answers,
        out: &mut Out,
    ) -> Result<(), &'static str> {
        let request = match &msg {
            ToManager::Agreed { request, .. } | ToManager::Join { request, .. } => *request,
            ToManager::Move(step) => step.request(),
        };
        if from != Addr::User(request.user) {
            return Err("a message for another user");
        }
        match msg {
            ToManager::Agreed { time, .. } => self.on_agreed(cfg, request, time),
            ToManager::Join { units, .. } => self.on_join(cfg, Share { request, units }, out),
            ToManager::Move(step) => {
                self.on_move(cfg, &step, answers);
                Ok(())
            }
        }
    }
}

impl Role for Manager {
    type P = Skr;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Skr, event: Event<Self>, out: &mut Out) {
        let mut answers = Answers::default();
        match event {
            Event::Message { from, msg } => {
                if let Err(what) = self.on_message(cfg, from, msg, &mut answers, out) {
                    return out.misbehaved(from, what);
                }
            }
            Event::Gone(gone) => self.on_gone(cfg, gone.who(), &mut answers),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
        self.serve(cfg, &mut answers);
        answers.send(ToUser::News, out);
    }

    fn check(&self, cfg: &Skr) -> Result<(), Broken> {
        self.line.check()?;
        self.queue.check(cfg.queues)
    }

    fn is_stale(&self, _: &Skr, _: Addr, msg: &ToManager) -> bool {
        matches!(msg, ToManager::Move(step) if self.queue.is_over(step))
    }

    fn is_idle(&self) -> bool {
        self.queue.is_idle() && self.line.is_empty()
    }
}
