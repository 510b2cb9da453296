//! Requests here of which other cells guard a part.
//!
//! For the user here, what is needed of another cell is one counted pool for each need, whose number says which cell and
//! which need. The guard makes of it what it is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdall_core::{
    Addr, CellId, Event, ManagerId, Need as Count, Needs, Protocol, Request, RequestId, UserId,
};
use holdall_protocols::house::{House, Stance, ToManager, ToUser, User};
use holdall_wire::{Name, Need, Refusal, RequestNo, Taken};

use super::cells::Abroad;
use super::entry::for_needs;
use super::ledger::Meaning;
use super::roles::Mail;
use super::{Defect, Effect, Engine, Reservation, Serving};
use crate::books::{is_for, is_what_was_asked_for};
use crate::peer::{AT_A_GUARD_MAX, Given, LANES_MAX, Order, PeerMessage, Term};

/// A need of this cell as it is written here.
pub(super) fn here(need: &Need) -> Need {
    Need { name: need.name.here(), ..need.clone() }
}

/// What a guard has given, as it is called elsewhere.
fn told(taken: &[Taken], cell: &Name) -> Vec<Taken> {
    let units = |taken: &Taken| {
        taken.units.iter().map(|(unit, fence)| (unit.at(cell.as_str()), *fence)).collect()
    };
    let elsewhere = |one: &Taken| Taken { name: one.name.at(cell.as_str()), units: units(one) };
    taken.iter().map(elsewhere).collect()
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Matches needs with pools, here and elsewhere.
    pub(super) fn resolve_everywhere(&mut self, needs: &[Need]) -> Result<Needs, Refusal> {
        if needs.iter().all(|need| need.name.cell().is_none()) {
            return self.resolve(needs);
        }
        self.sensible(needs)?;
        let (mut local, mut abroad, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (number, need) in (0..).zip(needs) {
            let cell = need.name.cell();
            match cell.map_or(Ok(ManagerId(0)), |cell| self.cells.named(cell))? {
                ManagerId(0) => local.push(need),
                manager => abroad.push(Count::any(House::pool_at(manager, number), 1)),
            }
            if !seen.insert(&need.name) {
                return Err(Refusal::Senseless(format!("'{}' is named twice", need.name)));
            }
        }
        let local: Vec<Need> = local.into_iter().map(here).collect();
        let mut counts = match local.is_empty() {
            true => Vec::new(),
            false => self.resolve(&local)?.to_vec(),
        };
        counts.append(&mut abroad);
        Needs::new(counts).map_err(|bad| Refusal::Senseless(bad.to_string()))
    }

    /// Where there are several cells, a name that nobody has declared is not a lock of this one by accident.
    ///
    /// # Errors
    /// If there is one among these.
    pub fn refuse_bare(&self, needs: &[Need]) -> Result<(), Refusal> {
        let Some(own) = &self.cells.own else { return Ok(()) };
        let undeclared = |need: &&Need| {
            need.name.cell().is_none()
                && match self.ledger.meaning(&need.name) {
                    Meaning::Nothing => true,
                    Meaning::Pool(_, pool) => !pool.declared && !pool.removed,
                    _ => false,
                }
        };
        match needs.iter().find(undeclared) {
            Some(Need { name, .. }) => Err(Refusal::Never(format!(
                "there is no pool '{name}' here, and in a cluster a bare name must be declared: declare it \
                 with `holdall pool add {name} --lock`, or write '{name}@{own}' for a lock of this cell"
            ))),
            None => Ok(()),
        }
    }

    /// Needs of this cell are written without it.
    pub fn name_as_here(&self, needs: &mut [Need]) {
        let Some(own) = &self.cells.own else { return };
        for need in needs.iter_mut().filter(|need| need.name.cell() == Some(own.as_str())) {
            need.name = need.name.here();
        }
    }

    /// The guards of a request, besides the manager here.
    pub(super) fn guards(&self, counts: &Needs) -> BTreeSet<ManagerId> {
        counts.iter().filter_map(guard).collect()
    }

    /// Whether a request has parts elsewhere.
    pub(super) fn is_abroad(&self, request: RequestNo) -> bool {
        self.cells.abroad.contains_key(&request)
    }

    /// Whether the needs of a request that is asked inside a grant, or is for a part of one, can be met.
    pub(super) fn refuse_nesting(&self, outer: RequestNo, counts: &Needs) -> Result<(), Refusal> {
        match self.is_abroad(outer) || !self.guards(counts).is_empty() {
            true => Err(Refusal::Never(format!(
                "it is asked inside grant {outer}, and nesting across cells is refused: ask for everything at once"
            ))),
            false => Ok(()),
        }
    }

    /// A request is entered of which others guard a part. Tells why it need not be tried, if so.
    pub(super) fn enter_abroad(&mut self, request: RequestNo, now: bool) -> Option<Refusal> {
        let entry = self.requests.get(&request)?;
        let (user, guards) = (entry.user, self.guards(&entry.counts));
        if guards.is_empty() {
            return None;
        }
        let id = RequestId { user, seq: 1 };
        self.cells.abroad.insert(request, Abroad::new(id, now));
        if self.cells.abroad.len() > AT_A_GUARD_MAX || user.lane().number >= LANES_MAX {
            return Some(Refusal::Closed(format!(
                "{AT_A_GUARD_MAX} requests of this cell span others, which is as many as may; ask again when some have ended"
            )));
        }
        let away = guards.iter().filter_map(|guard| self.cells.peer(*guard));
        let away = away.filter(|peer| !peer.is_up).map(|peer| format!("'{}'", peer.member.name));
        let away: Vec<_> = away.collect();
        (now && !away.is_empty())
            .then(|| Refusal::Busy(format!("the cell {} cannot be reached", away.join(", "))))
    }

    /// Whether a request has all that is here, and others have yet to answer.
    pub(super) fn waits_only_for_others(&self, request: RequestNo) -> bool {
        let Some(abroad) = self.cells.abroad.get(&request) else { return false };
        let needs_own = self.requests.get(&request).is_some_and(|entry| {
            let mut counts = entry.counts.iter();
            counts.any(|count| guard(count).is_none())
        });
        !needs_own || self.manager.holds(abroad.id)
    }

    /// What a request holds elsewhere.
    pub(super) fn given_abroad(&self, request: RequestNo) -> Vec<Taken> {
        let given = self.cells.abroad.get(&request).into_iter().flat_map(|abroad| &abroad.given);
        let told = given.filter_map(|(guard, (_, given))| {
            let peer = self.cells.peer(*guard)?;
            Some(told(&given.taken, &peer.member.name))
        });
        told.flatten().collect()
    }

    /// The cells that hold something for a request which they may give to others when this one is not heard of.
    pub fn leased_by(&self, request: RequestNo) -> Vec<CellId> {
        let given = self.cells.abroad.get(&request).into_iter().flat_map(|abroad| &abroad.given);
        let leased = given.filter(|(_, (_, given))| given.leased);
        let guards = leased.filter_map(|(guard, _)| self.cells.peer(*guard));
        guards.filter(|peer| !peer.forgotten).map(|peer| peer.member.cell).collect()
    }

    /// Whether another cell has given something to a request.
    pub fn is_given_by(&self, request: RequestNo, cell: CellId) -> bool {
        let guard = self.cells.manager_of(cell);
        let abroad = self.cells.abroad.get(&request);
        guard.zip(abroad).is_some_and(|(guard, abroad)| abroad.given.contains_key(&guard))
    }

    /// Puts what is held into the order in which it was asked for.
    pub(super) fn in_order(&self, request: RequestNo, taken: &mut [Taken]) {
        let Some(entry) = self.requests.get(&request) else { return };
        taken.sort_by_key(|taken| entry.needs().iter().position(|need| is_for(need, taken)));
    }

    /// The cells that have given something to a request.
    pub fn given_by(&self, request: RequestNo) -> Vec<CellId> {
        let given = self.cells.abroad.get(&request).into_iter().flat_map(|abroad| &abroad.given);
        let guards = given.filter_map(|(guard, _)| self.cells.peer(*guard));
        guards.filter(|peer| !peer.forgotten).map(|peer| peer.member.cell).collect()
    }

    /// The guards of a grant are told that it is a reservation, and lasts until then.
    pub fn keep_abroad(&mut self, now: u64, request: RequestNo, until: u64) {
        let guards = self.given_by(request);
        let Some(abroad) = self.cells.abroad.get_mut(&request) else { return };
        abroad.until = Some(until);
        let (id, term) = (abroad.id, Term { millis: until.saturating_sub(now), mark: until });
        for cell in guards {
            self.send(cell, PeerMessage::Keep { request: id, term });
        }
    }
}

/// The cell that guards what is counted, if it is another one.
pub(super) fn guard(count: &Count) -> Option<ManagerId> {
    let manager = ManagerId(count.pool.0 >> 32);
    (manager != ManagerId(0)).then_some(manager)
}

impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// A request that was entered is asked for, or will be when it is known what others hold here.
    pub(super) fn ask_or_postpone(&mut self, request: RequestNo) -> Result<(), Defect> {
        if self.cells.recovering {
            self.cells.postponed.push(request);
            return Ok(());
        }
        self.call_ask(request)
    }
}

impl Engine<House> {
    /// What a user here says to the manager of another cell.
    pub(super) fn send_to_guard(&mut self, to: ManagerId, from: Addr, message: ToManager) {
        let Addr::User(user) = from else { return };
        let Some(peer) = self.cells.peer(to) else { return };
        if peer.forgotten {
            let over = ToUser::Over(RequestId { user, seq: 1 });
            return self.mail.push_back(Mail::ToUser(Addr::Manager(to), user, over));
        }
        let cell = peer.member.cell;
        if let ToManager::Queue(Stance { n, .. }) = &message
            && let Some(request) = self.request_of(user)
            && let Some(abroad) = self.cells.abroad.get_mut(&request)
            && abroad.given.get(&to).is_some_and(|(before, _)| before < n)
        {
            abroad.given.remove(&to); // A later stance gives it back.
        }
        let order = match message {
            ToManager::Release(_) => None,
            ToManager::Queue(_) | ToManager::Try { .. } => self.order(to, user),
        };
        self.send(cell, PeerMessage::ToManager { message, order });
    }

    /// What a request needs of a guard.
    pub(super) fn order(&self, of: ManagerId, user: UserId) -> Option<Order> {
        let request = self.request_of(user)?;
        let (entry, abroad) = (self.requests.get(&request)?, self.cells.abroad.get(&request)?);
        let cell = self.cells.peer(of)?.member.name.as_str();
        let needs = entry.needs().iter().filter(|need| need.name.cell() == Some(cell)).map(here);
        Some(Order { needs: needs.collect(), who: entry.who.clone(), now: abroad.now })
    }

    /// What the manager of another cell says to a user here.
    pub(super) fn on_guard(
        &mut self,
        from: ManagerId,
        message: ToUser,
        given: Option<Given>,
    ) -> Result<(), Defect> {
        let user = message.request().user;
        let request = self.request_of(user);
        if let (Some(given), Some(order)) = (&given, self.order(from, user))
            && !is_what_was_asked_for(&order.needs, &given.taken)
        {
            let cell = self.cells.peer(from).map(|peer| peer.member.cell).unwrap_or_default();
            self.effects.push(Effect::Misbehaved(cell, "something else than was asked for"));
            return Ok(());
        }
        if let (ToUser::Over(_), Some(request)) = (&message, request.filter(|r| self.is_held(*r))) {
            // It is still in use, here and elsewhere. When that has ended, its user gives it back.
            self.effects.push(Effect::Lost(request));
            return Ok(());
        }
        if let (ToUser::Yes { n, .. }, Some(given)) = (&message, given)
            && let Some(abroad) = request.and_then(|request| self.cells.abroad.get_mut(&request))
            && abroad.given.get(&from).is_none_or(|(before, _)| n >= before)
        {
            abroad.given.insert(from, (*n, given));
        }
        self.step_user(user, Event::Message { from: Addr::Manager(from), msg: message })?;
        self.deliver()?;
        self.ask_those_again_who_were_lost()
    }

    /// A guard will not grant a request.
    pub(super) fn on_refused(&mut self, id: RequestId, why: Refusal) -> Result<(), Defect> {
        match self.request_of(id.user) {
            Some(request) if self.is_held(request) => {
                self.effects.push(Effect::Lost(request));
                Ok(())
            }
            Some(request) => self.refuse(request, why),
            None => Ok(()),
        }
    }

    /// Those who were taken for dead although they live ask again, as others.
    pub(super) fn ask_those_again_who_were_lost(&mut self) -> Result<(), Defect> {
        let mut again = BTreeSet::new();
        while let Some(request) = self.lost.pop() {
            if again.insert(request) {
                self.ask_as_another(request)?;
            } else {
                let why = "what it needs was taken away while it was asked for; ask again";
                self.refuse(request, Refusal::Closed(why.into()))?;
            }
        }
        Ok(())
    }

    /// A request that waits is asked for anew by another user; the one before gives back whatever it has.
    pub(super) fn ask_as_another(&mut self, request: RequestNo) -> Result<(), Defect> {
        let is_postponed = self.cells.postponed.contains(&request);
        if is_postponed || self.is_held(request) || !self.requests.contains_key(&request) {
            return Ok(());
        }
        let user = self.fresh_user();
        let Some(entry) = self.requests.get_mut(&request) else { return Ok(()) };
        let before = std::mem::replace(&mut entry.user, user);
        if let Some(abroad) = self.cells.abroad.get_mut(&request) {
            abroad.id = RequestId { user, seq: 1 };
            abroad.given.clear();
        }
        self.give_up_claim(request);
        self.enter_user(user, self.cfg.user(user), request);
        self.call_end(before, false)?;
        self.tell_manager()?;
        self.ask_or_postpone(request)
    }

    /// Whether a grant holds something of a cell that is no member.
    pub fn is_unguarded(&self, taken: &[Taken]) -> bool {
        let mut cells = taken.iter().filter_map(|taken| taken.name.cell());
        cells.any(|cell| self.cells.named(cell).is_err())
    }

    /// A grant of which others guard a part is in force again, under the id by which they know it.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn restore_spanning(
        &mut self,
        now: u64,
        kept: &Reservation,
        id: RequestId,
        not_leased: &BTreeSet<CellId>,
    ) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.go_above(kept.request.0);
        if !self.restore_abroad(kept, id, not_leased)? {
            self.effects.push(Effect::Unrestored(kept.request));
        }
        Ok(std::mem::take(&mut self.effects))
    }

    fn restore_abroad(
        &mut self,
        kept: &Reservation,
        id: RequestId,
        not_leased: &BTreeSet<CellId>,
    ) -> Result<bool, Defect> {
        let (mut own, mut given) = (Vec::new(), std::collections::BTreeMap::new());
        for taken in &kept.taken {
            match taken.name.cell().map(|cell| self.cells.named(cell)) {
                None | Some(Ok(ManagerId(0))) => own.push(taken.clone()),
                Some(Ok(guard)) => {
                    let units = taken.units.iter().map(|(unit, fence)| (unit.here(), *fence));
                    let taken = Taken { name: taken.name.here(), units: units.collect() };
                    given.entry(guard).or_insert_with(Vec::new).push(taken);
                }
                Some(Err(_)) => {} // That cell is no member, and nothing is said to it any more.
            }
        }
        let is_own = |need: &&Need| need.name.cell().is_none();
        let needs: Vec<Need> = kept.needs.iter().filter(is_own).cloned().collect();
        let mut counts = match own.is_empty() {
            true => Vec::new(),
            false => match self.as_it_was(&needs, &own) {
                Some(counts) => counts.to_vec(),
                None => return Ok(false),
            },
        };
        let local = Needs::new(counts.clone()).ok();
        counts.extend(
            given.keys().zip(0..).map(|(guard, n)| Count::any(House::pool_at(*guard, n), 1)),
        );
        let Ok(counts) = Needs::new(counts) else { return Ok(false) };
        self.tell_manager()?;
        self.enter_as(
            kept.request,
            for_needs(kept.needs.clone()),
            counts.clone(),
            Arc::new(kept.who.clone()),
            id.user,
        );
        let given = given.into_iter().map(|(guard, taken)| {
            let cell = self.cells.peer(guard).map(|peer| peer.member.cell);
            let leased = cell.is_none_or(|cell| !not_leased.contains(&cell));
            (guard, (0, Given { taken: taken.into(), leased }))
        });
        let abroad = Abroad { given: given.collect(), until: kept.until, ..Abroad::new(id, false) };
        self.cells.abroad.insert(kept.request, abroad);
        let role = User::granted(&self.cfg, Request { id, needs: counts });
        self.enter_user(id.user, role, kept.request);
        if let Some(entry) = self.requests.get_mut(&kept.request) {
            entry.since = kept.since;
            entry.besides.change(|besides| besides.until = kept.until);
            entry.taken = Some(kept.taken.clone().into());
        }
        self.held.insert(kept.request);
        if let Some(local) = local {
            for (count, taken) in local.iter().zip(&own) {
                self.ledger.assign_again(count, kept.request, taken)?;
            }
            let attempt = ToManager::attempt(id, local);
            self.mail.push_back(Mail::ToManager(Addr::User(id.user), attempt));
            self.deliver()?;
        }
        Ok(true)
    }
}
