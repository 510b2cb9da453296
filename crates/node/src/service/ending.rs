//! How the agent ends.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use holdall_cell::Input;
use holdall_cell::session::ConnNo;
use holdall_wire::{Fault, Reply, Shutdown};
use tracing::{error, info, warn};

use super::Service;
use crate::handover::{check, own_program};

/// How it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Somebody has said so.
    Stopped,
    /// This program takes its place.
    Restarted(PathBuf),
    /// It cannot go on: nothing may leave any more.
    Broken(String),
}

impl Service {
    /// Ends: at once, since whoever holds or waits goes on with the next agent; after telling those who
    /// wait to go; or when nothing is held any more.
    pub(crate) fn stop(&mut self, how: Shutdown) {
        if how != Shutdown::AtOnce {
            self.input(Input::Dismiss);
        }
        match how {
            Shutdown::Drain => self.draining = true,
            Shutdown::AtOnce | Shutdown::Dismiss => {
                self.end.get_or_insert(End::Stopped);
            }
        }
        self.touch(true);
    }

    /// The log is at its end, and so is the agent.
    pub(super) fn give_up(&mut self, why: String) {
        if !matches!(self.end, Some(End::Broken(_))) {
            error!("nothing is granted any more: {why}");
            self.end = Some(End::Broken(why));
        }
        self.changed.notify_one();
    }

    /// How it ends, if it does now.
    pub(crate) fn ends(&self) -> Option<End> {
        let is_drained =
            || self.draining && self.known.values().all(|known| known.reserved || known.left);
        self.end.clone().or_else(|| is_drained().then_some(End::Stopped))
    }

    /// Whether everything that was to be told has left.
    pub(crate) fn has_told_all(&self) -> bool {
        self.host.is_idle()
    }

    /// Closes the log, and marks that this was on purpose.
    pub(crate) fn seal(&mut self) -> anyhow::Result<()> {
        Ok(self.host.seal()?)
    }

    /// Another program, or this one as it is now on disk, takes the place of this one, if it says that it
    /// can go on from the log. Meanwhile everybody is served, and a snapshot is made, so that it need not
    /// replay much.
    pub(super) fn on_restart(&mut self, conn: ConnNo, id: u64, exe: Option<String>) {
        let uid = self.peers.get(&conn).map(|peer| peer.who.uid);
        let own = rustix::process::geteuid().as_raw();
        if exe.is_some() && ![Some(0), Some(own)].contains(&uid) {
            let why = "only the agent's own user and root may name the program that it becomes";
            return self.answer(conn, id, Reply::Failed(Fault::Denied(why.into())));
        }
        let (data, snapshot) = (self.data.dir().path().to_owned(), self.snapshot_now());
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            // Without it, the program has more to replay.
            drop(snapshot.await);
            let checked = tokio::task::spawn_blocking(move || {
                let exe = exe.map_or_else(own_program, |exe| Ok(exe.into()))?;
                check(&exe, &data).map(|()| exe)
            });
            let checked = checked.await.map_err(anyhow::Error::from).flatten();
            let Some(service) = me.upgrade() else { return };
            let mut service = service.borrow_mut();
            let reply = match checked {
                Ok(exe) => {
                    info!(exe = %exe.display(), "another program takes over");
                    service.end.get_or_insert(End::Restarted(exe));
                    service.changed.notify_one();
                    Reply::Done
                }
                Err(why) => {
                    warn!("not restarted: {why:#}");
                    Reply::Failed(Fault::Failed(format!("{why:#}; the agent goes on as it is")))
                }
            };
            service.answer(conn, id, reply);
        });
    }

    /// It could not be restarted, and goes on.
    pub(crate) fn go_on(&mut self, why: &anyhow::Error) {
        error!("the agent goes on as it is: {why:#}");
        self.end = None;
    }

    /// The lock that keeps other agents out of the data directory.
    pub(crate) fn data_lock(&self) -> BorrowedFd<'_> {
        self.data.lock()
    }
}
