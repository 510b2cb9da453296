//! Connections and sessions.
//!
//! A client that knows sessions brings its own, and numbers its calls itself. For one that does not,
//! each connection has a session that is drawn here when it first wants something, and ends with it.
//! Whoever only looks has none.

use std::collections::BTreeSet;

use holdall_cell::Input;
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_holders::{NotAHolder, Peer as Process, ProcessId, Stream};
use holdall_wire::{Attach, Fault, Reply, RequestNo};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{Peer, Service};

/// How long a session lasts without a connection if its process cannot be seen from here. It can hold nothing
/// that would be lost with it.
const LEASE: u64 = 60_000;
/// How often a session comes back while the disk is full before it has to wait until it is not: each
/// time takes of the room that is kept for what ends.
const RETURNS_WHEN_FULL: u8 = 3;
/// After how many calls of a connection without a session of its own the outcomes of those before
/// are forgotten.
const FORGOTTEN_EVERY: u64 = 64;

/// Whose calls come over a connection.
pub(super) enum Calls {
    /// Nothing has been wanted yet.
    None,
    /// A client is about to be let in; its call.
    Coming(u64),
    /// Those of a client with a session, which numbers them.
    Theirs(SessionId),
    /// Those of a client without one.
    Ours(Box<Numbered>),
}

/// The calls of a client that knows no sessions.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) session: SessionId,
    pub(super) secret: Secret,
    last: CallNo,
    /// The calls that are not over.
    #[serde(with = "as_pairs")]
    open: FxHashMap<CallNo, Open>,
    /// Our number of those that asked for something.
    #[serde(with = "as_pairs")]
    asked: FxHashMap<u64, CallNo>,
}

/// A call that is not over.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Open {
    /// The client's number of it.
    id: u64,
    /// Whether it asked for something.
    asks: bool,
    told: Told,
}

/// What its client was told last of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Told {
    /// That it waits, or nothing.
    Waits,
    Granted,
    Lost,
    /// That it is over.
    Over,
}

impl Told {
    fn by(reply: &Reply) -> Self {
        match reply {
            Reply::Queued(_) | Reply::Warning(_) | Reply::Until { .. } => Self::Waits,
            Reply::Granted { .. } => Self::Granted,
            Reply::Lost(_) => Self::Lost,
            _ => Self::Over,
        }
    }
}

impl Calls {
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::None | Self::Coming(_) => None,
            Self::Theirs(session) => Some(*session),
            Self::Ours(calls) => Some(calls.session),
        }
    }

    /// The client's number of a call that has a reply; that of one which asked is kept until its
    /// request is over.
    pub(super) fn id_of(&mut self, call: CallNo, reply: &Reply) -> Option<u64> {
        match self {
            Self::None | Self::Coming(_) => None,
            Self::Theirs(_) => Some(call.0),
            Self::Ours(calls) => {
                let open = calls.open.get_mut(&call)?;
                let Open { id, asks, told } = *open;
                open.told = told.max(Told::by(reply));
                let fails = matches!(reply, Reply::Failed(_));
                if !asks || fails {
                    calls.over(call);
                }
                Some(id)
            }
        }
    }

    /// Whether a client that knows no sessions has been told a reply already, or one that came after it.
    pub(super) fn was_told(&self, call: CallNo, reply: &Reply) -> bool {
        match self {
            Self::Ours(calls) => match calls.open.get(&call) {
                Some(open) => open.asks && Told::by(reply) <= open.told,
                None => true,
            },
            _ => false,
        }
    }

    /// A request is over.
    pub(super) fn over(&mut self, call: CallNo) {
        if let Self::Ours(calls) = self {
            calls.over(call);
        }
    }

    /// The call that asked for something, by the client's number.
    pub(super) fn asked(&self, id: u64) -> CallNo {
        match self {
            Self::Ours(calls) => calls.asked.get(&id).copied().unwrap_or_default(),
            _ => CallNo(id),
        }
    }

    /// Whether a number is in use by an unfinished call that asks.
    pub(super) fn is_in_use(&self, id: u64) -> bool {
        matches!(self, Self::Ours(calls) if calls.asked.contains_key(&id))
    }
}

impl Numbered {
    fn over(&mut self, call: CallNo) {
        if let Some(Open { id, asks: true, .. }) = self.open.remove(&call)
            && self.asked.get(&id) == Some(&call)
        {
            self.asked.remove(&id);
        }
    }
}

/// What the service keeps of a session beside the cell.
pub(super) struct Session {
    means: Means,
    /// How many of its requests wait or hold.
    pub(super) open: usize,
    /// How often it has come back since the disk is full.
    returns_when_full: u8,
}

impl Session {
    fn new(means: Means) -> Self {
        Self { means, open: 0, returns_when_full: 0 }
    }
}

/// A process with sessions: one file for all of them.
pub(super) struct Watched {
    uid: u32,
    sessions: BTreeSet<SessionId>,
    /// Who waits for its end.
    task: Option<tokio::task::AbortHandle>,
}

/// A call, by the number it has in its session.
#[derive(Clone, Copy)]
pub(super) struct Numbering {
    pub(super) call: CallNo,
    /// The client has heard of all up to this one.
    pub(super) heard: CallNo,
}

impl Service {
    /// A client comes with a session.
    pub(super) fn on_attach(&mut self, conn: ConnNo, id: u64, attach: &Attach, stream: &Stream) {
        let hello = self.hello(conn, attach, stream);
        match hello.and_then(|hello| self.let_attach(conn, hello)) {
            Ok(hello) => {
                if let Some(peer) = self.peers.get_mut(&conn) {
                    peer.calls = Calls::Coming(id);
                    let tied = matches!(hello.means, Means::Process { .. });
                    peer.unseen = attach.lease.is_none() && !tied;
                }
                self.input(Input::Attach { conn, hello });
                let session = self.books().sessions().of(conn);
                if let Some((session, peer)) = session.zip(self.peers.get_mut(&conn)) {
                    peer.calls = Calls::Theirs(session);
                    self.tell_who_waits_for_a_lease();
                }
            }
            Err(fault) => self.answer(conn, id, Reply::Failed(fault)),
        }
    }

    fn hello(&self, conn: ConnNo, attach: &Attach, stream: &Stream) -> Result<Hello, Fault> {
        let peer = self.peers.get(&conn).ok_or(Fault::Forgotten)?;
        if !matches!(peer.calls, Calls::None) {
            return Err(Fault::Wrong("this connection has a session already".into()));
        }
        let means = match (attach.lease, peer.who.pid) {
            (Some(millis), _) => Means::Lease(millis),
            (None, 0) => Means::Lease(LEASE),
            (None, _) => match process_of(stream) {
                Err(NotAHolder::Ended) => {
                    return Err(Fault::Failed("its process has ended".into()));
                }
                Ok(ProcessId { pid, start }) => Means::Process { pid, start },
                Err(_) => Means::Lease(LEASE),
            },
        };
        Ok(Hello {
            session: SessionId(attach.session),
            secret: Secret(attach.secret),
            uid: peer.who.uid,
            means,
            returns: attach.returns,
            heard: CallNo(attach.heard),
        })
    }

    /// Whether there is room for a session. One that is known comes back in any case.
    fn let_attach(&mut self, conn: ConnNo, hello: Hello) -> Result<Hello, Fault> {
        let room = self.host.admit(&Input::Attach { conn, hello });
        if let Some(known) = self.sessions.get_mut(&hello.session) {
            let full = room.is_err();
            known.returns_when_full =
                if full { known.returns_when_full.saturating_add(1) } else { 0 };
            return Ok(hello);
        }
        room.map_err(|full| Fault::Failed(full.to_string()))?;
        let is_counted = process_in(hello.means).is_none_or(|one| self.watched.contains_key(&one));
        if is_counted || (!self.is_visitor(conn) && self.files.has_room(hello.uid, 1)) {
            return Ok(hello);
        }
        // Whoever may only look and release need not be watched: it ends with its connection.
        if self.make_visitor(conn) {
            return Ok(Hello { means: Means::Connection, ..hello });
        }
        let why = "this user has as many open files as it may (`ulimit -n` of the agent)";
        Err(Fault::Conflict(why.into()))
    }

    /// Whether a session that comes back has to wait, since the disk is full.
    pub(super) fn is_to_wait(&mut self, conn: ConnNo, attach: &Attach, stream: &Stream) -> bool {
        let known = self.sessions.get(&SessionId(attach.session));
        if known.is_none_or(|known| known.returns_when_full < RETURNS_WHEN_FULL) {
            return false;
        }
        let hello = self.hello(conn, attach, stream);
        hello.is_ok_and(|hello| self.host.admit(&Input::Attach { conn, hello }).is_err())
    }

    /// The number of a call within the session of its connection, which is drawn if it has none.
    pub(super) fn number(
        &mut self,
        conn: ConnNo,
        id: u64,
        asks: bool,
        stream: &Stream,
    ) -> Result<Numbering, Fault> {
        if matches!(self.peers.get(&conn), Some(Peer { calls: Calls::None, .. })) {
            self.draw_session(conn, stream)?;
        }
        let peer = self.peers.get_mut(&conn).ok_or(Fault::Forgotten)?;
        match &mut peer.calls {
            Calls::Theirs(_) => Ok(Numbering { call: CallNo(id), heard: CallNo(0) }),
            Calls::Ours(calls) => {
                let call = calls.last.next();
                calls.last = call;
                calls.open.insert(call, Open { id, asks, told: Told::Waits });
                if asks {
                    calls.asked.insert(id, call);
                }
                let forgets = call.0.is_multiple_of(FORGOTTEN_EVERY);
                let heard = if forgets { CallNo(call.0 - 1) } else { CallNo(0) };
                Ok(Numbering { call, heard })
            }
            Calls::None | Calls::Coming(_) => Err(Fault::Forgotten),
        }
    }

    /// A session for a client that knows none. It lasts as long as the connection; if the agent is killed, what
    /// it holds lasts as long as the process: nobody can know whether that still uses it.
    fn draw_session(&mut self, conn: ConnNo, stream: &Stream) -> Result<(), Fault> {
        let Some(peer) = self.peers.get(&conn) else { return Ok(()) };
        let failed = |error: std::io::Error| Fault::Failed(error.to_string());
        let means = match process_of(stream) {
            Ok(ProcessId { pid, start }) if pid == peer.who.pid => Means::Once { pid, start },
            // It cannot be seen, or somebody else speaks for it.
            _ => Means::Connection,
        };
        let (session, secret) = (SessionId(random().map_err(failed)?), random().map_err(failed)?);
        let (secret, uid, returns) = (Secret(secret), peer.who.uid, false);
        let hello = Hello { session, secret, uid, means, returns, heard: CallNo(0) };
        let attach = Input::Attach { conn, hello };
        self.host.admit(&attach).map_err(|full| Fault::Failed(full.to_string()))?;
        let (last, open, asked) = Default::default();
        if let Some(peer) = self.peers.get_mut(&conn) {
            let calls = Numbered { session, secret, last, open, asked };
            peer.calls = Calls::Ours(Box::new(calls));
        }
        self.input(attach);
        if self.books().sessions().of(conn).is_some() {
            return Ok(());
        }
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.calls = Calls::None;
        }
        Err(Fault::Conflict("this user has as many sessions as it may; end some of them".into()))
    }

    /// A connection is over, and so is a session that was drawn for it.
    pub(super) fn detach(&mut self, conn: ConnNo, calls: &Calls) {
        match calls {
            Calls::None => {}
            Calls::Ours(calls) => self.input(Input::Over(calls.session)),
            Calls::Theirs(_) | Calls::Coming(_) => self.input(Input::Detach(conn)),
        }
    }

    /// A session is there from now on, and its process takes a file.
    pub(super) fn know_session(&mut self, session: SessionId, uid: u32, means: Means) {
        self.sessions.insert(session, Session::new(means));
        if let Means::Process { pid, start } = means {
            self.count_process(ProcessId { pid, start }, uid, session);
        }
    }

    fn count_process(&mut self, process: ProcessId, uid: u32, session: SessionId) {
        let files = &mut self.files;
        let watched = self.watched.entry(process).or_insert_with(|| {
            files.take_anyway(uid, 1);
            Watched { uid, sessions: BTreeSet::new(), task: None }
        });
        watched.sessions.insert(session);
    }

    /// Sees to it that the cell is told when a session is over with its process.
    pub(super) fn watch_session(&mut self, session: SessionId, means: Means) {
        let Some(process) = process_in(means) else { return };
        // It may be over by now, and its number another's.
        if self.sessions.get(&session).is_none_or(|known| known.means != means) {
            return;
        }
        let of = self.books().sessions().connection(session);
        let peer = of.and_then(|conn| self.peers.get(&conn));
        if matches!(peer, Some(Peer { calls: Calls::Ours(_), .. })) {
            return; // Its connection tells.
        }
        // One that has just come is there.
        if of.is_none() && holdall_holders::is_gone(process) {
            return self.input(Input::Over(session));
        }
        let uid = self.books().sessions().uid(session).unwrap_or_default();
        self.count_process(process, uid, session);
        let Some(watched) = self.watched.get_mut(&process) else { return };
        let me = self.me.clone();
        watched.task.get_or_insert_with(|| {
            let task = tokio::task::spawn_local(async move {
                holdall_holders::until_gone(process).await;
                if let Some(service) = me.upgrade() {
                    service.borrow_mut().process_is_gone(process);
                }
            });
            task.abort_handle()
        });
    }

    fn process_is_gone(&mut self, process: ProcessId) {
        debug!(pid = process.pid, "the process of sessions has ended");
        let watched = self.watched.get(&process);
        let sessions = watched.map(|watched| watched.sessions.clone()).unwrap_or_default();
        sessions.into_iter().for_each(|session| self.input(Input::Over(session)));
    }

    /// Withdraws what waits for tokens other than these, which are good no more. What they hold lasts as long as its lease: somebody
    /// may be using it.
    pub(crate) fn withdraw_for_all_but(&mut self, good: &BTreeSet<u32>) {
        let (books, sessions) = (self.books(), self.books().sessions());
        let is_gone = |uid: u32| holdall_http::token::is_of_token(uid) && !good.contains(&uid);
        let waits = |request: &RequestNo| books.get(*request).is_some_and(|one| one.held.is_none());
        let waits_last = |session: SessionId| {
            let open = sessions.open(session);
            let last = open.iter().max().copied()?;
            open.iter().all(waits).then_some((last, session))
        };
        let gone =
            self.sessions.keys().copied().filter(|id| sessions.uid(*id).is_some_and(is_gone));
        let mut gone: Vec<_> = gone.filter_map(waits_last).collect();
        // The last first, so that nothing is granted to them on the way out.
        gone.sort_unstable_by(|one, other| other.cmp(one));
        gone.into_iter().for_each(|(_, session)| self.input(Input::Over(session)));
    }

    /// A session is over.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.unwatch(session);
        self.sessions.remove(&session);
    }

    /// It need not be known when the process of a session ends.
    pub(super) fn unwatch(&mut self, session: SessionId) {
        let process = self.sessions.get(&session).and_then(|known| process_in(known.means));
        let Some(process) = process else { return };
        let Some(watched) = self.watched.get_mut(&process) else { return };
        watched.sessions.remove(&session);
        if watched.sessions.is_empty()
            && let Some(watched) = self.watched.remove(&process)
        {
            self.files.give(watched.uid, 1);
            if let Some(task) = watched.task {
                task.abort();
            }
        }
    }

    /// A connection is closed when its client has been told everything.
    pub(super) fn end_connection(&mut self, conn: ConnNo) {
        if let Some(peer) = self.peers.get(&conn) {
            peer.outbox.end();
        }
    }
}

/// The process that keeps a session alive, if one does.
fn process_in(means: Means) -> Option<ProcessId> {
    match means {
        Means::Process { pid, start } | Means::Once { pid, start } => {
            Some(ProcessId { pid, start })
        }
        Means::Connection | Means::Lease(_) => None,
    }
}

/// The process at the other end.
fn process_of(stream: &Stream) -> Result<ProcessId, NotAHolder> {
    Process::of(stream)?.process()
}

/// A map by what is no text, in a form that knows only texts as keys.
mod as_pairs {
    use std::hash::Hash;

    use rustc_hash::FxHashMap;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &FxHashMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<FxHashMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Eq + Hash,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

fn random() -> std::io::Result<u128> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(u128::from_le_bytes(bytes))
}
