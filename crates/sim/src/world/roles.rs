//! What roles do: handle an event, and what follows from it.

use std::mem;

use holdall_core::{
    Addr, Effect, Event, Gone, ManagerId, NodeId, Order, Party, Protocol, Role, UserId,
};

use super::who::Who;
use super::{Failure, Item, ManagerTimer, State, Step, UserTimer, World};
use crate::settings::Detector;
use crate::timers::wait;

/// From whom to whom a message goes.
struct Link {
    from: Who,
    to: Who,
}

impl<P: Protocol> World<'_, P> {
    pub(super) fn handle(&mut self, item: Item<P>) -> Step {
        match item {
            Item::ToManager { to, from, msg } => {
                let to = ManagerId(to.index() as u64);
                self.step_manager(to, Event::Message { from: from.addr(), msg })
            }
            Item::ToUser { to, from, msg } => {
                self.step_user(to.user(), Event::Message { from: from.addr(), msg })
            }
            Item::Client(request, act) => self.act(request, act),
            Item::Gone(to, user) => {
                let gone = match self.settings.detector {
                    Detector::Departed => Gone::Departed(Party::User(user)),
                    Detector::Reclaim => Gone::Reclaimed(user),
                };
                self.step_manager(to, Event::Gone(gone))
            }
            Item::ManagerRing(to, timer, arming) => {
                if self.manager_timers.rings(to, timer.clone(), arming) {
                    self.step_manager(to, Event::Timer(timer))?;
                }
                Ok(())
            }
            Item::UserRing(to, timer, arming) => {
                if self.user_timers.rings(to, timer.clone(), arming) {
                    self.step_user(to, Event::Timer(timer))?;
                }
                Ok(())
            }
            Item::Turn(item) => self.handle(*item),
            Item::Wake => {
                self.tell_clients(|clients, now, out| clients.wake(now, out));
                Ok(())
            }
        }
    }

    /// Lets a user handle an event. To one that has stopped or is over, nothing happens.
    pub(super) fn step_user(&mut self, to: UserId, event: Event<P::User>) -> Step {
        let lane = &mut self.lanes[to.lane().index()];
        let present = lane.is(to);
        let role = if present {
            Some(&mut lane.role).filter(|_| lane.state != State::Stopped)
        } else {
            self.leaving.get_mut(&to)
        };
        let Some(role) = role else { return Ok(()) };
        self.events += 1;
        role.step(&self.cfg, event, &mut self.user_out);
        let checked = role.check(&self.cfg);
        let over = !present && role.is_idle();
        if let Err(broken) = checked {
            return Err(self.wrong(Addr::User(to), broken.0));
        }
        let mut out = mem::take(&mut self.user_out);
        for effect in out.drain() {
            self.user_effect(to, effect)?;
        }
        self.user_out = out;
        if over {
            self.leaving.remove(&to);
        }
        Ok(())
    }

    fn step_manager(&mut self, to: ManagerId, event: Event<P::Manager>) -> Step {
        self.events += 1;
        let role = &mut self.managers[to.index()].role;
        role.step(&self.cfg, event, &mut self.manager_out);
        if let Err(broken) = role.check(&self.cfg) {
            return Err(self.wrong(Addr::Manager(to), broken.0));
        }
        let mut out = mem::take(&mut self.manager_out);
        for effect in out.drain() {
            self.manager_effect(to, effect)?;
        }
        self.manager_out = out;
        Ok(())
    }

    fn user_effect(&mut self, of: UserId, effect: Effect<P, UserTimer<P>>) -> Step {
        match effect {
            Effect::Arm(timer, rung) => {
                let arming = self.user_timers.arm(of, timer.clone());
                let rings = self.now.saturating_add(wait(self.settings.delay, rung));
                self.push(rings, Item::UserRing(of, timer, arming));
                Ok(())
            }
            Effect::Disarm(timer) => {
                self.user_timers.disarm(of, timer);
                Ok(())
            }
            Effect::Granted(request) if request.id.user == of => self.granted(&request),
            Effect::Released(request) if request.user == of => self.released(request),
            Effect::Tally(what, size) => {
                self.tallies.add(what, size);
                Ok(())
            }
            Effect::ToManager(to, msg) => self.send_to_manager(Addr::User(of), to, msg),
            Effect::ToUser(to, msg) => self.send_to_user(Addr::User(of), to, msg),
            other => Err(self.wrong(Addr::User(of), format!("{other:?}"))),
        }
    }

    fn manager_effect(&mut self, of: ManagerId, effect: Effect<P, ManagerTimer<P>>) -> Step {
        match effect {
            Effect::Arm(timer, rung) => {
                let arming = self.manager_timers.arm(of, timer.clone());
                let rings = self.now.saturating_add(wait(self.settings.delay, rung));
                self.push(rings, Item::ManagerRing(of, timer, arming));
                Ok(())
            }
            Effect::Disarm(timer) => {
                self.manager_timers.disarm(of, timer);
                Ok(())
            }
            Effect::Tally(what, size) => {
                self.tallies.add(what, size);
                Ok(())
            }
            Effect::ToManager(to, msg) => self.send_to_manager(Addr::Manager(of), to, msg),
            Effect::ToUser(to, msg) => self.send_to_user(Addr::Manager(of), to, msg),
            other => Err(self.wrong(Addr::Manager(of), format!("{other:?}"))),
        }
    }

    fn send_to_manager(&mut self, from: Addr, to: ManagerId, msg: P::ToManager) -> Step {
        let link = self.link(from, Addr::Manager(to), self.managers.len())?;
        let [once, twice] = self.arrivals(from, Addr::Manager(to));
        if let Some(arrival) = twice {
            self.push(arrival, Item::ToManager { to: link.to, from: link.from, msg: msg.clone() });
        }
        if let Some(arrival) = once {
            self.push(arrival, Item::ToManager { to: link.to, from: link.from, msg });
        }
        Ok(())
    }

    fn send_to_user(&mut self, from: Addr, to: UserId, msg: P::ToUser) -> Step {
        let link = self.link(from, Addr::User(to), self.lanes.len())?;
        let [once, twice] = self.arrivals(from, Addr::User(to));
        if let Some(arrival) = twice {
            self.push(arrival, Item::ToUser { to: link.to, from: link.from, msg: msg.clone() });
        }
        if let Some(arrival) = once {
            self.push(arrival, Item::ToUser { to: link.to, from: link.from, msg });
        }
        Ok(())
    }

    /// From whom to whom a message goes, if it goes to one of so many that there are.
    fn link(&self, from: Addr, to: Addr, there_are: usize) -> Result<Link, Box<Failure>> {
        let nobody = || self.wrong(from, format!("sends to {to:?}, which there is not"));
        let there = Who::of(to).filter(|to| to.index() < there_are);
        let (Some(from), Some(to)) = (Who::of(from), there) else { return Err(nobody()) };
        Ok(Link { from, to })
    }

    /// When a message that is sent now arrives: once, unless messages may be lost or doubled. Inside
    /// a machine that is now, once, and does not count.
    fn arrivals(&mut self, from: Addr, to: Addr) -> [Option<u64>; 2] {
        let inside = from == to || self.node(from).is_some_and(|node| Some(node) == self.node(to));
        if inside || self.network.instant {
            return [Some(self.now), None];
        }
        self.messages += 1;
        let copies = self.copies.draw();
        let mut draw = |copy| (copy < copies).then(|| self.arrival(from, to));
        [draw(0), draw(1)]
    }

    /// The node that somebody is on; none if it has a machine of its own.
    fn node(&self, who: Addr) -> Option<NodeId> {
        match who {
            Addr::Manager(manager) => Some(self.managers[manager.index()].node),
            Addr::User(user) => {
                self.settings.colocated.then(|| self.settings.node(user.lane().number))
            }
        }
    }

    /// When a message arrives that is sent to another machine now.
    fn arrival(&mut self, from: Addr, to: Addr) -> u64 {
        let mut arrival = self.now.saturating_add(self.delays.draw());
        if self.network.order == Order::Fifo {
            let last = self.links.entry((from, to)).or_insert(0);
            arrival = arrival.max(*last);
            *last = arrival;
        }
        if let Addr::User(user) = from
            && !self.settings.faults.is_empty()
        {
            let lane = &mut self.lanes[user.lane().index()];
            if lane.is(user) {
                lane.last_arrival = lane.last_arrival.max(arrival);
            }
        }
        arrival
    }
}
