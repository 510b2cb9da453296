//! The commands that use grants: where they start, and who they are. Both are in the log before a
//! command starts.

use std::rc::Rc;

use holdall_cell::books::Entry;
use holdall_cell::session::ConnNo;
use holdall_cell::{Input, Wish};
use holdall_holders::{Cgroup, Family, Holder, NotAHolder, Peer, Stream};
use holdall_wire::{Fault, Leftovers, Reply, RequestNo};
use tracing::warn;

use super::{Service, Shared};

/// A child is about to become a command. If it can be, it is put into a cgroup first; that may take the
/// kernel some milliseconds, in which others are served.
pub(super) async fn on_child(
    service: &Shared,
    conn: ConnNo,
    id: u64,
    request: RequestNo,
    pid: u32,
    stream: &Stream,
) {
    let found = service.borrow_mut().child(conn, request, pid, stream);
    let made = match found {
        Ok((family, cgroup)) => {
            let holder = settled(family, cgroup).await;
            service.borrow_mut().use_by(conn, id, request, holder, stream)
        }
        Err(fault) => Err(fault),
    };
    if let Err(fault) = made {
        service.borrow_mut().answer(conn, id, Reply::Failed(fault));
    }
}

impl Service {
    /// A request for a command was granted: makes the cgroup in which that starts, if the client may
    /// start it there itself.
    pub(super) fn prepare(&mut self, request: RequestNo) {
        if !self.may_prepare(request) {
            return;
        }
        let prepared = self.cgroup_of_its_own(request);
        let place = prepared.as_ref().and_then(|cgroup| self.containment.place(cgroup));
        let holder = prepared.map(Holder::Cgroup);
        let record = holder.as_ref().map(Holder::record);
        if let Some(holder) = holder {
            self.holders.insert(request, Rc::new(holder));
        }
        self.input(Input::Prepared { request, holder: record.map(Box::new), place });
    }

    fn cgroup_of_its_own(&self, request: RequestNo) -> Option<Cgroup> {
        let entry = self.books().get(request)?;
        // Of those that span cells only the lease is looked at.
        entry.leftovers()?;
        let who = &entry.who;
        let same_user = who.uid == rustix::process::geteuid().as_raw();
        if same_user { self.containment.cgroup(request, who) } else { None }
    }

    /// A child that a client has named, and the cgroup to put it into.
    fn child(
        &mut self,
        conn: ConnNo,
        request: RequestNo,
        pid: u32,
        stream: &Stream,
    ) -> Result<(Family, Option<Cgroup>), Fault> {
        self.own(conn, request)?;
        let known = self.books().get(request).and_then(|entry| entry.holder.as_ref());
        if known.is_some_and(|known| known.leader.is_some()) {
            return Err(has_a_child(request));
        }
        let peer = Peer::of(stream).map_err(NotAHolder::from);
        let family = peer.and_then(|peer| Family::child(pid, &peer));
        let family = family.map_err(|why| Fault::Wrong(why.to_string()))?;
        let cgroup = match self.holders.get(&request).map(|holder| &**holder) {
            Some(Holder::Cgroup(cgroup)) => Some(cgroup.clone()),
            Some(_) => return Err(has_a_child(request)),
            None => {
                let entry = self.books().get(request);
                entry.and_then(|entry| self.containment.cgroup(request, &entry.who))
            }
        };
        Ok((family, cgroup))
    }

    /// A grant is used by these processes from now on. If the client has lost it meanwhile, its child
    /// becomes nothing.
    fn use_by(
        &mut self,
        conn: ConnNo,
        id: u64,
        request: RequestNo,
        holder: Holder,
        stream: &Stream,
    ) -> Result<(), Fault> {
        let record = holder.record();
        if let Err(fault) = self.own(conn, request) {
            tokio::task::spawn_local(async move { holder.until_ended().await });
            return Err(fault);
        }
        self.holders.insert(request, Rc::new(holder));
        self.make(conn, id, Wish::Child { request, holder: Box::new(record) }, stream)
    }

    /// The client of a grant without a cgroup has children left: from now on these hold it. If
    /// they cannot be told, the client goes on holding it for them.
    pub(super) fn take_in(&mut self, request: RequestNo, stream: &Stream) -> Result<(), Fault> {
        let holder = self.holders.get(&request).map(|holder| &**holder);
        let Some(Holder::Family(family)) = holder else { return Ok(()) };
        if let Err(error) = Peer::of(stream).and_then(|peer| family.take_in(&peer)) {
            warn!(%request, "what its command has left behind is not known: {error}");
            // What nothing is held for need not be known.
            let entry = self.books().get(request);
            if entry.and_then(Entry::leftovers) != Some(Leftovers::Warn) {
                let what = "the agent cannot see which processes these are";
                return Err(Fault::Failed(format!("{what}: {error}")));
            }
        }
        Ok(())
    }
}

fn has_a_child(request: RequestNo) -> Fault {
    Fault::Wrong(format!("{request} has a child already"))
}

/// The holder of a grant whose child waits to become a command.
async fn settled(family: Family, cgroup: Option<Cgroup>) -> Holder {
    let (Some(cgroup), Some(process)) = (cgroup, family.leading()) else {
        return Holder::Family(family);
    };
    match cgroup.adopt(process).await {
        Ok(()) => Holder::Cgroup(cgroup),
        Err(error) => {
            warn!(pid = process.id().pid, "it cannot be put into a cgroup: {error}");
            if !cgroup.remove() {
                warn!("and something is in that cgroup, which is left alone");
            }
            Holder::Family(family)
        }
    }
}
