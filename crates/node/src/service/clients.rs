//! Programs that hold by their connection: how an agent that comes later knows that they still use
//! what they were granted.
//!
//! Each keeps a lock on a file of its own. The agent opens that file, takes the lock and hands the
//! descriptor over: a lock belongs to whoever has the descriptor, and nobody else can open the file.
//! Connections of one process may share a lock; what is granted over any of them then lasts, for a
//! later agent, until the process has dropped it for all of them.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use holdall_holders::{Record, boot};
use holdall_wire::{Fault, Reply, RequestNo};
use rustix::fs::{FlockOperation, flock};
use serde_json::value::{RawValue, to_raw_value};

use super::{ConnNo, Peer, Service};
use crate::engine::Reservation;
use crate::journal::Held;

/// How the names of these files begin.
const PREFIX: &str = "client-";

/// The lock of a program.
pub(super) struct Lock {
    name: String,
    /// Its record, in words, as it is kept with each of its grants.
    words: Box<RawValue>,
}

impl Service {
    /// Hands a lock to a client, or lets it share one.
    pub(super) fn on_lock(&mut self, conn: ConnNo, call: u64, beside: Option<u64>) {
        let reply = match beside {
            Some(number) => self.share_lock(conn, number),
            None => self.hand_over_lock(conn),
        };
        self.answer(conn, call, reply.unwrap_or_else(Reply::Failed));
    }

    fn hand_over_lock(&mut self, conn: ConnNo) -> Result<Reply, Fault> {
        let lock = self.lock_for(conn).map_err(|error| Fault::Failed(format!("{error:#}")))?;
        if let Some(peer) = self.peers.get(&conn) {
            peer.outbox.hand_over(lock);
        }
        Ok(Reply::Locked(conn))
    }

    /// The lock of another connection becomes that of this one too.
    fn share_lock(&mut self, conn: ConnNo, number: u64) -> Result<Reply, Fault> {
        let process = |peer: &Peer| (peer.who.uid, peer.who.pid);
        let own = self.peers.get(&conn).filter(|own| own.lock.is_none());
        let own = own.map(process).filter(|(_, pid)| *pid != 0);
        let other = self.peers.get(&number).filter(|other| own == Some(process(other)));
        let Some(lock) = other.and_then(|other| other.lock.clone()) else {
            return Err(Fault::Wrong(format!("this process has no lock {number}, or one already")));
        };
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.lock = Some(lock);
        }
        Ok(Reply::Locked(number))
    }

    fn lock_for(&mut self, conn: ConnNo) -> anyhow::Result<OwnedFd> {
        let name = format!("{PREFIX}{}-{conn}.lock", self.data.epoch());
        let dir = self.data.dir();
        dir.lock_file(&name)?;
        let file = dir.read_only(&name)?;
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        if let Some(peer) = self.peers.get_mut(&conn) {
            let words = to_raw_value(&Record::of_client(boot(), &name))?;
            peer.lock = Some(Rc::new(Lock { name, words }));
        }
        Ok(file.into())
    }

    /// Notes that a client holds a grant, before it is told.
    pub(super) fn note_client(&mut self, request: RequestNo) -> anyhow::Result<()> {
        let asked = self.known.get(&request).and_then(|known| known.asked);
        let peer = asked.and_then(|(conn, _)| self.peers.get(&conn));
        let Some(peer) = peer else { return Ok(()) };
        let (Some(lock), Some(kept)) = (&peer.lock, self.engine.to_keep(request)) else {
            return Ok(());
        };
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let Reservation { request, who, needs, taken, since, until, part_of } = kept;
        let asker = peer.asker.as_ref().filter(|asker| Arc::ptr_eq(&asker.who, who));
        let holder = &*lock.words;
        match asker.map(|asker| &*asker.words) {
            Some(who) => {
                let grant = Reservation { request, who, needs, taken, since, until, part_of };
                journal.note(request, &Held { grant, holder })
            }
            None => {
                let grant = Reservation { request, who, needs, taken, since, until, part_of };
                journal.note(request, &Held { grant, holder })
            }
        }
    }

    /// A connection that had a lock is over.
    pub(super) fn drop_lock(&self, lock: Rc<Lock>) {
        if let Some(last) = Rc::into_inner(lock) {
            self.remove_lock(&last.name);
        }
    }

    /// Removes a lock that nobody needs any more.
    fn remove_lock(&self, name: &str) {
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
