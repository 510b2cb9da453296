//! How requests end without a call: with their session, their processes, or their time.

use holdall_wire::{Change, Drained, Refusal, RequestNo};

use super::{Cell, Defect};
use crate::engine;
use crate::facts::{Fact, How};
use crate::input::Effect;
use crate::session::SessionId;

impl Cell {
    /// Ends a request, whether it waits or holds.
    pub(super) fn end(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        self.out.sync |= entry.is_reserved() && entry.held.is_some();
        self.over(request, how)?;
        self.run(engine::Input::End(request))
    }

    /// A session is over. What waits loses its place first, so that nothing is granted to it on the
    /// way out; then what it held goes, but for reservations.
    pub(super) fn close(&mut self, session: SessionId) -> Result<(), Defect> {
        if self.books.sessions.uid(session).is_none() {
            return Ok(());
        }
        let (held, waiting): (Vec<_>, Vec<_>) = self
            .books
            .sessions
            .open(session)
            .into_iter()
            .partition(|request| self.engine.is_held(*request));
        self.note(Fact::SessionOver(session))?;
        for request in waiting {
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
        if entry.left.is_some() {
            return Ok(());
        }
        match entry.holder.clone() {
            None => self.end(request, how),
            Some(holder) => {
                self.note(Fact::Left { request, how, call: None })?;
                self.effect(Effect::Kill(request, holder));
                Ok(())
            }
        }
    }

    /// Nothing is left of what used a grant.
    pub(super) fn holder_ended(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        let (session, left) = (entry.session, entry.left.clone());
        let Some(left) = left else { return Ok(()) }; // Its client says so in time.
        self.end(request, left.how)?;
        match left.call {
            Some(call) => self.answer(session, call, holdall_wire::Reply::Done),
            None => Ok(()),
        }
    }

    /// Ends what has run out: reservations, leases, what was drained for a time, and the patience with
    /// what was taken away.
    pub(super) fn look_at_deadlines(&mut self) -> Result<(), Defect> {
        while let Some((_, request)) = self.books.next_due().filter(|(at, _)| *at <= self.now) {
            let is_taken_away =
                self.books.get(request).is_some_and(|entry| entry.kill_at.is_some());
            if is_taken_away {
                self.leave(request, How::Lost)?;
            } else {
                self.end(request, How::Expired)?;
            }
        }
        let is_over = |drained: &Drained| drained.until.is_some_and(|until| until <= self.now);
        let all = self.books.drained().iter();
        let over: Vec<_> = all.filter(|(_, drained)| is_over(drained)).cloned().collect();
        for (name, _) in over {
            // If it is not there any more, it is drained no more either.
            drop(self.change(Change::Undrain { name }, false)?);
        }
        self.note_drained()?;
        let lapsed: Vec<_> = self.books.sessions.lapsed(self.now).collect();
        lapsed.into_iter().try_for_each(|session| self.close(session))
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
            if !entry.ready {
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
