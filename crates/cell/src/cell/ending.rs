//! How requests end without a call: with their session, their processes, or their time.

use holdall_wire::holder::Record;
use holdall_wire::{Change, Drained, Refusal, Reply, RequestNo};

use super::{Cell, Defect};
use crate::engine;
use crate::facts::{Answer, Fact, How};
use crate::input::Effect;
use crate::session::SessionId;

/// How long a client has to stop using what was taken away from it, in milliseconds.
const TAKEN_AWAY: u64 = 10_000;

impl Cell {
    /// Ends a request, whether it waits or holds. What of it is in use by parts lasts until these are
    /// over.
    pub(super) fn end(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        self.end_all(request, how, false)
    }

    /// The same, and its parts do not outlast it.
    pub(super) fn end_by_force(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        self.end_all(request, how, true)
    }

    fn end_all(&mut self, request: RequestNo, how: How, force: bool) -> Result<(), Defect> {
        let entry = self.books.get(request).filter(|entry| entry.closing.is_none());
        let Some(entry) = entry else { return Ok(()) };
        // What was synced must not come back after a loss of memory: others may have had it since.
        let is_lent = self.lent_for(request).is_some();
        self.out.sync |= (entry.is_reserved() || is_lent) && entry.held.is_some();
        if entry.parts() == 0 {
            self.over(request, how)?;
            return self.run(engine::Input::End(request));
        }
        self.note(Fact::Closing { request, how })?;
        self.run(engine::Input::End(request))?;
        self.end_parts(request, force)
    }

    /// A grant has ended, and parts of it are still in use: they are stopped, now or, if they may
    /// outlast it, after some time.
    pub(super) fn end_parts(&mut self, grant: RequestNo, force: bool) -> Result<(), Defect> {
        for part in self.engine.parts(grant).collect::<Vec<_>>() {
            let Some(entry) = self.books.get(part) else { continue };
            let outlasts = entry.ask.part.is_some_and(|part| part.outlasts);
            if force || !outlasts {
                self.take_away(part, How::WithItsGrant)?;
            } else if entry.held.as_ref().is_some_and(|held| held.overtime.is_none()) {
                let until = self.now.saturating_add(self.settings.limits.overtime);
                self.note(Fact::Overtime { request: part, until })?;
            }
        }
        Ok(())
    }

    /// The engine has ended a grant: if it was in use by parts until now, it is over.
    pub(super) fn all_parts_have_ended(&mut self, request: RequestNo) -> Result<(), Defect> {
        let closing = self.books.get(request).and_then(|entry| entry.closing.as_deref().cloned());
        match closing {
            Some(how) => self.over(request, how),
            None => Ok(()), // Whoever ended it has noted it.
        }
    }

    /// Takes a grant away from a living client: it is told, and its processes are killed if it does
    /// not stop them.
    pub(super) fn take_away(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        self.take_away_within(request, how, self.patience_with(request))
    }

    /// The same, within so many milliseconds.
    fn take_away_within(
        &mut self,
        request: RequestNo,
        how: How,
        patience: u64,
    ) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        match entry.holder.clone() {
            // Fences tell the protected things.
            None if !self.has_time_to_stop(request) => self.end(request, how),
            Some(holder) if entry.left.is_some() => {
                // Nobody is left who could stop it in order.
                let call = entry.left.as_ref().and_then(|left| left.call);
                self.note(Fact::Left { request, how, call })?;
                self.effect(Effect::Kill(request, holder));
                Ok(())
            }
            _ if entry.taken_away.is_some() => Ok(()),
            _ => {
                let session = entry.session;
                let kill_at = self.now.saturating_add(patience);
                self.note(Fact::TakenAway { request, how, kill_at })?;
                if let Some((session, call)) = session {
                    self.tell(session, call, Reply::Lost(request));
                }
                Ok(())
            }
        }
    }

    /// Whether whoever uses a grant is not seen here and has some time to stop: others guard something of it, or it is lent to a client
    /// that may be on another machine.
    fn has_time_to_stop(&self, request: RequestNo) -> bool {
        let Some(entry) = self.books.get(request) else { return false };
        let spans = self.books.ties().id(request).is_some();
        entry.ready && !entry.is_reserved() && (spans || self.lent_for(request).is_some())
    }

    /// For how long a grant is lent to a client that nobody sees here, from when it was last heard of.
    fn lent_for(&self, request: RequestNo) -> Option<u64> {
        let (session, _) = self.books.get(request)?.session?;
        self.books.sessions.lease(session)
    }

    /// How long a client has to stop using what was taken away. What is lent is used until it is given back, or the lease is over that was
    /// in force when it was taken: what renews that is heard after it was told that it is lost.
    fn patience_with(&self, request: RequestNo) -> u64 {
        let is_seen = self.books.get(request).is_some_and(|entry| entry.holder.is_some());
        let lent = self.lent_for(request).filter(|_| !is_seen);
        lent.max(self.left_of_a_lease(request)).unwrap_or(TAKEN_AWAY)
    }

    /// What others guard of a grant they give on some time after its lease is over, which was said when that was `stopping` away: until
    /// then processes here are killed, and whoever is not seen here has stopped.
    fn left_of_a_lease(&self, request: RequestNo) -> Option<u64> {
        let is_seen = self.books.get(request).is_some_and(|entry| entry.holder.is_some());
        let stopping =
            self.settings.stopping.filter(|_| self.books.ties().id(request).is_some())?;
        Some(if is_seen { TAKEN_AWAY.min(stopping - stopping / 3) } else { stopping })
    }

    /// The lease of a grant with another cell is about to be over.
    pub(super) fn take_away_in_time(&mut self, request: RequestNo) -> Result<(), Defect> {
        let patience = self.left_of_a_lease(request).unwrap_or(TAKEN_AWAY);
        self.take_away_within(request, How::Lost, patience)
    }

    /// What the engine could not put in force again is over; at the latest when its processes are.
    pub(super) fn unrestored(&mut self, request: RequestNo) -> Result<(), Defect> {
        match self.books.get(request).and_then(|entry| entry.holder.clone()) {
            None => self.over(request, How::Unrestored),
            Some(holder) => {
                self.note(Fact::Left { request, how: How::Unrestored, call: None })?;
                self.effect(Effect::Kill(request, holder));
                Ok(())
            }
        }
    }

    /// A session is over. What waits loses its place first, the last first, so that nothing is granted
    /// to it on the way out; then what it held goes, but for reservations.
    pub(super) fn close(&mut self, session: SessionId) -> Result<(), Defect> {
        if self.books.sessions.uid(session).is_none() {
            return Ok(());
        }
        let (held, waiting): (Vec<_>, Vec<_>) =
            self.books.sessions.open(session).into_iter().partition(|request| {
                self.books.get(*request).is_some_and(|one| one.held.is_some())
            });
        let conn = self.books.sessions.connection(session);
        self.out.sync |= self.books.sessions.is_leased(session) && !held.is_empty();
        self.note(Fact::SessionOver(session))?;
        self.effect(Effect::Forget(session, conn));
        for request in waiting.into_iter().rev() {
            self.end(request, How::Withdrawn)?;
        }
        for request in held {
            if self.books.get(request).is_some_and(|entry| !entry.is_reserved()) {
                self.leave(request, How::Gone)?;
            }
        }
        Ok(())
    }

    /// The client of a grant is gone, and its command goes with it.
    fn leave(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        if !entry.is_in_hand() {
            return Ok(());
        }
        match entry.holder.clone().filter(|holder| !self.is_of_another_boot(holder)) {
            None => self.end(request, how),
            Some(holder) => {
                self.note(Fact::Left { request, how, call: None })?;
                self.effect(Effect::Kill(request, holder));
                Ok(())
            }
        }
    }

    /// Whether processes ended with the boot of the machine that they ran in.
    pub(super) fn is_of_another_boot(&self, holder: &Record) -> bool {
        !holder.boot.is_empty() && *holder.boot != *self.books.clock().boot
    }

    /// Nothing is left of what used a grant.
    pub(super) fn holder_ended(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        let (session, left) = (entry.session, entry.left.as_deref().cloned());
        let Some(left) = left else { return Ok(()) }; // Its client says so in time.
        self.end(request, left.how)?;
        match (session, left.call) {
            (Some((session, _)), Some(call)) => self.answer(session, call, Answer::Done),
            _ => Ok(()),
        }
    }

    /// Ends what has run out: reservations, leases, what was drained for a time, what was granted for
    /// one, and the patience with what was taken away.
    pub(super) fn look_at_deadlines(&mut self) -> Result<(), Defect> {
        while let Some((_, request)) = self.books.next_due().filter(|(at, _)| *at <= self.now) {
            let Some(entry) = self.books.get(request) else { break };
            let has_run_out = |until: Option<u64>| until.is_some_and(|until| until <= self.now);
            let held = entry.held.as_ref();
            match &entry.taken_away {
                Some(taken_away) if entry.left.is_none() => {
                    let how = taken_away.how.clone();
                    self.leave(request, how)?;
                }
                Some(taken_away) => {
                    let how = taken_away.how.clone();
                    self.take_away(request, how)?;
                }
                None if held.is_some_and(|held| has_run_out(held.until)) => {
                    self.end(request, How::Expired)?;
                }
                None if held.is_some_and(|held| has_run_out(held.overtime)) => {
                    self.take_away(request, How::WithItsGrant)?;
                }
                None => self.take_away(request, How::Overrun)?,
            }
        }
        let is_over = |drained: &Drained| drained.until.is_some_and(|until| until <= self.now);
        let all = self.books.drained().iter();
        let over: Vec<_> = all.filter(|(_, drained)| is_over(drained)).cloned().collect();
        for (name, _) in over {
            // If it is not there any more, it is drained no more either.
            drop(self.change(Change::Undrain { name }, None)?);
        }
        self.note_drained()?;
        let lapsed: Vec<_> = self.books.sessions.lapsed(self.now).collect();
        lapsed.into_iter().try_for_each(|session| self.close(session))?;
        self.look_at_strays()?;
        self.look_at_recovery()
    }

    /// All who wait are told to go, the last first: so nobody is granted what another leaves.
    pub(super) fn dismiss(&mut self) -> Result<(), Defect> {
        let waiting = self.engine.waiting();
        for request in waiting.into_iter().rev() {
            if !self.engine.is_held(request) {
                let why = Refusal::Closed("the agent is stopping".into());
                self.end(request, How::Refused(why))?;
            }
        }
        Ok(())
    }

    /// What the host has to see to after a start.
    pub(super) fn resume(&self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let sessions = self.books.sessions.means();
        effects.extend(sessions.map(|(session, means)| Effect::WatchSession(session, means)));
        for (request, entry, _) in self.books.grants() {
            if !entry.ready && self.books.ties().keeping(request).is_none() {
                effects.push(Effect::Prepare(request));
            }
            let (Some(left), Some(holder)) = (&entry.left, entry.holder.clone()) else { continue };
            effects.push(match left.how {
                How::Released if left.call.is_some() => Effect::End(request, holder),
                How::Released => Effect::Watch(request, holder),
                _ => Effect::Kill(request, holder),
            });
        }
        let timers = self.engine.armed();
        effects.extend(timers.map(|(timer, rung, since)| Effect::Arm(timer, rung, since)));
        effects
    }
}
