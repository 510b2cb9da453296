//! Connections and sessions.
//!
//! A client that knows sessions brings its own, and numbers its calls itself. For one that does not,
//! each connection has a session that is drawn here when it first wants something, and ends with it.
//! Whoever only looks has none.

use holdall_cell::Input;
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_holders::{NotAHolder, Peer as Process, ProcessId, Stream};
use holdall_wire::{Attach, Fault, Reply};
use rustc_hash::FxHashMap;
use tracing::debug;

use super::{Peer, Service};

/// How long a session lasts without a connection if its process cannot be seen from here.
const LEASE: u64 = 60_000;
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
pub(super) struct Numbered {
    session: SessionId,
    last: CallNo,
    /// The client's number of each call that is not over, and whether it asked for something.
    ids: FxHashMap<CallNo, (u64, bool)>,
    /// Our number of those that did.
    asked: FxHashMap<u64, CallNo>,
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
                let (id, asks) = *calls.ids.get(&call)?;
                let fails = matches!(reply, Reply::Failed(_));
                if !asks || fails {
                    calls.over(call);
                }
                Some(id)
            }
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
        if let Some((id, true)) = self.ids.remove(&call)
            && self.asked.get(&id) == Some(&call)
        {
            self.asked.remove(&id);
        }
    }
}

/// What the service keeps of a session beside the cell.
#[derive(Default)]
pub(super) struct Session {
    pub(super) uid: u32,
    /// How many of its requests wait or hold.
    pub(super) open: usize,
    /// Who waits for the end of its process.
    pub(super) watch: Option<tokio::task::AbortHandle>,
    /// How many files it takes.
    pub(super) files: usize,
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
        let hello = hello.and_then(|hello| match self.host.admit(&Input::Attach { conn, hello }) {
            // Whoever comes back takes no room.
            Err(full) if !attach.returns => Err(Fault::Failed(full.to_string())),
            _ => Ok(hello),
        });
        match hello {
            Ok(hello) => {
                if let Some(peer) = self.peers.get_mut(&conn) {
                    peer.calls = Calls::Coming(id);
                }
                self.input(Input::Attach { conn, hello });
                let session = self.books().sessions().of(conn);
                if let Some((session, peer)) = session.zip(self.peers.get_mut(&conn)) {
                    peer.calls = Calls::Theirs(session);
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
                calls.ids.insert(call, (id, asks));
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
            Ok(ProcessId { pid, start }) => Means::Once { pid, start },
            Err(_) => Means::Connection,
        };
        let (session, secret) = (SessionId(random().map_err(failed)?), random().map_err(failed)?);
        let (secret, uid, returns) = (Secret(secret), peer.who.uid, false);
        let hello = Hello { session, secret, uid, means, returns, heard: CallNo(0) };
        let attach = Input::Attach { conn, hello };
        self.host.admit(&attach).map_err(|full| Fault::Failed(full.to_string()))?;
        let (ids, asked) = (FxHashMap::default(), FxHashMap::default());
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.calls = Calls::Ours(Box::new(Numbered { session, last: CallNo(0), ids, asked }));
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

    /// Sees to it that the cell is told when a session is over with its process.
    pub(super) fn watch_session(&mut self, session: SessionId, means: Means) {
        let (Means::Process { pid, start } | Means::Once { pid, start }) = means else { return };
        let of = self.books().sessions().connection(session);
        let peer = of.and_then(|conn| self.peers.get(&conn));
        if matches!(peer, Some(Peer { calls: Calls::Ours(_), .. })) {
            return; // Its connection tells.
        }
        // One that has just come is there.
        if of.is_none() && holdall_holders::is_gone(ProcessId { pid, start }) {
            return self.input(Input::Over(session));
        }
        let Some(known) = self.sessions.get_mut(&session) else { return };
        known.files += 1;
        self.files.take_anyway(known.uid, 1);
        let me = self.me.clone();
        let task = tokio::task::spawn_local(async move {
            holdall_holders::until_gone(ProcessId { pid, start }).await;
            if let Some(service) = me.upgrade() {
                debug!(pid, "the process of a session has ended");
                service.borrow_mut().input(Input::Over(session));
            }
        });
        known.watch = Some(task.abort_handle());
    }

    /// A session is over.
    pub(super) fn forget_session(&mut self, session: SessionId, conn: Option<ConnNo>) {
        if let Some(known) = self.sessions.remove(&session) {
            self.files.give(known.uid, known.files);
            if let Some(watch) = known.watch {
                watch.abort();
            }
        }
        if let Some(conn) = conn {
            self.end_connection(conn);
        }
    }

    /// A connection is closed when its client has been told everything.
    pub(super) fn end_connection(&mut self, conn: ConnNo) {
        if let Some(peer) = self.peers.get(&conn) {
            peer.outbox.end();
        }
    }
}

/// The process at the other end.
fn process_of(stream: &Stream) -> Result<ProcessId, NotAHolder> {
    Process::of(stream)?.process()
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
