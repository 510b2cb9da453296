//! Carries actions out: copies a state, lets one role make one step, and changes what follows.

use std::sync::Arc;

use holdall_core::{
    Addr, Broken, Call, Gone, ManagerId, Property, Protocol, Request, RequestId, UserId,
};
use rustc_hash::FxHashMap;

use super::Detector;
use super::machine::{Action, Breach, Class, Expander, Label, Step, Successors};
use super::parts::Item;
use super::print::Sum;
use super::scope::Then;
use super::seat::{Passed, Seat, Stage};
use super::steps::{Did, Outcome, Steps};
use super::world::{NOBODY, Sight, World};

/// One thread's way through the world.
pub(super) struct Walker<'w, P: Protocol> {
    world: &'w World<'w, P>,
    seats: FxHashMap<Seat, u32>,
    /// The call that a seat leads to.
    calls: FxHashMap<u32, u32>,
    steps: Steps,
    moves: Vec<(Action, Class)>,
    next: Vec<u32>,
    breach: Option<Box<Breach>>,
    /// How many messages the step has sent.
    sent: usize,
    /// How many it may send, if its user stops amid.
    quota: Option<usize>,
    sum: Sum,
}

impl<P: Protocol> Expander for Walker<'_, P> {
    fn expand(&mut self, state: &[u32], out: &mut Successors) {
        let mut moves = std::mem::take(&mut self.moves);
        self.world.list_moves(state, &mut moves);
        for (action, class) in &moves {
            self.push(state, *action, *class, None, out);
            if let Some(lane) = self.world.may_stop_amid(state, *action) {
                for sent in 1..self.sent {
                    self.push(state, *action, Class::UNFAIR, Some((lane, sent)), out);
                }
            }
        }
        out.finish(self.world.rest(state, &moves));
        self.moves = moves;
    }

    fn fingerprint(&mut self, state: &[u32]) -> u64 {
        self.next.clear();
        self.next.extend_from_slice(state);
        self.fingerprint_next()
    }

    fn label(&self, state: &[u32]) -> Label {
        self.world.label(state)
    }
}

impl<'w, P: Protocol> Walker<'w, P> {
    pub(super) fn new(world: &'w World<'w, P>) -> Self {
        Self {
            world,
            seats: FxHashMap::default(),
            calls: FxHashMap::default(),
            steps: Steps::default(),
            moves: Vec::new(),
            next: Vec::new(),
            breach: None,
            sent: 0,
            quota: None,
            sum: Sum::default(),
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
        let label = self.world.label(&self.next);
        let (print, breach) = (self.fingerprint_next(), self.breach.take());
        out.push(Step { print, action, cut, class, label, breach }, &self.next);
    }

    /// Makes `next` of `state` by an action.
    fn apply(&mut self, state: &[u32], action: Action) {
        self.next.clear();
        self.next.extend_from_slice(state);
        match action {
            Action::Ask(lane) => self.ask(lane),
            Action::Crash(lane) => self.crash(lane),
            Action::Deliver(id) => {
                self.remove(id);
                if let Item::Lapse { who } = self.world.parts.items.value(id) {
                    self.report(*who, Gone::Reclaimed);
                }
                self.feed(id);
            }
            Action::Done(lane) => {
                self.change_seat(lane, |seat| seat.stage = Stage::Releasing);
                self.call(lane);
            }
            Action::Duplicate(id) => {
                self.remove(id);
                let twin = self.world.parts.items.value(id).duplicate().expect("listed for that");
                self.next.push(self.world.parts.items.number(twin));
                self.feed(id);
            }
            Action::Leave(lane) => {
                self.change_seat(lane, |seat| {
                    (seat.stage, seat.passed) = (Stage::Left, Passed::default());
                });
                self.forget_passer(lane);
                self.call(lane);
            }
            Action::Lose(id) => {
                self.remove(id);
                self.remove(self.world.ill);
            }
            Action::Suspect(lane) => {
                self.change_seat(lane, |seat| seat.suspected = true);
                let who = self.seat(lane).user();
                self.report(who, Gone::Suspected);
                self.next.push(self.world.parts.items.number(Item::Lapse { who }));
            }
            Action::Return(lane) => {
                self.change_seat(lane, |seat| {
                    let fresh = Seat::fresh(seat.user().next_life());
                    let at = if seat.stage == Stage::Lost { seat.at } else { 0 };
                    *seat = Seat { at, suspected: seat.suspected, ..fresh };
                });
                let role = self.world.cfg.user(self.seat(lane).user());
                let at = self.world.user_at(lane);
                self.next[at] = self.world.parts.users.number(role);
            }
        }
        if !self.world.settings.keep_stale {
            self.drop_stale();
        }
        if self.world.bound.is_some() {
            self.settle();
        }
        let sight = Sight { world: self.world, state: &self.next };
        if let Err(Broken(what)) = self.world.cfg.check_system(&sight) {
            self.breach(Property::Local, None, what);
        }
    }

    /// Takes out the messages that their receivers say they will ignore whenever they come.
    fn drop_stale(&mut self) {
        let mut at = self.world.items_at();
        while at < self.next.len() {
            let id = self.next[at];
            if !self.world.is_stale(&self.next, id) {
                at += 1;
                continue;
            }
            self.next.remove(at);
            let Some(slot) = self.world.slot_of(id) else { continue };
            let role = self.next[slot];
            let outcome = self.outcome(slot, id);
            if outcome.role != role || !outcome.effects.is_empty() {
                let what = "a message was called stale that still changes something".into();
                self.breach(Property::Local, None, what);
            }
        }
    }

    fn ask(&mut self, lane: usize) {
        self.change_seat(lane, |seat| {
            seat.request.seq += 1;
            seat.stage = Stage::Waiting;
        });
        if self.world.bound.is_some() {
            self.note_later(lane);
        }
        self.call(lane);
    }

    /// The request now asked for is later than all that have settled and conflict with it.
    fn note_later(&mut self, lane: usize) {
        let scope = self.world.scope;
        let needs = |lane: usize, at: u8| scope.users[lane].requests.get(usize::from(at));
        let mine = needs(lane, self.seat(lane).at);
        for other in 0..scope.users.len() {
            let Seat { passed, at, .. } = self.seat(other);
            let conflict = mine.zip(needs(other, at)).is_some_and(|(a, b)| scope.conflict(a, b));
            if passed.settled && conflict {
                self.change_seat(other, |seat| seat.passed.later |= 1 << lane);
            }
        }
    }

    /// The user stops; what was on its way to it is lost, and the detector takes notice.
    fn crash(&mut self, lane: usize) {
        let who = self.seat(lane).user();
        self.change_seat(lane, |seat| {
            (seat.stage, seat.passed) = (Stage::Crashed, Passed::default());
        });
        self.forget_passer(lane);
        let world = self.world;
        self.next[world.user_at(lane)] = NOBODY;
        let lapse = world.parts.items.number(Item::Lapse { who });
        let detector = world.settings.detector();
        // Who is certainly gone need not be waited for. Otherwise a lease runs out all the same.
        let lasts = |id: u32| id == lapse && detector != Detector::Departed;
        let to_it = |id: &u32| world.parts.items.value(*id).to() == Addr::User(who);
        let items = self.next.split_off(world.items_at());
        self.next.extend(items.into_iter().filter(|id| !to_it(id) || lasts(*id)));
        // A suspicion that was wrong until now is not raised again.
        match detector {
            Detector::Departed => self.report(who, Gone::Departed),
            _ if self.is_under_way(lapse) => {}
            Detector::None => {}
            Detector::Reclaim => {
                self.report(who, Gone::Suspected);
                self.next.push(lapse);
            }
            Detector::Suspect => self.report(who, Gone::Suspected),
        }
    }

    /// Every manager will be told of a user.
    fn report(&mut self, who: UserId, how: Gone) {
        for to in (0..self.world.managers as u32).map(ManagerId) {
            self.next.push(self.world.parts.items.number(Item::Gone { to, who, how }));
        }
    }

    /// Calls the user role: its seat says for what.
    fn call(&mut self, lane: usize) {
        let world = self.world;
        let Seat { request, at, stage, .. } = self.seat(lane);
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
        let Some(slot) = self.world.slot_of(id).filter(|slot| self.next[*slot] != NOBODY) else {
            return;
        };
        let outcome = self.outcome(slot, id);
        self.next[slot] = outcome.role;
        let lane = match self.world.parts.items.value(id).to() {
            Addr::Manager(_) => None,
            Addr::User(user) => Some(user.lane() as usize),
        };
        self.carry_out(lane, &outcome);
    }

    /// What something leads to in the role at a place of `next`.
    fn outcome(&mut self, slot: usize, id: u32) -> Arc<Outcome> {
        if slot < self.world.manager_at(0) {
            self.steps.of_user(self.world, self.next[slot], id)
        } else {
            self.steps.of_manager(self.world, self.next[slot], id)
        }
    }

    fn carry_out(&mut self, lane: Option<usize>, outcome: &Outcome) {
        if let Some(what) = &outcome.broken {
            self.breach(Property::Local, lane, what.clone());
        }
        for did in &outcome.effects {
            match (did, lane) {
                (Did::Send(id), _) => self.send(*id),
                (Did::Arm(id), _) => {
                    self.remove(*id);
                    self.next.push(*id);
                }
                (Did::Disarm(id), _) => self.remove(*id),
                (Did::Granted(request), Some(lane)) => self.granted(lane, request),
                (Did::Lost(request), Some(lane)) => self.lost(lane, *request),
                (Did::Released(request), Some(lane)) => self.released(lane, *request),
                (Did::Granted(_) | Did::Lost(_) | Did::Released(_), None) => {
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
            // What may be lost is sent again; the same message under way twice is one.
            Addr::Manager(_) if world.settings.loss > 0 && self.is_under_way(id) => {}
            Addr::Manager(_) => self.next.push(id),
            Addr::User(user) => {
                let lane = user.lane() as usize;
                let there = lane < world.scope.users.len()
                    && self.seat(lane).user() == user
                    && self.next[world.user_at(lane)] != NOBODY;
                let again = world.settings.loss > 0 && self.is_under_way(id);
                if there && !again {
                    self.next.push(id);
                }
            }
        }
    }

    fn granted(&mut self, lane: usize, request: &Request) {
        let seat = self.seat(lane);
        let script = &self.world.scope.users[lane];
        let asked = script.requests.get(usize::from(seat.at));
        if !seat.is_waiting() || seat.request != request.id || asked != Some(&request.needs) {
            let what = format!("{request:?} was granted, which u{lane} is not waiting for");
            return self.breach(Property::AllOrNothing, Some(lane), what);
        }
        self.change_seat(lane, |seat| {
            (seat.stage, seat.passed) = (Stage::Using, Passed::default());
        });
        let used = self.world.in_use(&self.next, false);
        for (pool, used) in used.iter().enumerate() {
            let capacity = self.world.scope.pools[pool].capacity;
            if *used > u64::from(capacity) {
                let what = format!("{used} units of pool {pool} are in use, which has {capacity}");
                self.breach(Property::Exclusion, Some(lane), what);
            }
        }
        self.count_passer(lane);
    }

    /// The user may ask again.
    fn released(&mut self, lane: usize, request: RequestId) {
        let seat = self.seat(lane);
        match seat.stage {
            Stage::Releasing if seat.request == request => {
                let script = &self.world.scope.users[lane];
                self.change_seat(lane, |seat| {
                    seat.stage = Stage::Idle;
                    seat.at += 1;
                    if usize::from(seat.at) == script.requests.len() && script.then == Then::Repeat
                    {
                        seat.at = 0;
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
        let seat = self.seat(lane);
        if seat.request != request || !seat.suspected {
            let what = format!("{request:?} was lost, though nobody suspected u{lane}");
            return self.breach(Property::AllOrNothing, Some(lane), what);
        }
        if seat.is_busy() {
            self.change_seat(lane, |seat| {
                (seat.stage, seat.passed) = (Stage::Lost, Passed::default());
            });
            self.forget_passer(lane);
        }
    }

    /// A grant passes everybody who had settled before it was asked for.
    fn count_passer(&mut self, lane: usize) {
        let Some(bound) = self.world.bound else { return };
        for other in 0..self.world.scope.users.len() {
            if self.seat(other).passed.later >> lane & 1 == 0 {
                continue;
            }
            self.change_seat(other, |seat| {
                seat.passed.later &= !(1 << lane);
                seat.passed.times = (seat.passed.times + 1).min(bound + 1);
            });
            let times = self.seat(other).passed.times;
            if times > bound {
                let what = format!("u{other} was overtaken {times} times by later requests");
                self.breach(Property::BoundedOvertaking(bound), Some(other), what);
            }
        }
    }

    fn forget_passer(&mut self, lane: usize) {
        for other in 0..self.world.scope.users.len() {
            if self.seat(other).passed.later >> lane & 1 == 1 {
                self.change_seat(other, |seat| seat.passed.later &= !(1 << lane));
            }
        }
    }

    /// Notes which waiting requests have nothing under way any more.
    fn settle(&mut self) {
        let world = self.world;
        for lane in 0..world.scope.users.len() {
            let seat = self.seat(lane);
            if seat.is_waiting() && !seat.passed.settled {
                let items = world.items(&self.next);
                if !items.iter().any(|id| world.parts.items.value(*id).involves(seat.user())) {
                    self.change_seat(lane, |seat| seat.passed.settled = true);
                }
            }
        }
    }

    fn breach(&mut self, property: Property, lane: Option<usize>, what: String) {
        if self.breach.is_none() {
            self.breach = Some(Box::new(Breach { property, lane, what }));
        }
    }

    /// Takes the oldest such item out, if there is one.
    fn remove(&mut self, id: u32) {
        let from = self.world.items_at();
        if let Some(at) = self.next[from..].iter().position(|other| *other == id) {
            self.next.remove(from + at);
        }
    }

    fn is_under_way(&self, id: u32) -> bool {
        self.world.items(&self.next).contains(&id)
    }

    fn seat(&self, lane: usize) -> Seat {
        *self.world.parts.seats.value(self.next[lane])
    }

    fn change_seat(&mut self, lane: usize, change: impl FnOnce(&mut Seat)) {
        let mut seat = self.seat(lane);
        change(&mut seat);
        let table = &self.world.parts.seats;
        self.next[lane] = *self.seats.entry(seat).or_insert_with(|| table.number(seat));
    }

    fn fingerprint_next(&mut self) -> u64 {
        let parts = self.world.prints(&self.next);
        if self.world.canonical { self.sum.relative(parts) } else { Sum::plain(parts) }
    }
}
