//! How the agent ends, or becomes another program.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use holdall_cell::Input;
use holdall_cell::session::ConnNo;
use holdall_log::Error;
use holdall_wire::{Fault, Reply, Shutdown};
use tracing::{error, info, warn};

use super::Service;
use crate::handover::{check, check_now, own_program};

/// How long a restart waits for a snapshot: without it, the program has more to replay.
const SNAPSHOT: Duration = Duration::from_secs(10);
/// What whoever does not go on is told.
const BEGIN_ONCE_MORE: &str =
    "the agent has to begin once more, and its program cannot; start it again";

/// How it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Somebody has said so.
    Stopped,
    /// This program takes its place.
    Restarted(PathBuf),
    /// It cannot go on: nothing may leave any more.
    Broken(String),
    /// Another host goes on with the cell.
    HandedOver(String),
    /// Nobody goes on with the cell: it is about to be removed.
    Closed,
}

/// A restart that is under way.
pub(super) struct Restarting {
    /// The program, if one was named.
    exe: Option<String>,
    /// Who is told what comes of it, or was told that it is done.
    callers: Vec<(ConnNo, u64)>,
}

impl Service {
    /// Ends: at once, since whoever holds or waits goes on with the next agent; after telling those who
    /// wait to go; or when nothing is held any more.
    pub(crate) fn stop(&mut self, how: Shutdown) {
        if how != Shutdown::AtOnce {
            self.input(Input::Dismiss);
        }
        let broken = matches!(self.end, Some(End::Broken(_)));
        match how {
            _ if broken => {}
            // Also instead of a restart that was decided.
            Shutdown::Drain => (self.draining, self.end) = (true, None),
            Shutdown::AtOnce | Shutdown::Dismiss => self.end = Some(End::Stopped),
        }
        self.touch(true);
    }

    /// The log is at its end, and so is the agent.
    pub(super) fn give_up(&mut self, why: String) {
        if self.host.is_sealed() {
            return; // That is as it should be: another one goes on.
        }
        if !matches!(self.end, Some(End::Broken(_))) {
            match &self.hosted {
                None => error!("nothing is granted any more: {why}"),
                // That is what ends most of them: another one leads.
                Some(_) => warn!("this host leads no more: {why}"),
            }
            self.end = Some(End::Broken(why));
        }
        self.changed.notify_one();
    }

    /// How it ends, if it does now.
    pub(crate) fn ends(&self) -> Option<End> {
        self.end.clone().or_else(|| (self.draining && self.is_drained()).then_some(End::Stopped))
    }

    /// Whether nothing is held that an agent would have to look after.
    fn is_drained(&self) -> bool {
        self.known.values().all(|known| known.reserved || known.left)
    }

    /// Tells those who wait for it whether everything was given back.
    pub(crate) fn tell_drainers(&mut self) {
        let is_drained = self.is_drained();
        for (conn, id) in std::mem::take(&mut self.drainers) {
            let why = "the agent was stopped before everything was given back";
            let failed = || Reply::Failed(Fault::Conflict(why.into()));
            self.answer(conn, id, if is_drained { Reply::Done } else { failed() });
        }
    }

    /// Tells how far the log comes.
    pub(crate) fn log(&self) -> holdall_log::Watch {
        self.host.watch()
    }

    /// Whether everything that was to be told has left.
    pub(crate) fn has_told_all(&self) -> bool {
        self.host.is_idle()
    }

    /// Closes the log, and marks that this was on purpose.
    pub(crate) fn seal(&mut self) -> anyhow::Result<()> {
        Ok(self.host.seal()?)
    }

    /// What comes of it that the cell is to be handed over: how it ends, or none if it goes on. Nobody is listened to meanwhile.
    pub(crate) fn end_by_handing_over(&mut self, heir: String) -> Option<End> {
        self.listen(false);
        match self.hand_over(&heir) {
            Ok(true) => Some(End::HandedOver(heir)),
            Ok(false) => {
                self.listen(true);
                None
            }
            Err(why) => Some(End::Broken(why.to_string())),
        }
    }

    /// Closes the log, and makes another host leader that is ready; whether that is the end: if it is not ready any more, or there is no
    /// room for it, this one goes on.
    fn hand_over(&mut self, heir: &str) -> anyhow::Result<bool> {
        match self.host.hand_over(heir) {
            Err(error @ (Error::Full(_) | Error::NotReady { .. })) => {
                warn!("not handed over to {heir}: {error}");
                // It may have broken meanwhile.
                if matches!(self.end, Some(End::HandedOver(_))) {
                    self.end = None;
                }
                self.host.call_nobody();
                Ok(false)
            }
            done => Ok(done.map(|()| true)?),
        }
    }

    /// It is handed over: what is in the log is told, unless somebody hears it from the host that leads now before.
    pub(crate) fn tell_the_rest(&mut self) {
        for leaving in self.host.rest() {
            self.leave(leaving);
        }
        self.send();
    }

    /// Closes the log, and notes that nobody is to lead next.
    pub(crate) fn retire(&mut self) -> anyhow::Result<()> {
        Ok(self.host.retire()?)
    }

    /// Another program, or this one as it is now on disk, takes the place of this one, if it says that it
    /// can go on from the log. Meanwhile everybody is served, and a snapshot is made, so that it need not
    /// replay much. Whoever asks for the same meanwhile is told the same.
    pub(super) fn on_restart(&mut self, conn: ConnNo, id: u64, exe: Option<String>) {
        if let Err(fault) = self.may_restart(conn, exe.as_deref()) {
            return self.answer(conn, id, Reply::Failed(fault));
        }
        let caller = (conn, id);
        match &mut self.restarting {
            Some(restarting) => {
                restarting.callers.push(caller);
                if self.end.is_some() {
                    self.answer(conn, id, Reply::Done);
                }
                return;
            }
            None => {
                let exe = exe.clone();
                self.restarting = Some(Restarting { exe, callers: vec![caller] });
            }
        }
        let (data, snapshot) = (self.data.dir().path().to_owned(), self.snapshot_now());
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            drop(tokio::time::timeout(SNAPSHOT, snapshot).await);
            let checked = match exe.map_or_else(own_program, |exe| Ok(exe.into())) {
                Ok(exe) => check(&exe, &data).await.map(|()| exe),
                Err(error) => Err(error.into()),
            };
            if let Some(service) = me.upgrade() {
                service.borrow_mut().decide_restart(checked);
            }
        });
    }

    fn may_restart(&self, conn: ConnNo, exe: Option<&str>) -> Result<(), Fault> {
        let uid = self.peers.get(&conn).map(|peer| peer.who.uid);
        let own = rustix::process::geteuid().as_raw();
        if exe.is_some() && ![Some(0), Some(own)].contains(&uid) {
            let why = "only the agent's own user and root may name the program that it becomes";
            return Err(Fault::Denied(why.into()));
        }
        if self.draining || matches!(self.end, Some(End::Stopped | End::Broken(_))) {
            return Err(Fault::Conflict("the agent is stopping".into()));
        }
        let other = self.restarting.as_ref().filter(|under_way| under_way.exe.as_deref() != exe);
        if other.is_some() {
            let why = "the agent is about to become another program; ask again when it has";
            return Err(Fault::Conflict(why.into()));
        }
        Ok(())
    }

    /// This program takes its own place, as nothing else makes it look once more at the whole of what it knows; or, if it cannot, it ends.
    /// Nobody is given anything meanwhile: nothing else is done.
    pub(super) fn begin_once_more(&mut self) {
        if self.draining || self.ends().is_some() {
            return;
        }
        let checked = own_program().map_err(anyhow::Error::from).and_then(|exe| {
            check_now(&exe, self.data.dir().path())?;
            Ok(exe)
        });
        match checked {
            Ok(exe) => self.end = Some(End::Restarted(exe)),
            Err(why) => self.give_up(format!("{BEGIN_ONCE_MORE}: {why:#}")),
        }
        self.changed.notify_one();
    }

    /// A program has said whether it can go on.
    fn decide_restart(&mut self, checked: anyhow::Result<PathBuf>) {
        let is_stopping = self.draining || self.end.is_some();
        let reply = match checked {
            Ok(_) if is_stopping => {
                Reply::Failed(Fault::Conflict("the agent was stopped meanwhile".into()))
            }
            Ok(exe) => {
                info!(exe = %exe.display(), "another program takes over");
                self.end = Some(End::Restarted(exe));
                self.changed.notify_one();
                Reply::Done
            }
            Err(why) => {
                warn!("not restarted: {why:#}");
                Reply::Failed(Fault::Failed(format!("{why:#}; the agent goes on as it is")))
            }
        };
        let callers = self.restarting.as_ref().map(|one| one.callers.clone());
        for (conn, id) in callers.unwrap_or_default() {
            self.answer(conn, id, reply.clone());
        }
        if reply != Reply::Done {
            self.restarting = None;
        }
    }

    /// It could not be restarted, and goes on. Whoever was told otherwise learns it by the end of its
    /// connection.
    pub(crate) fn go_on(&mut self, why: &anyhow::Error) {
        error!("the agent goes on as it is: {why:#}");
        let callers = self.restarting.take().map(|one| one.callers);
        callers.into_iter().flatten().for_each(|(conn, _)| self.end_connection(conn));
        if matches!(self.end, Some(End::Restarted(_))) {
            self.end = None;
            if self.awaited.is_behind() {
                self.give_up(format!("{BEGIN_ONCE_MORE}: {why:#}"));
            }
        }
    }

    /// The lock that keeps other agents out of the data directory.
    pub(crate) fn data_lock(&self) -> BorrowedFd<'_> {
        self.data.lock()
    }
}
