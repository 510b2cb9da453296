//! The processes that use grants: waited for, asked to end, killed, as the cell says.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use holdall_cell::Input;
use holdall_cell::facts::How;
use holdall_holders::{Environment, Holder, Process, Record, directory, with_environment};
use holdall_wire::RequestNo;
use rustix::process::Signal;
use tracing::{info, warn};

use super::Service;

/// How long what a command left behind may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How often it is looked for more of what carries a grant.
const LOOKS: usize = 16;
/// How long such a look may take.
const LOOK: Duration = Duration::from_secs(5);

/// Kills what was started under a grant and has it in its environment: also what has left its process group,
/// and what was stopped by an agent that was killed before it could kill it.
async fn kill_by_environment(request: RequestNo, socket: &Path) {
    for _ in 0..LOOKS {
        let found = carriers(socket, move |grant| grant == request).await.unwrap_or_default();
        if found.is_empty() {
            return;
        }
        found.iter().for_each(|process| process.signal(Signal::KILL));
        for process in found {
            process.until_ended().await;
        }
    }
}

/// The processes that carry certain grants of the agent at a socket in their environment.
///
/// # Errors
/// If it cannot be told.
pub(super) async fn carriers(
    socket: &Path,
    is_meant: impl Fn(RequestNo) -> bool + Clone + Send + 'static,
) -> io::Result<Vec<Process>> {
    for sees in [true, false] {
        let (socket, is_meant) = (socket.to_owned(), is_meant.clone());
        let find = move || {
            let own = socket.parent().and_then(|dir| directory(dir).ok()).filter(|_| sees);
            with_environment(|all| {
                grant_in(all).is_some_and(&is_meant) && is_named(all, &socket, own)
            })
        };
        if let Ok(found) = tokio::time::timeout(LOOK, tokio::task::spawn_blocking(find)).await {
            return found?;
        }
        warn!(
            "some process has named a path as its agent's that does not answer; looking at names alone"
        );
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// The grant under which a process was started, of whichever agent.
fn grant_in(all: &Environment) -> Option<RequestNo> {
    all.get("HOLDALL_GRANT")?.parse().ok()
}

/// Whether the agent of a process is the one at a socket. What it has been told is a path where it was started:
/// in a container that may be another socket of the same name. With our own directory, it is looked what is there.
fn is_named(all: &Environment, socket: &Path, own: Option<(u64, u64)>) -> bool {
    let Some(agent) = all.get("HOLDALL_GRANT_AGENT").map(Path::new) else { return false };
    if agent.file_name() != socket.file_name() {
        return false;
    }
    let seen = own.zip(agent.parent().and_then(|dir| all.directory(dir).ok()));
    // Whoever sees nothing there has put itself into another root since.
    seen.map_or_else(|| agent == socket && all.shares_pids(), |(own, seen)| own == seen)
}

impl Service {
    /// Those of a grant, as they are known by now; none if nothing is left of them.
    fn holder(&mut self, request: RequestNo, record: &Record) -> Option<Rc<Holder>> {
        if let Some(holder) = self.holders.get(&request) {
            return Some(holder.clone());
        }
        let holder = Rc::new(self.containment.again(record, self.data.dir())?);
        self.holders.insert(request, holder.clone());
        Some(holder)
    }

    /// Tells the cell when nothing is left of what uses a grant.
    pub(super) fn watch(&mut self, request: RequestNo, record: &Record) {
        let Some(holder) = self.holder(request, record) else { return self.ended(request) };
        info!(%request, pids = ?holder.pids(), "its command has left processes behind: waiting for them");
        self.tell_when(request, async move { holder.until_ended().await });
    }

    /// The same after it was asked to end, and killed if it did not.
    pub(super) fn end_holder(&mut self, request: RequestNo, record: &Record) {
        let Some(holder) = self.holder(request, record) else { return self.ended(request) };
        info!(%request, pids = ?holder.pids(), "its command has left processes behind: ending them");
        self.tell_when(request, async move { holder.end(GRACE).await });
    }

    /// The same after it was killed. If somebody has said so by force, what may be somebody else's is left
    /// alone, and nothing is held for it any more.
    pub(super) fn kill(&mut self, request: RequestNo, record: &Record) {
        let Some(holder) = self.holder(request, record) else { return self.ended(request) };
        let left = self.books().get(request).and_then(|entry| entry.left.as_ref());
        let forced = left.is_some_and(|left| left.how == How::Lost);
        let pids = holder.pids();
        if !pids.is_empty() {
            warn!(%request, ?pids, "nobody is left who stops its processes: killing them");
        }
        let socket = self.socket.clone();
        self.tell_when(request, async move {
            let Holder::Family(family) = &*holder else { return holder.kill().await };
            family.signal(Signal::KILL);
            family.until_own_ended().await;
            kill_by_environment(request, &socket).await;
            if !forced || family.unsure().is_empty() {
                family.until_ended().await;
            }
        });
    }

    /// Nothing is held for this any more: a cgroup goes when it is empty, and for processes there is nothing
    /// to do.
    pub(super) fn unused(&mut self, record: &Record) {
        let again = self.containment.again(record, self.data.dir());
        if let Some(holder @ Holder::Cgroup(_)) = again {
            tokio::task::spawn_local(async move { holder.until_ended().await });
        }
    }

    fn ended(&mut self, request: RequestNo) {
        self.input(Input::HolderEnded(request));
    }

    fn tell_when(&self, request: RequestNo, ended: impl Future<Output = ()> + 'static) {
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            ended.await;
            if let Some(service) = me.upgrade() {
                service.borrow_mut().ended(request);
            }
        });
    }
}
