//! What roles do: handle an event, and what follows from it.

use holdall_core::{Addr, ManagerId, RequestId, UserId};

use super::network::Envelope;
use super::{Armed, Step, World};
use crate::Problem;
use crate::roles::{Input, Message, Output, Timer};

impl World {
    /// Some message arrives, if any may.
    pub(super) fn deliver(&mut self) -> Step {
        let ready = if self.healing { u64::MAX } else { self.now };
        let Some(envelope) = self.network.take(ready, &mut self.random) else { return Ok(()) };
        if !self.healing && self.random.per_mille(self.plan.duplicates) {
            let ready = self.now + self.delay();
            let Envelope { from, to, .. } = envelope;
            self.network.send(Envelope { from, to, msg: envelope.msg.clone(), ready });
        }
        let Envelope { from, to, msg, .. } = envelope;
        self.step(to, Input::Message { from, msg })
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
                self.step(Addr::User(who), Input::Timer(timer))
            }
            Some(at) => {
                let Armed { who, timer, .. } = self.manager_timers.remove(at);
                self.step(Addr::Manager(who), Input::Timer(timer))
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
        let managers = self.roles.managers();
        let at = self.random.below(managers + self.lanes.len());
        let (to, forged) = if let Some(lane) = at.checked_sub(managers) {
            let to = self.lanes[lane];
            let about = self.some_request_of(to);
            (Addr::User(to), self.to_users.forge(about, &mut self.random))
        } else {
            let about = match from {
                Addr::User(user) => self.some_request_of(user),
                Addr::Manager(_) => {
                    let user = self.lanes[self.random.below(self.lanes.len())];
                    self.some_request_of(user)
                }
            };
            let forged = self.to_managers[at].forge(about, &mut self.random);
            (Addr::Manager(ManagerId(at as u64)), forged)
        };
        match forged.and_then(|value| self.roles.read(to, value)) {
            Some(msg) if from != to => self.step(to, Input::Message { from, msg }),
            _ => Ok(()),
        }
    }

    /// The last request of a user, or the next.
    fn some_request_of(&mut self, user: UserId) -> RequestId {
        let last = self.users.get(&user).map_or(0, |user| user.seq);
        RequestId { user, seq: last + self.random.below(2) as u64 }
    }

    /// Lets a role handle an event, and carries out what follows.
    pub(super) fn step(&mut self, who: Addr, input: Input) -> Step {
        if matches!(who, Addr::User(id) if !self.users.contains_key(&id)) {
            return Ok(()); // What is sent to those who are gone is dropped.
        }
        self.note_event(who, &input);
        let mut out = Vec::new();
        let checked = self.roles.step(who, input, &mut out);
        self.summary.steps += 1;
        if self.is_honest(who) {
            checked?;
        }
        for output in out {
            self.carry_out(who, output)?;
        }
        if let Addr::User(id) = who {
            self.forget_if_over(id);
        }
        Ok(())
    }

    fn carry_out(&mut self, by: Addr, output: Output) -> Step {
        match (output, by) {
            (Output::Arm(timer, rung), _) => {
                self.disarm(by, &timer);
                match by {
                    Addr::Manager(who) => self.manager_timers.push(Armed { who, timer, rung }),
                    Addr::User(who) => self.user_timers.push(Armed { who, timer, rung }),
                }
                Ok(())
            }
            (Output::Disarm(timer), _) => {
                self.disarm(by, &timer);
                Ok(())
            }
            (Output::Granted(request), Addr::User(id)) if request.id.user == id => {
                self.granted(id, request)
            }
            (Output::Released(request), Addr::User(id)) if request.user == id => {
                self.released(id, request)
            }
            (Output::Lost(request), Addr::User(id)) if request.user == id => self.lost(id, request),
            (Output::Misbehaved(who, what), _) => self.accused(by, who, what),
            (Output::Send(to, msg), _) => self.send(by, to, msg),
            (other @ (Output::Granted(_) | Output::Lost(_) | Output::Released(_)), _) => {
                Err(Problem::Absurd { by, what: format!("{other:?}") })
            }
        }
    }

    fn disarm(&mut self, by: Addr, timer: &Timer) {
        match by {
            Addr::Manager(id) => {
                self.manager_timers.retain(|armed| armed.who != id || armed.timer != *timer);
            }
            Addr::User(id) => {
                self.user_timers.retain(|armed| armed.who != id || armed.timer != *timer);
            }
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

    fn send(&mut self, from: Addr, to: Addr, msg: Message) -> Step {
        let exists = match to {
            Addr::Manager(to) => to.index() < self.roles.managers(),
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
            let samples = match to {
                Addr::Manager(to) => &mut self.to_managers[to.index()],
                Addr::User(_) => &mut self.to_users,
            };
            samples.keep(&msg, &mut self.random);
        }
        let lost = !self.healing && self.random.per_mille(self.plan.loss);
        if !lost {
            let ready = self.now + self.delay();
            self.network.send(Envelope { from, to, msg, ready });
        }
        Ok(())
    }

    fn delay(&mut self) -> u64 {
        let late = self.random.per_mille(self.plan.late);
        self.random.below(if late { self.plan.lag } else { 8 }) as u64
    }
}
