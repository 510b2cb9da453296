//! What clients want that changes something.

use holdall_wire::holder::Record;
use holdall_wire::{Change, Fault, Leftovers, Name, Place, Refusal, Reply, RequestNo};

use super::{Cell, Defect};
use crate::books::Entry;
use crate::engine;
use crate::facts::{Fact, How};
use crate::input::{Effect, Rest, Wish};
use crate::session::{CallNo, SessionId};

/// How long a client has to stop using what was taken away from it, in milliseconds.
const TAKEN_AWAY: u64 = 10_000;
/// The longest time that a reservation is renewed for: ten years.
const RENEWED_MAX: u64 = 10 * 366 * 24 * 3600 * 1000;

impl Cell {
    pub(super) fn wish(
        &mut self,
        session: SessionId,
        call: CallNo,
        wish: Wish,
    ) -> Result<(), Defect> {
        let done = match wish {
            Wish::Ask { ask, .. } if ask.part.is_some() => {
                // A unit would have two holders in the books, the grant and its part.
                let why = Refusal::Closed("a cell does not know parts of grants".into());
                return self.answer(session, call, Reply::Refused(why));
            }
            Wish::Ask { who, ask } => {
                let request = self.engine.next_number();
                let (asker, asked) = (who.clone(), ask.clone());
                self.note(Fact::Asked { request, session, call, who: asker, ask: asked })?;
                return self.run(engine::Input::Ask { who, ask });
            }
            Wish::End { request, rest } => match self.own(session, request) {
                Ok(()) => return self.give_back(request, rest, session, call),
                Err(fault) => Err(fault),
            },
            Wish::Withdraw { asked, rest } => {
                match self.books.sessions.request(session, asked) {
                    Some(request) if self.engine.is_held(request) => {
                        return self.give_back(request, rest, session, call);
                    }
                    Some(request) => self.end(request, How::Withdrawn).map(Ok)?,
                    None => Ok(()), // It is over already.
                }
            }
            Wish::Child { request, holder } => self.child(session, request, holder)?,
            Wish::Change(change) => {
                let done = self.change(change, false)?;
                self.note_drained()?;
                done
            }
            Wish::Renew { request, millis } => self.renew(session, request, millis)?,
            Wish::Release { request, force, may } => self.release(session, request, force, may)?,
            Wish::Leave => {
                self.answer(session, call, Reply::Done)?;
                return self.close(session);
            }
        };
        self.answer(session, call, done.map_or_else(Reply::Failed, |()| Reply::Done))
    }

    /// Whether a session holds a grant.
    fn own(&self, session: SessionId, request: RequestNo) -> Result<(), Fault> {
        let entry = self.books.get(request).filter(|entry| entry.session == session);
        let owns = entry.is_some_and(|entry| entry.held.is_some() && entry.left.is_none());
        if owns { Ok(()) } else { Err(unknown(request)) }
    }

    /// What was to be made for a command is made, and its client is told of the grant.
    pub(super) fn prepared(
        &mut self,
        request: RequestNo,
        holder: Option<Record>,
        place: Option<Place>,
    ) -> Result<(), Defect> {
        let entry = self.books.get(request);
        match entry.filter(|entry| entry.held.is_some() && !entry.ready) {
            Some(entry) => {
                let (session, call) = (entry.session, entry.call);
                self.note(Fact::Ready { request, holder, place })?;
                if let Some(reply) = self.stands(request) {
                    self.tell(session, call, reply);
                }
            }
            None => self.unused(holder), // It ended meanwhile.
        }
        Ok(())
    }

    fn unused(&mut self, holder: Option<Record>) {
        self.out.effects.extend(holder.map(Effect::Unused));
    }

    fn child(
        &mut self,
        session: SessionId,
        request: RequestNo,
        holder: Record,
    ) -> Result<Result<(), Fault>, Defect> {
        if let Err(fault) = self.own(session, request) {
            // The client has lost the grant. So its child becomes nothing.
            self.unused(Some(holder));
            return Ok(Err(fault));
        }
        let known = self.books.get(request).and_then(|entry| entry.holder.as_ref());
        if known.is_some_and(|known| known.leader.is_some()) {
            return Ok(Err(Fault::Wrong(format!("{request} has a child already"))));
        }
        self.note(Fact::Used { request, holder })?;
        Ok(Ok(()))
    }

    /// A client gives back a grant. What its command has left behind is waited for, ended or let go, as
    /// the client has asked for.
    fn give_back(
        &mut self,
        request: RequestNo,
        rest: Option<Rest>,
        session: SessionId,
        call: CallNo,
    ) -> Result<(), Defect> {
        let Some(Rest { holder, pids }) = rest else {
            self.end(request, How::Released)?;
            return self.answer(session, call, Reply::Done);
        };
        let entry = self.books.get(request);
        let leftovers = entry.and_then(Entry::leftovers).unwrap_or_default();
        if entry.is_some_and(|entry| entry.holder.as_ref() != Some(&holder)) {
            self.note(Fact::Used { request, holder: holder.clone() })?;
        }
        let how = How::Released;
        match leftovers {
            Leftovers::Wait => {
                self.note(Fact::Left { request, how, call: None })?;
                self.effect(Effect::Watch(request, holder));
                self.answer(session, call, Reply::Leftovers(pids))
            }
            Leftovers::Warn => {
                self.end(request, how)?;
                self.unused(Some(holder));
                self.answer(session, call, Reply::Leftovers(pids))
            }
            Leftovers::Kill => {
                self.note(Fact::Left { request, how, call: Some(call) })?;
                self.effect(Effect::End(request, holder));
                Ok(())
            }
        }
    }

    fn renew(
        &mut self,
        session: SessionId,
        request: RequestNo,
        millis: u64,
    ) -> Result<Result<(), Fault>, Defect> {
        let Some(entry) = self.books.get(request).filter(|entry| entry.held.is_some()) else {
            return Ok(Err(unknown(request)));
        };
        let caller = self.books.sessions.uid(session);
        let wrong = if !entry.is_reserved() {
            Some(format!("{request} is no reservation; it ends with its process"))
        } else if caller != Some(entry.who.uid) && caller != Some(0) {
            Some(format!("{request} belongs to {}", entry.who.user))
        } else {
            (millis > RENEWED_MAX).then(|| "a reservation lasts ten years at most".into())
        };
        if let Some(wrong) = wrong {
            return Ok(Err(Fault::Wrong(wrong)));
        }
        let until = self.now.saturating_add(millis);
        self.note(Fact::Renewed { request, until })?;
        self.out.sync = true;
        self.run(engine::Input::Renew { request, until })?;
        Ok(Ok(()))
    }

    fn release(
        &mut self,
        session: SessionId,
        request: RequestNo,
        force: bool,
        may: bool,
    ) -> Result<Result<(), Fault>, Defect> {
        let Some(entry) = self.books.get(request).filter(|entry| entry.held.is_some()) else {
            return Ok(Err(unknown(request)));
        };
        let (reserved, user) = (entry.is_reserved(), &entry.who.user);
        let mine = self.books.sessions.uid(session) == Some(entry.who.uid);
        let wrong = if !mine && !may {
            Some(format!("{request} belongs to {user}, who may release it, and so may root"))
        } else if !force && !mine {
            Some(format!("{request} belongs to {user}; --force releases it all the same"))
        } else if !force && !reserved {
            let pid = entry.who.pid;
            Some(format!(
                "{request} is in use by process {pid} and ends with it; --force takes it away"
            ))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Ok(Err(Fault::Wrong(wrong)));
        }
        if reserved {
            let (asker, asked) = (entry.session, entry.call);
            self.end(request, How::Released)?;
            if asker != session {
                self.tell(asker, asked, How::Released.reply(request));
            }
        } else {
            self.take_away(request)?;
        }
        Ok(Ok(()))
    }

    /// Takes a grant away from a living client: it is told, and its processes are killed if it does
    /// not stop them.
    fn take_away(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        match entry.holder.clone() {
            // Fences tell the protected things.
            None => self.end(request, How::Lost),
            Some(holder) if entry.left.is_some() => {
                // Nobody is left who could stop it in order.
                let call = entry.left.as_ref().and_then(|left| left.call);
                self.note(Fact::Left { request, how: How::Lost, call })?;
                self.effect(Effect::Kill(request, holder));
                Ok(())
            }
            Some(_) if entry.kill_at.is_some() => Ok(()),
            Some(_) => {
                let (session, call) = (entry.session, entry.call);
                let kill_at = self.now.saturating_add(TAKEN_AWAY);
                self.note(Fact::TakenAway { request, kill_at })?;
                self.tell(session, call, Reply::Lost(request));
                Ok(())
            }
        }
    }

    /// Changes the pools.
    pub(super) fn change(
        &mut self,
        change: Change,
        configured: bool,
    ) -> Result<Result<(), Fault>, Defect> {
        let name = name_of(&change).clone();
        let drains = matches!(change, Change::Drain { .. } | Change::Undrain { .. });
        self.changed = Ok(());
        let effects = self.engine.step(self.now, engine::Input::Change(change))?;
        let refused = |effect: &engine::Effect| matches!(effect, engine::Effect::Changed(Err(_)));
        if !effects.iter().any(refused) && !drains {
            let kind = self.engine.kind(&name);
            self.note(Fact::Pool { name, kind, configured })?;
            self.out.sync = true;
        }
        self.take_effects(effects)?;
        Ok(std::mem::replace(&mut self.changed, Ok(())))
    }

    /// Notes which units are drained, if these are others than before.
    pub(super) fn note_drained(&mut self) -> Result<(), Defect> {
        let all = self.engine.drained().into_iter().filter_map(|change| match change {
            Change::Drain { name, drained } => Some((name, drained)),
            _ => None,
        });
        let all: Vec<_> = all.collect();
        if all == self.books.drained() {
            return Ok(());
        }
        self.out.sync = true;
        self.note(Fact::Drained(all))
    }
}

pub(super) fn name_of(change: &Change) -> &Name {
    match change {
        Change::Add { name, .. } | Change::Remove { name, .. } | Change::Resize { name, .. } => {
            name
        }
        Change::Drain { name, .. } | Change::Undrain { name } => name,
    }
}

fn unknown(request: RequestNo) -> Fault {
    Fault::Wrong(format!("there is no {request}; `holdall status` shows what there is"))
}
