//! Carries actions out: copies a state, lets one role make one step, and changes what follows.

use std::sync::Arc;

use holdall_core::{Addr, Call, Gone, Needs, Property, Request, RequestId};
use holdall_registry::roles::{Item, Outcome, StateFingerprint, StepEffect, gap};
use rustc_hash::FxHashMap;

use super::World;
use super::client::{Client, Overtaken, Stage};
use super::prints::{Prints, read};
use super::steps::Steps;
use crate::check::scope::{Then, UnitMask};
use crate::check::search::model::{Action, Breach, Class, Expander, Label, Step, Successors};

/// One thread's way through the world.
pub(crate) struct Executor<'w> {
    pub(super) world: &'w World<'w>,
    clients: FxHashMap<Client, u32>,
    /// In which stage each client is, by number.
    stages: Vec<Stage>,
    /// The call that a client leads to.
    calls: FxHashMap<u32, u32>,
    steps: Steps,
    moves: Vec<(Action, Class)>,
    pub(super) next: Vec<u32>,
    breach: Option<Box<Breach>>,
    dropped: Vec<Class>,
    /// How many messages the step has sent.
    sent: usize,
    /// How many it may send, if its user stops amid.
    quota: Option<usize>,
    state_fingerprint: StateFingerprint,
    prints: Prints,
}

impl Expander for Executor<'_> {
    fn expand(&mut self, state: &[u32], out: &mut Successors) {
        let mut moves = std::mem::take(&mut self.moves);
        self.world.list_moves(state, &mut moves);
        if self.world.is_plain() {
            self.prints.begin(self.world, state);
        }
        for (action, class) in &moves {
            self.push(state, *action, *class, None, out);
            if let Some(lane) = self.world.may_stop_amid(state, *action) {
                for sent in 1..self.sent {
                    self.push(state, *action, Class::UNFAIR, Some((lane, sent)), out);
                }
            }
        }
        self.world.list_held_timers(state, &moves, &mut out.held);
        if !self.world.questions.is_empty() {
            self.world.roles.answered(&self.world.numbers(state), &mut out.answered);
        }
        out.finish(self.world.rest(state, &moves));
        self.moves = moves;
    }

    fn fingerprint(&mut self, state: &[u32]) -> u64 {
        self.next.clear();
        self.next.extend_from_slice(state);
        self.fingerprint_next()
    }

    fn fingerprint_up_to_shift(&mut self, state: &[u32]) -> u64 {
        self.state_fingerprint.relative(self.world.fingerprints(state))
    }

    fn label(&self, state: &[u32]) -> Label {
        self.world.label(state)
    }

    fn gap(&self, state: &[u32]) -> u64 {
        gap(&self.world.fingerprints(state))
    }
}

impl<'w> Executor<'w> {
    pub(crate) fn new(world: &'w World<'w>) -> Self {
        Self {
            world,
            clients: FxHashMap::default(),
            stages: Vec::new(),
            calls: FxHashMap::default(),
            steps: Steps::default(),
            moves: Vec::new(),
            next: Vec::new(),
            breach: None,
            dropped: Vec::new(),
            sent: 0,
            quota: None,
            state_fingerprint: StateFingerprint::default(),
            prints: Prints::default(),
        }
    }

    /// Appends the step that an action is; or the beginning of it, if its user stops amid.
    fn push(
        &mut self,
        state: &[u32],
        action: Action,
        class: Class,
        stop: Option<(usize, usize)>,
        out: &mut Successors,
    ) {
        let cut = stop.map(|(_, sent)| sent);
        (self.sent, self.quota) = (0, cut);
        self.apply(state, action);
        self.quota = None;
        if let Some((lane, _)) = stop {
            self.crash(lane);
        }
        let world = self.world;
        let stage = |client| world.client_table.value(client).stage;
        let stages = &mut self.stages;
        let label = world.label_with(&self.next, |client| read(stages, client, stage));
        let fingerprint = match self.world.is_plain() {
            true => self.prints.successor(self.world, state, &self.next),
            false => self.fingerprint_next(),
        };
        let breach = self.breach.take();
        let dropped = std::mem::take(&mut self.dropped);
        let step = Step { fingerprint, action, cut, class, dropped, label, breach };
        out.push(step, &self.next);
    }

    /// Makes `next` of `state` by an action.
    fn apply(&mut self, state: &[u32], action: Action) {
        self.next.clear();
        self.next.extend_from_slice(state);
        match action {
            Action::Ask(lane) => self.ask(lane),
            Action::Crash(lane) => self.crash(lane),
            Action::CrashManager(manager) => self.crash_manager(manager),
            Action::Deliver(id) => {
                self.remove(id);
                match self.world.parts.items.value(id) {
                    Item::Lapse { who } => self.lapse(*who),
                    _ => self.feed(id),
                }
            }
            Action::Done(lane) => {
                self.change_client(lane, |client| client.stage = Stage::Releasing);
                self.call(lane);
            }
            Action::Duplicate(id) => {
                self.remove(id);
                self.next.push(self.world.parts.duplicate(id));
                self.feed(id);
            }
            Action::Leave(lane) => {
                self.change_client(lane, |client| {
                    (client.stage, client.overtaken) = (Stage::Left, Overtaken::default());
                });
                self.forget_overtaker(lane);
                self.call(lane);
            }
            Action::Lose(id) => {
                self.remove(id);
                self.remove(self.world.loss_token);
            }
            Action::Suspect(lane) => {
                self.change_client(lane, |client| client.suspected = true);
                let who = self.client(lane).user();
                self.report(Gone::Suspected(who));
                self.next.push(self.world.parts.items.number(Item::Lapse { who }));
            }
            Action::Reboot(cell) => self.reboot(cell),
            Action::Return(lane) => self.succeed(lane),
        }
        if !self.world.settings.keep_stale {
            self.drop_stale(state);
        }
        self.retire_predecessors();
        if self.world.bound.is_some() {
            self.settle();
        }
        if let Err(broken) = self.world.check_system(&self.next) {
            self.breach(Property::Local, None, broken.to_string());
        }
    }

    /// Takes out the messages that their receivers say they will ignore whenever they come. For
    /// those that were under way in the state `before`, that is as good as a delivery.
    fn drop_stale(&mut self, before: &[u32]) {
        let mut at = self.world.items_at();
        while at < self.next.len() {
            let id = self.next[at];
            if self.was_looked_at(before, id) || !self.world.is_stale(&self.next, id) {
                at += 1;
                continue;
            }
            self.next.remove(at);
            if self.world.items(before).contains(&id) {
                self.dropped.push(self.world.class_of(id));
            }
            let Some(slot) = self.place_of(id) else { continue };
            let role = self.next[slot];
            let outcome = self.outcome(slot, id);
            if outcome.role != role || !outcome.effects.is_empty() || outcome.broken.is_some() {
                let what = "a message was called stale that still changes something".into();
                self.breach(Property::Local, None, what);
            }
        }
    }

    /// Whether something was under way in the state before, to a role that has not changed since. If
    /// it were stale, it would not be there any more.
    fn was_looked_at(&self, before: &[u32], id: u32) -> bool {
        let world = self.world;
        let same = |place: usize| before[place] == self.next[place];
        let unchanged = match world.parts.items.value(id).to() {
            Addr::Manager(m) => m.index() >= world.managers || same(world.manager_at(m.index())),
            Addr::User(user) => {
                let lane = user.lane().index();
                same(lane)
                    && same(world.user_at(lane))
                    && world.predecessor_at(lane).is_none_or(same)
            }
        };
        unchanged && world.items(before).contains(&id)
    }

    fn ask(&mut self, lane: usize) {
        self.change_client(lane, |client| {
            client.request.seq += 1;
            client.stage = Stage::Waiting;
        });
        if self.world.bound.is_some() {
            self.note_later(lane);
        }
        self.call(lane);
    }

    /// Calls the user role: its client says for what.
    pub(super) fn call(&mut self, lane: usize) {
        let world = self.world;
        let Client { request, at, stage, .. } = self.client(lane);
        let id = *self.calls.entry(self.next[lane]).or_insert_with(|| {
            let call = match stage {
                Stage::Waiting => {
                    let needs = world.scope.users[lane].requests[usize::from(at)].clone();
                    Call::Ask(Request { id: request, needs })
                }
                Stage::Releasing => Call::Done,
                _ => Call::Leave,
            };
            world.parts.items.number(Item::Call { to: request.user, call })
        });
        self.feed(id);
    }

    /// Lets something happen to the role it is for.
    fn feed(&mut self, id: u32) {
        let Some(slot) = self.place_of(id) else { return };
        let outcome = self.outcome(slot, id);
        self.next[slot] = outcome.role;
        self.carry_out(self.world.parts.items.value(id).to(), &outcome);
    }

    /// The place of the role that something is for.
    fn place_of(&self, id: u32) -> Option<usize> {
        self.world.place_of(&self.next, self.world.parts.items.value(id).to())
    }

    /// What something leads to in the role at a place of `next`.
    fn outcome(&mut self, slot: usize, id: u32) -> Arc<Outcome> {
        self.steps.outcome(self.world, self.next[slot], id)
    }

    fn carry_out(&mut self, by: Addr, outcome: &Outcome) {
        let lane = match by {
            Addr::Manager(_) => None,
            Addr::User(user) => Some(user.lane().index()),
        };
        if let Some(what) = &outcome.broken {
            self.breach(Property::Local, lane, what.clone());
        }
        let speaks = lane.filter(|lane| Addr::User(self.client(*lane).user()) == by);
        for did in &outcome.effects {
            match (did, speaks) {
                (StepEffect::Send(id), _) => self.send(*id),
                (StepEffect::Arm(id), _) => {
                    self.remove(*id);
                    self.next.push(*id);
                }
                (StepEffect::Disarm(id), _) => self.remove(*id),
                (StepEffect::Granted(request), Some(lane)) => self.granted(lane, request),
                (StepEffect::Lost(request), Some(lane)) => self.lost(lane, *request),
                (StepEffect::Released(request), Some(lane)) => self.released(lane, *request),
                // The client of a predecessor has left, and listens no more.
                (StepEffect::Lost(_) | StepEffect::Released(_), None) if lane.is_some() => {}
                (StepEffect::Granted(request), None) if lane.is_some() => {
                    let what = format!("{request:?} was granted, whose client has left");
                    self.breach(Property::AllOrNothing, lane, what);
                }
                (StepEffect::Granted(_) | StepEffect::Lost(_) | StepEffect::Released(_), None) => {
                    self.breach(Property::Local, None, "a manager spoke for a client".into());
                }
            }
        }
    }

    /// Puts a message under way, unless its addressee takes part no more.
    fn send(&mut self, id: u32) {
        if self.quota.is_some_and(|quota| self.sent >= quota) {
            return;
        }
        self.sent += 1;
        let world = self.world;
        match world.parts.items.value(id).to() {
            Addr::Manager(m) if m.index() >= world.managers => {
                self.breach(
                    Property::Local,
                    None,
                    format!("a message to {m:?}, which there is not"),
                );
            }
            manager @ Addr::Manager(_) if world.place_of(&self.next, manager).is_none() => {}
            // What may be lost is sent again; the same message under way twice is one.
            Addr::Manager(_) if world.settings.loss > 0 && self.is_under_way(id) => {}
            Addr::Manager(_) => self.next.push(id),
            user => {
                let there = world.place_of(&self.next, user).is_some();
                let again = world.settings.loss > 0 && self.is_under_way(id);
                if there && !again {
                    self.next.push(id);
                }
            }
        }
    }

    fn granted(&mut self, lane: usize, request: &Request) {
        let client = self.client(lane);
        let script = &self.world.scope.users[lane];
        let asked = script.requests.get(usize::from(client.at));
        let scope = self.world.scope;
        let met = |asked: &Needs| asked.are_met_by(&request.needs, |pool| scope.is_listed(pool));
        if !client.is_waiting() || client.request != request.id || !asked.is_some_and(met) {
            let what = format!("{request:?} was granted, which u{lane} is not waiting for");
            return self.breach(Property::AllOrNothing, Some(lane), what);
        }
        let units = scope.units(&request.needs);
        self.judge_units(lane, units);
        self.change_client(lane, |client| {
            (client.stage, client.overtaken) = (Stage::Using, Overtaken::default());
            client.units = units;
        });
        let used = self.world.in_use(&self.next, false);
        for (pool, used) in used.iter().enumerate() {
            let capacity = self.world.scope.pools[pool].capacity;
            if *used > u64::from(capacity) {
                let what = format!("{used} units of pool {pool} are in use, which has {capacity}");
                self.breach(Property::Exclusion, Some(lane), what);
            }
        }
        self.count_overtaking(lane);
    }

    /// No unit that somebody is granted may be in use.
    fn judge_units(&mut self, lane: usize, units: UnitMask) {
        let using = |client: &&Client| client.stage == Stage::Using;
        let twice = self.world.clients(&self.next).filter(using);
        let twice = twice.map(|client| client.units & units).fold(0, |all, some| all | some);
        if twice != 0 {
            let what = format!("{} units are in use twice", twice.count_ones());
            self.breach(Property::Exclusion, Some(lane), what);
        }
    }

    /// The user may ask again.
    fn released(&mut self, lane: usize, request: RequestId) {
        let client = self.client(lane);
        match client.stage {
            Stage::Releasing if client.request == request => {
                let script = &self.world.scope.users[lane];
                self.change_client(lane, |client| {
                    client.stage = Stage::Idle;
                    client.at += 1;
                    if usize::from(client.at) == script.requests.len()
                        && script.then == Then::Repeat
                    {
                        client.at = 0;
                    }
                });
            }
            Stage::Left | Stage::Lost | Stage::Crashed => {}
            _ => {
                let what = format!("{request:?} was released, which u{lane} had not ended");
                self.breach(Property::AllOrNothing, Some(lane), what);
            }
        }
    }

    /// The user was taken for dead, and knows it now.
    fn lost(&mut self, lane: usize, request: RequestId) {
        let client = self.client(lane);
        if client.request != request || !client.suspected {
            let what = format!("{request:?} was lost, though nobody suspected u{lane}");
            return self.breach(Property::AllOrNothing, Some(lane), what);
        }
        if client.is_busy() {
            self.change_client(lane, |client| {
                (client.stage, client.overtaken) = (Stage::Lost, Overtaken::default());
            });
            self.forget_overtaker(lane);
        }
    }

    pub(super) fn breach(&mut self, property: Property, lane: Option<usize>, what: String) {
        if self.breach.is_none() {
            self.breach = Some(Box::new(Breach { property, lane, what }));
        }
    }

    /// Takes the oldest such item out, if there is one.
    pub(super) fn remove(&mut self, id: u32) {
        let from = self.world.items_at();
        if let Some(at) = self.next[from..].iter().position(|other| *other == id) {
            self.next.remove(from + at);
        }
    }

    pub(super) fn is_under_way(&self, id: u32) -> bool {
        self.world.items(&self.next).contains(&id)
    }

    pub(super) fn client(&self, lane: usize) -> Client {
        *self.world.client_table.value(self.next[lane])
    }

    pub(super) fn change_client(&mut self, lane: usize, change: impl FnOnce(&mut Client)) {
        let mut client = self.client(lane);
        change(&mut client);
        if client.stage != Stage::Using {
            client.units = 0;
        }
        let table = &self.world.client_table;
        self.next[lane] = *self.clients.entry(client).or_insert_with(|| table.number(client));
    }

    fn fingerprint_next(&mut self) -> u64 {
        let parts = self.world.fingerprints(&self.next);
        if self.world.canonical {
            self.state_fingerprint.relative(parts)
        } else {
            StateFingerprint::plain(parts)
        }
    }
}
