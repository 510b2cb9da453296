//! A machine that has joined, and says what it likes: what it has heard, changed here and there; answers to what it was
//! asked that nobody needs; requests of its own that make no sense.
//!
//! It guards nothing that anybody should count on, and nobody looks whether it uses what it holds. In the end it is forgotten.

use std::sync::Arc;

use holdall_cell::Input;
use holdall_cell::peer::{Asserted, Assertion, Given, Order, PeerMessage, Term};
use holdall_core::{CellId, Home, Life, Needs, Picked, RequestId, UserId};
use holdall_protocols::house::{ToManager, ToUser};
use holdall_wire::{Need, Refusal, Taken};
use rand::RngExt;

use crate::net::Body;
use crate::world::{Done, World};

/// How many messages it has in mind.
const OVERHEARD: usize = 24;

impl World<'_> {
    /// It hears something, and keeps it in mind.
    pub(crate) fn overhear(&mut self, _from: usize, message: PeerMessage) -> Done {
        if self.overheard.len() == OVERHEARD {
            let at = self.rng.random_range(0..OVERHEARD);
            self.overheard.swap_remove(at);
        }
        self.overheard.push(message);
        Ok(())
    }

    /// It says something to everybody it has a link to.
    pub(crate) fn say_anything(&mut self, node: usize) {
        for other in self.others(node) {
            let is_up =
                self.nodes[node].running.as_ref().is_some_and(|r| r.links.contains_key(&other));
            if is_up && self.chance(40.0) {
                let message = self.anything(node, other);
                let cell = self.nodes[other].member.cell;
                self.send(node, cell, Body::Peer(Box::new(message)));
            }
        }
    }

    fn anything(&mut self, node: usize, other: usize) -> PeerMessage {
        let (own, theirs) = (self.nodes[node].member.cell, self.nodes[other].member.cell);
        if !self.overheard.is_empty() && self.chance(50.0) {
            let at = self.rng.random_range(0..self.overheard.len());
            let message = self.overheard[at].clone();
            return self.mutated(&message);
        }
        let cell = if self.chance(80.0) { own } else { theirs };
        let id = self.some_id(cell);
        let heard = self.id_of(theirs);
        match self.rng.random_range(0..9) {
            0 | 1 => PeerMessage::ToManager { message: ToManager::Release(id), order: None },
            2..5 => {
                let order = self.order();
                let needs = Needs::new(vec![holdall_core::Need::any(Default::default(), 1)]);
                let message = ToManager::attempt(id, needs.expect("one need"));
                PeerMessage::ToManager { message, order: Some(order) }
            }
            5 => {
                let (n, units) = (self.rng.random_range(0..3), Picked::new());
                let message = ToUser::Yes { request: heard, n, units };
                PeerMessage::ToUser { message, given: Some(self.given()) }
            }
            6 => PeerMessage::Refused { request: heard, why: Refusal::Busy("no".into()) },
            7 => {
                let term = Term { millis: self.rng.random_range(0..u64::MAX), mark: 7 };
                if self.chance(50.0) {
                    PeerMessage::Keep { request: id, term }
                } else {
                    PeerMessage::Kept { request: heard, mark: 7 }
                }
            }
            _ => {
                let (order, given) = (self.order(), self.given());
                let held = vec![Asserted { request: id, order, given, term: None }];
                let waiting = vec![(self.some_id(own), Some(3))];
                PeerMessage::Assert(Assertion { waiting, held, last: self.chance(50.0) })
            }
        }
    }

    /// The same with some of its bytes changed, if that says anything.
    fn mutated(&mut self, message: &PeerMessage) -> PeerMessage {
        let Ok(bytes) = postcard::to_allocvec(message) else { return message.clone() };
        for _ in 0..4 {
            let mut changed = bytes.clone();
            for _ in 0..self.rng.random_range(0..3) {
                let at = self.rng.random_range(0..changed.len());
                changed[at] = self.rng.random_range(0..=255);
            }
            if let Ok(message) = postcard::from_bytes(&changed) {
                return message;
            }
        }
        message.clone()
    }

    fn some_id(&mut self, cell: CellId) -> RequestId {
        let home = Home { cell, life: Life(self.rng.random_range(0..3)) };
        let lane = if self.chance(97.0) { self.rng.random_range(0..4) } else { UserId::LANES - 1 };
        let mut user = UserId::first_at(home, lane);
        for _ in 0..self.rng.random_range(0..3) {
            user = user.next_generation().unwrap_or(user);
        }
        RequestId { user, seq: if self.chance(97.0) { 1 } else { 2 } }
    }

    /// A request that it was asked something about, if there is one.
    fn id_of(&mut self, cell: CellId) -> RequestId {
        let mut ids = self.overheard.iter().filter_map(|message| match message {
            PeerMessage::ToManager { message, .. } => Some(message.request()),
            _ => None,
        });
        let id = ids.find(|id| id.user.home().cell == cell);
        id.unwrap_or_else(|| self.some_id(cell))
    }

    fn order(&mut self) -> Order {
        let needs = ["board", "board:2", "board/0", "scope", "scope:shared", "slow", "db", "x/y"];
        let need: Need = needs[self.rng.random_range(0..needs.len())].parse().expect("a need");
        Order { needs: vec![need], who: Arc::default(), now: self.chance(30.0) }
    }

    fn given(&mut self) -> Given {
        let pools = [("board", "board/0"), ("scope", "scope"), ("db", "db"), ("nothing", "x")];
        let (pool, unit) = pools[self.rng.random_range(0..pools.len())];
        let fence = if self.chance(50.0) { u64::MAX } else { self.rng.random_range(0..1 << 36) };
        let units = vec![(unit.parse().expect("a name"), fence)];
        let taken = [Taken { name: pool.parse().expect("a name"), units }].into();
        Given { taken, leased: self.chance(50.0) }
    }

    /// It is forgotten by everybody.
    pub(crate) fn forget_the_hostile(&mut self) -> Done {
        let Some(node) = self.nodes.iter().position(|node| node.is_hostile) else { return Ok(()) };
        self.nodes[node].dead = true;
        self.forget(node)
    }

    /// What a machine takes that has no cell worth the name: nothing.
    pub(crate) fn ignores(&self, node: usize, input: &Input) -> bool {
        self.nodes[node].is_hostile && !matches!(input, Input::Started(_))
    }
}
