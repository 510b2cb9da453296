//! The user: tries everywhere, chooses a round if it must, follows what the managers say.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use holdall_core::{
    Addr, Broken, Call, Event, Length, ManagerId, Need, Needs, Outbox, Picked, Request, RequestId,
    Role, Seldom, UserId, Usual,
};
use serde::{Deserialize, Serialize};

use super::parts::{Part, Parts};
use super::{House, Marks, Round, Span, Stance, ToManager, ToUser};
use crate::stock::may_be_picked;

type Out = Outbox<House, Timer>;

/// The user's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// Nothing was heard for a while: send again what is not answered.
    Resend,
}

/// Each time nothing is heard, the next waiting is longer, up to this.
const RUNG_MAX: u8 = 5;

/// Acts for one client. There may be a million that wait: nothing is kept of one that follows from something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct User {
    id: UserId,
    pub(super) quest: Option<Quest>,
    unheard: Seldom<Unheard>,
}

/// What is not answered, where messages may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Unheard {
    /// The last release sent to a manager that has not acknowledged it.
    owed: BTreeMap<ManagerId, RequestId>,
    /// How long is waited until everything is sent again.
    rung: u8,
}

impl Usual for Unheard {
    const USUAL: &'static Self = &Self { owed: BTreeMap::new(), rung: 0 };
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quest {
    /// Its number among those of its user.
    seq: u64,
    pub(super) phase: Phase,
    /// What it needs, one for each node.
    pub(super) parts: Parts,
    span: Span,
    /// Of no request whose pools are all on one node.
    choice: Seldom<Choice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Phase {
    /// Nodes are asked to hold what is free.
    Trying,
    /// Queued everywhere under a round.
    Queued,
    /// Everything is held.
    Granted,
}

/// What a user has chosen by that was turned away somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Choice {
    round: Option<Round>,
    /// The greatest floor it was told.
    floor: Option<Round>,
    marks: Marks,
    bumps: u32,
}

impl Usual for Choice {
    const USUAL: &'static Self = &Self { round: None, floor: None, marks: Marks::NONE, bumps: 0 };
}

/// With the id of its request: numbers of requests are compared by how far they are from each other, and ids know that.
impl Hash for User {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, self.request()).hash(state);
        if let Some(Quest { seq: _, phase, parts, span, choice }) = &self.quest {
            (phase, parts, span, choice).hash(state);
        }
        self.unheard.hash(state);
    }
}

/// A user as it is written down.
#[derive(Serialize, Deserialize)]
struct Written {
    id: UserId,
    quest: Option<WrittenQuest>,
    owed: BTreeMap<ManagerId, RequestId>,
    rung: u8,
}

#[derive(Serialize, Deserialize)]
struct WrittenQuest {
    request: Request,
    phase: Phase,
    parts: Vec<Part>,
    round: Option<Round>,
    span: Span,
    floor: Option<Round>,
    marks: Marks,
    bumps: u32,
}

impl From<User> for Written {
    fn from(User { id, quest, unheard }: User) -> Self {
        let quest = quest.map(|Quest { seq, phase, parts, span, choice }| {
            let Choice { round, floor, marks, bumps } = Choice::clone(&choice);
            let needs = parts.needs().clone();
            let request = Request { id: RequestId { user: id, seq }, needs };
            let parts = parts.to_vec();
            WrittenQuest { request, phase, parts, round, span, floor, marks, bumps }
        });
        let Unheard { owed, rung } = Unheard::clone(&unheard);
        Self { id, quest, owed, rung }
    }
}

impl From<Written> for User {
    fn from(Written { id, quest, owed, rung }: Written) -> Self {
        let quest = quest.map(|quest| {
            let WrittenQuest { request, phase, parts, round, span, floor, marks, bumps } = quest;
            let (seq, parts) = (request.id.seq, Parts::new(request.needs, parts));
            let choice = Choice { round, floor, marks, bumps }.into();
            Quest { seq, phase, parts, span, choice }
        });
        Self { id, quest, unheard: Unheard { owed, rung }.into() }
    }
}

/// What a request says.
struct Voice<'a> {
    request: RequestId,
    out: &'a mut Out,
}

/// What is wanted of each node.
fn by_manager(cfg: &House, needs: Needs) -> Parts {
    let mut managers = needs.iter().map(|need| cfg.manager_of(need.pool));
    let first = managers.next();
    if let Some(only) = first.filter(|only| managers.all(|other| other == *only)) {
        return Parts::One(Part::new(only, needs));
    }
    let mut lists: BTreeMap<ManagerId, Vec<Need>> = BTreeMap::new();
    for need in needs.iter() {
        lists.entry(cfg.manager_of(need.pool)).or_default().push(need.clone());
    }
    let part = |(manager, list)| Some(Part::new(manager, Needs::new(list).ok()?));
    Parts::Several(needs, lists.into_iter().filter_map(part).collect())
}

impl Quest {
    fn new(cfg: &House, request: Request, length: Option<Length>) -> Self {
        Self {
            seq: request.id.seq,
            span: Span::of(cfg, &request.needs, length),
            parts: by_manager(cfg, request.needs),
            phase: Phase::Trying,
            choice: Seldom::USUAL,
        }
    }

    /// Whether some of its messages may be lost.
    fn may_lose(&self, cfg: &House) -> bool {
        self.parts.iter().any(|part| cfg.may_lose(part.manager))
    }

    /// Takes a new stance at one node, which ends whatever is held there.
    fn queue(&mut self, at: usize, to: &mut Voice<'_>) {
        let parked = self.is_blocked_elsewhere(at);
        let part = &mut self.parts[at];
        part.n = part.n.saturating_add(1);
        (part.held, part.parked) = (false, parked);
        part.units.clear();
        self.send_stance(at, to);
    }

    fn send_stance(&self, at: usize, to: &mut Voice<'_>) {
        let Part { manager, needs, n, parked, .. } = &self.parts[at];
        let (request, span) = (to.request, self.span);
        let needs = needs.clone();
        let stance = match (self.choice.round, self.choice.floor) {
            (Some(round), Some(base)) => {
                let (n, parked) = (*n, *parked);
                ToManager::Queue(Stance { request, n, round, span, base, needs, parked })
            }
            _ => ToManager::Try { request, needs, solo: self.parts.len() == 1, span },
        };
        to.out.to_manager(*manager, stance);
    }

    /// Sends again what may not have arrived: every stance that is not answered by a hold.
    fn resend(&self, to: &mut Voice<'_>) {
        for at in 0..self.parts.len() {
            let Part { held, answered, .. } = self.parts[at];
            let answered = held || answered && self.phase == Phase::Trying;
            if !answered {
                self.send_stance(at, to);
            }
        }
    }

    /// Takes the least rounds that are free everywhere, as far as is known.
    fn choose(&mut self, to: &mut Voice<'_>) {
        let Some(beyond) = self.choice.floor.max(self.choice.round) else { return };
        self.phase = Phase::Queued;
        let span = self.span;
        self.choice.change(|choice| {
            choice.round = Some(choice.marks.first_free(beyond, span));
            choice.marks.clear();
        });
        for at in 0..self.parts.len() {
            self.queue(at, to);
        }
    }

    fn settle(&mut self, to: &mut Voice<'_>) {
        if self.parts.iter().all(|part| part.held) {
            self.phase = Phase::Granted;
            let units = self.parts.iter().flat_map(|part| Picked::clone(&part.units)).collect();
            let needs = self.parts.needs().with(&units);
            to.out.granted(Request { id: to.request, needs });
        } else if self.phase == Phase::Trying && self.parts.iter().all(|part| part.answered) {
            self.choose(to);
        }
    }

    fn on_yes(&mut self, cfg: &House, at: usize, n: u32, mut units: Picked, to: &mut Voice<'_>) {
        let part = &mut self.parts[at];
        let is_listed = |need: &Need| cfg.topology.is_listed(need.pool);
        if !part.needs.iter().all(|need| may_be_picked(need, &units, is_listed(need))) {
            return to
                .out
                .misbehaved(Addr::Manager(part.manager), "yes: other units than asked for");
        }
        units.retain(|pool, _| part.needs.of(*pool).is_some());
        if (n == part.n || !cfg.rules.latest) && self.phase != Phase::Granted && !part.held {
            // What is held is not blocked: the news that it no longer is may be lost.
            (part.answered, part.held, part.blocked) = (true, true, false);
            part.units = units.into();
            self.park_elsewhere(to);
            self.settle(to);
        }
    }

    fn on_no(
        &mut self,
        cfg: &House,
        at: usize,
        n: u32,
        floor: Round,
        marks: Marks,
        to: &mut Voice<'_>,
    ) {
        let part = &mut self.parts[at];
        let again = self.phase == Phase::Queued && !part.held && self.choice.bumps < cfg.bumps;
        let first = self.phase == Phase::Trying && !part.answered;
        if n != part.n || !first && !again {
            return;
        }
        part.answered = true;
        self.choice.change(|choice| {
            choice.floor = choice.floor.max(Some(floor));
            choice.marks.add(marks);
            choice.bumps += u32::from(again);
        });
        if again {
            self.choose(to);
        } else {
            self.settle(to);
        }
    }

    fn on_yield(&mut self, cfg: &House, at: usize, n: u32, to: &mut Voice<'_>) {
        let may = self.phase == Phase::Queued || self.phase == Phase::Granted && !cfg.rules.firm;
        if n == self.parts[at].n && may {
            self.queue(at, to);
        }
    }

    /// Parks at the other nodes, or comes back.
    fn on_park(&mut self, at: usize, turn: u32, on: bool, to: &mut Voice<'_>) {
        let part = &mut self.parts[at];
        if turn <= part.turn || self.phase != Phase::Queued {
            return;
        }
        (part.turn, part.blocked) = (turn, on && !part.held);
        self.park_elsewhere(to);
    }

    /// Whether the request waits behind an overdue holder at another node than this.
    fn is_blocked_elsewhere(&self, at: usize) -> bool {
        self.parts.iter().enumerate().any(|(i, part)| i != at && part.blocked)
    }

    /// Parks, or comes back, wherever that has changed.
    fn park_elsewhere(&mut self, to: &mut Voice<'_>) {
        for at in 0..self.parts.len() {
            if self.parts[at].parked != self.is_blocked_elsewhere(at) {
                self.queue(at, to);
            }
        }
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, quest: None, unheard: Seldom::USUAL }
    }

    /// The user of a request that was granted, as its managers know: all it still has to do is to give back.
    pub fn granted(cfg: &House, request: Request) -> Self {
        let user = Self::new(request.id.user);
        let mut quest = Quest::new(cfg, request, None);
        quest.phase = Phase::Granted;
        for part in quest.parts.iter_mut() {
            (part.answered, part.held) = (true, true);
        }
        Self { quest: Some(quest), ..user }
    }

    fn ask(&mut self, cfg: &House, request: Request, length: Option<Length>, out: &mut Out) {
        let id = RequestId { user: self.id, seq: request.id.seq };
        let quest = Quest::new(cfg, request, length);
        for at in 0..quest.parts.len() {
            quest.send_stance(at, &mut Voice { request: id, out });
        }
        let may_lose = quest.may_lose(cfg);
        self.quest = Some(quest);
        if self.unheard.rung > 0 {
            self.unheard.change(|unheard| unheard.rung = 0);
        }
        if may_lose {
            self.watch(out);
        }
    }

    /// The request under way.
    pub(super) fn request(&self) -> Option<RequestId> {
        self.quest.as_ref().map(|quest| RequestId { user: self.id, seq: quest.seq })
    }

    /// Gives everything back, wherever it stands.
    fn give_back(&mut self, cfg: &House, out: &mut Out) -> Option<RequestId> {
        let request = self.request()?;
        let quest = self.quest.take()?;
        for part in quest.parts.iter() {
            out.to_manager(part.manager, ToManager::Release(request));
            if cfg.may_lose(part.manager) {
                self.unheard.change(|unheard| unheard.owed.insert(part.manager, request));
            }
        }
        if quest.may_lose(cfg) {
            self.watch(out);
        }
        Some(request)
    }

    /// Keeps the timer armed while something is not answered.
    fn watch(&self, out: &mut Out) {
        let waits = self.quest.as_ref().is_some_and(|quest| quest.phase != Phase::Granted);
        if waits || !self.unheard.owed.is_empty() {
            out.arm(Timer::Resend, self.unheard.rung);
        } else {
            out.disarm(Timer::Resend);
        }
    }

    fn on_resend(&mut self, out: &mut Out) {
        let waiting = self.quest.as_ref().filter(|quest| quest.phase != Phase::Granted);
        if let Some((quest, request)) = waiting.zip(self.request()) {
            quest.resend(&mut Voice { request, out });
        }
        for (manager, request) in &self.unheard.owed {
            out.to_manager(*manager, ToManager::Release(*request));
        }
        self.unheard.change(|unheard| unheard.rung = RUNG_MAX.min(unheard.rung + 1));
        self.watch(out);
    }

    /// A manager has done with a request, and so with its release.
    fn on_acknowledged(&mut self, from: Addr, request: RequestId, out: &mut Out) {
        let owed = self.unheard.owed.len();
        if owed > 0 {
            let is_other = |manager: &ManagerId| Addr::Manager(*manager) != from;
            let is_owed =
                |manager: &ManagerId, last: &RequestId| is_other(manager) || *last > request;
            self.unheard
                .change(|unheard| unheard.owed.retain(|manager, last| is_owed(manager, last)));
        }
        if self.unheard.owed.len() < owed {
            self.watch(out);
        }
    }

    fn on_message(&mut self, cfg: &House, from: Addr, msg: ToUser, out: &mut Out) {
        let about = msg.request();
        if let ToUser::Over(request) = msg {
            self.on_acknowledged(from, request, out);
        }
        let is_under_way = self.request() == Some(about);
        let Some(quest) = self.quest.as_mut().filter(|_| is_under_way) else {
            return; // It crossed our release.
        };
        let Some(at) = quest.parts.iter().position(|part| Addr::Manager(part.manager) == from)
        else {
            return out.misbehaved(from, "an answer that was not asked for");
        };
        let granted = quest.phase == Phase::Granted;
        let mut to = Voice { request: about, out };
        match msg {
            ToUser::No { n, floor, marks, .. } => quest.on_no(cfg, at, n, floor, marks, &mut to),
            ToUser::Over(request) => {
                self.give_back(cfg, out);
                return out.lost(request); // Its user was taken for dead.
            }
            ToUser::Park { turn, on, .. } => quest.on_park(at, turn, on, &mut to),
            ToUser::Yes { n, units, .. } => quest.on_yes(cfg, at, n, units, &mut to),
            ToUser::Yield { n, .. } => quest.on_yield(cfg, at, n, &mut to),
        }
        if quest.phase == Phase::Granted && !granted && quest.may_lose(cfg) {
            self.watch(out);
        }
    }
}

impl Role for User {
    type P = House;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Timer;

    fn step(&mut self, cfg: &House, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, length)) => self.ask(cfg, request, length, out),
            Event::Call(Call::Done | Call::Leave) => {
                if let Some(request) = self.give_back(cfg, out) {
                    out.released(request);
                }
            }
            Event::Gone(_) => {}
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Timer(Timer::Resend) => self.on_resend(out),
        }
    }

    fn check(&self, _: &House) -> Result<(), Broken> {
        let Some(quest) = &self.quest else { return Ok(()) };
        let held = quest.phase != Phase::Granted || quest.parts.iter().all(|part| part.held);
        Broken::unless(held, "H2: whoever is granted holds everywhere")
    }

    fn is_stale(&self, cfg: &House, from: Addr, msg: &ToUser) -> bool {
        let about = msg.request();
        let is_under_way = self.request() == Some(about);
        let Some(quest) = self.quest.as_ref().filter(|_| is_under_way) else {
            let owed =
                self.unheard.owed.iter().any(|(m, id)| Addr::Manager(*m) == from && *id <= about);
            return !(owed && matches!(msg, ToUser::Over(_)));
        };
        let Some(part) = quest.parts.iter().find(|part| Addr::Manager(part.manager) == from) else {
            return false;
        };
        let granted = quest.phase == Phase::Granted && cfg.rules.firm;
        match msg {
            ToUser::No { n, .. } => {
                let last = quest.phase == Phase::Queued && quest.choice.bumps >= cfg.bumps;
                granted || last || *n < part.n
            }
            ToUser::Over(_) => false,
            ToUser::Park { turn, .. } => granted || *turn <= part.turn,
            ToUser::Yes { n, .. } => granted || cfg.rules.latest && *n < part.n,
            ToUser::Yield { n, .. } => granted || *n < part.n,
        }
    }

    /// A user gathers answers, and what it does when it has them all does not depend on their order.
    ///
    /// While it tries, all that comes to it is one answer from each node, and perhaps the word that somebody
    /// wants a hold back, which it never heeds: once it is queued, that is about an earlier stance. While it is
    /// queued, a `Yes` may be followed by a `Yield`; if that comes first, the `Yes` is void, and otherwise the hold
    /// is given back: the same in the end, unless the `Yes` is the last of all, which is not said to be prompt.
    /// A `No` or a `Park` of the same node that is still under way does make a difference.
    fn is_prompt(&self, cfg: &House, from: Addr, msg: &ToUser, alone: bool) -> bool {
        let is_about_it = self.request() == Some(msg.request());
        let sure = is_about_it && cfg.rules.firm && cfg.rules.latest && !cfg.resends();
        let Some(quest) = self.quest.as_ref().filter(|_| sure) else { return false };
        let is_from = |part: &&Part| Addr::Manager(part.manager) == from;
        let Some(part) = quest.parts.iter().find(is_from) else { return false };
        let tries = quest.phase == Phase::Trying;
        match msg {
            ToUser::No { n, .. } => tries && *n == part.n && !part.answered,
            ToUser::Yes { n, .. } => {
                let missing = quest.parts.iter().filter(|part| !part.held).count();
                (tries || alone) && *n == part.n && missing > 1
            }
            ToUser::Yield { .. } => tries,
            ToUser::Over(_) | ToUser::Park { .. } => false,
        }
    }

    fn stage(&self) -> &'static str {
        match self.quest.as_ref().map(|quest| quest.phase) {
            Some(Phase::Trying) => "trying",
            Some(Phase::Queued) => "queued",
            Some(Phase::Granted) | None => "",
        }
    }

    fn is_idle(&self) -> bool {
        self.quest.is_none() && self.unheard.owed.is_empty()
    }
}
