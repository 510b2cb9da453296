//! Other cells: what they say, and what becomes of them.
//!
//! # Why nothing is granted twice
//! A unit is granted by the cell that guards it and by nobody else, so within that cell's memory it has one holder.
//! What is left is a holder that the guard takes for gone, and a guard that has lost its memory.
//! - A guard gives to others what a home held when the home has departed from it (it says so, or is forgotten by an
//!   operator), or some time after its lease has run out ([`Input::Lapsed`](crate::Input)). The home counts the lease
//!   from when it *sent* the last beat that was answered, the guard from when it heard it, and so the home
//!   stops using it first ([`Input::LeaseOver`](crate::Input), [`crate::lease`]).
//! - A cell in a new life may not know what it has given to others. So it gives nothing to anybody until every other
//!   cell has said what it holds there, or its lease would have run out.

use std::collections::BTreeSet;

use holdall_core::{CellId, RequestId};
use holdall_protocols::house::ToManager;
use holdall_wire::{Ask, From, Lasting, RequestNo};

use super::{Cell, Defect};
use crate::books::{Entry, Recovery, Tie};
use crate::engine::{HeldFor, Member};
use crate::facts::{Fact, GivenAbroad, How};
use crate::greeting::{First, Presence};
use crate::input::{Cluster, Effect};
use crate::peer::{ASSERTED_BYTES_MAX, AT_A_GUARD_MAX, Asserting, Assertion, PeerMessage};

impl Cell {
    /// There is a link to another cell, in a certain life, which may have said what it knows of this one.
    pub(super) fn linked(
        &mut self,
        cell: CellId,
        presence: Presence,
        first: Option<First>,
    ) -> Result<(), Defect> {
        self.out.is_new = true;
        let (before, life) = (self.books.ties().life(cell), presence.life);
        if before != Some(life) {
            self.note(Fact::Peer { cell, life: Some(life) })?;
        }
        // So that no copy of it that is older than this is let in, whatever happens here.
        self.out.sync = true;
        self.note(Fact::Met { cell, presence })?;
        let says = first.map_or(0, |first| first.since);
        let since = says.max(self.books.ties().lacks_before(cell));
        self.asserting.insert(cell, Asserting { since, ..Asserting::default() });
        if let Some(First { known, .. }) = first {
            let upto = if known.life == self.books.life() { known.length } else { 0 };
            self.note(Fact::Agreed { cell, upto })?;
        }
        let forgot = before.is_some_and(|before| before != life);
        let effects = self.engine.link(self.now, cell, forgot)?;
        self.take_effects(effects)
    }

    pub(super) fn unlinked(&mut self, cell: CellId) {
        self.out.is_new = true;
        self.asserting.remove(&cell);
        self.engine.unlink(self.now, cell);
    }

    /// The log of another cell is so long.
    pub(super) fn comes_to(&mut self, cell: CellId, length: u64) -> Result<(), Defect> {
        match self.books.ties().is_news(cell, length) {
            true => self.note(Fact::CameTo { cell, length }),
            false => Ok(()),
        }
    }

    /// Another cell knows more of this one than its log tells. So any other may hold something that is not in there, and says so over its next
    /// link; and in the epochs that the log does not tell of, others may have been given something.
    pub(super) fn outdone(&mut self, by: CellId) -> Result<(), Defect> {
        let mut recovery = self.doubt_the_log();
        let mut others = self.books.ties().known();
        others.extend(self.engine.peers());
        for cell in others.iter().filter(|cell| self.engine.is_linked(**cell)) {
            self.out.effects.push(Effect::Unlink(*cell, "it is to say once more what it holds"));
        }
        recovery.missing.extend(others);
        recovery.missing.insert(by);
        self.engine.go_above(u64::from(Presence::epoch_beyond(self.engine.epoch())) << 32);
        self.out.sync = true;
        self.wait_for(Recovery { until: None, ..recovery })
    }

    /// Another cell says something. Whatever follows from it, or will, rests on what that cell has in its log by then: so this one goes on
    /// knowing how long that was.
    pub(super) fn said(
        &mut self,
        cell: CellId,
        message: PeerMessage,
        length: u64,
    ) -> Result<(), Defect> {
        self.out.is_new = true;
        if let Err(what) = message.check(cell, self.engine.cell().unwrap_or_default()) {
            self.misbehaved(cell, what);
            return Ok(());
        }
        self.comes_to(cell, length)?;
        match message {
            PeerMessage::Assert(some) => self.asserted(cell, some),
            PeerMessage::Kept { request: id, mark } => match self.engine.known_as(id) {
                Some(request) => self.confirmed(cell, request, mark),
                None => Ok(()),
            },
            message => {
                if let PeerMessage::ToManager { message: ToManager::Release(id), .. } = &message {
                    self.is_not_disputed_any_more(cell, *id)?;
                }
                let effects = self.engine.hear(self.now, cell, message)?;
                self.take_effects(effects)
            }
        }
    }

    /// A home says some more of what it has to do with here.
    fn asserted(&mut self, cell: CellId, some: Assertion) -> Result<(), Defect> {
        let Asserting { said: all, since } = self.asserting.entry(cell).or_default();
        all.waiting.extend(some.waiting);
        all.held.extend(some.held);
        let requests = all.waiting.len() + all.held.len();
        if requests > AT_A_GUARD_MAX || all.size() > ASSERTED_BYTES_MAX {
            *all = Assertion::default();
            self.misbehaved(cell, "more is asserted than a cell can have here");
            return Ok(());
        }
        if !some.last {
            return Ok(());
        }
        // What it says of its memory is good for as long as the link: it may say once more that this is all.
        let all = Asserting { said: std::mem::take(all), since: *since };
        let recovery = self.books.ties().recovery();
        let (effects, disputed) = self.engine.reconcile(self.now, cell, &all, recovery)?;
        self.take_effects(effects)?;
        if disputed.is_empty() {
            self.disputed.remove(&cell);
            return self.has_said_all(cell);
        }
        // It holds what cannot be held for it again, and stops using it. Until then nobody else may.
        self.disputed.insert(cell, disputed);
        Ok(())
    }

    /// A home has stopped using what could not be held for it again.
    fn is_not_disputed_any_more(&mut self, cell: CellId, id: RequestId) -> Result<(), Defect> {
        let Some(disputed) = self.disputed.get_mut(&cell) else { return Ok(()) };
        disputed.remove(&id);
        if !disputed.is_empty() {
            return Ok(());
        }
        self.disputed.remove(&cell);
        self.has_said_all(cell)
    }

    /// A cell has said what it holds here, or never will.
    fn has_said_all(&mut self, cell: CellId) -> Result<(), Defect> {
        let mut recovery = self.books.ties().recovery().clone();
        if recovery.missing.remove(&cell) { self.wait_for(recovery) } else { Ok(()) }
    }

    /// Nothing is granted until those that are missing have said what they hold here.
    fn wait_for(&mut self, recovery: Recovery) -> Result<(), Defect> {
        let is_over = recovery.missing.is_empty();
        if is_over {
            self.disputed.clear();
        }
        let Recovery { missing, until, horizon, held } =
            if is_over { Recovery::default() } else { recovery };
        let (missing, held) = (missing.into_iter().collect(), held.into_iter().collect());
        self.note(Fact::Recovery { missing, until, horizon, held })?;
        if !is_over {
            self.engine.recover();
            return Ok(());
        }
        let effects = self.engine.recovered(self.now)?;
        self.take_effects(effects)
    }

    /// Looks whether those that have not said what they hold are waited for any longer.
    pub(super) fn look_at_recovery(&mut self) -> Result<(), Defect> {
        let until = self.books.ties().recovery().until;
        match until.is_some_and(|until| until <= self.now) {
            true => self.wait_for(Recovery::default()),
            false => Ok(()),
        }
    }

    /// Memory may have been lost: what others hold here is what they say. What was remembered of it is how far
    /// they are to be believed. Reservations are never forgotten.
    pub(super) fn doubt_what_others_hold(&mut self) -> Result<Recovery, Defect> {
        let mut recovery = self.books.ties().recovery().clone();
        if recovery.missing.is_empty() {
            recovery.horizon = self.books.highest();
        }
        let all: Vec<_> = self.books.ties().all_foreign().collect();
        for (request, id) in all {
            let held = self.books.get(request).and_then(|entry| entry.held.as_ref());
            let is_rest = self.books.ties().foreign(request).is_some_and(Tie::is_rest);
            if held.is_some_and(|held| held.until.is_none()) {
                // What its home says to hold is more than the rest of it.
                recovery.held.extend((!is_rest).then_some(id));
                self.note(Fact::Ended { request, how: How::Lost })?;
            }
        }
        Ok(recovery)
    }

    /// The log may be a copy: what others hold beyond what it tells, they say.
    pub(super) fn doubt_the_log(&self) -> Recovery {
        let mut recovery = self.books.ties().recovery().clone();
        if recovery.missing.is_empty() {
            recovery.horizon = self.books.highest();
        }
        recovery
    }

    /// Waits for what other cells hold, if this one may have forgotten it, in this life or in one before.
    pub(super) fn recover(
        &mut self,
        others: BTreeSet<CellId>,
        doubts: Option<Recovery>,
        waits: bool,
    ) -> Result<(), Defect> {
        let patience = self.settings.patience;
        let recovery = match doubts {
            Some(mut recovery) => {
                recovery.held.extend(std::mem::take(&mut self.unrestored_abroad));
                // A recovery without a limit, in which memory is lost once more, has none either.
                let endless = waits || !recovery.missing.is_empty() && recovery.until.is_none();
                let until = (!endless).then(|| self.now.saturating_add(patience));
                Recovery { missing: others, until, ..recovery }
            }
            None => {
                let doubts = self.doubt_what_was_not_restored(patience, waits);
                let recovery = doubts.unwrap_or_else(|| self.books.ties().recovery().clone());
                if recovery.missing.is_empty() {
                    return Ok(());
                }
                recovery
            }
        };
        self.wait_for(recovery)
    }

    /// Other cells there are.
    pub(super) fn know(&mut self, members: &[Member]) {
        self.out.is_new = true;
        self.strays.retain(|cell, _| members.iter().all(|member| member.cell != *cell));
        self.engine.know(members);
    }

    /// Another cell is gone for good, as somebody says in these words.
    pub(super) fn give_up(
        &mut self,
        cell: CellId,
        life: Option<u128>,
        word: Vec<u8>,
    ) -> Result<(), Defect> {
        self.note(Fact::GivenUp { cell, life, word })?;
        self.forget(cell)
    }

    /// Another cell is gone for good.
    pub(super) fn forget(&mut self, cell: CellId) -> Result<(), Defect> {
        self.out.sync = true;
        self.note(Fact::Peer { cell, life: None })?;
        self.strays.remove(&cell);
        self.end_untold(cell)?;
        let effects = self.engine.forget(self.now, cell)?;
        self.take_effects(effects)?;
        self.is_confirmed_without(cell)?;
        self.disputed.remove(&cell);
        self.has_said_all(cell)
    }

    /// All other cells that may hold something here: also those that are no members any more. Nobody is given up for being away
    /// from a list; that takes the word of an operator.
    pub(super) fn others(&self, cluster: Option<&Cluster>) -> BTreeSet<CellId> {
        let mut others = self.books.ties().known();
        if let Some(Cluster { own, members, forgotten, .. }) = cluster {
            others.extend(members.iter().map(|member| member.cell));
            others.retain(|cell| *cell != own.cell && !forgotten.contains(cell));
        }
        others
    }

    /// Those that were forgotten or removed while the host was away, or whose end the host has forgotten.
    pub(super) fn part_from_all_but(&mut self, cluster: Option<&Cluster>) -> Result<(), Defect> {
        let (members, forgotten) = cluster
            .map_or((&[][..], &[][..]), |cluster| (&cluster.members[..], &cluster.forgotten[..]));
        let mut known = self.books.ties().known();
        known.extend(self.engine.peers());
        known.retain(|cell| members.iter().all(|member| member.cell != *cell));
        for cell in known {
            match forgotten.contains(&cell) {
                true => self.forget(cell)?,
                false => self.removed(cell)?,
            }
        }
        Ok(())
    }

    /// Another cell is no member any more. What is leased of it runs out, and what it holds here stays its own for as long as it
    /// may take it for that. What is kept for it without a lease is until somebody says that it is to be forgotten.
    pub(super) fn removed(&mut self, cell: CellId) -> Result<(), Defect> {
        self.out.is_new = true;
        self.lease_over(cell)?;
        self.end_untold(cell)?;
        let effects = self.engine.removed(self.now, cell)?;
        self.take_effects(effects)?;
        self.strays.insert(cell, self.now.saturating_add(self.settings.patience));
        Ok(())
    }

    /// Nobody begins to use what nobody guards.
    fn end_untold(&mut self, cell: CellId) -> Result<(), Defect> {
        let is_untold = |request: &RequestNo| {
            let entry = self.books.get(*request);
            entry.is_some_and(|entry| !entry.ready) && self.engine.is_given_by(*request, cell)
        };
        let untold: Vec<_> = self.books.ties().spanning().filter(is_untold).collect();
        untold.into_iter().try_for_each(|request| self.take_away(request, How::Lost))
    }

    /// What cells held that are no members any more is given to others when they have stopped using it. Of those that hold nothing
    /// then, nothing is to be remembered.
    pub(super) fn look_at_strays(&mut self) -> Result<(), Defect> {
        let over: Vec<_> = self.strays.extract_if(.., |_, until| *until <= self.now).collect();
        for (cell, _) in over {
            self.lapsed(cell)?;
            let ties = self.books.ties();
            let is_known = ties.homes().any(|home| home == cell);
            if !is_known && !ties.recovery().missing.contains(&cell) && ties.life(cell).is_some() {
                self.note(Fact::Peer { cell, life: None })?;
            }
        }
        Ok(())
    }

    /// Another cell was not heard of for a while.
    pub(super) fn suspected(&mut self, cell: CellId) -> Result<(), Defect> {
        self.out.is_new = true;
        let effects = self.engine.suspect(self.now, cell)?;
        self.take_effects(effects)
    }

    /// Another cell was not heard of for as long as its lease lasts, and longer: it uses nothing any more of what it held.
    pub(super) fn lapsed(&mut self, cell: CellId) -> Result<(), Defect> {
        // A home that hears nothing of it must not find it held again when the machine has lost power meanwhile.
        (self.out.is_new, self.out.sync) = (true, true);
        let books = &self.books;
        let stays = |request: RequestNo| {
            let reserved = books.get(request).and_then(|entry| entry.held.as_ref()?.until);
            reserved.is_some() || books.ties().foreign(request).is_some_and(|tie| !tie.leased)
        };
        let effects = self.engine.reclaim(self.now, cell, stays)?;
        self.take_effects(effects)
    }

    /// The lease of this home with a guard runs out: what it holds there must not be used any more.
    pub(super) fn lease_over(&mut self, cell: CellId) -> Result<(), Defect> {
        let grants: Vec<_> = self.books.ties().spanning().collect();
        for request in grants {
            let is_reserved = self.books.get(request).is_some_and(Entry::is_reserved);
            if !is_reserved && self.engine.leased_by(request).contains(&cell) {
                self.take_away_in_time(request)?;
            }
        }
        Ok(())
    }

    /// Something is held for a request of another home.
    pub(super) fn held_for(&mut self, held: HeldFor) -> Result<(), Defect> {
        let request = held.request;
        if self.books.get(request).is_some() {
            return Ok(()); // It is in force again.
        }
        let stance = match held.is_rest {
            true => Tie::NO_STANCE,
            false => postcard::to_allocvec(&held.stance).unwrap_or_else(|_| Tie::UNREADABLE.into()),
        };
        let HeldFor { id, who, needs, taken, since, until, leased, .. } = held;
        let ask = Ask {
            needs,
            now: false,
            lasting: Lasting::Connection,
            from: From::default(),
            within: None,
            limit: None,
            part: None,
        };
        let given = GivenAbroad { request, id, stance, leased, who, ask, taken, since, until };
        self.note(Fact::HeldFor(Box::new(given)))
    }

    /// Nothing is held any more for a request of another home.
    pub(super) fn let_go(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        // As with every reservation: it must not come back after a loss of memory.
        self.out.sync |= entry.held.as_ref().is_some_and(|held| held.until.is_some());
        self.note(Fact::Ended { request, how: How::Released })
    }

    /// A request of another home is a reservation.
    pub(super) fn kept(&mut self, request: RequestNo, until: u64) -> Result<(), Defect> {
        self.out.sync = true;
        self.note(Fact::Renewed { request, until })
    }

    /// What leaves for other cells.
    pub(super) fn take_outgoing(&mut self) {
        for (cell, message) in self.engine.take_outgoing() {
            self.out.effects.push(Effect::Send(cell, Box::new(message)));
        }
    }

    /// What was held for a request of another home before the engine was built again.
    pub(super) fn hold_again(&mut self, request: RequestNo) -> Result<(), Defect> {
        let (Some(tie), Some(entry)) =
            (self.books.ties().foreign(request), self.books.get(request))
        else {
            return Ok(());
        };
        let Some(held) = entry.held.clone() else { return Ok(()) };
        let id: RequestId = tie.id;
        let (stance, is_rest) = (tie.stance.as_slice(), tie.is_rest());
        let stance = postcard::from_bytes(stance).unwrap_or(ToManager::Release(id));
        let (who, needs) = (entry.who.clone(), entry.ask.needs.clone());
        let (taken, since, until, leased) = (held.taken, held.since, held.until, tie.leased);
        let kept =
            HeldFor { request, id, stance, who, needs, taken, since, until, leased, is_rest };
        let effects = self.engine.hold_again(self.now, kept)?;
        self.take_effects(effects)?;
        if !self.engine.is_foreign(request) && self.books.get(request).is_some() {
            self.note(Fact::Ended { request, how: How::Unrestored })?;
            self.unrestored_abroad.insert(id);
        }
        Ok(())
    }

    /// What other homes held and could not be held again, because the pools are others now, they may be using: nothing is
    /// given to anybody until they have stopped, as if it had been forgotten.
    fn doubt_what_was_not_restored(&mut self, patience: u64, waits: bool) -> Option<Recovery> {
        let unrestored = std::mem::take(&mut self.unrestored_abroad);
        let mut recovery = self.books.ties().recovery().clone();
        let until = (!waits).then(|| self.now.saturating_add(patience));
        if recovery.missing.is_empty() {
            recovery = Recovery { horizon: self.books.highest(), until, ..Recovery::default() };
        } else {
            // Whoever has to be waited for longer is.
            recovery.until = recovery.until.zip(until).map(|(before, now)| before.max(now));
        }
        recovery.missing.extend(unrestored.iter().map(|id| id.user.home().cell));
        recovery.held.extend(&unrestored);
        (!unrestored.is_empty()).then_some(recovery)
    }

    /// Whether an engine must be built again because the cell is another one for others, or in another life.
    pub(super) fn is_another(&self, cluster: Option<&Cluster>, life: u128) -> bool {
        match cluster {
            Some(cluster) => {
                self.books.life() != life || self.engine.cell() != Some(cluster.own.cell)
            }
            None => self.engine.cell().is_some(),
        }
    }

    /// What other cells hold is not known yet, and nothing is granted.
    pub fn is_recovering(&self) -> bool {
        !self.books.ties().recovery().missing.is_empty()
    }

    /// Another cell says what no honest one would.
    pub(super) fn misbehaved(&mut self, cell: CellId, what: &'static str) {
        self.effect(Effect::Unlink(cell, what));
    }
}
