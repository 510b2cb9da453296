//! What clients want that changes something.

use std::sync::Arc;

use holdall_wire::holder::Record;
use holdall_wire::{Change, Fault, Leftovers, Name, Place, RequestNo, Who};

use super::{Cell, Defect};
use crate::books::Entry;
use crate::engine;
use crate::facts::{Answer, Fact, How};
use crate::input::{Effect, Rest, Wish};
use crate::peer::RESERVED_MAX;
use crate::session::{CallNo, ConnNo, SessionId};

impl Cell {
    pub(super) fn wish(
        &mut self,
        session: SessionId,
        call: CallNo,
        wish: Wish,
    ) -> Result<(), Defect> {
        let done = match wish {
            Wish::Ask { who, mut ask, length } => {
                let request = self.engine.next_number();
                let bare = self.engine.refuse_bare(&ask.needs).err();
                self.engine.name_as_here(&mut Arc::make_mut(&mut ask).needs);
                let ask = self.engine.ask_like(ask);
                let (asker, asked, at) = (who.clone(), ask.clone(), self.now);
                self.note(Fact::Asked { request, session, call, who: asker, ask: asked, at })?;
                return match bare {
                    Some(why) => {
                        self.engine.go_above(request.0);
                        self.over(request, How::Refused(why))
                    }
                    None => self.run(engine::Input::Ask { who, ask, length }),
                };
            }
            Wish::End { request, rest } => match self.own(session, request) {
                Ok(()) => return self.give_back(request, rest, session, call),
                Err(fault) => Err(fault),
            },
            Wish::Withdraw { asked, rest } => {
                match self.books.sessions.request(session, asked) {
                    Some(request) if self.has_in_hand(session, request) => {
                        return self.give_back(request, rest, session, call);
                    }
                    Some(request) if !self.engine.is_held(request) => {
                        self.end(request, How::Withdrawn).map(Ok)?
                    }
                    _ => Ok(()), // It is over, or ends already.
                }
            }
            Wish::Child { request, holder } => self.child(session, request, holder)?,
            Wish::Change { by, change } => {
                let done = self.change(change, Some(by))?;
                self.note_drained()?;
                done
            }
            Wish::Renew { request, millis, by, may } => {
                match self.renew((session, call), request, millis, &by, may)? {
                    Some(done) => done,
                    None => return Ok(()), // Others have yet to confirm it.
                }
            }
            Wish::Release { request, force, by, may, unseen, beyond } => {
                let done = self.release(session, request, force, &by, may, unseen)?;
                done.and_then(|()| beyond.map_or(Ok(()), |left| Err(Fault::Conflict(left))))
            }
            Wish::Leave => {
                self.answer(session, call, Answer::Done)?;
                return self.close(session);
            }
        };
        self.answer(
            session,
            call,
            done.map_or_else(|fault| Answer::Failed(fault.into()), |()| Answer::Done),
        )
    }

    /// Whether a wish that comes over a connection gives back something that is open: it is always
    /// taken. A wish to withdraw that does not changes nothing.
    pub fn gives_back(&self, conn: ConnNo, wish: &Wish) -> bool {
        let Some(session) = self.books.sessions.of(conn) else { return false };
        match wish {
            Wish::End { request, .. } => self.has_in_hand(session, *request),
            Wish::Withdraw { asked, .. } => {
                let request = self.books.sessions.request(session, *asked);
                let entry = request.and_then(|request| self.books.get(request));
                entry.is_some_and(|entry| entry.held.is_none() || entry.is_in_hand())
            }
            Wish::Leave => true,
            _ => false,
        }
    }

    /// Whether a session holds a grant.
    pub(super) fn has_in_hand(&self, session: SessionId, request: RequestNo) -> bool {
        let is_its = |entry: &&Entry| entry.session.is_some_and(|(owner, _)| owner == session);
        self.books.get(request).filter(is_its).is_some_and(Entry::is_in_hand)
    }

    /// The same; if it does not, what its client is told.
    fn own(&self, session: SessionId, request: RequestNo) -> Result<(), Fault> {
        if self.has_in_hand(session, request) { Ok(()) } else { Err(unknown(request)) }
    }

    /// What was to be made for a command is made, and its client is told of the grant.
    pub(super) fn prepared(
        &mut self,
        request: RequestNo,
        holder: Option<Box<Record>>,
        place: Option<Place>,
    ) -> Result<(), Defect> {
        let entry = self.books.get(request);
        let is_unconfirmed = self.books.ties().keeping(request).is_some();
        match entry.filter(|entry| entry.held.is_some() && !entry.ready && !is_unconfirmed) {
            Some(entry) => {
                let session = entry.session;
                self.note(Fact::Ready { request, holder, place })?;
                if let (Some((session, call)), Some(reply)) = (session, self.stands(request)) {
                    self.tell(session, call, reply);
                }
            }
            None => self.unused(holder), // It ended meanwhile.
        }
        Ok(())
    }

    fn unused(&mut self, holder: Option<Box<Record>>) {
        self.out.effects.extend(holder.map(Effect::Unused));
    }

    fn child(
        &mut self,
        session: SessionId,
        request: RequestNo,
        holder: Box<Record>,
    ) -> Result<Result<(), Fault>, Defect> {
        let entry = self.books.get(request).filter(|entry| entry.ready);
        let Some(entry) = entry.filter(|_| self.has_in_hand(session, request)) else {
            // The client has lost the grant, or was not told of it. So its child becomes nothing.
            self.unused(Some(holder));
            return Ok(Err(unknown(request)));
        };
        if entry.holder.as_ref().is_some_and(|known| known.leader.is_some()) {
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
            return self.answer(session, call, Answer::Done);
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
                self.answer(session, call, Answer::Leftovers(pids.into()))
            }
            Leftovers::Warn => {
                self.end(request, how)?;
                self.unused(Some(holder));
                self.answer(session, call, Answer::Leftovers(pids.into()))
            }
            Leftovers::Kill => {
                self.note(Fact::Left { request, how, call: Some(call) })?;
                self.effect(Effect::End(request, holder));
                Ok(())
            }
        }
    }

    /// Renews a reservation. None if its call is answered when other cells have confirmed it.
    fn renew(
        &mut self,
        (session, call): (SessionId, CallNo),
        request: RequestNo,
        millis: u64,
        by: &Arc<Who>,
        may: bool,
    ) -> Result<Option<Result<(), Fault>>, Defect> {
        let Some(entry) = self.books.get(request).filter(|entry| entry.held.is_some()) else {
            return Ok(Some(Err(unknown(request))));
        };
        let mine = self.books.is_of(request, self.books.sessions.uid(session));
        let conflict = |why: String| Ok(Some(Err(Fault::Conflict(why))));
        if !entry.is_reserved() {
            return conflict(format!("{request} is no reservation; it ends with its process"));
        } else if !mine && !may {
            return Ok(Some(Err(of_another(request, entry))));
        } else if !entry.is_in_hand() {
            return conflict(format!("{request} is ending"));
        } else if millis > RESERVED_MAX {
            return conflict("a reservation lasts ten years at most".into());
        } else if entry.held.as_ref().is_some_and(|held| self.engine.is_unguarded(&held.taken)) {
            return conflict(format!(
                "{request} holds something of a cell that is no member any more, and would not know of it"
            ));
        } else if let Some(cell) = self.engine.unreachable(request) {
            return conflict(format!(
                "{request} holds something of the cell '{cell}', which cannot be reached and would not know of it"
            ));
        }
        let (until, before) = (self.now.saturating_add(millis), entry.held.as_ref());
        let is_later = before.and_then(|held| held.until).is_none_or(|before| until > before);
        if !mine {
            self.note(Fact::Forced { request, by: by.clone() })?;
        }
        let spans = self.books.ties().id(request).is_some();
        if !spans || !is_later {
            self.lasts_until(request, until)?;
        }
        if spans {
            self.keep(request, until, is_later.then_some((session, call)))?;
        }
        Ok((!spans || !is_later).then_some(Ok(())))
    }

    fn release(
        &mut self,
        session: SessionId,
        request: RequestNo,
        force: bool,
        by: &Arc<Who>,
        may: bool,
        unseen: bool,
    ) -> Result<Result<(), Fault>, Defect> {
        let Some(entry) = self.books.get(request).filter(|entry| entry.held.is_some()) else {
            return Ok(Err(unknown(request)));
        };
        let (reserved, user) = (entry.is_reserved(), &entry.who.user);
        let mine = self.books.is_of(request, self.books.sessions.uid(session));
        let conflict = |why: String| Ok(Err(Fault::Conflict(why)));
        if !mine && !may {
            return Ok(Err(of_another(request, entry)));
        } else if !force && !mine {
            return conflict(format!(
                "{request} belongs to {user}; --force releases it all the same"
            ));
        } else if !force && !reserved {
            let pid = entry.who.pid;
            return conflict(format!(
                "{request} is in use by process {pid} and ends with it; --force takes it away"
            ));
        }
        if let Some(tie) = self.books.ties().foreign(request) {
            let is_kept = entry.held.as_ref().is_some_and(|held| held.until.is_some());
            let (home, stays) = (tie.id.user.home().cell, is_kept || !tie.leased);
            if !self.engine.is_member(home) || self.engine.is_unclaimed(request) {
                // Nobody is left who could be told.
                self.note(Fact::Forced { request, by: by.clone() })?;
                return self.run(engine::Input::End(request)).map(Ok);
            }
            if let Some(home) = self.engine.is_away(home).filter(|_| stays) {
                return conflict(format!(
                    "{request} is kept for the cell '{home}', which cannot be reached and would not know of it: say it again when that is \
                     back; `holdall cluster forget {home}` frees all that it holds, anywhere"
                ));
            }
            self.note(Fact::Forced { request, by: by.clone() })?;
            // Its home stops whoever uses it, and gives it back; or its lease runs out.
            self.engine.revoke(request);
            return Ok(Ok(()));
        }
        let (asker, closing) = (entry.session, entry.closing.is_some());
        if force {
            self.note(Fact::Forced { request, by: by.clone() })?;
        }
        if closing {
            return self.end_parts(request, force).map(Ok);
        }
        if !reserved && !unseen {
            return self.take_away(request, How::Lost).map(Ok);
        } else if !reserved {
            return self.end(request, How::Lost).map(Ok);
        }
        if force {
            self.end_by_force(request, How::Released)?;
        } else {
            self.end(request, How::Released)?;
        }
        // Whoever asked is told, unless it has released it itself.
        if let Some((asker, asked)) = asker.filter(|(asker, _)| *asker != session) {
            self.tell(asker, asked, How::Released.answer(request).into());
        }
        Ok(Ok(()))
    }

    /// Changes the pools, because somebody wants it or because it is time.
    pub(super) fn change(
        &mut self,
        change: Change,
        by: Option<Arc<Who>>,
    ) -> Result<Result<(), Fault>, Defect> {
        let configured = self.books.pool(name_of(&change)).is_some_and(|pool| pool.configured);
        let why = Fact::Changed { by, change: change.clone() };
        self.change_pool(change, configured, Some(why))
    }

    /// Changes a pool, and notes why, if it can be done.
    pub(super) fn change_pool(
        &mut self,
        change: Change,
        configured: bool,
        why: Option<Fact>,
    ) -> Result<Result<(), Fault>, Defect> {
        let name = name_of(&change).clone();
        let drains = matches!(change, Change::Drain { .. } | Change::Undrain { .. });
        self.changed = Ok(());
        let effects = self.engine.step(self.now, engine::Input::Change(change))?;
        let refused = |effect: &engine::Effect| matches!(effect, engine::Effect::Changed(Err(_)));
        if !effects.iter().any(refused) {
            why.into_iter().try_for_each(|why| self.note(why))?;
            if !drains {
                let kind = self.engine.kind(&name);
                self.note(Fact::Pool { name, kind, configured })?;
            }
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
    Fault::unknown(format_args!("{request}; `holdall status` shows what there is"))
}

fn of_another(request: RequestNo, entry: &Entry) -> Fault {
    Fault::Denied(format!("{request} belongs to {}, and only they may do this", entry.who.user))
}
