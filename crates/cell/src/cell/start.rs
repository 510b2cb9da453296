//! How a cell goes on after its host has started: with the engine as it was, or with one that is
//! built again from the books.

use std::collections::{BTreeMap, BTreeSet};

use holdall_protocols::house::House;
use holdall_wire::{Change, Kind, Name, Refusal, RequestNo, Who};

use super::{Cell, Defect, Settings};
use crate::books::Entry;
use crate::engine::{self, Effect as EngineEffect, Engine, Reservation};
use crate::facts::{Clock, Fact, How};
use crate::greeting::Presence;
use crate::input::{Cluster, Declared, Effect, Start};
use crate::plan::Plan;
use crate::session::{Means, SessionId};

pub(super) fn engine(epoch: u32, ephemeral: bool) -> Result<Engine<House>, Defect> {
    Engine::new(None, epoch, ephemeral).map_err(|why| Defect::NoEngine(why.to_string()))
}

/// How a place in a queue ends that may have been another's by now.
fn forgotten() -> How {
    let why = "the agent has lost its memory of who was before whom; ask again";
    How::Refused(Refusal::Closed(why.into()))
}

impl Cell {
    /// The host has started.
    pub(super) fn start(&mut self, start: &Start) -> Result<(), Defect> {
        let is_other_boot = !self.is_same_boot(start);
        let is_another = self.is_another(start.cluster.as_ref(), start.life);
        let is_new_life = self.books.life() != start.life && (self.books.life() != 0 || start.lost);
        let others = self.others(start.cluster.as_ref());
        // What was given without a lease is used without one, whatever the configuration says by now.
        let waits = !start.waits.is_empty() || self.books.ties().has_unleased();
        let doubts = match !others.is_empty() {
            true if is_new_life => Some(self.doubt_what_others_hold()?),
            true if start.doubtful => Some(self.doubt_the_log()),
            _ => None,
        };
        let clock = self.go_on_from(start);
        let (epoch, life, at) = (start.epoch, start.life, self.now);
        self.note(Fact::Started { epoch, life, at, clock })?;
        if start.cluster.is_some() || self.books.ties().is_met() {
            let (nonce, began) = (start.nonce, start.began);
            let cell = start.cluster.as_ref().map(|cluster| cluster.own.cell);
            self.note(Fact::Begun { nonce, began, cell })?;
        }
        let longest = start.pools.iter().filter_map(|one| Some((one.name.clone(), one.limit?)));
        let stopping = start.cluster.as_ref().map(|cluster| cluster.stopping);
        let (limits, patience) = (start.limits, start.patience);
        self.settings = Settings { limits, longest: longest.collect(), stopping, patience };
        self.asserting.clear();
        self.disputed.clear();
        self.strays.clear();
        let is_doubted = start.doubtful && doubts.is_some();
        // What a copy has asked for since, others know under the same ids.
        let is_another = is_another || is_doubted;
        let mut unfit = if start.rebuilt || is_another || self.changes_kinds(&start.pools) {
            self.rebuild(start, doubts.is_some())?
        } else {
            self.engine.unlink_all(self.now);
            self.engine.keep_for_others(start.waits.iter().cloned().collect());
            self.engine.start(start.epoch, start.ephemeral);
            self.configure(&start.pools)?
        };
        if let Some(cluster) = &start.cluster {
            self.engine.know(&cluster.members);
        }
        // First of all it is said for whom is waited: who is forgotten may be the last one that was waited for before.
        self.recover(others, doubts, waits)?;
        self.part_from_all_but(start.cluster.as_ref())?;
        if is_doubted {
            // In the epochs that it does not know of, others may have been given something.
            self.engine.go_above(u64::from(Presence::epoch_beyond(start.epoch)) << 32);
        }
        self.note_drained()?;
        let (of, kept) = std::mem::take(&mut self.kept);
        let kept = if of == start.epoch { kept } else { Vec::new() };
        let kept: BTreeSet<_> = kept.into_iter().collect();
        let mut over = self.books.sessions.detach_all(self.now);
        over.retain(|session| !kept.contains(session));
        if is_other_boot || start.lost {
            let all = self.books.sessions.means();
            let is_process = |means| matches!(means, Means::Process { .. } | Means::Once { .. });
            // Whoever is not seen here may use what it holds until its lease is over.
            let is_leased = |means| matches!(means, Means::Lease(_));
            let is_over = |means| start.lost && !is_leased(means) || is_process(means);
            over.extend(all.filter(|(_, means)| is_over(*means)).map(|(session, _)| session));
        }
        // Nobody is given a share of something whose end, and whatever came of it, may have been forgotten.
        if start.lost {
            self.give_up_what_is_waited_for()?;
        }
        if is_other_boot {
            self.end_what_was_left_by_another_boot()?;
        }
        over.into_iter().try_for_each(|session| self.close(session))?;
        self.give_up_for_those_who_do_not_come_back(&kept)?;
        self.look_at_deadlines()?;
        // Nobody is there to be told anything, and all else is told once.
        self.out.effects = self.resume();
        self.out.effects.append(&mut unfit);
        Ok(())
    }

    /// Whoever knows no sessions asks again over a new connection, and would wait for itself; unless its
    /// connection is kept.
    fn give_up_for_those_who_do_not_come_back(
        &mut self,
        kept: &BTreeSet<SessionId>,
    ) -> Result<(), Defect> {
        let all = self.books.sessions.means();
        let once = all.filter(|(_, means)| matches!(means, Means::Once { .. }));
        let once: Vec<_> = once.filter(|(session, _)| !kept.contains(session)).collect();
        for (session, _) in once {
            for request in self.books.sessions.open(session).into_iter().rev() {
                match self.books.get(request) {
                    Some(entry) if entry.held.is_none() => self.end(request, How::Withdrawn)?,
                    Some(entry) if !entry.ready => self.end(request, How::Gone)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What commands have left behind has ended with the machine. Nobody shares it any more: what was given to whom since may have
    /// been forgotten, and fences must not go back.
    fn end_what_was_left_by_another_boot(&mut self) -> Result<(), Defect> {
        let left = self.books.grants().filter(|(_, entry, _)| entry.left.is_some());
        let is_over = |entry: &Entry| {
            entry.holder.as_ref().is_some_and(|holder| self.is_of_another_boot(holder))
        };
        let left = left.filter(|(_, entry, _)| is_over(entry)).map(|(request, ..)| request);
        left.collect::<Vec<_>>().into_iter().try_for_each(|request| self.holder_ended(request))
    }

    /// Memory was lost, and with it perhaps what was asked for: nobody who comes back counts on a place in a queue.
    fn give_up_what_is_waited_for(&mut self) -> Result<(), Defect> {
        let waiting = self.books.waiting().filter(|(_, entry)| entry.session.is_some());
        let waiting: Vec<_> = waiting.map(|(request, _)| request).collect();
        waiting.into_iter().rev().try_for_each(|request| self.end(request, forgotten()))
    }

    fn is_same_boot(&self, start: &Start) -> bool {
        !start.boot.is_empty() && self.books.clock().boot == start.boot
    }

    /// Time goes on: with the time since the boot if that is the same, or else with the wall.
    fn go_on_from(&mut self, start: &Start) -> Clock {
        let before = self.books.clock();
        let now = if self.is_same_boot(start) {
            before.steady(start.boottime)
        } else {
            start.wall.saturating_sub_signed(before.ahead)
        };
        self.now = self.now.max(now);
        let difference = |one: u64, other: u64| {
            i64::try_from(i128::from(one) - i128::from(other)).unwrap_or_default()
        };
        Clock {
            boot: start.boot.clone(),
            base: difference(self.now, start.boottime),
            ahead: difference(start.wall, self.now),
        }
    }

    /// Whether pools become something else than larger or smaller: then all is built again around what
    /// is held, so that nobody who waits is refused because a pool is away for a moment.
    fn changes_kinds(&self, wanted: &[Declared]) -> bool {
        wanted.iter().any(|one| {
            let before = self.books.pool(&one.name).map(|pool| &pool.kind);
            match (before, &one.kind) {
                (None, _) | (Some(Kind::Numbered(_)), Kind::Numbered(_)) => false,
                (Some(before), kind) => before != kind,
            }
        })
    }

    /// Brings the pools to what the configuration says now. Returns what could not be done.
    fn configure(&mut self, wanted: &[Declared]) -> Result<Vec<Effect>, Defect> {
        let by_name: BTreeMap<&Name, &Kind> =
            wanted.iter().map(|one| (&one.name, &one.kind)).collect();
        let known = self.books.pools().filter(|(_, pool)| pool.configured);
        let gone = known.filter(|(name, _)| !by_name.contains_key(name));
        let mut changes: Vec<_> =
            gone.map(|(name, _)| Change::Remove { name: name.clone(), force: true }).collect();
        let mut adopted = Vec::new();
        for (name, kind) in by_name {
            match (self.books.pool(name), kind) {
                (None, _) => changes.push(Change::Add { name: name.clone(), kind: kind.clone() }),
                (Some(pool), Kind::Numbered(units)) if pool.kind != *kind => {
                    changes.push(Change::Resize { name: name.clone(), units: *units });
                }
                (Some(pool), _) if !pool.configured => adopted.push(name.clone()),
                _ => {}
            }
        }
        for name in adopted {
            let kind = self.books.pool(&name).map(|pool| pool.kind.clone());
            self.note(Fact::Pool { name, kind, configured: true })?;
        }
        self.change_all(changes, wanted)
    }

    fn change_all(
        &mut self,
        changes: Vec<Change>,
        wanted: &[Declared],
    ) -> Result<Vec<Effect>, Defect> {
        let mut unfit = Vec::new();
        let configured: BTreeSet<_> = wanted.iter().map(|one| &one.name).collect();
        for change in changes {
            let name = super::calls::name_of(&change).clone();
            let configured = configured.contains(&name);
            if let Err(why) = self.change_pool(change, configured, None)? {
                unfit.push(Effect::Unfit(name, why.to_string()));
            }
        }
        Ok(unfit)
    }

    /// Builds the engine again from the books: grants as they were, pools as large as these need them
    /// and then as they are meant to be, and then who waits asked again in the order of asking. Returns
    /// what could not be done.
    fn rebuild(&mut self, start: &Start, doubts: bool) -> Result<Vec<Effect>, Defect> {
        let configured = &start.pools;
        self.engine = engine(start.epoch, start.ephemeral)?;
        self.engine.go_above(self.books.highest());
        self.engine.keep_for_others(start.waits.iter().cloned().collect());
        if let Some(Cluster { own, members, .. }) = &start.cluster {
            let home = engine::home(own.cell, start.epoch, start.boottime);
            self.engine.settle(own.name.clone(), home);
            self.engine.know(members);
        }
        let own = self.books.pools().filter(|(_, pool)| !pool.configured);
        let own = own.map(|(name, pool)| (name.clone(), pool.kind.clone()));
        let wanted = configured.iter().map(|one| (one.name.clone(), one.kind.clone()));
        let wanted: Vec<_> = wanted.chain(own).collect();
        let before: Vec<Name> = self.books.pools().map(|(name, _)| name.clone()).collect();
        let grants: Vec<_> = self.books.grants().map(|(request, ..)| request).collect();
        let taken = self.books.grants().flat_map(|(.., held)| held.taken.iter());
        let taken = taken.filter(|taken| taken.name.cell().is_none());
        let plan = Plan::new(wanted, taken);
        let mut unfit = self.change_all(plan.begins, configured)?;
        for request in &grants {
            match self.books.ties().foreign(*request) {
                Some(_) => self.hold_again(*request)?,
                None => self.restore(*request)?,
            }
        }
        // What is held comes before what is new, where both cannot be.
        unfit.extend(self.change_all(plan.unused, configured)?);
        unfit.extend(self.change_all(plan.then, configured)?);
        // Whoever holds what is drained keeps it.
        let drained = self.books.drained().iter().cloned();
        let drain = drained.map(|(name, drained)| Change::Drain { name, drained });
        unfit.extend(self.change_all(drain.collect(), configured)?);
        let is_closing = |request: &RequestNo| {
            self.books.get(*request).is_some_and(|entry| entry.closing.is_some())
        };
        for request in grants.into_iter().filter(is_closing).collect::<Vec<_>>() {
            self.run(engine::Input::End(request))?;
        }
        if doubts || self.is_recovering() || !self.unrestored_abroad.is_empty() {
            self.engine.recover();
        }
        self.ask_again(start.lost)?;
        for name in before {
            if self.engine.kind(&name).is_none() {
                self.note(Fact::Pool { name, kind: None, configured: false })?;
            }
        }
        Ok(unfit)
    }

    /// Whoever waits asks the new engine; unless its place was lost with the memory.
    fn ask_again(&mut self, lost: bool) -> Result<(), Defect> {
        let waiting: Vec<_> = self.books.waiting().map(|(request, _)| request).collect();
        for request in waiting {
            let Some(entry) = self.books.get(request) else { continue };
            if lost && entry.session.is_some() {
                self.over(request, forgotten())?;
                continue;
            }
            let (who, ask) = (entry.who.clone(), entry.ask.clone());
            let mut effects = self.engine.ask_again(self.now, request, who, &ask)?;
            // It waits as it did, however many its user has by now.
            effects.retain(|effect| !matches!(effect, EngineEffect::Queued(_)));
            self.take_effects(effects)?;
        }
        Ok(())
    }

    fn restore(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        let Some(held) = entry.held.clone() else { return Ok(()) };
        let (within, reserved) = (entry.ask.within, entry.is_reserved());
        let reservation = Reservation {
            request,
            who: Who::clone(&entry.who),
            needs: entry.ask.needs.clone(),
            taken: held.taken.to_vec(),
            since: held.since,
            until: held.until,
            part_of: entry.ask.part.map(|part| part.of),
        };
        match self.books.ties().id(request) {
            Some(id) => {
                let not_leased = self.books.ties().not_leased(request);
                let effects =
                    self.engine.restore_spanning(self.now, &reservation, id, &not_leased)?;
                let is_lost = !reserved && self.engine.is_unguarded(&held.taken);
                self.take_effects(effects)?;
                self.keep_again(request);
                return if is_lost { self.take_away(request, How::Lost) } else { Ok(()) };
            }
            None => self.run(engine::Input::Restore(reservation))?,
        }
        self.engine.put_within(request, within);
        Ok(())
    }
}
