//! Carries actions out: copies a state, lets one role make one step, and changes what follows.

use holdall_core::{Call, Gone, Needs, Property, Request, RequestId};
use holdall_registry::roles::{Item, Outcome, StateFingerprint, StepEffect, gap};
use rustc_hash::FxHashMap;

use super::client::{Client, Overtaken, Stage};
use super::known::{KnownParts, Places, Receiver};
use super::lately::Lately;
use super::prints::Prints;
use super::steps::Steps;
use super::{NOBODY, World};
use crate::check::scope::{Then, UnitMask, Wanted};
use crate::check::search::model::{Action, Breach, Class, Expander, Label, Step, Successors};

/// One thread's way through the world.
pub(crate) struct Executor<'w> {
    pub(super) world: &'w World<'w>,
    clients: FxHashMap<Client, u32>,
    pub(super) known: KnownParts,
    /// The call that a client leads to.
    calls: FxHashMap<u32, u32>,
    pub(super) steps: Steps,
    moves: Vec<(Action, Class)>,
    pub(super) next: Vec<u32>,
    /// Where the items of `next` begin that were put under way by the step.
    pub(super) fresh_at: usize,
    breach: Option<Box<Breach>>,
    /// What was under way and is no longer, although it was not what the step delivered.
    pub(super) dropped: Vec<Class>,
    /// How many messages the step has sent.
    sent: usize,
    /// How many it may send, if its user stops amid.
    quota: Option<usize>,
    state_fingerprint: StateFingerprint,
    prints: Prints,
    /// States in which the invariants that no role can see alone were seen to hold.
    sound: Lately,
    /// The label of the state whose successors are made.
    label: Label,
}

impl Expander for Executor<'_> {
    fn expand_known(&mut self, state: &[u32], fingerprint: u64, out: &mut Successors) {
        let mut moves = std::mem::take(&mut self.moves);
        self.world.list_moves(state, &mut self.known, &mut moves);
        if self.world.is_plain() {
            self.prints.begin(self.world, state, fingerprint);
        }
        self.label = self.known.label(self.world, state);
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
            known: KnownParts::default(),
            calls: FxHashMap::default(),
            steps: Steps::default(),
            moves: Vec::new(),
            next: Vec::new(),
            fresh_at: 0,
            breach: None,
            dropped: Vec::new(),
            sent: 0,
            quota: None,
            state_fingerprint: StateFingerprint::default(),
            prints: Prints::default(),
            sound: Lately::default(),
            label: Label::default(),
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
        (self.sent, self.quota) = (0, stop.map(|(_, sent)| sent));
        self.apply(state, action);
        self.quota = None;
        if let Some((lane, _)) = stop {
            self.crash(lane);
        }
        let lanes = self.world.scope.users.len();
        let label = match self.next[..lanes] == state[..lanes] && self.world.is_label_of_clients() {
            true => self.label,
            false => self.known.label(self.world, &self.next),
        };
        let fingerprint = match self.world.is_plain() {
            true => self.prints.successor(self.world, state, &self.next),
            false => self.fingerprint_next(),
        };
        self.check_system(fingerprint);
        let cut = stop.map(|(_, sent)| sent as u32);
        let breach = self.breach.take();
        let step = Step { fingerprint, action, cut, class, label, breach };
        out.push(step, &self.next, &self.dropped);
        self.dropped.clear();
    }

    /// Makes `next` of `state` by an action.
    fn apply(&mut self, state: &[u32], action: Action) {
        self.next.clear();
        self.next.extend_from_slice(state);
        self.fresh_at = state.len();
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
        self.drop_stale(state);
        if self.world.receives_at_once() {
            self.receive_prompt(state);
        }
        self.retire_predecessors();
        if self.world.bound.is_some() {
            self.settle();
        }
    }

    /// Looks at the invariants that no role can see alone, unless they were seen to hold in this state a moment ago: most
    /// states are reached on several ways, one soon after another.
    fn check_system(&mut self, fingerprint: u64) {
        if self.sound.contains(fingerprint) {
            return;
        }
        match self.world.check_system(&self.next) {
            Ok(()) => self.sound.note(fingerprint),
            Err(broken) => self.breach(Property::Local, None, broken.to_string()),
        }
    }

    /// Takes out the messages that their receivers say they will ignore whenever they come. For
    /// those that were under way in the state `before`, that is as good as a delivery.
    pub(super) fn drop_stale(&mut self, before: &[u32]) {
        if self.world.settings.keep_stale {
            return;
        }
        let changed = self.changed(before);
        let mut at = self.world.items_at();
        while at < self.next.len() {
            let id = self.next[at];
            let item = self.known.item(self.world, id);
            let was_looked_at = at < self.fresh_at && !item.looks_at.meets(changed);
            if was_looked_at || !item.is_message {
                at += 1;
                continue;
            }
            let role = self.place_of(item.to).map(|place| self.next[place]);
            let message = self.world.parts.items.value(id);
            let stale = |role: &u32| self.world.roles.is_stale(*role, message);
            let Some(role) = role.filter(stale) else {
                at += 1;
                continue;
            };
            self.take_out(at);
            if self.world.items(before).contains(&id) {
                self.dropped.push(item.class);
            }
            let outcome = self.steps.outcome(self.world, role, id);
            if outcome.role != role || !outcome.effects.is_empty() || outcome.broken.is_some() {
                let what = "a message was called stale that still changes something".into();
                self.breach(Property::Local, None, what);
            }
        }
    }

    /// The places that have changed since the state before. If something that was under way to a role that has not were
    /// stale, it would not be there any more.
    pub(super) fn changed(&self, before: &[u32]) -> Places {
        let roles = self.world.items_at();
        let pairs = before[..roles].iter().zip(&self.next[..roles]);
        let changed = pairs.enumerate().filter(|(_, (before, now))| before != now);
        changed.map(|(place, _)| Places::one(place)).fold(Places::default(), Places::and)
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
                    let wanted = &world.scope.users[lane].requests[usize::from(at)];
                    let Wanted { needs, length } = wanted.clone();
                    Call::Ask(Request { id: request, needs }, length)
                }
                Stage::Releasing => Call::Done,
                _ => Call::Leave,
            };
            world.parts.items.number(Item::Call { to: request.user, call })
        });
        self.feed(id);
    }

    /// Lets something happen to the role it is for.
    pub(super) fn feed(&mut self, id: u32) {
        let to = self.known.item(self.world, id).to;
        let Some(slot) = self.place_of(to) else { return };
        let mut steps = std::mem::take(&mut self.steps);
        let outcome = steps.outcome(self.world, self.next[slot], id);
        self.next[slot] = outcome.role;
        self.carry_out(to, outcome);
        self.steps = steps;
    }

    /// The place of a role that takes part.
    pub(super) fn place_of(&mut self, who: Receiver) -> Option<usize> {
        let place = match who {
            Receiver::Nobody => None,
            Receiver::Manager { place } => Some(place),
            Receiver::User { lane, user } => {
                let client = self.known.client(self.world, self.next[lane]);
                match user {
                    _ if client.user() == user => Some(self.world.user_at(lane)),
                    _ if client.predecessor == Some(user) => self.world.predecessor_at(lane),
                    _ => None,
                }
            }
        };
        place.filter(|place| self.next[*place] != NOBODY)
    }

    fn carry_out(&mut self, by: Receiver, outcome: &Outcome) {
        let (lane, speaks) = match by {
            Receiver::User { lane, user } => {
                (Some(lane), Some(lane).filter(|lane| self.client(*lane).user() == user))
            }
            _ => (None, None),
        };
        if let Some(what) = &outcome.broken {
            self.breach(Property::Local, lane, what.clone());
        }
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
        let to = self.known.item(self.world, id).to;
        if to == Receiver::Nobody {
            let to = self.world.parts.items.value(id).to();
            let what = format!("a message to {to:?}, which there is not");
            return self.breach(Property::Local, None, what);
        }
        // What may be lost is sent again; the same message under way twice is one.
        let again = self.world.settings.loss > 0 && self.is_under_way(id);
        if !again && self.place_of(to).is_some() {
            self.next.push(id);
        }
    }

    fn granted(&mut self, lane: usize, request: &Request) {
        let client = self.client(lane);
        let script = &self.world.scope.users[lane];
        let asked = script.needs().nth(client.at.into());
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
            self.take_out(from + at);
        }
    }

    pub(super) fn take_out(&mut self, at: usize) {
        self.next.remove(at);
        self.fresh_at -= usize::from(at < self.fresh_at);
    }

    pub(super) fn is_under_way(&self, id: u32) -> bool {
        self.world.items(&self.next).contains(&id)
    }

    pub(super) fn client(&mut self, lane: usize) -> Client {
        *self.known.client(self.world, self.next[lane])
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
