//! Whoever reads the history: one page at a time, in turns, beside the agent's thread.

use holdall_cell::session::ConnNo;
use holdall_wire::{Fault, HistoryPlace, Reply, Right};

use super::{Service, Shared};
use crate::history::page;

/// A page of the history: of everybody's for those who may, of one's own for others.
pub(super) async fn history_page(service: &Shared, conn: ConnNo, from: HistoryPlace) -> Reply {
    read(service, conn, from).await.unwrap_or_else(Reply::Failed)
}

async fn read(service: &Shared, conn: ConnNo, from: HistoryPlace) -> Result<Reply, Fault> {
    let readers = service.borrow().readers.clone();
    // As long as there is a service, it is open.
    let turn = readers.acquire_owned().await;
    let (dir, own) = service.borrow().history_for(conn)?;
    let read = tokio::task::spawn_blocking(move || {
        // Whoever hangs up has its turn until this is done.
        let _turn = turn;
        page(&dir, from, own.as_deref())
    });
    let failed = |why: String| Fault::Failed(format!("the history cannot be read: {why}"));
    let read = read.await.map_err(|error| failed(error.to_string()))?;
    read.map(Reply::History).map_err(|error| failed(error.to_string()))
}

impl Service {
    /// Where the history is, and whose of it whoever is connected may read, if not everybody's.
    fn history_for(
        &self,
        conn: ConnNo,
    ) -> Result<(std::path::PathBuf, Option<std::sync::Arc<str>>), Fault> {
        self.may(conn, Right::View)?;
        let peer = self.peers.get(&conn).ok_or(Fault::Forgotten)?;
        let all = peer.rights.has(self.config.history.everybody);
        let own = (!all).then(|| peer.who.user.clone());
        Ok((self.data.dir().path().to_owned(), own))
    }
}
