//! A log that is lost, with all that was in it: its machine begins a new life, and remembers nothing.
//!
//! Whoever ran there does not any more. But whoever has made a reservation counts on it, wherever he is: what others keep for it is used until
//! its time. What the machine itself had given, it learns from those who hold it; what was reserved there nobody counts on.

use rand::RngExt;

use crate::client::{Client, State};
use crate::clients::GHOSTS;
use crate::node::Node;
use crate::world::{Event, World};

/// What is used of a reservation whose home has lost its log.
pub(crate) struct Heir {
    user: usize,
    home: usize,
    /// Its time, by the clock of its home.
    until: u64,
}

impl World<'_> {
    /// A machine loses its log, one of those for whom something is reserved.
    pub(crate) fn lose_log(&mut self) {
        let has_reserved =
            |client: &&Client| matches!(client.state, State::Using { reserved: Some(_), .. });
        let homes = self.clients.iter().filter(has_reserved).map(|client| client.home);
        let homes: Vec<_> = homes.collect();
        if homes.is_empty() {
            return;
        }
        let node = homes[self.rng.random_range(0..homes.len())];
        let one = &self.nodes[node];
        // A copy of another one may know less of what was reserved than this one, who would say it.
        let is_copy = self.nodes.iter().any(|node| node.is_copy);
        if one.running.is_none() || one.is_out_of_use() || one.is_late || is_copy {
            return;
        }
        self.leave_reservations(node);
        self.give_up_what_is_reserved_at(node);
        self.nodes.iter_mut().for_each(Node::lose_copy);
        self.nodes[node].lose_log();
        self.is_gone(node);
        self.all_end(node);
        let delay = self.rng.random_range(100..8000);
        self.after(delay, Event::Start { node, upgrade: false });
    }

    /// What is reserved elsewhere for those of a machine is used as before.
    fn leave_reservations(&mut self, node: usize) {
        let name = self.nodes[node].member.name.clone();
        for client in 0..self.clients.len() {
            let one = &self.clients[client];
            let State::Using { request, reserved: Some(told), .. } = one.state else { continue };
            let running = self.nodes[node].running.as_ref().filter(|_| one.home == node);
            let entry = running.and_then(|running| running.cell.books().get(request));
            let until = entry.and_then(|entry| entry.held.as_ref()?.until);
            let Some(until) = until.map(|until| until.min(told)) else { continue };
            let user = GHOSTS + self.draw() as usize;
            if self.bystander.leave_elsewhere(client, user, name.as_str()) {
                self.tell(|| format!("what client {client} has reserved is used until {until}"));
                self.report.unclaimed += 1;
                self.heirs.push(Heir { user, home: node, until });
            }
        }
    }

    /// What was reserved at a machine may have been given to others when whoever has it is heard of again.
    fn give_up_what_is_reserved_at(&mut self, node: usize) {
        let name = self.nodes[node].member.name.clone();
        let is_reserved = |state: &State| matches!(state, State::Using { reserved: Some(_), .. });
        let clients = self.clients.iter().enumerate();
        let clients = clients.filter(|(_, client)| is_reserved(&client.state)).map(|(it, _)| it);
        let heirs = self.heirs.iter().map(|heir| heir.user);
        for user in clients.chain(heirs).collect::<Vec<_>>() {
            self.bystander.end_at(user, name.as_str());
        }
    }

    /// Whoever has something by a reservation does not use it when its time is over.
    pub(crate) fn end_what_was_left(&mut self) {
        let clocks: Vec<_> = self.nodes.iter().map(|node| node.clock(self.at)).collect();
        self.end_heirs(|heir| clocks[heir.home] + 150 >= heir.until);
    }

    /// Somebody has made sure that nothing of a machine is used any more.
    pub(crate) fn end_what_was_left_by(&mut self, node: usize) {
        self.end_heirs(|heir| heir.home == node);
    }

    fn end_heirs(&mut self, is_over: impl Fn(&Heir) -> bool) {
        for heir in self.heirs.extract_if(.., |heir| is_over(heir)) {
            self.bystander.end(heir.user);
        }
    }
}
