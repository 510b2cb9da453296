//! What follows from inputs: it is done, said to other machines, and heard there.

use holdall_cell::lease::Given;
use holdall_cell::peer::{Assertion, PeerMessage};
use holdall_cell::{Effect, Input};
use holdall_core::CellId;
use holdall_wire::RequestNo;
use holdall_wire::holder::{CgroupId, Record};
use rand::RngExt;

use crate::Mutant;
use crate::bystander::Violation;
use crate::net::{Body, Frame};
use crate::world::{Done, Event, TICK, World};

impl World<'_> {
    /// A machine takes an input, and what follows leaves.
    pub(crate) fn input(&mut self, node: usize, input: Input) -> Done {
        if self.ignores(node, &input) {
            return Ok(());
        }
        self.tell(|| format!("c{node} <- {input:?}"));
        let effects = self.nodes[node].input(self.at, input);
        self.carry_out(node, effects)
    }

    pub(crate) fn carry_out(&mut self, node: usize, effects: Result<Vec<Effect>, String>) -> Done {
        let broken = |what| Violation::Broken { at: self.at, cell: format!("c{node}"), what };
        for effect in effects.map_err(broken)? {
            if self.is_faulty() && self.chance(0.1) {
                self.crash(node); // Between any two.
                return Ok(());
            }
            self.follow(node, effect)?;
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, node: usize, effect: Effect) -> Done {
        self.tell(|| format!("c{node} -> {effect:?}"));
        match effect {
            Effect::Send(cell, message) => self.send(node, cell, Body::Peer(message)),
            Effect::Unlink(cell, what) => return self.unlink(node, cell, what),
            Effect::Reply { conn, call, reply } => {
                if let Some(client) = self.client_of(node, conn) {
                    self.hear(client, call, reply, None)?;
                }
            }
            Effect::Welcome { conn, answers, .. } => {
                if let Some(client) = self.client_of(node, conn) {
                    self.welcome(client, answers)?;
                }
            }
            Effect::TurnedAway(conn, _) => {
                if let Some(client) = self.client_of(node, conn) {
                    self.lose_all(client);
                }
            }
            Effect::NotTaken(conn, ..) | Effect::Close(conn) => {
                if let Some(client) = self.client_of(node, conn) {
                    self.clients[client].conn = None;
                }
            }
            Effect::WatchSession(session, _) => {
                if self.dead.contains(&session) {
                    self.input(node, Input::Over(session))?;
                }
            }
            Effect::Prepare(request) => {
                let delay = self.rng.random_range(1..60);
                self.after(delay, Event::Prepared { node, request });
            }
            Effect::Watch(request, _) | Effect::End(request, _) | Effect::Kill(request, _) => {
                self.stop_processes(node, request);
                let delay = self.rng.random_range(1..200);
                self.after(delay, Event::HolderEnded { node, request });
            }
            Effect::Forget(session, _) => {
                let client = self.clients.iter().position(|client| client.session() == session);
                if let Some(client) = client {
                    self.lose_all(client);
                }
            }
            Effect::Arm(..) | Effect::Disarm(_) | Effect::Unused(_) => {}
            Effect::Unfit(..) | Effect::LeftOut(..) => {}
        }
        Ok(())
    }

    /// A link is cut, because of what came over it: that no honest machine says.
    fn unlink(&mut self, node: usize, cell: CellId, what: &'static str) -> Done {
        let other = self.nodes.iter().position(|other| other.member.cell == cell);
        match other.filter(|other| self.nodes[*other].is_hostile) {
            Some(other) => {
                self.report.cut += 1;
                self.cut(node, other);
                Ok(())
            }
            None => {
                let (at, cell, what) = (self.at, format!("c{node}"), what.into());
                Err(Violation::Broken { at, cell, what })
            }
        }
    }

    pub(crate) fn send(&mut self, from: usize, cell: CellId, body: Body) {
        let Some(to) = self.nodes.iter().position(|node| node.member.cell == cell) else { return };
        let links = self.nodes[from].running.as_ref().map(|running| &running.links);
        let Some(number) = links.and_then(|links| links.get(&to)).copied() else { return };
        self.send_over(from, to, number, body);
    }

    /// Something is said over a connection.
    pub(crate) fn send_over(&mut self, from: usize, to: usize, number: u64, body: Body) {
        let delay = match self.rng.random_range(0..50) {
            0 if self.is_faulty() => self.rng.random_range(700..4000),
            0..4 => self.rng.random_range(50..700),
            _ => self.rng.random_range(1..30),
        };
        if let Some(arrival) = self.net.arrives(from, to, number, self.at, delay) {
            // That tells nobody how long the log is.
            let is_silent = matches!(body, Body::First(_) | Body::Beaten(_));
            let length = if is_silent { 0 } else { self.nodes[from].presence().length };
            let frame = Frame { length, body };
            self.after(arrival - self.at, Event::Arrive { from, to, number, frame });
        }
    }

    pub(crate) fn arrive(&mut self, from: usize, to: usize, number: u64, frame: Frame) -> Done {
        let old = self.settings.mutant == Some(Mutant::OldConnections);
        if !self.net.delivers(from, to, number) && !old {
            return Ok(());
        }
        let (cell, clock) = (self.nodes[from].member.cell, self.nodes[to].clock(self.at));
        if let Body::First(first) = frame.body {
            return self.hear_what_is_known(to, from, number, first);
        }
        let Some(running) = &mut self.nodes[to].running else { return Ok(()) };
        if running.links.get(&from) != Some(&number) && !old {
            return Ok(());
        }
        if let Some(known) = running.known.get_mut(&from) {
            known.has_come_to(frame.length);
        }
        let is_kept = self.settings.mutant != Some(Mutant::HeardForgotten);
        let length = if is_kept { frame.length } else { 0 };
        match frame.body {
            Body::First(_) => Ok(()),
            Body::Beat(sent) => {
                running.leases.heard(clock, cell);
                if running.cell.books().ties().is_to_be_kept(cell, length) {
                    self.input(to, Input::CameTo { cell, length })?;
                }
                self.confirm(to, from, sent);
                Ok(())
            }
            Body::Beaten(sent) => {
                let receipt = self.settings.mutant == Some(Mutant::LeaseFromReceipt);
                running.leases.confirmed(if receipt { clock } else { sent }, cell);
                self.tell_who_waits(to)
            }
            Body::Peer(message) if self.nodes[to].is_hostile => self.overhear(from, *message),
            Body::Peer(message) => match self.as_heard(to, cell, *message) {
                Some(message) => {
                    let is_all = matches!(&message, PeerMessage::Assert(some) if some.last);
                    self.input(to, Input::Said { cell, message: Box::new(message), length })?;
                    if is_all {
                        self.settle(to, from, true);
                    }
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    /// A message as it is heard; none if something is wrong on purpose, and it is not.
    fn as_heard(&mut self, to: usize, from: CellId, message: PeerMessage) -> Option<PeerMessage> {
        match (self.settings.mutant, message) {
            (Some(Mutant::AssertionsIgnored), PeerMessage::Assert(all)) => {
                Some(PeerMessage::Assert(Assertion { last: all.last, ..Assertion::default() }))
            }
            (Some(Mutant::KeepUnconfirmed), PeerMessage::Keep { request, term }) => {
                let kept = PeerMessage::Kept { request, mark: term.mark };
                self.send(to, from, Body::Peer(Box::new(kept)));
                None
            }
            (Some(Mutant::KeepUnconfirmed), PeerMessage::Assert(mut all)) => {
                all.held.iter_mut().for_each(|one| one.term = None);
                Some(PeerMessage::Assert(all))
            }
            (_, message) => Some(message),
        }
    }

    /// A grant is about to be told: not before it is known until when it may be used, nor when that is too late.
    pub(crate) fn prepared(&mut self, node: usize, request: RequestNo) -> Done {
        let clock = self.nodes[node].clock(self.at);
        let Some(running) = &self.nodes[node].running else { return Ok(()) };
        match running.cell.given(&running.leases, request, clock) {
            Given::Own | Given::Until(_) => {}
            Given::Unknown => {
                self.after(TICK, Event::Prepared { node, request });
                return Ok(());
            }
            Given::Over(cell) => return self.input(node, Input::LeaseOver(cell)),
        }
        let entry = running.cell.books().get(request);
        let is_command = entry.is_some_and(|entry| entry.leftovers().is_some());
        let holder = is_command.then(|| holder(&running.cell.clock().boot, request));
        self.input(node, Input::Prepared { request, holder, place: None })
    }
}

/// The processes of a command.
pub(crate) fn holder(boot: &str, request: RequestNo) -> Box<Record> {
    let cgroup = CgroupId { path: "grant".into(), inode: request.0, root: 1 };
    Box::new(Record { boot: boot.into(), cgroup: Some(cgroup), ..Record::default() })
}
