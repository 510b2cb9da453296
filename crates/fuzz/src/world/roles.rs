//! What roles do: handle an event, and what follows from it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdall_core::{
    Addr, Broken, Effect, Event, ManagerId, Outbox, Protocol, RequestId, Role, UserId,
};

use super::network::{Body, Envelope};
use super::{Armed, ManagerTimer, Step, UserTimer, World};
use crate::Problem;

impl<P: Protocol> World<P> {
    /// Some message arrives, if any may.
    pub(super) fn deliver(&mut self) -> Step {
        let ready = if self.healing { u64::MAX } else { self.now };
        let Some(envelope) = self.network.take(ready, &mut self.random) else { return Ok(()) };
        if !self.healing && self.random.per_mille(self.plan.duplicates) {
            let ready = self.now + self.delay();
            let Envelope { from, to, .. } = envelope;
            self.network.send(Envelope { from, to, body: envelope.body.clone(), ready });
        }
        let Envelope { from, to, body, .. } = envelope;
        match (to, body) {
            (Addr::Manager(to), Body::ToManager(msg)) => {
                self.step_manager(to, Event::Message { from, msg })
            }
            (Addr::User(to), Body::ToUser(msg)) => self.step_user(to, Event::Message { from, msg }),
            _ => Ok(()),
        }
    }

    /// Some armed timer rings; of the lowest rung only, if `first`.
    pub(super) fn ring(&mut self, first: bool) -> Step {
        let rungs = self.user_timers.iter().map(|armed| armed.rung);
        let lowest = rungs.chain(self.manager_timers.iter().map(|armed| armed.rung)).min();
        let may = |rung| !first || Some(rung) == lowest;
        let users = self.user_timers.len();
        let due: Vec<usize> = (0..users + self.manager_timers.len())
            .filter(|at| match at.checked_sub(users) {
                None => may(self.user_timers[*at].rung),
                Some(at) => may(self.manager_timers[at].rung),
            })
            .collect();
        let Some(at) = self.random.pick(&due).copied() else { return Ok(()) };
        match at.checked_sub(users) {
            None => {
                let Armed { who, timer, .. } = self.user_timers.remove(at);
                self.step_user(who, Event::Timer(timer))
            }
            Some(at) => {
                let Armed { who, timer, .. } = self.manager_timers.remove(at);
                self.step_manager(who, Event::Timer(timer))
            }
        }
    }

    /// The first timer rings, nothing else being possible; false if none is armed.
    pub(super) fn ring_first(&mut self) -> Result<bool, Problem> {
        let armed = !self.user_timers.is_empty() || !self.manager_timers.is_empty();
        self.ring(true)?;
        Ok(armed)
    }

    /// The one who is not honest sends something to somebody.
    pub(super) fn forge(&mut self) -> Step {
        let Some(from) = self.dishonest else { return Ok(()) };
        self.summary.forged += 1;
        let managers = self.managers.len();
        let at = self.random.below(managers + self.lanes.len());
        if let Some(lane) = at.checked_sub(managers) {
            let to = self.lanes[lane];
            let about = self.some_request_of(to);
            match self.to_users.forge(about, &mut self.random) {
                Some(msg) if from != Addr::User(to) => {
                    self.step_user(to, Event::Message { from, msg })
                }
                _ => Ok(()),
            }
        } else {
            let to = ManagerId(at as u64);
            let about = match from {
                Addr::User(user) => self.some_request_of(user),
                Addr::Manager(_) => {
                    let user = self.lanes[self.random.below(self.lanes.len())];
                    self.some_request_of(user)
                }
            };
            match self.to_managers[at].forge(about, &mut self.random) {
                Some(msg) if from != Addr::Manager(to) => {
                    self.step_manager(to, Event::Message { from, msg })
                }
                _ => Ok(()),
            }
        }
    }

    /// The last request of a user, or the next.
    fn some_request_of(&mut self, user: UserId) -> RequestId {
        let last = self.users.get(&user).map_or(0, |user| user.seq);
        RequestId { user, seq: last + self.random.below(2) as u64 }
    }

    pub(super) fn step_user(&mut self, id: UserId, event: Event<P::User>) -> Step {
        if !self.users.contains_key(&id) {
            return Ok(()); // What is sent to those who are gone is dropped.
        }
        self.note_event(Addr::User(id), &event);
        let Some(user) = self.users.get_mut(&id) else { return Ok(()) };
        let mut out = Outbox::default();
        let checked = step(&self.cfg, &mut user.role, Addr::User(id), event, &mut out);
        self.summary.steps += 1;
        if self.is_honest(Addr::User(id)) {
            checked?;
        }
        for effect in out.drain() {
            self.user_effect(id, effect)?;
        }
        self.forget_if_over(id);
        Ok(())
    }

    pub(super) fn step_manager(&mut self, id: ManagerId, event: Event<P::Manager>) -> Step {
        self.note_event(Addr::Manager(id), &event);
        let mut out = Outbox::default();
        let role = &mut self.managers[id.index()];
        let checked = step(&self.cfg, role, Addr::Manager(id), event, &mut out);
        self.summary.steps += 1;
        if self.is_honest(Addr::Manager(id)) {
            checked?;
        }
        for effect in out.drain() {
            self.manager_effect(id, effect)?;
        }
        Ok(())
    }

    fn user_effect(&mut self, id: UserId, effect: Effect<P, UserTimer<P>>) -> Step {
        let by = Addr::User(id);
        match effect {
            Effect::Arm(timer, rung) => {
                self.user_timers.retain(|armed| armed.who != id || armed.timer != timer);
                self.user_timers.push(Armed { who: id, timer, rung });
                Ok(())
            }
            Effect::Disarm(timer) => {
                self.user_timers.retain(|armed| armed.who != id || armed.timer != timer);
                Ok(())
            }
            Effect::Granted(request) if request.id.user == id => self.granted(id, request),
            Effect::Released(request) if request.user == id => self.released(id, request),
            Effect::Lost(request) if request.user == id => self.lost(id, request),
            Effect::Misbehaved(who, what) => self.accused(by, who, what),
            Effect::Tally(..) => Ok(()),
            Effect::ToManager(to, msg) => self.send(by, Addr::Manager(to), Body::ToManager(msg)),
            Effect::ToUser(to, msg) => self.send(by, Addr::User(to), Body::ToUser(msg)),
            other => Err(Problem::Absurd { by, what: format!("{other:?}") }),
        }
    }

    fn manager_effect(&mut self, id: ManagerId, effect: Effect<P, ManagerTimer<P>>) -> Step {
        let by = Addr::Manager(id);
        match effect {
            Effect::Arm(timer, rung) => {
                self.manager_timers.retain(|armed| armed.who != id || armed.timer != timer);
                self.manager_timers.push(Armed { who: id, timer, rung });
                Ok(())
            }
            Effect::Disarm(timer) => {
                self.manager_timers.retain(|armed| armed.who != id || armed.timer != timer);
                Ok(())
            }
            Effect::Misbehaved(who, what) => self.accused(by, who, what),
            Effect::Tally(..) => Ok(()),
            Effect::ToManager(to, msg) => self.send(by, Addr::Manager(to), Body::ToManager(msg)),
            Effect::ToUser(to, msg) => self.send(by, Addr::User(to), Body::ToUser(msg)),
            other => Err(Problem::Absurd { by, what: format!("{other:?}") }),
        }
    }

    fn accused(&mut self, by: Addr, who: Addr, what: &'static str) -> Step {
        self.note(|| format!("{by:?} accuses {who:?}: {what}"));
        // Managers trust each other: a dishonest one can lay anything at anybody's door.
        let judged = !matches!(self.dishonest, Some(Addr::Manager(_)));
        if judged && self.is_honest(by) && self.is_honest(who) {
            return Err(Problem::Accused { by, who, what });
        }
        Ok(())
    }

    fn send(&mut self, from: Addr, to: Addr, body: Body<P>) -> Step {
        let exists = match to {
            Addr::Manager(to) => to.index() < self.managers.len(),
            Addr::User(to) => to.lane().index() < self.lanes.len(),
        };
        if !exists {
            // A forgery may make a role write to an address that was never there.
            let what = format!("sends to {to:?}, which there is not");
            return if self.dishonest.is_some() {
                Ok(())
            } else {
                Err(Problem::Absurd { by: from, what })
            };
        }
        if self.dishonest.is_some() {
            match (&body, to) {
                (Body::ToManager(msg), Addr::Manager(to)) => {
                    self.to_managers[to.index()].keep(msg, &mut self.random);
                }
                (Body::ToUser(msg), _) => self.to_users.keep(msg, &mut self.random),
                _ => {}
            }
        }
        let lost = !self.healing && self.random.per_mille(self.plan.loss);
        if !lost {
            let ready = self.now + self.delay();
            self.network.send(Envelope { from, to, body, ready });
        }
        Ok(())
    }

    fn delay(&mut self) -> u64 {
        let late = self.random.per_mille(self.plan.late);
        self.random.below(if late { self.plan.lag } else { 8 }) as u64
    }
}

/// Lets a role handle an event, and looks at its invariants.
fn step<R: Role>(
    cfg: &R::P,
    role: &mut R,
    who: Addr,
    event: Event<R>,
    out: &mut Outbox<R::P, R::Timer>,
) -> Step {
    let handled = catch_unwind(AssertUnwindSafe(|| {
        role.step(cfg, event, out);
        role.check(cfg)
    }));
    match handled {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Broken(statement))) => Err(Problem::Invariant { who, statement }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Problem::Panic { who, what: text.unwrap_or("of its own kind").into() })
        }
    }
}
