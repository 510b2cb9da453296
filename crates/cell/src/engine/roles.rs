//! Driving the roles: calls, messages inside the node, timers.

use std::collections::BTreeMap;

use holdall_core::{
    Addr, Call, CellId, Effect as Wish, Event, ManagerId, Outbox, Protocol, Request, RequestId,
    Role, Rung, UserId,
};
use holdall_wire::RequestNo;
use serde::{Deserialize, Serialize};

use super::{Defect, Effect, Engine, Serving, TimerNo};

/// The manager here. Those of other cells have higher numbers.
const MANAGER: ManagerId = ManagerId(0);

/// A message under way.
pub(super) enum Mail<P: Protocol> {
    ToManager(Addr, P::ToManager),
    ToUser(Addr, UserId, P::ToUser),
}

pub(super) type UserTimer<P> = <<P as Protocol>::User as Role>::Timer;
pub(super) type ManagerTimer<P> = <<P as Protocol>::Manager as Role>::Timer;

/// A user, and the request that it acts for, until that is over.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Slot<P: Protocol> {
    pub(super) role: P::User,
    pub(super) request: Option<RequestNo>,
}

/// The timers that are armed. A role's tag is armed once or not at all.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Timers<P: Protocol> {
    last: u64,
    /// All of them: each with its rung, and since when.
    pub(super) armed: BTreeMap<TimerNo, (Rung, u64)>,
    owners: BTreeMap<TimerNo, UserId>,
    users: BTreeMap<UserId, Vec<(TimerNo, UserTimer<P>)>>,
    manager: BTreeMap<TimerNo, ManagerTimer<P>>,
}

impl<P: Protocol> Default for Timers<P> {
    fn default() -> Self {
        let (owners, users, manager) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { last: 0, armed: BTreeMap::new(), owners, users, manager }
    }
}

impl<P: Protocol> Timers<P> {
    fn arm(&mut self, rung: Rung, now: u64) -> TimerNo {
        self.last += 1;
        self.armed.insert(TimerNo(self.last), (rung, now));
        TimerNo(self.last)
    }

    /// Takes out the timers of a user that are meant.
    fn take_of_user(
        &mut self,
        user: UserId,
        meant: impl Fn(TimerNo, &UserTimer<P>) -> bool,
    ) -> Vec<(TimerNo, UserTimer<P>)> {
        let Some(armed) = self.users.get_mut(&user) else { return Vec::new() };
        let taken: Vec<_> = armed.extract_if(.., |(number, tag)| meant(*number, tag)).collect();
        if armed.is_empty() {
            self.users.remove(&user);
        }
        for (number, _) in &taken {
            self.owners.remove(number);
            self.armed.remove(number);
        }
        taken
    }
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Whether every lane there can be is taken.
    pub(super) fn is_full(&self) -> bool {
        self.lanes.is_empty() && self.lanes_made == UserId::LANES
    }

    /// A user for one request, in a lane of its own while it lasts. There must be one left.
    pub(super) fn fresh_user(&mut self) -> UserId {
        self.lanes.pop().unwrap_or_else(|| {
            self.lanes_made += 1;
            UserId::first_at(self.cells.home, self.lanes_made - 1)
        })
    }

    pub(super) fn call_ask(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.requests.get(&request) else { return Ok(()) };
        let (user, needs, length) = (entry.user, entry.counts.clone(), entry.besides.length);
        let id = RequestId { user, seq: 1 };
        self.step_user(user, Event::Call(Call::Ask(Request { id, needs }, length)))?;
        self.deliver()
    }

    pub(super) fn call_end(&mut self, user: UserId, held: bool) -> Result<(), Defect> {
        if let Some(slot) = self.users.get_mut(user) {
            slot.request = None;
        }
        self.step_user(user, Event::Call(if held { Call::Done } else { Call::Leave }))?;
        self.deliver()
    }

    /// Tells the manager which pools have changed.
    pub(super) fn tell_manager(&mut self) -> Result<(), Defect> {
        self.tell_resizes()?;
        self.deliver()
    }

    fn tell_resizes(&mut self) -> Result<(), Defect> {
        while !self.resizes.is_empty() {
            let resize = self.resizes.remove(0);
            self.step_manager(Event::Call(resize))?;
        }
        Ok(())
    }

    pub(super) fn on_timer(&mut self, timer: TimerNo) -> Result<(), Defect> {
        if let Some(user) = self.timers.owners.get(&timer).copied() {
            for (_, tag) in self.timers.take_of_user(user, |number, _| number == timer) {
                self.step_user(user, Event::Timer(tag))?;
            }
        } else if let Some(tag) = self.timers.manager.remove(&timer) {
            self.timers.armed.remove(&timer);
            self.step_manager(Event::Timer(tag))?;
        }
        self.deliver()
    }

    pub(super) fn deliver(&mut self) -> Result<(), Defect> {
        while let Some(mail) = self.mail.pop_front() {
            match mail {
                Mail::ToManager(from, msg) => {
                    if !self.cells.abroad.is_empty() {
                        P::Manager::is_told_by_own(self, from, &msg);
                    }
                    self.step_manager(Event::Message { from, msg })?;
                    self.tell_resizes()?;
                }
                Mail::ToUser(from, to, msg) => self.step_user(to, Event::Message { from, msg })?,
            }
        }
        Ok(())
    }

    pub(super) fn step_manager(&mut self, event: Event<P::Manager>) -> Result<(), Defect> {
        self.have_manager(|manager, cfg, out| manager.step(cfg, event, out))
    }

    /// The manager does something, and what follows is carried out.
    pub(super) fn have_manager(
        &mut self,
        act: impl FnOnce(&mut P::Manager, &P, &mut Outbox<P, ManagerTimer<P>>),
    ) -> Result<(), Defect> {
        let mut out = std::mem::take(&mut self.of_manager);
        act(&mut self.manager, &self.cfg, &mut out);
        let me = Addr::Manager(MANAGER);
        let checked = self.manager.check_last_step();
        let checked =
            checked.and_then(|()| if cfg!(test) { self.manager.check(&self.cfg) } else { Ok(()) });
        checked.map_err(|broken| Defect::Role { who: me, broken })?;
        for wish in out.drain() {
            match wish {
                Wish::Arm(tag, rung) => self.arm_manager(tag, rung),
                Wish::Disarm(tag) => self.disarm_manager(&tag),
                other => self.carry_out(me, other)?,
            }
        }
        self.of_manager = out;
        Ok(())
    }

    pub(super) fn step_user(&mut self, id: UserId, event: Event<P::User>) -> Result<(), Defect> {
        let Some(slot) = self.users.get_mut(id) else {
            return Ok(()); // It is over; what comes late is dropped.
        };
        let mut out = std::mem::take(&mut self.of_user);
        slot.role.step(&self.cfg, event, &mut out);
        let me = Addr::User(id);
        slot.role.check(&self.cfg).map_err(|broken| Defect::Role { who: me, broken })?;
        let over = slot.role.is_idle() && slot.request.is_none();
        for wish in out.drain() {
            match wish {
                Wish::Arm(tag, rung) => self.arm_user(id, tag, rung),
                Wish::Disarm(tag) => self.disarm_user(id, Some(&tag)),
                other => self.carry_out(me, other)?,
            }
        }
        self.of_user = out;
        if over {
            self.users.remove(id);
            // Of an earlier home nobody knows how many there were.
            let next = id.next_generation().filter(|next| next.home() == self.cells.home);
            self.lanes.extend(next);
            self.disarm_user(id, None);
        }
        Ok(())
    }

    fn carry_out<T>(&mut self, from: Addr, wish: Wish<P, T>) -> Result<(), Defect> {
        match wish {
            Wish::Granted(request) => self.on_granted(&request)?,
            Wish::Lost(lost) => match self.request_of(lost.user) {
                Some(request) if self.is_abroad(request) => self.lost.push(request),
                _ => return Err(Defect::Lost(lost)),
            },
            Wish::Misbehaved(who, what) => match self.cell_of_role(who) {
                Some(cell) => self.effects.push(Effect::Misbehaved(cell, what)),
                None => return Err(Defect::Accusation { by: from, who, what }),
            },
            Wish::ToManager(MANAGER, msg) => self.mail.push_back(Mail::ToManager(from, msg)),
            Wish::ToManager(to, msg) => P::Manager::send_to_guard(self, to, from, msg),
            Wish::ToUser(to, msg) if to.home().cell == self.cells.home.cell => {
                if !self.cells.abroad.is_empty() {
                    P::Manager::tells_own(self, to, &msg)?;
                }
                self.mail.push_back(Mail::ToUser(from, to, msg));
            }
            Wish::ToUser(to, msg) => P::Manager::send_to_home(self, to, msg)?,
            // Timers are the caller's; the end of a request we know already.
            Wish::Arm(..) | Wish::Disarm(_) | Wish::Released(_) | Wish::Tally(..) => {}
        }
        Ok(())
    }

    /// The other cell that a role is of, if it is of one.
    fn cell_of_role(&self, role: Addr) -> Option<CellId> {
        match role {
            Addr::Manager(manager) => self.cells.peer(manager).map(|peer| peer.member.cell),
            Addr::User(user) => Some(user.home().cell).filter(|cell| *cell != self.cells.home.cell),
        }
    }

    /// The timers that a user has armed.
    pub(super) fn timers_of(&self, user: UserId) -> Vec<TimerNo> {
        let armed = self.timers.users.get(&user).into_iter().flatten();
        armed.map(|(number, _)| *number).collect()
    }

    fn arm_manager(&mut self, tag: ManagerTimer<P>, rung: Rung) {
        self.disarm_manager(&tag);
        let number = self.timers.arm(rung, self.now);
        self.timers.manager.insert(number, tag);
        self.effects.push(Effect::Arm(number, rung));
    }

    fn disarm_manager(&mut self, tag: &ManagerTimer<P>) {
        let (effects, armed) = (&mut self.effects, &mut self.timers.armed);
        self.timers.manager.retain(|number, known| {
            if known == tag {
                armed.remove(number);
                effects.push(Effect::Disarm(*number));
            }
            known != tag
        });
    }

    fn arm_user(&mut self, user: UserId, tag: UserTimer<P>, rung: Rung) {
        self.disarm_user(user, Some(&tag));
        let number = self.timers.arm(rung, self.now);
        self.timers.owners.insert(number, user);
        self.timers.users.entry(user).or_default().push((number, tag));
        self.effects.push(Effect::Arm(number, rung));
    }

    /// Disarms one timer of a user, or all of them.
    fn disarm_user(&mut self, user: UserId, tag: Option<&UserTimer<P>>) {
        let meant = |_, armed: &UserTimer<P>| tag.is_none_or(|tag| tag == armed);
        for (number, _) in self.timers.take_of_user(user, meant) {
            self.effects.push(Effect::Disarm(number));
        }
    }
}
