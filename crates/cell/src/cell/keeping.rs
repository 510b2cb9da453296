//! Reservations that span cells: every guard keeps them by itself, until a time that is on its disk.
//!
//! # Invariants
//! - A client counts on a reservation, or on its being renewed, only when every guard has confirmed that it keeps what is held
//!   there for at least as long ([`PeerMessage::Kept`](crate::peer::PeerMessage)). Until then it is leased as any
//!   other grant, and nobody was told of it; or it ends when it would have without the renewal.
//! - Whoever has not confirmed it is told again with every link, in what is asserted there.

use holdall_core::{CellId, RequestId};
use holdall_wire::{Fault, RequestNo};

use super::{Cell, Defect};
use crate::engine;
use crate::facts::{Answer, Fact};
use crate::session::{CallNo, SessionId};

impl Cell {
    /// A grant is known to other cells, which guard a part of it.
    pub(super) fn span(&mut self, request: RequestNo, id: RequestId) -> Result<(), Defect> {
        self.note(Fact::Spans { request, id })?;
        let leased = self.engine.leased_by(request);
        let mut cells = self.engine.given_by(request);
        cells.retain(|cell| !leased.contains(cell));
        if cells.is_empty() { Ok(()) } else { self.note(Fact::NotLeased { request, cells }) }
    }

    /// A reservation shall last until then, as soon as every guard has confirmed it.
    pub(super) fn keep(
        &mut self,
        request: RequestNo,
        until: u64,
        call: Option<(SessionId, CallNo)>,
    ) -> Result<(), Defect> {
        let before = self.books.ties().keeping(request).and_then(|keeping| keeping.call);
        self.fail_renewal(before, request, "is renewed once more")?;
        let missing = self.engine.given_by(request);
        self.out.sync = true;
        self.engine.keep_abroad(self.now, request, until);
        let none_is_missing = missing.is_empty();
        self.note(Fact::Keeping { request, until, missing, call })?;
        if none_is_missing { self.is_kept(request, until, call) } else { Ok(()) }
    }

    /// A guard keeps a reservation for as long as it was told to, or nobody guards it any more.
    pub(super) fn confirmed(
        &mut self,
        cell: CellId,
        request: RequestNo,
        mark: u64,
    ) -> Result<(), Defect> {
        let Some(keeping) = self.books.ties().keeping(request) else { return Ok(()) };
        let (until, call) = (keeping.until, keeping.call);
        if until != mark || !keeping.missing.contains(&cell) {
            return Ok(()); // It was renewed since.
        }
        let missing: Vec<_> =
            keeping.missing.iter().copied().filter(|other| *other != cell).collect();
        let is_last = missing.is_empty();
        self.note(Fact::Keeping { request, until, missing, call })?;
        if is_last { self.is_kept(request, until, call) } else { Ok(()) }
    }

    /// Every guard has confirmed it.
    fn is_kept(
        &mut self,
        request: RequestNo,
        until: u64,
        call: Option<(SessionId, CallNo)>,
    ) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        let (is_ready, session) = (entry.ready, entry.session);
        if entry.held.as_ref().is_some_and(|held| held.until != Some(until)) {
            self.lasts_until(request, until)?;
        }
        if !is_ready {
            self.note(Fact::Ready { request, holder: None, place: None })?;
            if let (Some((session, call)), Some(reply)) = (session, self.stands(request)) {
                self.tell(session, call, reply);
            }
        }
        match call {
            Some((session, call)) if self.books.sessions.uid(session).is_some() => {
                self.answer(session, call, Answer::Done)
            }
            _ => Ok(()),
        }
    }

    /// A reservation lasts until then.
    pub(super) fn lasts_until(&mut self, request: RequestNo, until: u64) -> Result<(), Defect> {
        self.note(Fact::Renewed { request, until })?;
        self.out.sync = true;
        self.run(engine::Input::Renew { request, until })
    }

    /// A renewal that was not confirmed comes to nothing.
    pub(super) fn fail_renewal(
        &mut self,
        call: Option<(SessionId, CallNo)>,
        request: RequestNo,
        why: &str,
    ) -> Result<(), Defect> {
        let Some((session, call)) = call else { return Ok(()) };
        if self.books.sessions.uid(session).is_none() {
            return Ok(());
        }
        let fault = Fault::Conflict(format!("{request} {why}"));
        self.answer(session, call, Answer::Failed(fault.into()))
    }

    /// A cell is gone for good: what it has not confirmed needs no word of it.
    pub(super) fn is_confirmed_without(&mut self, cell: CellId) -> Result<(), Defect> {
        for request in self.books.ties().unconfirmed_by(cell) {
            let until = self.books.ties().keeping(request).map(|keeping| keeping.until);
            until.map_or(Ok(()), |until| self.confirmed(cell, request, until))?;
        }
        Ok(())
    }

    /// Other cells have yet to be told again of reservations that they have not confirmed, by an engine that was built anew.
    pub(super) fn keep_again(&mut self, request: RequestNo) {
        if let Some(until) = self.books.ties().keeping(request).map(|keeping| keeping.until) {
            self.engine.keep_abroad(self.now, request, until);
        }
    }
}
