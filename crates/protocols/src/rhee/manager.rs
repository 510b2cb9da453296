//! The managers: those of S as they are, and one for each pool, with its queue of positions.

use alloc::collections::VecDeque;

use holdall_core::{Addr, Broken, Event, Outbox, Party, Protocol, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{Rhee, ToManager, ToUser};
use crate::pool::Share;
use crate::positions::{Answers, Move, Queue};

/// One of S's managers, or that of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Manager<M> {
    /// A manager of S.
    Inner(M),
    /// The manager of a pool.
    Pool(PoolManager),
}

/// Guards one pool (Figure 5).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolManager {
    queue: Queue,
    /// What came while a selection was open, in the order it came.
    deferred: VecDeque<Deferred>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Deferred {
    Move(Move),
    Report(Share),
}

impl Deferred {
    fn is_report_of(&self, step: &Move) -> bool {
        matches!(self, Self::Report(share) if share.request == step.request())
    }

    fn user(&self) -> UserId {
        match self {
            Self::Move(step) => step.request().user,
            Self::Report(share) => share.request.user,
        }
    }
}

impl PoolManager {
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The moves that wait for a selection to end.
    pub(super) fn deferred_moves(&self) -> impl Iterator<Item = &Move> {
        self.deferred.iter().filter_map(|deferred| match deferred {
            Deferred::Move(step) => Some(step),
            Deferred::Report(_) => None,
        })
    }

    pub(super) fn new(capacity: u32) -> Self {
        Self { queue: Queue::new(capacity), deferred: VecDeque::new() }
    }

    /// Lines 01 to 04.
    fn on_report<S: Protocol>(&mut self, cfg: &Rhee<S>, share: Share, answers: &mut Answers) {
        let waits = |deferred: &Deferred| matches!(deferred, Deferred::Report(other) if other.request == share.request);
        if !self.queue.admits(share) || self.deferred.iter().any(waits) {
            let what = "report: twice for one request, or for units there are not";
            return answers.wrong.push((share.request.user, what));
        }
        if self.queue.is_selecting() && cfg.rules.guard {
            self.deferred.push_back(Deferred::Report(share));
        } else {
            self.queue.open(cfg.queues, share, answers);
        }
    }

    /// Lines 05 to 15. A selection is ended by its own user only; what others do before that is
    /// put off, or with the improvements done at once.
    fn on_move<S: Protocol>(&mut self, cfg: &Rhee<S>, step: Move, answers: &mut Answers) {
        if self.queue.is_over(&step) {
            return;
        }
        if let Some(at) = self.deferred.iter().position(|deferred| deferred.is_report_of(&step)) {
            self.deferred.remove(at); // It leaves before its turn came.
        } else if self.queue.is_selecting()
            && !self.queue.is_selected_by(step.request())
            && !cfg.plus
        {
            self.deferred.push_back(Deferred::Move(step));
        } else {
            self.queue.make(cfg.queues, !cfg.plus, &step, answers);
        }
        self.resume(cfg, answers);
    }

    /// Takes what was put off, until a selection is open again.
    fn resume<S: Protocol>(&mut self, cfg: &Rhee<S>, answers: &mut Answers) {
        while !self.queue.is_selecting() {
            match self.deferred.pop_front() {
                Some(Deferred::Move(step)) => {
                    self.queue.make(cfg.queues, !cfg.plus, &step, answers);
                }
                Some(Deferred::Report(share)) => self.queue.open(cfg.queues, share, answers),
                None => return,
            }
        }
    }

    fn on_gone<S: Protocol>(&mut self, cfg: &Rhee<S>, who: Party, answers: &mut Answers) {
        if cfg.queues.purge {
            self.deferred.retain(|deferred| !who.includes(deferred.user()));
            self.queue.forget(cfg.queues, who, answers);
            self.resume(cfg, answers);
        }
    }

    fn on_message<S: Protocol>(
        &mut self,
        cfg: &Rhee<S>,
        from: Addr,
        msg: ToManager<S::ToManager>,
        answers: &mut Answers,
    ) -> Result<(), &'static str> {
        let own = |user: UserId| match Addr::User(user) == from {
            true => Ok(()),
            false => Err("a message for another user"),
        };
        match msg {
            ToManager::Inner(_) => return Err("a message for a manager of the subroutine"),
            ToManager::Move(step) => {
                own(step.request().user)?;
                self.on_move(cfg, step, answers);
            }
            ToManager::Report { request, units } => {
                own(request.user)?;
                self.on_report(cfg, Share { request, units }, answers);
            }
        }
        Ok(())
    }
}

impl<M> Role for Manager<M>
where
    M: Role,
    M::P: Protocol<Manager = M, ToManager = M::Msg>,
{
    type P = Rhee<M::P>;
    type Call = M::Call;
    type Msg = ToManager<M::Msg>;
    type Timer = M::Timer;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Outbox<Self::P, Self::Timer>) {
        match self {
            Self::Inner(inner) => {
                let event = match event {
                    Event::Call(call) => Event::Call(call),
                    Event::Gone(gone) => Event::Gone(gone),
                    Event::Message { msg: ToManager::Inner(msg), from } => {
                        Event::Message { from, msg }
                    }
                    Event::Message { from, .. } => {
                        return out.misbehaved(from, "a message for the manager of a pool");
                    }
                    Event::Timer(timer) => Event::Timer(timer),
                };
                let mut inner_out = Outbox::default();
                inner.step(&cfg.inner, event, &mut inner_out);
                out.lift(inner_out, ToUser::Inner, ToManager::Inner, |timer| timer);
            }
            Self::Pool(pool) => {
                let mut answers = Answers::default();
                match event {
                    Event::Message { from, msg } => {
                        if let Err(what) = pool.on_message(cfg, from, msg, &mut answers) {
                            out.misbehaved(from, what);
                        }
                    }
                    Event::Gone(gone) => pool.on_gone(cfg, gone.who(), &mut answers),
                    Event::Call(_) | Event::Timer(_) => {}
                }
                answers.send(ToUser::News, out);
            }
        }
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        match self {
            Self::Inner(inner) => inner.check(&cfg.inner),
            Self::Pool(pool) => pool.queue.check(cfg.queues),
        }
    }

    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &Self::Msg) -> bool {
        match (self, msg) {
            (Self::Inner(inner), ToManager::Inner(msg)) => inner.is_stale(&cfg.inner, from, msg),
            (Self::Pool(pool), ToManager::Move(step)) => pool.queue.is_over(step),
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Inner(inner) => inner.is_idle(),
            Self::Pool(pool) => pool.queue.is_idle() && pool.deferred.is_empty(),
        }
    }
}
