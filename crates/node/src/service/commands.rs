//! The commands that use grants: where they start, who they are, and that they are on disk before
//! they do.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use holdall_holders::{Cgroup, Family, Holder, NotAHolder, Peer};
use holdall_wire::{Body, Call, Fault, Place, Reply, RequestNo};
use tokio::net::UnixStream;
use tracing::{error, warn};

use super::{ConnNo, Service, Shared};
use crate::clock::moved;
use crate::journal::{Held, Journal};

/// Takes a call from a connection, with the descriptor that came along, if any.
pub(super) fn take(
    service: &Shared,
    conn: ConnNo,
    call: Call,
    stream: &UnixStream,
    passed: &mut Option<OwnedFd>,
) {
    match call.body {
        Body::Child(request) => {
            let family = child(passed.take(), stream);
            service.borrow_mut().on_child(conn, call.id, request, family);
        }
        Body::End { request, left: true } => {
            let peer = Peer::of(stream).ok();
            service.borrow_mut().take_in(conn, request, peer.as_ref());
            service.borrow_mut().call(conn, call);
        }
        _ => service.borrow_mut().call(conn, call),
    }
}

fn child(passed: Option<OwnedFd>, stream: &UnixStream) -> Result<Family, Fault> {
    let none = "no pidfd has come along: this agent has too many open files";
    let passed = passed.ok_or_else(|| Fault::Failed(none.into()))?;
    let peer = Peer::of(stream).map_err(NotAHolder::from);
    let family = peer.and_then(|peer| Family::child(&passed, &peer));
    family.map_err(|why| Fault::Wrong(why.to_string()))
}

impl Service {
    /// Whoever used grants of the agent before and still lives holds them; nothing else waits.
    pub(super) fn find_former(&mut self, shift: i64) -> anyhow::Result<()> {
        let mut left = Vec::new();
        for mut held in Journal::read(self.data.dir())? {
            held.grant.since = moved(held.grant.since, shift);
            let Some(holder) = self.containment.again(&held.holder) else { continue };
            warn!(
                request = %held.grant.request,
                pids = ?holder.pids(),
                "processes of a grant of the agent before still run"
            );
            self.restore(held.grant.clone(), Some(Rc::new(holder)));
            left.push(held);
        }
        self.journal = Some(Journal::begin(self.data.dir(), &left)?);
        Ok(())
    }

    /// A command was granted what it asked for: the cgroup in which it starts, if its client may
    /// start it there itself.
    pub(super) fn prepare_command(&mut self, request: RequestNo) -> anyhow::Result<Option<Place>> {
        let Some(grant) = self.engine.grant(request) else { return Ok(None) };
        if grant.who.uid != rustix::process::geteuid().as_raw() {
            return Ok(None);
        }
        let Some(cgroup) = self.containment.cgroup(request, &grant.who) else { return Ok(None) };
        let place = self.containment.place(&cgroup);
        self.held_by(request, Holder::Cgroup(cgroup))?;
        Ok(place)
    }

    /// Notes who holds a grant, for good before anybody may act on it.
    fn held_by(&mut self, request: RequestNo, holder: Holder) -> anyhow::Result<()> {
        let Some(grant) = self.engine.kept(request) else { return Ok(()) };
        if let Some(journal) = &mut self.journal {
            journal.hold(&Held { grant, holder: holder.record() })?;
        }
        if let Some(known) = self.known.get_mut(&request) {
            known.holder = Some(Rc::new(holder));
        }
        Ok(())
    }

    pub(super) fn no_longer_held(&mut self, request: RequestNo) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.over(self.data.dir(), request)
        {
            error!("the end of {request} is not on disk: {error:#}");
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

    /// The client of a grant without a cgroup has children left: from now on these hold it.
    fn take_in(&mut self, conn: ConnNo, request: RequestNo, peer: Option<&Peer>) {
        let Some(peer) = peer.filter(|_| self.own(conn, request).is_ok()) else { return };
        let holder = self.known.get(&request).and_then(|known| known.holder.clone());
        if let Some(Holder::Family(family)) = holder.as_deref() {
            if let Err(error) = family.take_in(peer) {
                warn!(%request, "what its command has left behind is not known: {error}");
            }
            self.note_again(request);
        }
    }

    fn note_again(&mut self, request: RequestNo) {
        let holder = self.known.get(&request).and_then(|known| known.holder.clone());
        let (Some(holder), Some(grant)) = (holder, self.engine.kept(request)) else { return };
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.hold(&Held { grant, holder: holder.record() })
        {
            error!("an agent that starts now does not know who holds {request}: {error:#}");
        }
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
