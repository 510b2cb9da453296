//! A machine whose log is written late, as one in etcd is: what follows from a record leaves when that is written, in the order in
//! which it came up. Whoever goes on from that log knows of nothing that was not written by then, and nobody was told of it.

use std::collections::VecDeque;

use holdall_cell::Effect;
use holdall_core::CellId;
use rand::RngExt;

use crate::net::Body;
use crate::world::{Done, Event, World};
use crate::{Mutant, TERMS};

/// What waits for the log.
pub(crate) enum Held {
    Effect(Effect),
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
