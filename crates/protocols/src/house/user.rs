//! The user: tries everywhere, chooses a round if it must, follows what the managers say.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use holdall_core::{
    Addr, Broken, Call, Event, Gone, ManagerId, Need, Needs, Never, Outbox, Request, RequestId,
    Role, UserId,
};
use serde::{Deserialize, Serialize};

use super::manager::first_free;
use super::{House, Round, ToManager, ToUser};

type Out = Outbox<House, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    quest: Option<Quest>,
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Quest {
    request: Request,
    phase: Phase,
    /// One for each node.
    parts: Vec<Part>,
    round: Option<Round>,
    floor: Option<Round>,
    marks: BTreeSet<Round>,
    bumps: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    /// Nodes are asked to hold what is free.
    Trying,
    /// Queued everywhere under a round.
    Queued,
    /// Everything is held.
    Granted,
}

/// What is wanted of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Part {
    manager: ManagerId,
    needs: Needs,
    /// The latest stance there.
    n: u32,
    answered: bool,
    held: bool,
    /// Whether the latest stance was to keep only the place.
    parked: bool,
    /// Whether the request waits there behind an overdue holder, as of the manager's `turn`.
    blocked: bool,
    turn: u32,
}

impl Quest {
    fn new(cfg: &House, request: Request) -> Self {
        let mut by_manager: BTreeMap<ManagerId, Vec<Need>> = BTreeMap::new();
        for need in request.needs.iter() {
            by_manager.entry(cfg.manager_of(need.pool)).or_default().push(*need);
        }
        let part = |(manager, list): (ManagerId, Vec<Need>)| {
            let needs = Needs::new(list).ok()?;
            Some(Part {
                manager,
                needs,
                n: 0,
                answered: false,
                held: false,
                parked: false,
                blocked: false,
                turn: 0,
            })
        };
        Self {
            request,
            phase: Phase::Trying,
            parts: by_manager.into_iter().filter_map(part).collect(),
            round: None,
            floor: None,
            marks: BTreeSet::new(),
            bumps: 0,
        }
    }

    /// Takes a new stance at one node, which ends whatever is held there.
    fn queue(&mut self, at: usize, out: &mut Out) {
        let elsewhere = |(i, part): (usize, &Part)| i != at && part.blocked;
        let parked = self.parts.iter().enumerate().any(elsewhere);
        let part = &mut self.parts[at];
        part.n += 1;
        (part.held, part.parked) = (false, parked);
        let queue = ToManager::Queue {
            request: self.request.id,
            n: part.n,
            round: self.round.unwrap_or_default(),
            base: self.floor,
            needs: part.needs.clone(),
            parked,
        };
        out.to_manager(part.manager, queue);
    }

    /// Takes the least round that is free everywhere, as far as is known.
    fn choose(&mut self, out: &mut Out) {
        self.phase = Phase::Queued;
        self.round = Some(first_free(self.floor.max(self.round), &self.marks));
        self.marks.clear();
        for at in 0..self.parts.len() {
            self.queue(at, out);
        }
    }

    fn settle(&mut self, out: &mut Out) {
        if self.parts.iter().all(|part| part.held) {
            self.phase = Phase::Granted;
            out.granted(self.request.clone());
        } else if self.phase == Phase::Trying && self.parts.iter().all(|part| part.answered) {
            self.choose(out);
        }
    }

    fn on_yes(&mut self, cfg: &House, at: usize, n: u32, out: &mut Out) {
        let part = &mut self.parts[at];
        if (n == part.n || !cfg.rules.latest) && self.phase != Phase::Granted && !part.held {
            (part.answered, part.held) = (true, true);
            self.settle(out);
        }
    }

    fn on_no(
        &mut self,
        cfg: &House,
        at: usize,
        n: u32,
        floor: Option<Round>,
        marks: BTreeSet<Round>,
        out: &mut Out,
    ) {
        let part = &mut self.parts[at];
        let again = self.phase == Phase::Queued && !part.held && self.bumps < cfg.bumps;
        let first = self.phase == Phase::Trying && !part.answered;
        if n != part.n || !first && !again {
            return;
        }
        part.answered = true;
        self.floor = self.floor.max(floor);
        self.marks.extend(marks);
        if again {
            self.bumps += 1;
            self.choose(out);
        } else {
            self.settle(out);
        }
    }

    fn on_yield(&mut self, cfg: &House, at: usize, n: u32, out: &mut Out) {
        let may = self.phase == Phase::Queued || self.phase == Phase::Granted && !cfg.rules.firm;
        if n == self.parts[at].n && may {
            self.queue(at, out);
        }
    }

    /// Parks at the other nodes, or comes back.
    fn on_park(&mut self, at: usize, turn: u32, on: bool, out: &mut Out) {
        let part = &mut self.parts[at];
        if turn <= part.turn || self.phase != Phase::Queued {
            return;
        }
        (part.turn, part.blocked) = (turn, on);
        for other in 0..self.parts.len() {
            let elsewhere = |(i, part): (usize, &Part)| i != other && part.blocked;
            if self.parts[other].parked != self.parts.iter().enumerate().any(elsewhere) {
                self.queue(other, out);
            }
        }
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, quest: None }
    }

    fn ask(&mut self, cfg: &House, request: Request, out: &mut Out) {
        let quest = Quest::new(cfg, request);
        let solo = quest.parts.len() == 1;
        for part in &quest.parts {
            let attempt =
                ToManager::Try { request: quest.request.id, needs: part.needs.clone(), solo };
            out.to_manager(part.manager, attempt);
        }
        self.quest = Some(quest);
    }

    fn end(&mut self, out: &mut Out) {
        let Some(quest) = self.quest.take() else { return };
        for part in &quest.parts {
            out.to_manager(part.manager, ToManager::Release(quest.request.id));
        }
        out.released(quest.request.id);
    }

    fn on_message(&mut self, cfg: &House, from: Addr, msg: ToUser, out: &mut Out) {
        let about = msg.request();
        let Some(quest) = self.quest.as_mut().filter(|quest| quest.request.id == about) else {
            return; // It crossed our release.
        };
        let Some(at) = quest.parts.iter().position(|part| Addr::Manager(part.manager) == from)
        else {
            return out.misbehaved(from, "an answer that was not asked for");
        };
        match msg {
            ToUser::No { n, floor, marks, .. } => quest.on_no(cfg, at, n, floor, marks, out),
            ToUser::Over(request) => self.lose(request, out),
            ToUser::Park { turn, on, .. } => quest.on_park(at, turn, on, out),
            ToUser::Yes { n, .. } => quest.on_yes(cfg, at, n, out),
            ToUser::Yield { n, .. } => quest.on_yield(cfg, at, n, out),
        }
    }

    /// The request is over although the client lives: everything else of it is given back.
    fn lose(&mut self, request: RequestId, out: &mut Out) {
        let Some(quest) = self.quest.take() else { return };
        for part in &quest.parts {
            out.to_manager(part.manager, ToManager::Release(request));
        }
        out.lost(request);
    }
}

impl Role for User {
    type P = House;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &House, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(out),
            Event::Gone { who, how: Gone::Lapsed } if who == Addr::User(self.id) => {
                if let Some(quest) = &self.quest {
                    self.lose(quest.request.id, out);
                }
            }
            Event::Gone { .. } => {}
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &House) -> Result<(), Broken> {
        let Some(quest) = &self.quest else { return Ok(()) };
        Broken::unless(quest.request.id.user == self.id, "a user asks for itself")?;
        let held = quest.phase != Phase::Granted || quest.parts.iter().all(|part| part.held);
        Broken::unless(held, "H2: whoever is granted holds everywhere")
    }

    fn is_stale(&self, cfg: &House, from: Addr, msg: &ToUser) -> bool {
        let about = msg.request();
        let Some(quest) = self.quest.as_ref().filter(|quest| quest.request.id == about) else {
            return true;
        };
        let Some(part) = quest.parts.iter().find(|part| Addr::Manager(part.manager) == from) else {
            return false;
        };
        let granted = quest.phase == Phase::Granted && cfg.rules.firm;
        match msg {
            ToUser::No { n, .. } => {
                let last = quest.phase == Phase::Queued && quest.bumps >= cfg.bumps;
                granted || last || *n < part.n
            }
            ToUser::Over(_) => false,
            ToUser::Park { turn, .. } => granted || *turn <= part.turn,
            ToUser::Yes { n, .. } => granted || cfg.rules.latest && *n < part.n,
            ToUser::Yield { n, .. } => granted || *n < part.n,
        }
    }

    fn quiet(&self) -> bool {
        self.quest.is_none()
    }
}
