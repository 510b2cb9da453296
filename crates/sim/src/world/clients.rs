//! What clients do: ask, use, end, think; leave, or stop.

use holdall_core::{Addr, Call, Event, ManagerId, Protocol, Request, RequestId, Role, UserId};

use super::{Action, Item, Lane, State, Step, World};
use crate::clients::{Clients, Deed};
use crate::settings::{Detector, FaultKind, Stage};
use crate::workload::Plan;

impl<P: Protocol> World<'_, P> {
    pub(super) fn act(&mut self, request: RequestId, act: Action) -> Step {
        let lane = &self.lanes[request.user.lane().index()];
        if lane.request() != request {
            return Ok(()); // It is over.
        }
        match (act, lane.state) {
            (Action::Ask, State::Thinking) => self.ask(request),
            (Action::Begin, State::Waiting) => {
                self.begin_use(request);
                Ok(())
            }
            (Action::Done, State::Using) => self.done(request),
            (Action::Detected, State::Stopped) => {
                self.detected(request);
                Ok(())
            }
            (Action::Fail(kind, Stage::Asking | Stage::Waiting), State::Waiting)
            | (Action::Fail(kind, Stage::Asking | Stage::Using), State::Using) => {
                self.fail(request, kind)
            }
            _ => Ok(()), // It failed before, or was too quick to fail.
        }
    }

    fn ask(&mut self, request: RequestId) -> Step {
        let number = request.user.lane().number;
        let lane = &mut self.lanes[number as usize];
        lane.begin(State::Waiting, self.now);
        let needs = lane.needs.clone();
        self.pools.ask(number, &needs, self.now);
        match self.faults.of(number) {
            Some(fault) if fault.stage == Stage::Asking => {
                self.push(self.now, Item::Client(request, Action::Fail(fault.kind, fault.stage)));
            }
            Some(fault) if fault.stage == Stage::Waiting => {
                let wait = fault.after(4 * u64::from(self.settings.delay));
                self.push(
                    self.now + wait,
                    Item::Client(request, Action::Fail(fault.kind, fault.stage)),
                );
            }
            _ => {}
        }
        let length = match self.clients {
            Some(_) => None,
            None => self.telling.length(number, || self.lanes[number as usize].expected),
        };
        self.step_user(request.user, Event::Call(Call::Ask(Request { id: request, needs }, length)))
    }

    /// The client is told that it may use everything.
    pub(super) fn granted(&mut self, request: &Request) -> Step {
        let number = request.id.user.lane().number;
        let lane = &mut self.lanes[number as usize];
        let awaited = lane.state == State::Waiting && lane.request() == request.id;
        let is_listed = |pool| match &self.clients {
            Some(clients) => clients.is_listed(pool),
            None => self.settings.is_listed(),
        };
        if !awaited || !lane.needs.are_met_by(&request.needs, is_listed) {
            let what = format!("granted {request:?}, which nobody waits for");
            return Err(self.wrong(Addr::User(request.id.user), what));
        }
        let granted = Some(&request.needs).filter(|granted| **granted != lane.needs);
        lane.uses = granted.map(|granted| Box::new(granted.clone()));
        if self.network.hands_over {
            let begins = self.handed_over(number);
            self.push(begins, Item::Client(request.id, Action::Begin));
        } else {
            self.begin_use(request.id);
        }
        Ok(())
    }

    /// When a request that is granted now has been told so by the managers of all its pools, each of
    /// which has to hear of it, and of the last release, before.
    fn handed_over(&mut self, number: u32) -> u64 {
        let lane = &self.lanes[number as usize];
        let mut told = self.now;
        for need in lane.uses().iter() {
            let asked = lane.since + self.delays.draw();
            let heard = self.now.max(asked).max(self.back_at[need.pool.index()]);
            told = told.max(heard + self.delays.draw());
        }
        told
    }

    fn begin_use(&mut self, request: RequestId) {
        let number = request.user.lane().number;
        let lane = &mut self.lanes[number as usize];
        let asked = lane.begin(State::Using, self.now);
        lane.grants += 1;
        self.times.add(asked, self.now);
        self.pools.grant(number, lane.uses(), asked);
        let service = lane.service;
        if self.clients.is_some() {
            return self.tell_clients(|clients, now, out| clients.granted(number, now, out));
        }
        if let Some(fault) = self.faults.of(number).filter(|fault| fault.stage == Stage::Using) {
            let act = Action::Fail(fault.kind, fault.stage);
            self.push(self.now + fault.after(service), Item::Client(request, act));
        }
        self.push(self.now + service, Item::Client(request, Action::Done));
    }

    fn done(&mut self, request: RequestId) -> Step {
        let lane = &mut self.lanes[request.user.lane().index()];
        let entered = lane.begin(State::Ending, self.now);
        self.pools.leave(lane.uses(), entered, self.now);
        if self.network.hands_over {
            for need in lane.uses().iter() {
                self.back_at[need.pool.index()] = self.now + self.delays.draw();
            }
        }
        self.step_user(request.user, Event::Call(Call::Done))
    }

    /// The role is done with a request; unless it was called to leave, its client thinks next.
    pub(super) fn released(&mut self, request: RequestId) -> Step {
        let lane = &self.lanes[request.user.lane().index()];
        if !lane.is(request.user) || lane.state == State::Leaving {
            return Ok(());
        }
        if lane.state != State::Ending || lane.seq != request.seq {
            let what = format!("released {request:?}, whose use has not ended");
            return Err(self.wrong(Addr::User(request.user), what));
        }
        self.think(request.user.lane().number);
        Ok(())
    }

    /// Tells those something who decide themselves what they do, and does what they want.
    pub(super) fn tell_clients(
        &mut self,
        tell: impl FnOnce(&mut dyn Clients, u64, &mut Vec<Deed>),
    ) {
        let Some(clients) = self.clients.as_mut() else { return };
        let mut deeds = Vec::new();
        tell(&mut **clients, self.now, &mut deeds);
        let is_over = clients.is_over();
        for deed in deeds {
            match deed {
                Deed::Wake(at) => self.push(at, Item::Wake),
                Deed::Ask(lane) => self.ask_as_told(lane),
                Deed::Done(lane) => self.push_client(lane, Action::Done),
                Deed::Leave(lane) => {
                    self.push_client(lane, Action::Fail(FaultKind::Leave, Stage::Waiting));
                }
            }
        }
        if is_over {
            self.end = self.now;
        }
    }

    /// Lets a client ask for what it wants this time; it may be one more.
    fn ask_as_told(&mut self, number: u32) {
        let Some(needs) = self.clients.as_ref().map(|clients| &clients.needs()[number as usize])
        else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(number as usize) {
            lane.needs = needs.clone();
        } else {
            let (id, stream) = (UserId::first(number), self.generator.stream(number));
            self.lanes.push(Lane::new(&self.cfg, id, stream, needs.clone(), Plan::default()));
            self.pools.add_user();
        }
        self.push_client(number, Action::Ask);
    }

    fn push_client(&mut self, lane: u32, action: Action) {
        let request = self.lanes[lane as usize].request();
        self.push(self.now, Item::Client(request, action));
    }

    fn think(&mut self, number: u32) {
        let lane = &mut self.lanes[number as usize];
        if self.clients.is_some() {
            lane.begin(State::Thinking, self.now);
            lane.seq += 1;
            self.tell_clients(|clients, now, out| clients.released(number, now, out));
            return;
        }
        if self.generator.fresh() {
            lane.needs = self.generator.needs(number, &mut lane.stream);
        }
        let plan = self.generator.plan(&mut lane.stream, &lane.needs);
        self.faults.decide(number);
        lane.begin(State::Thinking, self.now);
        lane.seq += 1;
        (lane.service, lane.expected) = (plan.service, plan.expected);
        let ask = Item::Client(lane.request(), Action::Ask);
        self.push(self.now + plan.think, ask);
    }

    /// The client waits or uses no more.
    fn fail(&mut self, request: RequestId, kind: FaultKind) -> Step {
        let number = request.user.lane().number;
        let lane = &mut self.lanes[number as usize];
        if lane.state == State::Using {
            self.pools.leave(lane.uses(), lane.since, self.now);
        } else {
            self.times.give_up(lane.since, self.now);
            self.pools.withdraw(number, &lane.needs, lane.since);
        }
        match kind {
            FaultKind::Leave => {
                lane.begin(State::Leaving, self.now);
                self.step_user(request.user, Event::Call(Call::Leave))?;
                self.replace(number);
            }
            FaultKind::Stop => {
                lane.begin(State::Stopped, self.now);
                let last = match self.settings.detector {
                    Detector::Departed => lane.last_arrival,
                    Detector::Reclaim => 0,
                };
                let noticed = (self.now + u64::from(self.settings.detect)).max(last);
                self.push(noticed, Item::Client(request, Action::Detected));
            }
        }
        Ok(())
    }

    /// If managers are told that it has departed, all messages of the stopped user have arrived or
    /// arrive at this tick, and are in the queue before what is put there now.
    fn detected(&mut self, request: RequestId) {
        for manager in 0..self.managers.len() as u64 {
            self.push(self.now, Item::Gone(ManagerId(manager), request.user));
        }
        self.replace(request.user.lane().number);
    }

    /// The lane's next user takes over. Its predecessor stays, if it left and is not idle yet.
    fn replace(&mut self, number: u32) {
        let lane = &mut self.lanes[number as usize];
        let old = lane.id();
        let next = old.next_generation().expect("fewer than 2^40 users in a lane");
        lane.generation = next.generation();
        lane.seq = 0;
        lane.last_arrival = 0;
        let role = std::mem::replace(&mut lane.role, self.cfg.user(next));
        if lane.state == State::Leaving && !role.is_idle() {
            self.leaving.insert(old, role);
        }
        self.think(number);
    }
}
