//! How machines come to be linked, and who lets in whom.

use holdall_cell::Input;
use holdall_cell::greeting::{First, Presence, Stranger};
use rand::RngExt;

use crate::Mutant;
use crate::bystander::Violation;
use crate::net::Body;
use crate::world::{Done, Event, World};

impl World<'_> {
    pub(crate) fn connect(&mut self, one: usize, other: usize) -> Done {
        let both = [one, other].iter().all(|node| self.nodes[*node].running.is_some());
        if !both || self.net.is_open(one, other) || self.net.is_blocked(one, other, self.at) {
            return Ok(());
        }
        for (host, guest) in [(one, other), (other, one)] {
            if self.nodes[guest].is_behind() {
                return Ok(()); // It talks to nobody.
            }
            if !self.lets_in(host, guest)? {
                self.net.block(one, other, self.at + 1000);
                return Ok(());
            }
        }
        let delays = [self.rng.random_range(1..40), self.rng.random_range(1..40)];
        let number = self.net.connect(one, other, [self.at + delays[1], self.at + delays[0]]);
        for (node, other, delay) in [(one, other, delays[0]), (other, one, delays[1])] {
            let presence = self.nodes[other].presence();
            self.after(delay, Event::Linked { node, other, number, presence });
        }
        Ok(())
    }

    /// A machine sees that there is a connection. What it knows of the other one it says first, if both say it.
    pub(crate) fn meet(
        &mut self,
        node: usize,
        other: usize,
        number: u64,
        presence: Presence,
    ) -> Done {
        let cell = self.nodes[other].member.cell;
        let first = self.nodes[node].first(cell);
        let says = self.says_what_is_known && !self.nodes[other].is_hostile;
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        running.links.remove(&other);
        if !says {
            return self.link_up(node, other, number, presence, None);
        }
        running.meetings.insert(other, (number, presence));
        self.send_over(node, other, number, Body::First(first));
        Ok(())
    }

    /// Another machine says what it knows of this one.
    pub(crate) fn hear_what_is_known(
        &mut self,
        node: usize,
        other: usize,
        number: u64,
        first: First,
    ) -> Done {
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        let Some((_, presence)) = running.meetings.remove(&other).filter(|(it, _)| *it == number)
        else {
            return Ok(());
        };
        let why = self.nodes[node].misses(self.nodes[other].member.cell, &first.known);
        match why.filter(|_| self.settings.mutant != Some(Mutant::OnlyLastStart)) {
            None => self.link_up(node, other, number, presence, Some(first)),
            Some(why) => {
                self.tell(|| format!("c{node} misses what c{other} knows of it: {why}"));
                self.cut(node, other);
                let epoch = self.nodes[node].presence().epoch;
                self.is_refused(node, epoch, &why)
            }
        }
    }

    /// There is a link.
    fn link_up(
        &mut self,
        node: usize,
        other: usize,
        number: u64,
        presence: Presence,
        mut first: Option<First>,
    ) -> Done {
        let (clock, cell) = (self.nodes[node].clock(self.at), self.nodes[other].member.cell);
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        running.links.insert(other, number);
        running.settled.remove(&other);
        running.known.insert(other, presence);
        running.leases.linked(clock, cell);
        self.tell(|| format!("c{node} is linked to c{other} ({number})"));
        if self.settings.mutant == Some(Mutant::ReservationsDropped) {
            first.iter_mut().for_each(|first| first.since = 0);
        }
        self.input(node, Input::Linked { cell, presence, first })
    }

    /// Somebody has known more of a machine than its log tells. Of one that was not started from a copy nobody has.
    fn is_refused(&mut self, guest: usize, epoch: u32, why: &Stranger) -> Done {
        if !self.nodes[guest].was_copy {
            let (at, cell) = (self.at, format!("c{guest}"));
            return Err(Violation::Broken { at, cell, what: format!("it is not let in: {why}") });
        }
        if self.nodes[guest].is_refused(epoch) {
            self.report.strangers += 1;
            let delay = self.rng.random_range(100..3000);
            self.after(delay, Event::Declare(guest));
        }
        Ok(())
    }

    /// Whether a machine lets in another one that greets. If not, somebody will declare its memory lost.
    fn lets_in(&mut self, host: usize, guest: usize) -> Result<bool, Violation> {
        let presence = self.nodes[guest].presence();
        let Some(running) = &self.nodes[host].running else { return Ok(false) };
        let known = running.known.get(&guest).copied();
        if self.settings.mutant == Some(Mutant::CopyAccepted) || self.nodes[guest].is_hostile {
            self.is_let_in(host, guest);
            return Ok(true);
        }
        let Err(why) = presence.check(known.as_ref(), running.links.contains_key(&guest)) else {
            self.is_let_in(host, guest);
            return Ok(true);
        };
        self.tell(|| format!("c{host} does not let in c{guest}: {why}"));
        let (Some(known), false) = (known, why == Stranger::Second) else { return Ok(false) };
        self.is_refused(guest, known.epoch, &why).map(|()| false)
    }

    /// A machine was let in by another one: if it was by all that there are, it is no copy, or a copy of what it is.
    fn is_let_in(&mut self, host: usize, guest: usize) {
        let counts =
            |other: &usize| !self.nodes[*other].is_out_of_use() || self.nodes[*other].is_copy;
        let all: Vec<_> = self.others(guest).into_iter().filter(counts).collect();
        self.nodes[guest].is_let_in(host, &all);
    }
}
