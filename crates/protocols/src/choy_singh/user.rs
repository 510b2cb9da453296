//! The user: passes two doors, then collects forks.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Call, Event, Never, Outbox, Request, RequestId, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{ChoySingh, Passed, ToUser};

type Out = Outbox<ChoySingh, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    trying: Option<Trying>,
    /// In the order of the neighbours.
    edges: Vec<Edge>,
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Trying {
    request: Request,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Step {
    /// Before the outer door.
    Outside,
    /// Before the inner door.
    Between,
    /// Behind both.
    Collecting,
    Eating,
}

/// One end of the edge to a neighbour.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Edge {
    fork: bool,
    /// With the token one may ask for the fork; with both, one was asked.
    token: bool,
    /// The token was sent, and the fork has not come since.
    asked: bool,
    /// How far the neighbour has come, by its latest news.
    news: Option<(RequestId, Passed)>,
    /// While one waits before the outer door: the neighbour was seen outside.
    seen_outside: bool,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.fork { "fork" } else { "no fork" })?;
        f.write_str(if self.token { ", token" } else { "" })?;
        f.write_str(if self.asked { ", asked" } else { "" })?;
        f.write_str(if self.seen_outside { ", seen outside" } else { "" })?;
        self.news.map_or(Ok(()), |(request, passed)| write!(f, ", {request:?} {passed:?}"))
    }
}

impl Edge {
    fn is_outside(&self) -> bool {
        self.news.is_none_or(|(_, passed)| passed == Passed::Out)
    }

    fn is_inside(&self) -> bool {
        self.news.is_some_and(|(_, passed)| passed == Passed::Inner)
    }
}

impl User {
    pub(super) fn new(cfg: &ChoySingh, id: UserId) -> Self {
        let edge = |neighbour: &UserId| {
            let fork = id < *neighbour;
            Edge { fork, token: !fork, asked: false, news: None, seen_outside: false }
        };
        Self { id, trying: None, edges: cfg.neighbours.of(id).iter().map(edge).collect() }
    }

    fn step_now(&self) -> Option<Step> {
        self.trying.as_ref().map(|trying| trying.step)
    }

    fn ask(&mut self, cfg: &ChoySingh, request: Request, out: &mut Out) {
        if self.trying.is_some() || !cfg.neighbours.may_ask(self.id, &request.needs) {
            return out.misbehaved(Addr::User(self.id), "asks twice, or for what it never named");
        }
        for edge in &mut self.edges {
            edge.seen_outside = edge.is_outside();
        }
        self.trying = Some(Trying { request, step: Step::Outside });
        self.go_on(cfg, out);
    }

    /// Passes doors, gives, asks and eats, as far as it goes.
    fn go_on(&mut self, cfg: &ChoySingh, out: &mut Out) {
        if self.step_now() == Some(Step::Outside)
            && (!cfg.rules.outer || self.edges.iter().all(|edge| edge.seen_outside))
        {
            self.edges.iter_mut().for_each(|edge| edge.seen_outside = false);
            self.pass(cfg, Step::Between, Passed::Outer, out);
        }
        if self.step_now() == Some(Step::Between)
            && !(cfg.inner && self.edges.iter().any(Edge::is_inside))
        {
            self.pass(cfg, Step::Collecting, Passed::Inner, out);
        }
        self.exchange_forks(cfg, out);
        if let Some(Trying { request, step: step @ Step::Collecting }) = &mut self.trying
            && self.edges.iter().all(|edge| edge.fork)
        {
            *step = Step::Eating;
            out.granted(request.clone());
        }
    }

    fn pass(&mut self, cfg: &ChoySingh, step: Step, passed: Passed, out: &mut Out) {
        let Some(trying) = &mut self.trying else { return };
        trying.step = step;
        for neighbour in cfg.neighbours.of(self.id) {
            out.to_user(*neighbour, ToUser::Passed(trying.request.id, passed));
        }
    }

    /// The low forks first: whether all of them are here decides about the others.
    fn exchange_forks(&mut self, cfg: &ChoySingh, out: &mut Out) {
        let mut all_low = true;
        for low in [true, false] {
            for place in 0..self.edges.len() {
                if cfg.is_low(self.id, cfg.neighbours.of(self.id)[place]) == low {
                    self.exchange_fork(cfg, place, low || all_low, out);
                    all_low &= !low || self.edges[place].fork;
                }
            }
        }
    }

    /// Gives a fork up if it was asked for and need not be kept, and asks for it if it is its turn.
    /// A high fork has its turn when all low ones are here.
    fn exchange_fork(&mut self, cfg: &ChoySingh, place: usize, turn: bool, out: &mut Out) {
        let step = self.step_now();
        let neighbour = cfg.neighbours.of(self.id)[place];
        let low = cfg.is_low(self.id, neighbour);
        let edge = &mut self.edges[place];
        let keeps = match step {
            None | Some(Step::Outside | Step::Between) => false,
            Some(Step::Collecting) if low => !cfg.rules.yields,
            Some(Step::Collecting) => turn,
            Some(Step::Eating) => cfg.rules.in_use,
        };
        if edge.fork && edge.token && !keeps {
            edge.fork = false;
            out.to_user(neighbour, ToUser::Fork);
        }
        let wants = step == Some(Step::Collecting) && turn;
        if wants && !edge.fork && edge.token && !edge.asked {
            edge.token = false;
            edge.asked = true;
            out.to_user(neighbour, ToUser::Ask);
        }
    }

    fn on_message(&mut self, cfg: &ChoySingh, from: Addr, msg: &ToUser, out: &mut Out) {
        let Some(place) = cfg.neighbours.place(self.id, from) else {
            return out.misbehaved(from, "no neighbour");
        };
        if self.is_stale(cfg, from, msg) {
            return;
        }
        let outside = self.step_now() == Some(Step::Outside);
        let edge = &mut self.edges[place];
        match msg {
            ToUser::Ask if !edge.token => edge.token = true,
            ToUser::Fork if edge.asked => {
                edge.asked = false;
                edge.fork = true;
            }
            ToUser::Passed(request, passed) if Addr::User(request.user) == from => {
                let old = edge.news;
                // Between two requests it was outside, whether or not that news is here yet.
                let next = old.is_some_and(|(old, _)| *request > old);
                edge.news = Some((*request, *passed));
                edge.seen_outside |= outside && (next || edge.is_outside());
            }
            _ => return out.misbehaved(from, "what it cannot have or did not do"),
        }
        self.go_on(cfg, out);
    }

    /// The use ends. Users that depart are outside the assumptions: one that waits goes on waiting.
    fn end(&mut self, cfg: &ChoySingh, out: &mut Out) {
        let Some(trying) = self.trying.take_if(|trying| trying.step == Step::Eating) else {
            return;
        };
        for neighbour in cfg.neighbours.of(self.id) {
            out.to_user(*neighbour, ToUser::Passed(trying.request.id, Passed::Out));
        }
        out.released(trying.request.id);
        self.exchange_forks(cfg, out);
    }
}

impl Role for User {
    type P = ChoySingh;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &ChoySingh, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Message { from, msg } => self.on_message(cfg, from, &msg, out),
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, cfg: &ChoySingh) -> Result<(), Broken> {
        let mut edges = self.edges.iter();
        Broken::unless(
            edges.all(|e| if e.fork { !e.asked } else { e.token || e.asked }),
            "D1: whoever lacks a fork has the token or has asked, and nobody asks for what it has",
        )?;
        let eating = self.step_now() == Some(Step::Eating);
        Broken::unless(
            !cfg.rules.in_use || !eating || self.edges.iter().all(|edge| edge.fork),
            "D2: whoever eats holds the forks of all its edges",
        )
    }

    /// News that came after later news.
    fn is_stale(&self, cfg: &ChoySingh, from: Addr, msg: &ToUser) -> bool {
        let ToUser::Passed(request, passed) = msg else { return false };
        let known = cfg.neighbours.place(self.id, from).and_then(|place| self.edges[place].news);
        cfg.rules.late && known.is_some_and(|known| (*request, *passed) < known)
    }

    fn is_idle(&self) -> bool {
        self.trying.is_none()
    }
}
