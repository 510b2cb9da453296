//! Grants of which other cells guard a part: nobody uses them longer than these know of.
//!
//! Such a grant is told when its lease is confirmed, and not about to end, and whoever uses it is told until when it may, now and each time
//! that moves. Without another word its wrapper stops in time; so does the cell, which is told when a lease runs
//! out ([`holdall_cell::lease`]).

use holdall_cell::Input;
use holdall_cell::lease::Given;
use holdall_cell::session::{CallNo, ConnNo};
use holdall_core::CellId;
use holdall_wire::{Reply, RequestNo};

use super::{Leaving, Service};

impl Service {
    fn lease(&self, request: RequestNo) -> Given {
        let Some(cells) = &self.cells else { return Given::Own };
        self.cell().given(&cells.leases, request, self.boottime())
    }

    /// Whether what a command needs may be made for it now; if not, it will be when it may.
    pub(super) fn may_prepare(&mut self, request: RequestNo) -> bool {
        match self.lease(request) {
            Given::Own | Given::Until(_) => true,
            Given::Unknown => {
                if let Some(cells) = &mut self.cells {
                    cells.unprepared.push(request);
                }
                false
            }
            Given::Over(cell) => {
                self.input(Input::LeaseOver(cell));
                false
            }
        }
    }

    /// A reply that may be told now; that something is granted waits until it is known until when, which is told before.
    pub(super) fn tellable(&mut self, conn: ConnNo, call: CallNo, reply: Reply) -> Option<Reply> {
        let Reply::Granted { request, .. } = reply else { return Some(reply) };
        match self.lease(request) {
            Given::Own => Some(reply),
            Given::Until(at) => {
                self.tell_until(conn, call, request, at);
                Some(reply)
            }
            Given::Unknown => {
                self.tell_later(conn, call, reply);
                None
            }
            Given::Over(cell) => {
                self.input(Input::LeaseOver(cell));
                None
            }
        }
    }

    /// Whether a grant is told only together with the time until which it may be used.
    pub(super) fn is_leased(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Granted { request, .. } => !matches!(self.lease(*request), Given::Own),
            _ => false,
        }
    }

    /// Something is told as soon as its lease is confirmed.
    pub(super) fn tell_later(&mut self, conn: ConnNo, call: CallNo, reply: Reply) {
        if let Some(cells) = &mut self.cells {
            cells.untold.push((conn, call, reply));
        }
    }

    /// A lease was confirmed, or somebody has come back: whoever waits for that may go on.
    pub(super) fn tell_who_waits_for_a_lease(&mut self) {
        let Some(cells) = &mut self.cells else { return };
        let unprepared = std::mem::take(&mut cells.unprepared);
        let untold = std::mem::take(&mut cells.untold);
        for request in unprepared {
            self.prepare(request);
        }
        for (conn, call, reply) in untold {
            let Reply::Granted { request, .. } = &reply else { continue };
            let entry = self.books().get(*request);
            let stands =
                entry.is_some_and(|entry| entry.is_in_hand() && entry.taken_away.is_none());
            if !stands || !self.peers.contains_key(&conn) {
                continue; // It is told of that when it comes back.
            }
            if let Some(reply) = self.tellable(conn, call, reply)
                && let Some(id) = self.id_of(conn, call, &reply)
            {
                let reply = self.as_told(conn, reply);
                // As if it had been told when it was granted: what is lent to other machines outlives this one.
                let sessions = self.books().sessions();
                let is_lent = sessions.of(conn).is_some_and(|own| sessions.is_leased(own));
                self.hold(Leaving::answer(conn, id, reply), is_lent);
            }
        }
        self.round.begin();
    }

    /// Another cell has confirmed a lease: everybody who uses something of it is told until when it may.
    pub(super) fn tell_deadlines(&mut self, cell: CellId) {
        let spanning: Vec<_> = self.books().ties().spanning().collect();
        for request in spanning {
            if !self.engine().leased_by(request).contains(&cell) {
                continue;
            }
            let Some(entry) = self.books().get(request) else { continue };
            let Some((session, call)) = entry.session.filter(|_| entry.ready) else { continue };
            let Some(conn) = self.books().sessions().connection(session) else { continue };
            if let Given::Until(at) = self.lease(request)
                && self.cells.as_ref().is_some_and(|cells| cells.told.get(&request) != Some(&at))
            {
                self.tell_until(conn, call, request, at);
            }
        }
    }

    /// What a cell has lent is over: whoever uses it is told why, before it is told that.
    pub(super) fn lease_over(&mut self, cell: CellId, why: &str) {
        let member = self.engine().links().find(|(member, ..)| member.cell == cell);
        let name =
            member.map_or_else(|| cell.0.to_string(), |(member, ..)| member.name.to_string());
        let spanning: Vec<_> = self.books().ties().spanning().collect();
        for request in spanning {
            let Some(entry) = self.books().get(request).filter(|entry| !entry.is_reserved()) else {
                continue;
            };
            let Some((session, call)) = entry.session.filter(|_| entry.ready) else { continue };
            let Some(conn) = self.books().sessions().connection(session) else { continue };
            let warning = Reply::Warning(format!("the cell '{name}' {why}"));
            if self.engine().leased_by(request).contains(&cell)
                && let Some(id) = self.id_of(conn, call, &warning)
            {
                self.hold(Leaving::answer(conn, id, warning), false);
            }
        }
        self.input(Input::LeaseOver(cell));
    }

    fn tell_until(&mut self, conn: ConnNo, call: CallNo, request: RequestNo, at: u64) {
        let until = Reply::Until { request, boottime_millis: at };
        if let Some(id) = self.id_of(conn, call, &until) {
            self.hold(Leaving::answer(conn, id, until), false);
            if let Some(cells) = &mut self.cells {
                cells.told.insert(request, at);
            }
        }
    }

    /// A request is over.
    pub(super) fn no_lease(&mut self, request: RequestNo) {
        if let Some(cells) = &mut self.cells {
            cells.told.remove(&request);
        }
    }
}
