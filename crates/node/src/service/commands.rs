//! The commands that use grants: where they start, who they are, and that they are on disk before
//! they do.

use std::io;
use std::rc::Rc;

use holdall_holders::{Cgroup, Family, Holder, NotAHolder, Peer, Stream};
use holdall_wire::{Body, Call, Fault, Leftovers, Place, Reply, RequestNo};
use tracing::warn;

use super::{ConnNo, Service, Shared};
use crate::journal::Held;

/// Nothing is held for what a command leaves behind, so it need not be known.
const FORGONE: Option<Leftovers> = Some(Leftovers::Warn);

/// Takes a call from a connection.
pub(super) fn take(service: &Shared, conn: ConnNo, call: Call, stream: &Stream) {
    let mut service = service.borrow_mut();
    match call.body {
        Body::Child { request, pid } => {
            let peer = Peer::of(stream).map_err(NotAHolder::from);
            let family = peer.and_then(|peer| Family::child(pid, &peer));
            let family = family.map_err(|why| Fault::Wrong(why.to_string()));
            service.on_child(conn, call.id, request, family);
        }
        Body::End { request, left: true } => {
            match service.take_in(conn, request, Peer::of(stream)) {
                Ok(()) => service.call(conn, call),
                Err(fault) => service.answer(conn, call.id, Reply::Failed(fault)),
            }
        }
        _ => service.call(conn, call),
    }
}

impl Service {
    /// A request was granted: what has to be on disk before its client is told, and the cgroup in
    /// which its command starts, if there is one and the client may start it there itself.
    pub(super) fn prepare(&mut self, request: RequestNo) -> anyhow::Result<Option<Place>> {
        match self.known.get(&request) {
            Some(known) if known.leftovers.is_some() => self.prepare_command(request),
            Some(known) if !known.reserved => self.note_client(request).map(|()| None),
            _ => Ok(None),
        }
    }

    fn prepare_command(&mut self, request: RequestNo) -> anyhow::Result<Option<Place>> {
        let Some(grant) = self.engine.grant(request) else { return Ok(None) };
        if grant.who.uid != rustix::process::geteuid().as_raw() {
            return Ok(None);
        }
        let Some(cgroup) = self.containment.cgroup(request, &grant.who) else { return Ok(None) };
        let place = self.containment.place(&cgroup);
        if let Err(error) = self.held_by(request, Holder::Cgroup(cgroup.clone())) {
            let _ = cgroup.remove(); // Nothing has started in it.
            return Err(error);
        }
        Ok(place)
    }

    /// Notes who holds a grant, for good before anybody may act on it.
    fn held_by(&mut self, request: RequestNo, holder: Holder) -> anyhow::Result<()> {
        let Some(grant) = self.engine.to_keep(request) else { return Ok(()) };
        if let Some(journal) = &mut self.journal {
            journal.note(request, &Held { grant, holder: holder.record() })?;
            journal.write()?;
        }
        if let Some(known) = self.known.get_mut(&request) {
            known.holder = Some(Rc::new(holder));
        }
        Ok(())
    }

    pub(super) fn no_longer_held(&mut self, request: RequestNo) {
        if let Some(journal) = &mut self.journal {
            journal.over(request);
        }
    }

    /// A child is about to become a command. If it can be, it is put into a cgroup first; that
    /// may take the kernel some milliseconds, in which others are served.
    fn on_child(
        &mut self,
        conn: ConnNo,
        call: u64,
        request: RequestNo,
        family: Result<Family, Fault>,
    ) {
        let family = match self.own(conn, request).and(family) {
            Ok(family) => family,
            Err(fault) => return self.answer(conn, call, Reply::Failed(fault)),
        };
        let offered = self.known.get(&request).and_then(|known| known.holder.clone());
        let cgroup = match offered.as_deref() {
            Some(Holder::Cgroup(cgroup)) => Some(cgroup.clone()),
            Some(_) => {
                let fault = Fault::Wrong(format!("{request} has a child already"));
                return self.answer(conn, call, Reply::Failed(fault));
            }
            None => {
                let grant = self.engine.grant(request);
                grant.and_then(|grant| self.containment.cgroup(request, &grant.who))
            }
        };
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            let holder = settled(family, cgroup).await;
            let Some(service) = me.upgrade() else { return };
            let own = service.borrow().own(conn, request);
            if let Err(fault) = own {
                // The client is gone, or has lost the grant. So its child becomes nothing.
                service.borrow_mut().answer(conn, call, Reply::Failed(fault));
                return holder.until_ended().await;
            }
            let mut service = service.borrow_mut();
            let noted = service.held_by(request, holder);
            let reply = noted.map_or_else(
                |error| Reply::Failed(Fault::Failed(format!("{error:#}"))),
                |()| Reply::Done,
            );
            service.answer(conn, call, reply);
        });
    }

    /// The client of a grant without a cgroup has children left: from now on these hold it. If
    /// they cannot be told, the client goes on holding it for them.
    fn take_in(
        &mut self,
        conn: ConnNo,
        request: RequestNo,
        peer: io::Result<Peer>,
    ) -> Result<(), Fault> {
        self.own(conn, request)?;
        let Some(known) = self.known.get(&request) else { return Ok(()) };
        let Some(Holder::Family(family)) = known.holder.as_deref() else { return Ok(()) };
        if let Err(error) = peer.and_then(|peer| family.take_in(&peer)) {
            warn!(%request, "what its command has left behind is not known: {error}");
            if known.leftovers != FORGONE {
                let what = "the agent cannot see which processes these are";
                return Err(Fault::Failed(format!("{what}: {error}")));
            }
        }
        self.note_again(request)
    }

    fn note_again(&mut self, request: RequestNo) -> Result<(), Fault> {
        let holder = self.known.get(&request).and_then(|known| known.holder.clone());
        let (Some(holder), Some(grant)) = (holder, self.engine.to_keep(request)) else {
            return Ok(());
        };
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let held = Held { grant, holder: holder.record() };
        let noted = journal.note(request, &held).and_then(|()| journal.write());
        noted.map_err(|error| Fault::Failed(format!("{error:#}")))
    }
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
