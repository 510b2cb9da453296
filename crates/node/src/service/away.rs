//! Whoever waits for something of another cell is told when that cannot be reached.
//!
//! A cell may be away for a moment, as in a restart. So it is looked a moment later whether it still is, and what it waits for.

use std::collections::BTreeSet;
use std::time::Duration;

use holdall_cell::session::{CallNo, ConnNo};
use holdall_core::CellId;
use holdall_wire::{Reply, RequestNo};

use super::{Leaving, Service};
use crate::cluster::number;

/// After what time it is worth telling that a cell is away.
const NOTICED: Duration = Duration::from_millis(900);

/// To whom of those who wait it was told which cell is away, since that is.
#[derive(Default)]
pub(super) struct ToldAway {
    told: BTreeSet<(RequestNo, CellId)>,
    /// How many were left when it was last looked who waits still.
    left: usize,
}

impl ToldAway {
    fn contains(&self, request: RequestNo, cell: CellId) -> bool {
        self.told.contains(&(request, cell))
    }

    /// Whoever does not wait any more is dropped when there are twice as many as were left the last time, so that it costs little for each.
    fn insert(&mut self, request: RequestNo, cell: CellId, waits: impl Fn(RequestNo) -> bool) {
        self.told.insert((request, cell));
        if self.told.len() > 2 * self.left + 64 {
            self.told.retain(|(request, _)| waits(*request));
            self.left = self.told.len();
        }
    }

    /// There is a link to a cell again.
    pub(super) fn is_back(&mut self, cell: CellId) {
        self.told.retain(|(_, away)| *away != cell);
    }
}

impl Service {
    /// A request has to wait.
    pub(super) fn waits(&self, request: RequestNo) {
        if self.cell().is_recovering() {
            self.soon(move |service| service.tell_who_is_awaited(request));
        }
        if !self.engine().elsewhere(request).iter().all(|one| one.is_up || one.is_given) {
            self.soon(move |service| service.tell_who_is_away(request, None));
        }
    }

    /// There is no link to a cell any more.
    pub(super) fn is_away(&self, cell: CellId) {
        self.soon(move |service| {
            let waiting: Vec<_> = service.books().waiting().map(|(request, _)| request).collect();
            waiting.into_iter().for_each(|request| service.tell_who_is_away(request, Some(cell)));
        });
    }

    fn soon(&self, tell: impl FnOnce(&mut Self) + 'static) {
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(NOTICED).await;
            if let Some(service) = me.upgrade() {
                tell(&mut service.borrow_mut());
            }
        });
    }

    /// Tells the client of a request that nothing is granted here yet, and for whom everybody waits.
    fn tell_who_is_awaited(&mut self, request: RequestNo) {
        let (Some((conn, call)), Some(why)) = (self.asker(request), self.awaited_members()) else {
            return;
        };
        self.warn_client(conn, call, why);
        self.round.begin();
    }

    /// Warns the client of a call, if there is one that hears it.
    fn warn_client(&mut self, conn: ConnNo, call: CallNo, text: String) -> bool {
        let warning = Reply::Warning(text);
        let id = self.id_of(conn, call, &warning);
        if let Some(id) = id {
            self.hold(Leaving::answer(conn, id, warning), false);
        }
        id.is_some()
    }

    /// Notes that somebody was told that a cell is away: once, until that cell is back.
    fn has_told_away(&mut self, request: RequestNo, cell: CellId) {
        let Some(cells) = &mut self.cells else { return };
        let mut told = std::mem::take(&mut cells.told_away);
        told.insert(request, cell, |request| self.asker(request).is_some());
        if let Some(cells) = &mut self.cells {
            cells.told_away = told;
        }
    }

    /// Tells the client of a request that waits which cells it waits for in vain: one of them, or all.
    fn tell_who_is_away(&mut self, request: RequestNo, which: Option<CellId>) {
        let Some((conn, call)) = self.asker(request) else { return };
        let all = self.engine().elsewhere(request).into_iter();
        let away = all.filter(|one| !one.is_up && !one.is_given);
        let away = away.filter(|one| which.is_none_or(|which| which == one.member.cell));
        for one in away.collect::<Vec<_>>() {
            let told = self.cells.as_ref().map(|cells| &cells.told_away);
            if told.is_some_and(|told| told.contains(request, one.member.cell)) {
                continue;
            }
            let why = self.why_away(one.member.cell).map(|why| format!(" ({why})"));
            let (name, why) = (one.member.name, why.unwrap_or_default());
            let told = format!("the cell '{name}' cannot be reached{why}; waiting until it can be");
            if self.warn_client(conn, call, told) {
                self.has_told_away(request, one.member.cell);
            }
        }
        self.round.begin();
    }

    /// Who is to be told of a request that waits.
    fn asker(&self, request: RequestNo) -> Option<(ConnNo, CallNo)> {
        let entry = self.books().get(request).filter(|entry| entry.held.is_none())?;
        let (session, call) = entry.session?;
        Some((self.books().sessions().connection(session)?, call))
    }

    fn why_away(&self, cell: CellId) -> Option<String> {
        let running = self.cells.as_ref()?.running.as_ref()?;
        let peer = running.links.peers().into_iter().find(|peer| number(peer.id) == cell)?;
        peer.why.filter(|_| !peer.up)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_waits_still_is_looked_at_a_few_times_however_many_there_are() {
        let (mut all, looks) = (ToldAway::default(), Cell::new(0));
        for at in 0..30_000 {
            let waits = |_| {
                looks.set(looks.get() + 1);
                true
            };
            all.insert(RequestNo(at / 3), CellId(at % 3), waits);
        }
        assert!(looks.get() < 3 * 30_000, "{}", looks.get());
        assert!(all.contains(RequestNo(9_999), CellId(2)));
        all.is_back(CellId(2));
        assert!(!all.contains(RequestNo(9_999), CellId(2)));
        for at in 0..100_000 {
            all.insert(RequestNo(at), CellId(7), |_| false);
        }
        assert!(all.told.len() < 50_000, "{}", all.told.len());
    }
}
