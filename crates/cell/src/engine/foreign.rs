//! Requests of other homes, for what is guarded here.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdall_core::{Addr, CellId, Event, Gone, Home, Life, Needs, Party, RequestId, UserId};
use holdall_protocols::house::{House, Stance, ToManager, ToUser};
use holdall_wire::{Need, Refusal, RequestNo, Taken, Who};

use super::cells::{Foreign, epoch_of};
use super::entry::for_needs;
use super::{Defect, Effect, Engine};
use crate::peer::{AT_A_GUARD_MAX, Given, NEEDS_AT_A_GUARD_MAX, Order, PeerMessage};

/// The user that those who ask from elsewhere are here: nobody.
const NOBODY: u32 = u32::MAX;

/// Of how many engines of one cell requests are here at most: each upgrade of it makes one more, for what it still holds.
const ENGINES_MAX: usize = 64;

/// A grant of a request of another home, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldFor {
    /// Its number here.
    pub request: RequestNo,
    /// The request.
    pub id: RequestId,
    /// What its user said last.
    pub stance: ToManager,
    /// Who asked.
    pub who: Arc<Who>,
    /// For what.
    pub needs: Vec<Need>,
    /// What it holds.
    pub taken: Arc<[Taken]>,
    /// Since when.
    pub since: u64,
    /// Until when, if it is a reservation.
    pub until: Option<u64>,
    /// Whether it, or some of it, is given to others some time after its home was last heard of.
    pub leased: bool,
    /// Whether that has happened to some of it, and this is the rest.
    pub is_rest: bool,
}

impl Engine<House> {
    /// What a user of another cell says to the manager here. Its request is that cell's own.
    pub(super) fn on_user_of(
        &mut self,
        from: CellId,
        message: ToManager,
        order: Option<Order>,
    ) -> Result<(), Defect> {
        let id = message.request();
        if self.cells.recovering {
            return Ok(()); // It is said again.
        }
        if !self.knows_engine(id.user.home()) {
            let what = "requests of more engines than it can have had";
            self.effects.push(Effect::Misbehaved(from, what));
            return Ok(());
        }
        let Some(order) = order else {
            self.end_predecessors(id.user)?;
            self.leave_foreign(id.user);
            return self.tell_manager_of(id.user, message);
        };
        if self.is_rest(id.user) {
            self.says_over(id); // Once more: what it says now was said before it has heard that.
            return Ok(());
        }
        let now = order.now;
        let counts = match self.counts_of(from, id, order)? {
            Ok(counts) => counts,
            Err(why) => {
                self.send(from, PeerMessage::Refused { request: id, why });
                return Ok(());
            }
        };
        self.let_go_before(id.user, &message)?;
        if let Some(foreign) = self.cells.foreign.get_mut(&id.user) {
            foreign.stance = message.clone();
        }
        self.tell_manager_of(id.user, message.with_needs(counts))?;
        if !self.manager.knows(id) {
            self.leave_foreign(id.user); // It was over already.
            return self.tell_manager();
        }
        match self.cells.foreign.get(&id.user) {
            Some(foreign) if now && foreign.held.is_none() => {
                let why = Refusal::Busy(self.busy(foreign.request));
                // Before it is told that it is over: else it would take itself for lost, and ask again.
                self.send(from, PeerMessage::Refused { request: id, why });
                self.end_foreign(id.user)
            }
            _ => Ok(()),
        }
    }

    /// Whether this was heard before and is only said again, as it is until it is answered: the answer is on its way, or waits.
    pub fn has_heard(&self, message: &ToManager) -> bool {
        let known = self.cells.foreign.get(&message.request().user);
        match message {
            ToManager::Release(_) => known.is_none(),
            stance => known.is_some_and(|foreign| foreign.is_rest || foreign.stance == *stance),
        }
    }

    /// What a request needs here, which is entered if it is new.
    fn counts_of(
        &mut self,
        from: CellId,
        id: RequestId,
        order: Order,
    ) -> Result<Result<Needs, Refusal>, Defect> {
        if let Some(known) = self.cells.foreign.get(&id.user) {
            return Ok(Ok(known.counts.clone()));
        }
        self.end_predecessors(id.user)?;
        let room = self.room_for(from, order.needs.len());
        let counts = match room.and_then(|()| self.resolve(&order.needs)) {
            Ok(counts) => counts,
            Err(why) => return Ok(Err(why)),
        };
        self.tell_manager()?;
        let request = self.draw_request();
        let who = self.who_of(from, &order.who);
        self.enter_as(request, for_needs(order.needs), counts.clone(), who, id.user);
        let foreign = Foreign::new(id, request, ToManager::Release(id), counts.clone(), true);
        self.cells.foreign.insert(id.user, foreign);
        Ok(Ok(counts))
    }

    /// Whether a home may have one more request here.
    fn room_for(&self, home: CellId, needs: usize) -> Result<(), Refusal> {
        let (mut requests, mut all) = (0, needs);
        for foreign in self.cells.foreign_of(home) {
            (requests, all) = (requests + 1, all + foreign.counts.len());
        }
        if requests < AT_A_GUARD_MAX && all <= NEEDS_AT_A_GUARD_MAX {
            return Ok(());
        }
        let own = self.cells.own.as_ref().map_or("", |own| own.as_str());
        Err(Refusal::Closed(format!(
            "{requests} requests of this cell wait or hold at '{own}', which is as many as may; ask again when some have ended"
        )))
    }

    /// Notes that requests of an engine of another cell are heard here: of its lanes something is remembered. There are not
    /// many at a time, since those of which nothing is left are forgotten with each connection.
    fn knows_engine(&mut self, home: Home) -> bool {
        let first = Home { life: Life(0), ..home };
        let known = self.cells.engines.range(first..).take_while(|one| one.cell == home.cell);
        if self.cells.engines.contains(&home) {
            return true;
        }
        known.count() < ENGINES_MAX && self.cells.engines.insert(home)
    }

    /// The engines of a home of which nothing is here any more are forgotten: nothing of them comes over this connection.
    pub(super) fn forget_engines(&mut self, home: CellId) -> Result<(), Defect> {
        let used: BTreeSet<Home> =
            self.cells.foreign_of(home).map(|foreign| foreign.id.user.home()).collect();
        let gone = self.cells.engines.iter().filter(|one| one.cell == home && !used.contains(one));
        for engine in gone.copied().collect::<Vec<_>>() {
            self.cells.engines.remove(&engine);
            self.report(Gone::Departed(Party::Home(engine)))?;
        }
        Ok(())
    }

    /// Whoever asks from elsewhere, as people here are shown it.
    pub(super) fn who_of(&self, from: CellId, who: &Who) -> Arc<Who> {
        let cell = self.cells.manager_of(from).and_then(|manager| self.cells.peer(manager));
        let cell = cell.map_or("?", |peer| peer.member.name.as_str());
        let user = format!("{}@{cell}", who.user).into();
        Arc::new(Who { uid: NOBODY, user, ..who.clone() })
    }

    /// The users of a lane follow each other: those before are over.
    fn end_predecessors(&mut self, user: UserId) -> Result<(), Defect> {
        for before in self.cells.before(user) {
            self.leave_foreign(before);
            let over = ToManager::Release(RequestId { user: before, seq: 1 });
            self.tell_manager_of(before, over)?;
        }
        Ok(())
    }

    fn tell_manager_of(&mut self, user: UserId, msg: ToManager) -> Result<(), Defect> {
        self.step_manager(Event::Message { from: Addr::User(user), msg })?;
        self.deliver()?;
        self.tell_manager()
    }

    /// A later stance ends a hold: in the ledger first, since the manager may pass on at once what comes back.
    fn let_go_before(&mut self, user: UserId, message: &ToManager) -> Result<(), Defect> {
        let ToManager::Queue(Stance { n, .. }) = message else { return Ok(()) };
        let Some(foreign) = self.cells.foreign.get_mut(&user) else { return Ok(()) };
        if foreign.held.is_none_or(|held| held >= *n) {
            return Ok(());
        }
        foreign.held = None;
        let (request, counts) = (foreign.request, foreign.counts.clone());
        let Some(entry) = self.requests.get_mut(&request) else { return Ok(()) };
        let held = std::mem::replace(&mut entry.counts, counts);
        entry.taken = None;
        self.held.remove(&request);
        for count in held.iter() {
            self.resizes.extend(self.ledger.back_to_waiting(count, request));
        }
        self.effects.push(Effect::LetGo(request));
        self.tell_manager()
    }

    /// What the manager here says to a user of another cell.
    pub(super) fn send_to_home(&mut self, user: UserId, message: ToUser) -> Result<(), Defect> {
        let given = match &message {
            ToUser::Yes { n, units, .. } => match self.hold_for(user, *n, units)? {
                Some(given) => Some(given),
                None => return Ok(()), // It was given up meanwhile.
            },
            ToUser::Over(_) => {
                self.leave_foreign(user);
                None
            }
            ToUser::No { .. } | ToUser::Park { .. } | ToUser::Yield { .. } => None,
        };
        let message = message.without_units();
        self.send(user.home().cell, PeerMessage::ToUser { message, given });
        Ok(())
    }

    /// The manager holds what a request of another home asked for.
    fn hold_for(
        &mut self,
        user: UserId,
        n: u32,
        units: &holdall_core::Picked,
    ) -> Result<Option<Given>, Defect> {
        let Some(foreign) = self.cells.foreign.get(&user) else { return Ok(None) };
        let (request, counts, held) =
            (foreign.request, foreign.counts.with(units), foreign.held.is_some());
        let mut leased = foreign.leased;
        let Some(entry) = self.requests.get(&request) else { return Ok(None) };
        let former = entry.taken.clone();
        let taken: Arc<[Taken]> = match former {
            Some(taken) if held => taken,
            former => {
                let fence = self.draw();
                let mut taken = Vec::with_capacity(counts.len());
                for (i, count) in counts.iter().enumerate() {
                    taken.push(match former.as_ref().and_then(|former| former.get(i)) {
                        Some(same) => {
                            self.ledger.assign_again(count, request, same)?;
                            same.clone()
                        }
                        None => self.ledger.assign(count, request, fence)?,
                    });
                }
                if former.is_none() {
                    leased = !taken.iter().all(|taken| self.cells.waits.contains(&taken.name));
                }
                taken.into()
            }
        };
        let now = self.now;
        if let Some(entry) = self.requests.get_mut(&request) {
            if entry.taken.is_none() {
                entry.since = now;
            }
            (entry.taken, entry.counts) = (Some(taken.clone()), counts);
        }
        if let Some(foreign) = self.cells.foreign.get_mut(&user) {
            (foreign.held, foreign.leased) = (Some(n), leased);
        }
        if !held {
            self.held.insert(request);
            self.is_held_for(request);
        }
        Ok(Some(Given { taken, leased }))
    }

    /// A request of another home is over, as far as names go; the manager is yet to be told.
    fn leave_foreign(&mut self, user: UserId) {
        let Some(foreign) = self.cells.foreign.remove(&user) else { return };
        let Some(entry) = self.requests.remove(&foreign.request) else { return };
        for count in entry.counts.iter() {
            self.resizes.extend(self.ledger.leave(count, foreign.request));
        }
        if self.held.remove(&foreign.request) {
            self.effects.push(Effect::LetGo(foreign.request));
        }
    }

    /// A request of another home is over, whether its user knows it or not: it is told.
    pub(super) fn end_foreign(&mut self, user: UserId) -> Result<(), Defect> {
        self.leave_foreign(user);
        self.report(Gone::Reclaimed(user))
    }

    /// The manager is told of somebody, and what follows is done.
    fn report(&mut self, gone: Gone) -> Result<(), Defect> {
        self.step_manager(Event::Gone(gone))?;
        self.deliver()?;
        self.tell_manager()
    }

    /// Another cell has not been heard of for a while: those of it who wait are in the way of others no more. What they
    /// hold they may be using.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn suspect(&mut self, now: u64, cell: CellId) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.suspect_all(cell)?;
        Ok(std::mem::take(&mut self.effects))
    }

    fn suspect_all(&mut self, cell: CellId) -> Result<(), Defect> {
        for user in self.cells.users_of(cell) {
            if self.cells.foreign.get(&user).is_some_and(|foreign| foreign.held.is_none()) {
                self.leave_foreign(user);
                self.report(Gone::Suspected(user))?;
            }
        }
        Ok(())
    }

    /// The lease of another cell has run out: what it held is given to others, but for the grants that `stays` says, and what
    /// the rest have of pools that wait.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn reclaim(
        &mut self,
        now: u64,
        cell: CellId,
        stays: impl Fn(RequestNo) -> bool,
    ) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.suspect_all(cell)?;
        for user in self.cells.users_of(cell) {
            let ends = self.cells.foreign.get(&user).is_some_and(|one| !stays(one.request));
            if ends && !self.keep_rest(user)? {
                self.end_foreign(user)?;
            }
        }
        Ok(std::mem::take(&mut self.effects))
    }

    /// Those of a cell who are not among these are over, and know it, or have forgotten it.
    pub(super) fn end_others(
        &mut self,
        cell: CellId,
        stay: impl Fn(&UserId, &Foreign<House>) -> bool,
    ) -> Result<(), Defect> {
        let others = self.cells.foreign_of(cell).filter(|foreign| !stay(&foreign.id.user, foreign));
        for user in others.map(|foreign| foreign.id.user).collect::<Vec<_>>() {
            self.leave_foreign(user);
            self.report(Gone::Departed(Party::User(user)))?;
        }
        Ok(())
    }

    /// Something is held for a request of another home.
    pub(super) fn is_held_for(&mut self, request: RequestNo) {
        let held = self.held_for(request).map(|held| Effect::HeldFor(Box::new(held)));
        self.effects.extend(held);
    }

    /// What is held for a request of another home, as it is kept.
    pub fn held_for(&self, request: RequestNo) -> Option<HeldFor> {
        let entry = self.requests.get(&request)?;
        let foreign = self.cells.foreign.get(&entry.user)?;
        Some(HeldFor {
            request,
            id: foreign.id,
            stance: foreign.stance.clone(),
            who: entry.who.clone(),
            needs: entry.needs().to_vec(),
            taken: entry.taken.clone()?,
            since: entry.since,
            until: entry.besides.until,
            leased: foreign.leased,
            is_rest: foreign.is_rest,
        })
    }

    /// Whether a request is that of another home which has lost its memory of it: a reservation, which is kept until its time.
    pub fn is_unclaimed(&self, request: RequestNo) -> bool {
        let user = self.requests.get(&request).map(|entry| entry.user);
        let foreign = user.and_then(|user| self.cells.foreign.get(&user));
        foreign.is_some_and(|foreign| foreign.is_unclaimed)
    }

    /// Notes which reservations of a home are from before the start since which it remembers everything, and not among these: it
    /// will never speak of them again. Whoever has made one counts on it all the same.
    pub(super) fn keep_unclaimed(
        &mut self,
        home: CellId,
        since: u32,
        is_said: impl Fn(&UserId) -> bool,
    ) {
        for user in self.cells.users_of(home) {
            let Some(foreign) = self.cells.foreign.get_mut(&user) else { continue };
            let entry = self.requests.get(&foreign.request);
            let is_reserved = entry.is_some_and(|entry| entry.besides.until.is_some());
            foreign.is_unclaimed = foreign.held.is_some()
                && is_reserved
                && epoch_of(user.home()) < since
                && !is_said(&user);
        }
    }

    /// Whether a request is that of another home.
    pub fn is_foreign(&self, request: RequestNo) -> bool {
        let user = self.requests.get(&request).map(|entry| entry.user);
        user.is_some_and(|user| self.cells.foreign.contains_key(&user))
    }

    /// What was held for a request of another home is held again, or not at all.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn hold_again(&mut self, now: u64, kept: HeldFor) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.holds_again(kept)?;
        Ok(std::mem::take(&mut self.effects))
    }

    /// The home of a request is told that it is over here: it stops whoever uses it, and gives it back.
    pub fn revoke(&mut self, request: RequestNo) {
        let Some(user) = self.requests.get(&request).map(|entry| entry.user) else { return };
        if let Some(id) = self.cells.foreign.get(&user).map(|foreign| foreign.id) {
            self.says_over(id);
        }
    }

    /// A home is told that it does not hold something any more.
    pub(super) fn says_over(&mut self, id: RequestId) {
        let message = ToUser::Over(id);
        self.send(id.user.home().cell, PeerMessage::ToUser { message, given: None });
    }

    /// The same. Tells whether it is held.
    pub(super) fn holds_again(&mut self, kept: HeldFor) -> Result<bool, Defect> {
        let HeldFor { request, id, stance, who, needs, taken, since, until, leased, is_rest } =
            kept;
        self.go_above(request.0);
        let Some(counts) = self.as_it_was(&needs, &taken) else { return Ok(false) };
        self.tell_manager()?;
        self.enter_as(request, for_needs(needs), counts.clone(), who, id.user);
        if let Some(entry) = self.requests.get_mut(&request) {
            (entry.since, entry.taken) = (since, Some(taken));
            entry.besides.change(|besides| besides.until = until);
        }
        let foreign = Foreign {
            is_rest,
            ..Foreign::new(id, request, stance.clone(), counts.clone(), leased)
        };
        self.cells.foreign.insert(id.user, foreign);
        self.cells.engines.insert(id.user.home());
        let stance = if matches!(stance, ToManager::Release(_)) {
            ToManager::attempt(id, counts)
        } else {
            stance.with_needs(counts)
        };
        self.tell_manager_of(id.user, stance)?;
        let held = self.cells.foreign.get(&id.user).is_some_and(|foreign| foreign.held.is_some());
        if !held {
            if let Some(entry) = self.requests.get_mut(&request) {
                entry.taken = None;
            }
            self.end_foreign(id.user)?;
        }
        Ok(held)
    }
}
