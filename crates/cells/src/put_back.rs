//! A log that is put back in place, so that nothing of it can be seen when its machine starts.
//!
//! Whoever ran there does not any more, and somebody knows more of it. The others may have been started anew meanwhile, all of them; and the
//! machine may be started many times before anybody hears of it, and write more than was lost. If one of the others finds out, it does so before
//! anybody is given anything; some time later somebody declares that the memory of that machine is lost. Who finds out is for the cells to say.

use holdall_cell::Input;
use rand::RngExt;

use crate::Mutant;
use crate::bystander::Violation;
use crate::world::{Done, Event, World};

impl World<'_> {
    /// The log of a machine is put back.
    pub(crate) fn put_back(&mut self, node: usize) -> Done {
        let one = &self.nodes[node];
        if one.dead || one.is_absent || one.is_hostile || one.is_behind() {
            return Ok(());
        }
        let Some(presence) = self.nodes[node].would_be() else { return Ok(()) };
        let knows_more = |other: &usize| {
            let running = self.nodes[*other].running.as_ref();
            let known = running.and_then(|running| running.known.get(&node));
            !self.nodes[*other].is_hostile && presence.check(known, false).is_err()
        };
        if !self.others(node).iter().any(knows_more) {
            return Ok(());
        }
        if self.all_are_there(node) && self.chance(50.0) {
            for other in self.others(node) {
                self.start_anew(other)?;
            }
            if !self.all_are_there(node) {
                return Ok(()); // One was killed while it started.
            }
        }
        self.nodes[node].put_back();
        let name = self.nodes[node].member.name.clone();
        self.bystander.forget_own(name.as_str());
        self.is_gone(node);
        self.all_end(node);
        if self.says_what_is_known && self.chance(50.0) {
            self.start_unheard(node)?;
        }
        self.start(node, false)?;
        self.look_what_was_put_back(node);
        Ok(())
    }

    /// Whether everybody else runs who may hold something, and will.
    fn all_are_there(&self, node: usize) -> bool {
        let is_there = |other: usize| {
            let one = &self.nodes[other];
            one.running.is_some() || one.dead || one.is_absent || one.is_hostile
        };
        self.others(node).into_iter().all(is_there)
    }

    /// An agent is killed, and there again at once.
    fn start_anew(&mut self, node: usize) -> Done {
        if self.nodes[node].running.is_none() {
            return Ok(());
        }
        self.nodes[node].kill();
        self.is_gone(node);
        let upgrade = self.chance(20.0);
        self.start(node, upgrade)
    }

    /// A machine is started some times, and writes more than all that others know of, but says nothing to anybody.
    fn start_unheard(&mut self, node: usize) -> Done {
        let broken = |at, what| Violation::Broken { at, cell: format!("c{node}"), what };
        let others = self.others(node).into_iter();
        let running = others.filter_map(|other| self.nodes[other].running.as_ref());
        let known = running.filter_map(|running| running.known.get(&node));
        let most = known.map(|known| known.length).max().unwrap_or_default();
        for _ in 0..self.rng.random_range(1..4) {
            let starting = self.starting(node, false);
            let started = self.nodes[node].start(self.at, starting, self.settings.mutant);
            started.map_err(|what| broken(self.at, what))?;
            let mut ahead = 0;
            while self.nodes[node].length() < most {
                ahead += 1;
                let written = self.nodes[node].input(self.at, Input::Clock { ahead });
                written.map_err(|what| broken(self.at, what))?;
            }
            self.nodes[node].stop();
        }
        Ok(())
    }

    /// If somebody knows more of a machine whose log was put back, it hears of that.
    fn look_what_was_put_back(&mut self, node: usize) {
        let mutant = self.settings.mutant;
        if self.nodes[node].running.is_none() || !self.is_found_out(node) {
            return;
        }
        self.report.strangers += 1;
        let delay = self.rng.random_range(500..9000);
        self.after(delay, Event::Declare(node));
        if mutant != Some(Mutant::RefusalIgnored) {
            self.nodes[node].is_outdone();
            self.is_gone(node);
            self.after(1, Event::Start { node, upgrade: false });
        }
    }

    /// Whether one of the others knows more of a machine than its log tells.
    fn is_found_out(&self, node: usize) -> bool {
        let presence = self.nodes[node].presence();
        let knows_more = |other: &usize| {
            let one = &self.nodes[*other];
            let Some(running) = one.running.as_ref().filter(|_| !one.is_hostile) else {
                return false;
            };
            let known = one.knows_of(self.nodes[node].member.cell);
            presence.check(running.known.get(&node), false).is_err()
                || self.says_what_is_known
                    && self.settings.mutant != Some(Mutant::OnlyLastStart)
                    && self.nodes[node].misses(one.member.cell, &known).is_some()
        };
        self.others(node).iter().any(knows_more)
    }
}
