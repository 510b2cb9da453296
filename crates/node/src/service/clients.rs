//! Programs that hold by their connection: how an agent that comes later knows that they still use
//! what they were granted.
//!
//! Each keeps a lock on a file of its own. The agent opens that file, takes the lock and hands the
//! descriptor over: a lock belongs to whoever has the descriptor, and nobody else can open the file.

use std::os::fd::OwnedFd;

use holdall_holders::Record;
use holdall_wire::{Fault, Reply, RequestNo};
use rustix::fs::{FlockOperation, flock};

use super::{ConnNo, Service};
use crate::journal::Held;

/// How the names of these files begin.
const PREFIX: &str = "client-";

impl Service {
    /// Hands a lock to a client.
    pub(super) fn on_lock(&mut self, conn: ConnNo, call: u64) {
        let lock = self.lock_for(conn).map_err(|error| Fault::Failed(format!("{error:#}")));
        let reply = match lock {
            Ok(lock) => {
                if let Some(peer) = self.peers.get(&conn) {
                    peer.outbox.hand_over(lock);
                }
                Reply::Done
            }
            Err(fault) => Reply::Failed(fault),
        };
        self.answer(conn, call, reply);
    }

    fn lock_for(&mut self, conn: ConnNo) -> anyhow::Result<OwnedFd> {
        let name = format!("{PREFIX}{}-{conn}.lock", self.data.epoch());
        let dir = self.data.dir();
        dir.lock_file(&name)?;
        let file = dir.read_only(&name)?;
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.lock = Some(name);
        }
        Ok(file.into())
    }

    /// Notes that a client holds a grant, before it is told.
    pub(super) fn note_client(&mut self, request: RequestNo) -> anyhow::Result<()> {
        let asked = self.known.get(&request).and_then(|known| known.asked);
        let peer = asked.and_then(|(conn, _)| self.peers.get(&conn));
        let lock = peer.and_then(|peer| peer.lock.as_deref());
        let (Some(lock), Some(grant)) = (lock, self.engine.kept(request)) else { return Ok(()) };
        let holder = Record::of_client(lock);
        self.journal.as_mut().map_or(Ok(()), |journal| journal.note(&Held { grant, holder }))
    }

    /// Removes a lock that nobody needs any more.
    pub(super) fn remove_lock(&self, name: &str) {
        if let Err(error) = self.data.dir().remove(name) {
            tracing::warn!("a lock stays: {error}");
        }
    }

    /// Removes the locks of former agents, but for those that are still in use.
    pub(super) fn remove_old_locks(&self, used: &[Held]) -> anyhow::Result<()> {
        for name in self.data.dir().names()?.iter().filter(|name| name.starts_with(PREFIX)) {
            if !used.iter().any(|held| held.holder.lock.as_ref() == Some(name)) {
                self.remove_lock(name);
            }
        }
        Ok(())
    }
}
