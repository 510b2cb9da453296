//! Replicated cells: that this agent hosts some, or is one.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdall_cell::session::ConnNo;
use holdall_core::CellId;
use holdall_holders::Stream;
use holdall_log::{Error, Watch};
use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{
    Answer, Body, Call, ClusterCall, Fault, HostCell, HostedView, Refusal, Reply, Right, Who,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connection::serve_as;
use super::{End, Peer, Service};
use crate::cluster::frame::Frame;
use crate::cluster::number;
use crate::hosted::{self, Hosted, Sighting, Standing};
use crate::rights::Rights;

/// The only call over a connection.
const CALL: u64 = 1;
/// How long another host may take to get ready before it is not handed over; and how long it is waited for a snapshot before, so that it
/// has not too much to read and replay. Whoever asks waits a little longer than for both.
const READY: Duration = Duration::from_secs(4);
const SNAPSHOT: Duration = Duration::from_secs(3);

impl Service {
    /// Why nothing can be asked for here, if it cannot.
    pub(super) fn guards_only(&self) -> Result<(), Refusal> {
        match &self.hosted {
            None => Ok(()),
            Some(hosted) => Err(Refusal::Never(format!(
                "this is a host of the cell {0}, which serves other cells; ask the agent of this machine, for NAME@{0}",
                hosted.name
            ))),
        }
    }

    /// How it stands with the replicated cells here, or with this one.
    pub(super) fn hosted_views(&self) -> Vec<HostedView> {
        match &self.hosted {
            Some(hosted) => vec![hosted.view(self.standing(&hosted.host))],
            None => hosted::views(self.data.dir().path()),
        }
    }

    fn standing(&self, host: &str) -> Standing {
        let (trouble, since) = self.host.trouble().unzip();
        let trouble = trouble.or_else(|| self.why_others_are_awaited());
        let ago = |since: Instant| since.elapsed().as_millis() as u64;
        let since = since.flatten().map(|since| self.clock.wall().saturating_sub(ago(since)));
        Standing {
            leads: true,
            leader: Some(host.into()),
            // That of fences, which may be beyond the one that it began in. It is kept where elections are, so that any later leader is above it.
            epoch: self.host.watch().progress().epoch,
            records: self.host.watch().may_leave().0,
            trouble,
            troubled_since: since,
        }
    }

    /// Sees to it that what is hosted here is; or notes how it stands with this cell.
    pub(crate) fn look_at_hosted(&mut self) {
        let Some(hosted) = &mut self.hosted else {
            if self.cells.is_some() {
                self.host_none_removed();
                self.children.look();
            }
            return;
        };
        // There may be more hosts by now.
        if let Ok(now) = Hosted::read(self.data.dir().path()) {
            *hosted = now;
        }
        let host = hosted.host.clone();
        let mut standing = self.standing(&host);
        // That it lasts is no news.
        if let Some((before, _)) = &self.noted
            && before.trouble == standing.trouble
        {
            standing.troubled_since = before.troubled_since;
        }
        let seen = Sighting {
            life: format!("{:032x}", self.books().life()),
            epoch: self.host.watch().progress().epoch,
            next: standing.records + 1,
        };
        if self.noted.as_ref() != Some(&(standing.clone(), seen.clone())) {
            standing.note(self.data.dir());
            seen.note(self.data.dir());
            self.noted = Some((standing, seen));
        }
    }

    /// A call about replicated cells that is for this agent. None if it is about something else.
    pub(super) fn on_hosting(&mut self, conn: ConnNo, id: u64, call: &ClusterCall) -> Option<()> {
        if is_change(call) {
            self.note_cluster(self.caller(conn), call);
        }
        match call {
            ClusterCall::Hosted => self.answer(conn, id, Reply::Hosted(self.hosted_views())),
            ClusterCall::HandOver(heir) => {
                let tell = self.telling(move |service, reply| service.answer(conn, id, reply));
                self.hand_over_to(heir, tell);
            }
            ClusterCall::Close(is_forced) => {
                let reply =
                    self.close_cell(*is_forced).map_or_else(Reply::Failed, |()| Reply::Done);
                self.answer(conn, id, reply);
            }
            ClusterCall::Host(what) => {
                let tell = self.telling(move |service, reply| service.answer(conn, id, reply));
                self.host_cell(what, tell);
            }
            _ => return None,
        }
        Some(())
    }

    /// The same, said by another cell. Its administrators may have this one host a cell only with a token of the authority, which
    /// it joins with.
    fn on_hosting_by(&mut self, cell: CellId, number: u64, call: &ClusterCall) {
        if is_change(call) {
            self.note_cluster(Arc::new(self.administrator_of(cell)), call);
        }
        let tell = self.telling(move |service, reply| {
            let reply = Box::new(reply);
            service.say_at_once(cell, &Frame::Answers { number, reply });
        });
        let reply = match call {
            ClusterCall::Hosted => Reply::Hosted(self.hosted_views()),
            ClusterCall::HandOver(heir) => return self.hand_over_to(heir, tell),
            ClusterCall::Close(is_forced) => {
                self.close_cell(*is_forced).map_or_else(Reply::Failed, |()| Reply::Done)
            }
            ClusterCall::Host(what) => return self.host_cell(what, tell),
            _ => Reply::Failed(Fault::Wrong("this is no question for another cell".into())),
        };
        self.say_at_once(cell, &Frame::Answers { number, reply: Box::new(reply) });
    }

    /// Whether a question is answered without looking at the cell: about hosting; while its log stands still, all others; and what is
    /// no question but a change of the pools.
    pub(super) fn answered_beside(&mut self, cell: CellId, number: u64, question: &Body) -> bool {
        if let Body::Cluster(call) = question {
            self.on_hosting_by(cell, number, call);
            return true;
        }
        if self.hosted.is_none() {
            return false;
        }
        if let Some(why) = self.host.held_up() {
            let why = format!("nothing is granted at the moment: {why}");
            let reply = Box::new(Reply::Failed(Fault::Failed(why)));
            self.say_at_once(cell, &Frame::Answers { number, reply });
            return true;
        }
        if matches!(question, Body::Change(_) | Body::Drain { .. }) {
            self.change_for(cell, number, question.clone());
            return true;
        }
        false
    }

    /// Changes the pools for somebody at another cell, which has looked whether they may: as if they had come over a connection.
    fn change_for(&mut self, cell: CellId, number: u64, change: Body) {
        let Some(service) = self.me.upgrade() else { return };
        let by = self.administrator_of(cell);
        tokio::task::spawn_local(async move {
            let introduce = |peer: &mut Peer| {
                peer.rights = Rights::of(&[Right::Pools]);
                (peer.who.user, peer.who.host) = (by.user, by.host);
            };
            let changed = async {
                let (near, far) = UnixStream::pair()?;
                let (stream, uid) = (Stream::new(near)?, rustix::process::getuid().as_raw());
                let served = serve_as(service.clone(), stream, 0, uid, true, introduce);
                tokio::task::spawn_local(served);
                called(far, change).await
            };
            let reply = changed.await.unwrap_or_else(|error: io::Error| {
                Reply::Failed(Fault::Failed(format!(
                    "it is not known whether it was done: {error}"
                )))
            });
            service.borrow_mut().say(cell, Frame::Answers { number, reply: Box::new(reply) });
        });
    }

    /// Somebody of another cell, which does not tell who it was.
    fn administrator_of(&self, cell: CellId) -> Who {
        let known = self.engine().links().find(|(member, ..)| member.cell == cell);
        let name = known.map_or_else(String::new, |(member, ..)| member.name.to_string());
        Who { user: format!("@{name}").into(), host: name.into(), ..Who::default() }
    }

    /// Another host is to lead, as soon as it says that it is ready: until then everybody is served here.
    fn hand_over_to(&mut self, heir: &str, tell: impl FnOnce(Reply) + 'static) {
        match self.may_hand_over(heir) {
            Ok(false) => return tell(Reply::Done),
            Err(fault) => return tell(Reply::Failed(fault)),
            Ok(true) => {}
        }
        let (me, heir, snapshot) = (self.me.clone(), heir.to_owned(), self.snapshot_if_long());
        tokio::task::spawn_local(async move {
            if let Some(snapshot) = snapshot {
                drop(tokio::time::timeout(SNAPSHOT, snapshot).await);
            }
            // It may have been decided otherwise meanwhile.
            let Some(called) = me.upgrade().map(|me| me.borrow_mut().call_to_lead(&heir)) else {
                return;
            };
            let mut watch = match called {
                Ok(Some(watch)) => watch,
                Ok(None) => return tell(Reply::Done),
                Err(fault) => return tell(Reply::Failed(fault)),
            };
            let ready = tokio::time::timeout(READY, is_ready(&mut watch, &heir)).await;
            let why = ready.unwrap_or_else(|_| Some(not_ready(&watch, &heir)));
            let Some(service) = me.upgrade() else { return };
            let decided = service.borrow_mut().decide_hand_over(&heir, why);
            tell(decided.map_or_else(Reply::Failed, |()| Reply::Done));
            tokio::task::yield_now().await; // It is told first.
            service.borrow().changed.notify_one();
        });
    }

    /// Calls a host that is to lead next, and tells how it is heard of; none if it leads.
    fn call_to_lead(&mut self, heir: &str) -> Result<Option<Watch>, Fault> {
        let is_to = self.may_hand_over(heir)?;
        Ok(is_to.then(|| {
            self.host.call(heir);
            self.host.watch()
        }))
    }

    /// Whether it is to be handed over; not if it is led by that one.
    fn may_hand_over(&self, heir: &str) -> Result<bool, Fault> {
        let Some(hosted) = &self.hosted else {
            let why = "this is the cell of a machine, and stays there";
            return Err(Fault::Conflict(why.into()));
        };
        let Hosted { name, host, hosts, .. } = hosted;
        if host == heir {
            return Ok(false);
        }
        if !hosts.iter().any(|one| one == heir) {
            let hosts = hosts.join(", ");
            let why = format!("{heir} does not host {name}; its hosts are {hosts}");
            return Err(Fault::Conflict(why));
        }
        if self.end.as_ref().is_some_and(|end| *end != End::HandedOver(heir.into())) {
            return Err(Fault::Conflict(format!("{name} is about to end here; say it again")));
        }
        if let Some(other) = self.host.called().filter(|called| *called != heir) {
            let why = format!("{name} is about to be led by {other}; say it again");
            return Err(Fault::Conflict(why));
        }
        if let Some(why) = self.why_outdone() {
            return Err(not_handed_over(hosted, &why));
        }
        let links = self.cells.as_ref().and_then(|cells| {
            let id = cells.running.as_ref()?.links.named(heir).ok()?;
            cells.link(number(id))
        });
        let why = match (links, self.host.held_up()) {
            (None, _) => format!("{host}, which leads {name}, has no link to {heir}"),
            (_, Some(why)) => why,
            _ => return Ok(true),
        };
        Err(not_handed_over(hosted, &why))
    }

    /// That host is ready, or is not, and this is why.
    fn decide_hand_over(&mut self, heir: &str, why: Option<String>) -> Result<(), Fault> {
        let decided = match (why, &self.hosted) {
            (Some(why), Some(hosted)) => Err(not_handed_over(hosted, &why)),
            // It may have been decided otherwise meanwhile.
            _ => self.may_hand_over(heir),
        };
        match decided {
            Ok(true) if self.end.is_none() => {
                tracing::info!(heir, "another host is to lead");
                self.end = Some(End::HandedOver(heir.into()));
            }
            Err(_) => self.host.call_off(),
            Ok(_) => {}
        }
        decided.map(drop)
    }

    /// Tells what has come of something, when this service is done with what it does now.
    fn telling<T: FnOnce(&mut Self, Reply) + 'static>(
        &self,
        tell: T,
    ) -> impl FnOnce(Reply) + use<T> {
        let me = self.me.clone();
        move |reply| {
            tokio::task::spawn_local(async move {
                if let Some(me) = me.upgrade() {
                    tell(&mut me.borrow_mut(), reply);
                }
            });
        }
    }

    /// This cell is to be removed: it ends, and none of its hosts is to lead next. Nothing is let in any more, so nothing is
    /// granted after it was seen that nothing is held.
    pub(super) fn close_cell(&mut self, is_forced: bool) -> Result<(), Fault> {
        let conflict = |why: String| Err(Fault::Conflict(why));
        let Some(hosted) = &self.hosted else {
            return conflict(
                "this is the cell of a machine; `holdall cluster remove` is for it".into(),
            );
        };
        let (holding, waiting) = self.engine().load();
        if !is_forced && self.cell().is_recovering() {
            let why = self.why_others_are_awaited();
            let why = why.unwrap_or_else(|| "others have not said yet what they hold".into());
            return conflict(format!(
                "it is not known what others hold of {}, which is given up with --force: {why}",
                hosted.name
            ));
        }
        if !is_forced && holding + waiting > 0 {
            return conflict(format!(
                "{holding} hold and {waiting} wait for what {} guards; with --force that is given up",
                hosted.name
            ));
        }
        if self.end.is_some() {
            return conflict(format!(
                "{} is about to be led by another host; say it again",
                hosted.name
            ));
        }
        tracing::info!(holding, waiting, "the cell is to be removed, and ends");
        self.end = Some(End::Closed);
        self.changed.notify_one();
        Ok(())
    }

    /// Cells that were removed from the cluster are not hosted any more.
    pub(super) fn host_none_removed(&mut self) {
        let running = self.cells.as_ref().and_then(|cells| cells.running.as_ref());
        let (Some(running), None) = (running, &self.hosted) else { return };
        let members = running.links.members().into_iter();
        let removed: Vec<_> = members.filter(|(_, it)| it.removed).map(|(id, _)| id).collect();
        if removed.is_empty() {
            return;
        }
        for (dir, name) in hosted::all_of(self.data.dir().path(), &removed) {
            match hosted::put_away(&dir) {
                Ok(away) => {
                    tracing::info!(cell = name, "it was removed, and is not hosted any more");
                    self.note_unhosted(&name);
                    self.children.remove(&dir, away);
                }
                Err(error) => tracing::error!("{} is not put away: {error}", dir.display()),
            }
        }
    }

    /// Becomes a host of a cell, and says what has come of it.
    fn host_cell(&mut self, what: &HostCell, tell: impl FnOnce(Reply) + 'static) {
        let running = self.cells.as_ref().and_then(|cells| cells.running.as_ref());
        let (Some(running), None) = (running, &self.hosted) else {
            let why = "only the agents of machines host cells";
            return tell(Reply::Failed(Fault::Conflict(why.into())));
        };
        let own = running.links.own().clone();
        let members = running.links.members();
        let addresses = members.into_iter().find(|(id, _)| *id == own.id);
        let addresses = addresses.map(|(_, it)| it.addresses).unwrap_or_default();
        let (data, listens) = (self.data.dir().path().to_owned(), running.listens.clone());
        let (what, me) = (what.clone(), self.me.clone());
        tokio::task::spawn_local(async move {
            let name = own.name.as_str();
            let reply = match hosted::host(&data, name, &listens, &addresses, &what).await {
                Ok(()) => {
                    me.upgrade().into_iter().for_each(|me| me.borrow_mut().children.look());
                    Reply::Done
                }
                Err(error) => Reply::Failed(Fault::Conflict(format!("{name}: {error:#}"))),
            };
            tell(reply);
        });
    }
}

/// Whether a call about replicated cells changes something, so that it is written down who has made it.
fn is_change(call: &ClusterCall) -> bool {
    matches!(call, ClusterCall::HandOver(_) | ClusterCall::Host(_) | ClusterCall::Close(_))
}

/// Why this host goes on leading.
fn not_handed_over(hosted: &Hosted, why: &str) -> Fault {
    let Hosted { name, host, .. } = hosted;
    Fault::Conflict(format!("{name} is not handed over, and {host} goes on leading it: {why}"))
}

/// Waits until a host that was called is ready; why it cannot be waited for, if it cannot.
async fn is_ready(watch: &mut Watch, heir: &str) -> Option<String> {
    loop {
        let progress = watch.progress();
        if progress.heir.as_deref() == Some(heir) {
            return None;
        }
        // Other trouble may pass in time.
        if progress.has_ended() || matches!(progress.trouble, Some(Error::Full(_))) {
            return progress.trouble.map(|trouble| trouble.to_string());
        }
        if let Err(closed) = watch.changed().await {
            return Some(closed.to_string());
        }
    }
}

/// Why it was waited for in vain.
fn not_ready(watch: &Watch, heir: &str) -> String {
    let silent = || {
        format!(
            "{heir} does not get ready in time; look whether it stands by, and runs this version, or say it again"
        )
    };
    watch.progress().trouble.map_or_else(silent, |trouble| trouble.to_string())
}

/// Makes a call over a connection: how it ends.
async fn called(stream: UnixStream, body: Body) -> io::Result<Reply> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    let mut said = Vec::new();
    frame::greet(&mut said, frame::VERSION);
    frame::write(&Call { id: CALL, body }, FROM_CLIENT_MAX, &mut said)?;
    stream.write_all(&said).await?;
    let mut incoming = Incoming::new(FROM_NODE_MAX);
    loop {
        while let Some(content) = incoming.next_frame()? {
            if frame::version(content).is_ok() {
                continue;
            }
            let Answer { reply, .. } = frame::read(content)?;
            if !matches!(reply, Reply::Warning(_)) {
                return Ok(reply);
            }
        }
        if stream.read_buf(incoming.buffer()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
