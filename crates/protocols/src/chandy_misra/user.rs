//! The user: a philosopher with a fork, or the means to ask for it, on every edge.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Call, Event, Never, Outbox, Request, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{ChandyMisra, ToUser};

type Out = Outbox<ChandyMisra, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    phase: Phase,
    /// In the order of the neighbours.
    edges: Vec<Edge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    Thinking,
    Hungry(Request),
    Eating(Request),
}

/// One end of the edge to a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Edge {
    fork: bool,
    /// The fork was used since it came.
    dirty: bool,
    /// With the token one may ask for the fork; with both, one was asked.
    token: bool,
    /// The token was sent, and the fork has not come since.
    asked: bool,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fork = match (self.fork, self.dirty) {
            (false, _) => "no fork",
            (true, false) => "clean fork",
            (true, true) => "used fork",
        };
        let token = if self.token { ", token" } else { "" };
        let asked = if self.asked { ", asked" } else { "" };
        write!(f, "{fork}{token}{asked}")
    }
}

impl User {
    pub(super) fn new(cfg: &ChandyMisra, id: UserId) -> Self {
        let edge = |neighbour: &UserId| {
            let fork = cfg.starts_with_fork(id, *neighbour);
            Edge { fork, dirty: fork, token: !fork, asked: false }
        };
        let edges = cfg.neighbours.of(id).iter().map(edge).collect();
        Self { id, phase: Phase::Thinking, edges }
    }

    /// Whether it has the fork of an edge, named by its place among the neighbours.
    pub(crate) fn holds_fork(&self, place: usize) -> bool {
        self.edges[place].fork
    }

    /// Whoever waits may wait for another request instead: forks are the same for all.
    pub(crate) fn wait_instead_for(&mut self, request: &Request) {
        if let Phase::Hungry(old) = &mut self.phase {
            *old = request.clone();
        }
    }

    fn ask(&mut self, cfg: &ChandyMisra, request: Request, out: &mut Out) {
        if !matches!(self.phase, Phase::Thinking)
            || !cfg.neighbours.may_ask(self.id, &request.needs)
        {
            return out.misbehaved(Addr::User(self.id), "asks twice, or for what it never named");
        }
        self.phase = Phase::Hungry(request);
        for place in 0..self.edges.len() {
            self.ask_for(cfg, place, out);
        }
        self.eat_if_all(out);
    }

    /// Whoever is hungry and lacks a fork asks for it, once.
    fn ask_for(&mut self, cfg: &ChandyMisra, place: usize, out: &mut Out) {
        let edge = &mut self.edges[place];
        if matches!(self.phase, Phase::Hungry(_)) && !edge.fork && edge.token && !edge.asked {
            edge.token = false;
            edge.asked = true;
            out.to_user(cfg.neighbours.of(self.id)[place], ToUser::Ask);
        }
    }

    /// Gives a fork up if it was asked for and need not be kept.
    fn give(&mut self, cfg: &ChandyMisra, place: usize, out: &mut Out) {
        let edge = &mut self.edges[place];
        let keeps = match self.phase {
            Phase::Thinking => false,
            Phase::Hungry(_) => !edge.dirty || !cfg.rules.dirty,
            Phase::Eating(_) => cfg.rules.in_use,
        };
        if edge.fork && edge.token && !keeps {
            edge.fork = false;
            edge.dirty = false;
            out.to_user(cfg.neighbours.of(self.id)[place], ToUser::Fork);
            self.ask_for(cfg, place, out);
        }
    }

    fn on_ask(&mut self, cfg: &ChandyMisra, place: usize, out: &mut Out) {
        if self.edges[place].token {
            let neighbour = cfg.neighbours.of(self.id)[place];
            return out.misbehaved(Addr::User(neighbour), "ask: the token is here");
        }
        self.edges[place].token = true;
        self.give(cfg, place, out);
        self.ask_for(cfg, place, out);
    }

    fn on_fork(&mut self, cfg: &ChandyMisra, place: usize, out: &mut Out) {
        let edge = &mut self.edges[place];
        if !edge.asked {
            let neighbour = cfg.neighbours.of(self.id)[place];
            return out.misbehaved(Addr::User(neighbour), "fork: not asked for");
        }
        edge.asked = false;
        edge.fork = true;
        edge.dirty = !cfg.rules.clean;
        self.eat_if_all(out);
        self.give(cfg, place, out);
    }

    fn eat_if_all(&mut self, out: &mut Out) {
        let Phase::Hungry(request) = &self.phase else { return };
        if self.edges.iter().any(|edge| !edge.fork) {
            return;
        }
        for edge in &mut self.edges {
            edge.dirty = true;
        }
        out.granted(request.clone());
        self.phase = Phase::Eating(request.clone());
    }

    /// The use ends. Users that depart are outside the assumptions: one that waits goes on waiting.
    fn end(&mut self, cfg: &ChandyMisra, out: &mut Out) {
        let Phase::Eating(request) = &self.phase else { return };
        out.released(request.id);
        self.phase = Phase::Thinking;
        for place in 0..self.edges.len() {
            self.give(cfg, place, out);
        }
    }
}

impl Role for User {
    type P = ChandyMisra;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &ChandyMisra, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Message { from, msg } => match (cfg.neighbours.place(self.id, from), msg) {
                (Some(place), ToUser::Ask) => self.on_ask(cfg, place, out),
                (Some(place), ToUser::Fork) => self.on_fork(cfg, place, out),
                (None, _) => out.misbehaved(from, "no neighbour"),
            },
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, cfg: &ChandyMisra) -> Result<(), Broken> {
        let mut edges = self.edges.iter();
        Broken::unless(
            edges.all(|e| if e.fork { !e.asked } else { e.token || e.asked }),
            "F1: whoever lacks a fork has the token or has asked, and nobody asks for what it has",
        )?;
        let all_used = || self.edges.iter().all(|edge| edge.fork && edge.dirty);
        Broken::unless(
            !cfg.rules.in_use || !matches!(self.phase, Phase::Eating(_)) || all_used(),
            "F2: whoever eats uses the forks of all its edges",
        )
    }

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Thinking)
    }
}
