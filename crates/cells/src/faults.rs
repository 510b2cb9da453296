//! What goes wrong, and how it is put right.

use holdall_cell::Input;
use rand::RngExt;

use crate::bystander::Violation;
use crate::client::Client;
use crate::node::Node;
use crate::world::{Event, World};

impl World<'_> {
    /// Something goes wrong.
    pub(crate) fn go_wrong(&mut self) -> Result<(), Violation> {
        let node = self.rng.random_range(0..self.nodes.len());
        let others = self.others(node);
        let other = others[self.rng.random_range(0..others.len())];
        let client = self.rng.random_range(0..self.clients.len());
        if self.chance(10.0) {
            let broken = |what| Violation::Broken { at: self.at, cell: format!("c{node}"), what };
            self.nodes[node].snapshot().map_err(broken)?;
        }
        if self.chance(6.0) {
            self.nodes[node].back_up();
        }
        if self.puts_back {
            if self.chance(8.0) {
                self.nodes[node].back_up();
            }
            if self.chance(10.0) {
                return self.put_back(node);
            }
        }
        if self.loses_logs && self.chance(20.0) {
            self.lose_log();
            return Ok(());
        }
        match self.rng.random_range(0..100) {
            0..12 => self.crash(node),
            12..20 => self.lose_power(node),
            20..45 => self.cut(node, other),
            45..55 => {
                self.net.stall(node, other);
                let delay = self.rng.random_range(200..6000);
                self.after(delay, Event::Notice { one: node, other });
            }
            55..62 => others.into_iter().for_each(|other| self.cut(node, other)),
            62..74 => {
                let until = self.at + self.rng.random_range(100..9000);
                self.clients[client].pause(until);
            }
            74..84 => return self.kill_client(client),
            84..98 => {
                let until = self.at + self.rng.random_range(100..7000);
                self.stopped_until[node] = self.stopped_until[node].max(until);
            }
            98 => self.leave_for_good(node),
            _ => self.restore(node),
        }
        Ok(())
    }

    /// An agent is killed, and comes back, perhaps as another version.
    pub(crate) fn crash(&mut self, node: usize) {
        if self.nodes[node].running.is_none() {
            return;
        }
        self.nodes[node].kill();
        self.is_gone(node);
        let (delay, upgrade) = (self.rng.random_range(20..7000), self.chance(20.0));
        self.after(delay, Event::Start { node, upgrade });
    }

    /// A machine loses power, and with it everything that runs there.
    fn lose_power(&mut self, node: usize) {
        let kept = self.rng.random_range(0..=100);
        self.nodes[node].lose_power(kept);
        self.is_gone(node);
        self.all_end(node);
        let delay = self.rng.random_range(100..8000);
        self.after(delay, Event::Start { node, upgrade: false });
    }

    /// A machine is started from a copy of its disk. Whoever ran there does not any more.
    fn restore(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        if self.puts_back || one.dead || one.is_absent || one.is_hostile || !one.restore() {
            return;
        }
        let name = self.nodes[node].member.name.clone();
        self.bystander.forget_own(name.as_str());
        self.is_gone(node);
        self.all_end(node);
        let delay = self.rng.random_range(100..3000);
        self.after(delay, Event::Start { node, upgrade: false });
    }

    /// Somebody declares that a machine has lost its memory, since the others do not let it in.
    pub(crate) fn declare(&mut self, node: usize) {
        if self.nodes[node].dead {
            return;
        }
        self.nodes[node].declare();
        self.is_gone(node);
        self.all_end(node);
        self.after(1, Event::Start { node, upgrade: false });
    }

    /// All programs of a machine end.
    pub(crate) fn all_end(&mut self, node: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].home == node {
                self.dead.insert(self.clients[client].session());
                self.lose_all(client);
            }
        }
        let ghosts = self.ghosts.extract_if(.., |(at, _), _| *at == node);
        let ghosts: Vec<_> = ghosts.map(|(_, (ghost, _))| ghost).collect();
        ghosts.into_iter().for_each(|ghost| self.bystander.end(ghost));
    }

    /// A machine is gone for good; an operator says so when nothing of it can be in use any more.
    fn leave_for_good(&mut self, node: usize) {
        let special = |node: &Node| node.dead || node.is_absent || node.is_hostile;
        if self.nodes.iter().any(special) || self.nodes.len() < 3 {
            return;
        }
        self.lose_power(node);
        (self.nodes[node].dead, self.nodes[node].is_copy) = (true, false);
        self.after(9000, Event::Forget(node));
    }

    /// What a machine was connected to is not any more.
    pub(crate) fn is_gone(&mut self, node: usize) {
        for other in self.others(node) {
            self.cut(node, other);
        }
        for client in self.clients.iter_mut().filter(|client| client.home == node) {
            client.conn = None;
        }
    }

    /// A connection breaks, which both ends notice in their own time.
    pub(crate) fn cut(&mut self, node: usize, other: usize) {
        let Some(number) = self.net.cut(node, other) else { return };
        let until = self.at + if self.chance(50.0) { 0 } else { self.rng.random_range(100..9000) };
        self.net.block(node, other, until);
        for (node, other) in [(node, other), (other, node)] {
            let delay = self.rng.random_range(1..2500);
            self.after(delay, Event::Unlinked { node, other, number });
        }
    }

    /// A client is killed; another one takes its place.
    fn kill_client(&mut self, client: usize) -> Result<(), Violation> {
        let (node, session) = (self.clients[client].home, self.clients[client].session());
        self.dead.insert(session);
        let conn = self.clients[client].conn;
        self.lose_all(client);
        if let Some(conn) = conn {
            self.input(node, Input::Detach(conn))?;
        }
        self.input(node, Input::Over(session))
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&mut self) {
        self.net.blocked.clear();
        self.clients.iter_mut().for_each(Client::wake_up);
        for node in 0..self.nodes.len() {
            self.after(10, Event::Start { node, upgrade: false });
        }
    }
}
