//! Whoever waits for something of another cell is told when that cannot be reached.
//!
//! A cell may be away for a moment, as in a restart. So it is looked a moment later whether it still is, and what it waits for.

use std::time::Duration;

use holdall_cell::session::{CallNo, ConnNo};
use holdall_core::CellId;
use holdall_wire::{Reply, RequestNo};

use super::{Leaving, Service};
use crate::cluster::number;

/// After what time it is worth telling that a cell is away.
const NOTICED: Duration = Duration::from_millis(900);

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

    fn warn_client(&mut self, conn: ConnNo, call: CallNo, text: String) {
        let warning = Reply::Warning(text);
        if let Some(id) = self.id_of(conn, call, &warning) {
            self.hold(Leaving::answer(conn, id, warning), false);
        }
    }

    /// Notes that somebody is told that a cell is away; whether that is news. It is once, until that cell is back.
    fn is_told_away(&mut self, request: RequestNo, cell: CellId) -> bool {
        let Some(cells) = &mut self.cells else { return false };
        let mut told = std::mem::take(&mut cells.told_away);
        let is_news = told.insert((request, cell));
        let (_, waiting) = self.engine().load();
        if told.len() > 2 * waiting + 64 {
            // Most of them do not wait any more.
            told.retain(|(request, _)| self.asker(*request).is_some());
        }
        if let Some(cells) = &mut self.cells {
            cells.told_away = told;
        }
        is_news
    }

    /// Tells the client of a request that waits which cells it waits for in vain: one of them, or all.
    fn tell_who_is_away(&mut self, request: RequestNo, which: Option<CellId>) {
        let Some((conn, call)) = self.asker(request) else { return };
        let all = self.engine().elsewhere(request).into_iter();
        let away = all.filter(|one| !one.is_up && !one.is_given);
        let away = away.filter(|one| which.is_none_or(|which| which == one.member.cell));
        for one in away.collect::<Vec<_>>() {
            if !self.is_told_away(request, one.member.cell) {
                continue;
            }
            let why = self.why_away(one.member.cell).map(|why| format!(" ({why})"));
            let (name, why) = (one.member.name, why.unwrap_or_default());
            let told = format!("the cell '{name}' cannot be reached{why}; waiting until it can be");
            self.warn_client(conn, call, told);
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
