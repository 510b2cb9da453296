//! A machine whose log is written late, as one in etcd is: what follows from a record leaves when that is written, in the order in
//! which it came up. Whoever goes on from that log knows of nothing that was not written by then, and nobody was told of it.

use std::collections::VecDeque;

use holdall_cell::lease::Given;
use holdall_cell::session::{CallNo, ConnNo};
use holdall_cell::{Effect, Input};
use holdall_core::CellId;
use holdall_wire::Reply;
use rand::RngExt;

use crate::net::Body;
use crate::world::{Done, Event, World};
use crate::{Mutant, TERMS};

/// A grant is told with this: until when it may be used, as far as others guard it, and as a reservation.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) until: Option<u64>,
    pub(crate) reserved: Option<u64>,
}

/// What waits for the log.
pub(crate) enum Held {
    Effect(Effect),
    /// Somebody is told of a grant.
    Granted(ConnNo, CallNo, Reply, Told),
    /// Something is said over the connection with this number.
    Said(CellId, u64, Body),
}

/// What waits, each with how long the log has to be.
pub(crate) type Waiting = VecDeque<(u64, Held)>;

impl World<'_> {
    /// Whether something has to wait for the log of a machine.
    fn is_late(&self, node: usize) -> bool {
        self.nodes[node].is_late && self.settings.mutant != Some(Mutant::ToldBeforeWritten)
    }

    /// Something follows from an input: it waits for the log, unless nobody notices it.
    pub(crate) fn follow(&mut self, node: usize, effect: Effect) -> Done {
        let effect = match effect {
            Effect::Reply { conn, call, reply: reply @ Reply::Granted { .. } } => {
                return self.tell_of(node, conn, call, reply);
            }
            Effect::Welcome { conn, life, last, answers } => {
                return self.welcome_back(node, (conn, life, last), answers);
            }
            effect => effect,
        };
        self.follow_up(node, effect)
    }

    /// The same of what is no grant.
    fn follow_up(&mut self, node: usize, effect: Effect) -> Done {
        match effect {
            effect if !self.is_late(node) => self.take(node, effect),
            Effect::Prepare(_) => self.take(node, effect),
            Effect::Send(cell, message) => {
                self.say(node, cell, Body::Peer(message));
                Ok(())
            }
            effect => {
                self.hold(node, Held::Effect(effect));
                Ok(())
            }
        }
    }

    /// A grant is to be told: as the service does it, with what its lease is now, or when that is known; not if it is over.
    fn tell_of(&mut self, node: usize, conn: ConnNo, call: CallNo, reply: Reply) -> Done {
        let Reply::Granted { request, .. } = reply else { return Ok(()) };
        let clock = self.nodes[node].clock(self.at);
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        let held = running.cell.books().get(request).and_then(|entry| entry.held.as_ref());
        let reserved = held.and_then(|held| held.until);
        let until = match running.cell.given(&running.leases, request, clock) {
            Given::Own => None,
            Given::Until(at) => Some(at),
            Given::Unknown => {
                running.untold.push((conn, call, reply));
                return Ok(());
            }
            Given::Over(cell) => return self.input(node, Input::LeaseOver(cell)),
        };
        let told = Told { until, reserved };
        match self.is_late(node) {
            true => {
                self.hold(node, Held::Granted(conn, call, reply, told));
                Ok(())
            }
            false => self.told(node, conn, call, reply, told),
        }
    }

    fn told(&mut self, node: usize, conn: ConnNo, call: CallNo, reply: Reply, told: Told) -> Done {
        self.tell(|| format!("c{node} -> {reply:?} until {:?}", told.until));
        match self.client_of(node, conn) {
            Some(client) => self.hear(client, call, reply, Some(told)),
            None => Ok(()),
        }
    }

    /// Somebody has come back: what it holds it is told by itself.
    fn welcome_back(
        &mut self,
        node: usize,
        (conn, life, last): (ConnNo, u128, CallNo),
        mut answers: Vec<(CallNo, Option<Reply>)>,
    ) -> Done {
        let mut granted = Vec::new();
        for (call, answer) in &mut answers {
            if let Some(reply) = answer.take_if(|reply| matches!(reply, Reply::Granted { .. })) {
                granted.push((*call, reply));
            }
        }
        self.follow_up(node, Effect::Welcome { conn, life, last, answers })?;
        for (call, reply) in granted {
            self.tell_of(node, conn, call, reply)?;
        }
        self.tell_who_waits(node)
    }

    /// A lease was confirmed, or somebody has come back: whoever waits for that is told, unless what it was given is over by now.
    pub(crate) fn tell_who_waits(&mut self, node: usize) -> Done {
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        for (conn, call, reply) in std::mem::take(&mut running.untold) {
            let Reply::Granted { request, .. } = &reply else { continue };
            let Some(running) = &self.nodes[node].running else { return Ok(()) };
            let entry = running.cell.books().get(*request);
            let stands =
                entry.is_some_and(|entry| entry.is_in_hand() && entry.taken_away.is_none());
            if stands && self.client_of(node, conn).is_some() {
                self.tell_of(node, conn, call, reply)?;
            }
        }
        Ok(())
    }

    /// Something is said to another machine, after all that came up before.
    pub(crate) fn say(&mut self, node: usize, cell: CellId, body: Body) {
        if !self.is_late(node) {
            return self.send(node, cell, body);
        }
        if let Some(number) = self.link(node, cell) {
            self.hold(node, Held::Said(cell, number, body));
        }
    }

    /// The number of the connection to another machine, as far as this one knows.
    fn link(&self, node: usize, cell: CellId) -> Option<u64> {
        let other = self.nodes.iter().position(|node| node.member.cell == cell)?;
        self.nodes[node].running.as_ref()?.links.get(&other).copied()
    }

    fn hold(&mut self, node: usize, held: Held) {
        let (length, written) = (self.nodes[node].length(), self.nodes[node].written());
        let Some(running) = &mut self.nodes[node].running else { return };
        running.held.push_back((length, held));
        let nonce = running.nonce;
        let delay = match self.rng.random_range(0..100) {
            _ if length == written => 0,
            0 if self.is_faulty() => self.rng.random_range(1000..2 * TERMS.lease),
            1..10 if self.is_faulty() => self.rng.random_range(50..1000),
            _ => self.rng.random_range(1..20),
        };
        self.after(delay, Event::Written { node, nonce, length });
    }

    /// The log of a machine is written up to here: what rests on it leaves.
    pub(crate) fn written(&mut self, node: usize, nonce: u128, length: u64) -> Done {
        if !self.nodes[node].is_written(nonce, length) {
            return Ok(());
        }
        loop {
            let upto = self.nodes[node].written();
            let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
            let Some((_, held)) = running.held.pop_front_if(|(length, _)| *length <= upto) else {
                return Ok(());
            };
            if self.is_faulty() && self.chance(0.1) {
                self.crash(node); // Between any two.
                return Ok(());
            }
            match held {
                Held::Effect(effect) => self.take(node, effect)?,
                Held::Granted(conn, call, reply, told) => {
                    self.told(node, conn, call, reply, told)?;
                }
                Held::Said(cell, number, body) if self.link(node, cell) == Some(number) => {
                    self.send(node, cell, body);
                }
                Held::Said(..) => {}
            }
        }
    }

    /// A beat has come: what was taken from its home by then, that is told before it is confirmed.
    pub(crate) fn confirm(&mut self, node: usize, other: usize, sent: u64) {
        let cell = self.nodes[other].member.cell;
        let Some(running) = &self.nodes[node].running else { return };
        let settled = running.settled.get(&other).copied();
        let upto = self.nodes[node].written();
        let waits = running.held.front().map_or(u64::MAX, |(length, _)| *length);
        let has_left = settled.is_some_and(|settled| settled <= upto && settled < waits);
        match has_left {
            true => self.send(node, cell, Body::Beaten(sent)),
            false => self.say(node, cell, Body::Beaten(sent)),
        }
    }

    /// What was just taken from a machine, or heard of what it holds, is told before its next beat is confirmed.
    pub(crate) fn settle(&mut self, node: usize, other: usize, is_heard: bool) {
        let length = self.nodes[node].length();
        if let Some(running) = &mut self.nodes[node].running
            && (is_heard || running.settled.contains_key(&other))
        {
            running.settled.insert(other, length);
        }
    }
}
