//! Links to other cells come and go, and cells with them.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{Addr, CellId, Event, ManagerId, RequestId, UserId};
use holdall_protocols::house::{House, ToManager, ToUser};
use holdall_wire::{Refusal, RequestNo};

use super::abroad::guard;
use super::foreign::HeldFor;
use super::{Defect, Effect, Engine};
use crate::books::Recovery;
use crate::peer::{ASSERTED_MAX, Asserted, Asserting, Assertion, PeerMessage, Term};

impl Engine<House> {
    /// Takes what another cell says, which makes sense by itself ([`PeerMessage::check`]).
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn hear(
        &mut self,
        now: u64,
        from: CellId,
        message: PeerMessage,
    ) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        let Some(guard) = self.cells.heard(from) else { return Ok(Vec::new()) };
        match message {
            PeerMessage::ToManager { message, order } => self.on_user_of(from, message, order)?,
            PeerMessage::ToUser { message, given } => {
                if self.is_guard_of(guard, message.request()) {
                    self.on_guard(guard, message, given)?;
                }
            }
            PeerMessage::Refused { request, why } => {
                if self.is_guard_of(guard, request) {
                    self.on_refused(request, why)?;
                }
            }
            PeerMessage::Keep { request, term } => self.keep(request, term),
            // The cell puts these together, and knows who was waited for.
            PeerMessage::Assert(_) | PeerMessage::Kept { .. } => {}
        }
        Ok(std::mem::take(&mut self.effects))
    }

    /// Whether a cell guards something that a request here needs; or did, if its user only waits for that to be over.
    fn is_guard_of(&self, guard: ManagerId, id: RequestId) -> bool {
        match self.request_of(id.user).and_then(|request| self.requests.get(&request)) {
            Some(entry) => self.guards(&entry.counts).contains(&guard),
            None => true,
        }
    }

    /// A reservation of another home lasts for so long. If it does so anyhow, that is only confirmed.
    fn keep(&mut self, id: RequestId, term: Term) {
        let whole = self.cells.foreign.get(&id.user).filter(|foreign| !foreign.is_rest);
        let request = whole.map(|foreign| foreign.request);
        let Some(request) = request.filter(|request| self.held.contains(request)) else { return };
        let Some(entry) = self.requests.get_mut(&request) else { return };
        let term = term.within_reason();
        let until = self.now.saturating_add(term.with_grace());
        let slack = term.with_grace() - term.millis;
        let is_enough = |before: u64| before >= until && before - until <= slack;
        if !entry.besides.until.is_some_and(is_enough) {
            entry.besides.change(|besides| besides.until = Some(until));
            self.effects.push(Effect::Kept(request, until));
        }
        self.send(id.user.home().cell, PeerMessage::Kept { request: id, mark: term.mark });
    }

    /// There is a link to another cell. What this home has there is asserted; and if the other cell has lost its memory, whoever
    /// waits there asks again.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn link(&mut self, now: u64, cell: CellId, forgot: bool) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        let Some(guard) = self.cells.heard(cell) else { return Ok(Vec::new()) };
        let peer = &mut self.cells.peers[guard.index() - 1];
        (peer.is_up, peer.since) = (true, now);
        for assertion in self.assertions(guard) {
            self.send(cell, PeerMessage::Assert(assertion));
        }
        for request in self.waiting_at(guard) {
            if forgot {
                // What was held there and not granted is not held any more.
                self.ask_as_another(request)?;
            } else {
                self.ring_for(request)?;
            }
        }
        self.ask_those_again_who_were_lost()?;
        Ok(std::mem::take(&mut self.effects))
    }

    /// The link to another cell is gone.
    pub fn unlink(&mut self, now: u64, cell: CellId) {
        if let Some(guard) = self.cells.manager_of(cell) {
            self.cells.peers[guard.index() - 1].is_down(now);
        }
    }

    /// There are no links: the host has just started.
    pub fn unlink_all(&mut self, now: u64) {
        self.cells.peers.iter_mut().for_each(|peer| peer.is_down(now));
    }

    /// Whether there is a link to another cell.
    pub fn is_linked(&self, cell: CellId) -> bool {
        let guard = self.cells.manager_of(cell);
        guard.and_then(|guard| self.cells.peer(guard)).is_some_and(|peer| peer.is_up)
    }

    /// The requests here that wait, and have a part at a guard.
    fn waiting_at(&self, at: ManagerId) -> Vec<RequestNo> {
        let has_part = |request: &RequestNo| {
            let entry = self.requests.get(request);
            entry.is_some_and(|entry| entry.counts.iter().any(|count| guard(count) == Some(at)))
        };
        let waiting = self.cells.abroad.keys().copied().filter(|request| !self.is_held(*request));
        waiting.filter(has_part).collect()
    }

    /// Whoever sends again after a while does so now.
    fn ring_for(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(user) = self.requests.get(&request).map(|entry| entry.user) else { return Ok(()) };
        for timer in self.timers_of(user) {
            self.effects.push(Effect::Disarm(timer));
            self.on_timer(timer)?;
        }
        Ok(())
    }

    /// All that has to do with a guard.
    fn assertions(&self, at: ManagerId) -> Vec<Assertion> {
        let waiting = self.waiting_at(at).into_iter().filter_map(|request| {
            let abroad = self.cells.abroad.get(&request)?;
            Some((abroad.id, abroad.given.get(&at).map(|(n, _)| *n)))
        });
        let waiting: Vec<_> = waiting.collect();
        let held = self.cells.abroad.iter().filter(|(request, _)| self.is_held(**request));
        let held = held.filter_map(|(request, abroad)| {
            let entry = self.requests.get(request)?;
            Some(Asserted {
                request: abroad.id,
                order: self.order(at, entry.user)?,
                given: abroad.given.get(&at)?.1.clone(),
                term: abroad
                    .until
                    .map(|until| Term { millis: until.saturating_sub(self.now), mark: until }),
            })
        });
        let held: Vec<Asserted> = held.collect();
        let mut all: Vec<Assertion> = Vec::new();
        for some in waiting.chunks(ASSERTED_MAX) {
            all.push(Assertion { waiting: some.to_vec(), ..Assertion::default() });
        }
        for some in held.chunks(ASSERTED_MAX) {
            all.push(Assertion { held: some.to_vec(), ..Assertion::default() });
        }
        all.push(Assertion { last: true, ..Assertion::default() });
        all
    }

    /// A home has said all that it has to do with here. What it does not know of is over, but for reservations of which it has lost its memory:
    /// these are kept until their time. What it holds and this cell does not know of is held again, if this cell may have forgotten it. Otherwise it was given up, and
    /// the home is told. Returns also what this cell may have forgotten and cannot hold again: the home stops using it.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn reconcile(
        &mut self,
        now: u64,
        home: CellId,
        Asserting { said: assertion, since }: &Asserting,
        recovery: &Recovery,
    ) -> Result<(Vec<Effect>, BTreeSet<RequestId>), Defect> {
        self.now = now;
        let held: BTreeMap<UserId, &Asserted> =
            assertion.held.iter().map(|one| (one.request.user, one)).collect();
        let waiting: BTreeSet<UserId> = assertion.waiting.iter().map(|(id, _)| id.user).collect();
        let is_said = |user: &UserId| held.contains_key(user) || waiting.contains(user);
        self.keep_unclaimed(home, *since, is_said);
        self.end_others(home, |user, foreign| is_said(user) || foreign.is_unclaimed)?;
        self.forget_engines(home)?;
        for (id, stance) in &assertion.waiting {
            let known = self.cells.foreign.get(&id.user);
            let is_given_up = |foreign: &super::cells::Foreign<House>| {
                foreign.is_rest || stance.is_some() && foreign.held != *stance
            };
            if known.is_none_or(is_given_up) {
                // The home must not take it for held. Or nothing is known of it here, and what the home takes for its
                // place here is none.
                self.says_over(*id);
            }
        }
        let mut disputed = BTreeSet::new();
        for (user, asserted) in held {
            let is_held = |foreign: &super::cells::Foreign<House>| foreign.held.is_some();
            let known = self.cells.foreign.get(&user).is_some_and(is_held);
            let fences = asserted.given.taken.iter().flat_map(|taken| &taken.units);
            let forgotten = self.cells.recovering
                && recovery.allows(asserted.request, fences.map(|unit| unit.1));
            if self.is_rest(user) {
                self.says_over(asserted.request);
                continue;
            }
            let stays = known || forgotten && self.hold_as_asserted(home, asserted)?;
            if !stays {
                disputed.extend(forgotten.then_some(asserted.request));
                self.says_over(asserted.request);
            } else if let Some(term) = asserted.term {
                self.keep(asserted.request, term);
            }
        }
        Ok((std::mem::take(&mut self.effects), disputed))
    }

    fn hold_as_asserted(&mut self, home: CellId, asserted: &Asserted) -> Result<bool, Defect> {
        if self.cells.foreign.contains_key(&asserted.request.user) {
            self.end_foreign(asserted.request.user)?;
        }
        let fences = asserted.given.taken.iter().flat_map(|taken| &taken.units);
        let highest = fences.map(|(_, fence)| *fence).max().unwrap_or_default();
        if highest > self.counter {
            return Ok(false); // No fence of this cell.
        }
        let kept = HeldFor {
            request: self.draw_request(),
            id: asserted.request,
            stance: ToManager::Release(asserted.request),
            who: self.who_of(home, &asserted.order.who),
            needs: asserted.order.needs.clone(),
            taken: asserted.given.taken.clone(),
            since: self.now,
            until: None,
            leased: asserted.given.leased,
            is_rest: false,
        };
        // Whoever holds what is drained keeps it. Nobody else is given it meanwhile: nothing is granted.
        let drained = self.lift_drains(&kept.taken)?;
        let held = self.holds_again(kept)?;
        for change in drained {
            self.put_change(&change)?;
        }
        Ok(held)
    }

    /// Whether homes have yet to say what they hold here: then nothing is granted.
    pub fn is_recovering(&self) -> bool {
        self.cells.recovering
    }

    /// Nothing is granted until [`Engine::recovered`].
    pub fn recover(&mut self) {
        self.cells.recovering = true;
    }

    /// Whatever homes hold is known again.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn recovered(&mut self, now: u64) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.cells.recovering = false;
        for request in std::mem::take(&mut self.cells.postponed) {
            if self.requests.contains_key(&request) {
                self.call_ask(request)?;
            }
        }
        self.ask_those_again_who_were_lost()?;
        Ok(std::mem::take(&mut self.effects))
    }

    /// Another cell is gone for good. What it held here is free; whoever waits for something there waits in vain; and what
    /// is still held there nobody guards.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn forget(&mut self, now: u64, cell: CellId) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.end_others(cell, |_, _| false)?;
        self.part_from(cell, "was forgotten; nobody guards what is there")?;
        Ok(std::mem::take(&mut self.effects))
    }

    /// Another cell is no member any more. Whoever waits for something there waits in vain, and nothing is owed to it. What it holds
    /// here is its own.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn removed(&mut self, now: u64, cell: CellId) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.part_from(cell, "is no member of the cluster any more")?;
        Ok(std::mem::take(&mut self.effects))
    }

    /// Nothing is said to another cell any more.
    fn part_from(&mut self, cell: CellId, why: &str) -> Result<(), Defect> {
        let Some(at) = self.cells.manager_of(cell) else { return Ok(()) };
        let peer = &mut self.cells.peers[at.index() - 1];
        peer.is_down(self.now);
        peer.forgotten = true;
        let name = peer.member.name.clone();
        for request in self.waiting_at(at) {
            self.refuse(request, Refusal::Never(format!("the cell '{name}' {why}")))?;
        }
        let users: Vec<UserId> = self.users.sorted().into_iter().map(|(user, _)| user).collect();
        for user in users {
            if self.users.get(user).is_some_and(|slot| slot.request.is_none()) {
                let msg = ToUser::Over(RequestId { user, seq: 1 });
                self.step_user(user, Event::Message { from: Addr::Manager(at), msg })?;
            }
        }
        self.deliver()
    }
}
