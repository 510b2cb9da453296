//! Connections of clients that know no sessions, and would not come back: when another program takes the
//! place of this one, it goes on with them.
//!
//! Everything that they are to be told has been told by then, or is known to be missing; what they have said and was not
//! taken is handed over with them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use holdall_cell::Input;
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, SessionId};
use holdall_holders::Stream;
use holdall_wire::Reply;
use holdall_wire::frame::{self, FROM_CLIENT_MAX};
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use super::connection::listen_to;
use super::outbox::Outbox;
use super::sessions::{Calls, Numbered};
use super::{Peer, Service, Shared};

/// The first version whose clients have sessions, and come back.
const SESSIONS: u32 = 6;

/// A connection, as another program is told of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct HandedOver {
    /// The number of its descriptor.
    pub(crate) number: i32,
    version: u32,
    /// Whether it may look and release only.
    visitor: bool,
    calls: Option<Box<Numbered>>,
    /// What has come in and was not taken, and what could not be sent.
    incoming: Vec<u8>,
    unsent: Vec<u8>,
}

impl HandedOver {
    /// The session that was drawn for it.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.calls.as_ref().map(|calls| calls.session)
    }

    /// Whether this program speaks its version.
    pub(crate) fn is_spoken(&self) -> bool {
        frame::common(self.version) == Some(self.version)
    }
}

/// A connection to be handed over. It is open as long as this is.
pub(crate) struct ToHandOver {
    pub(crate) told: HandedOver,
    outbox: Rc<Outbox>,
}

impl AsFd for ToHandOver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.stream().as_fd()
    }
}

/// Goes on with the connections that the program before has handed over.
pub(crate) fn go_on_with(service: &Shared, all: Vec<(UnixStream, HandedOver)>) {
    let mut count = 0;
    for (socket, handed) in all {
        let session = handed.session();
        let gone_on = Stream::new(socket).ok().and_then(|stream| {
            let stream = Rc::new(stream);
            let conn = service.borrow_mut().go_on_with(&stream, handed)?;
            Some(tokio::task::spawn_local(listen_to(service.clone(), conn, stream)))
        });
        if gone_on.is_some() {
            count += 1;
        } else if let Some(session) = session {
            // As after every other end of such a connection.
            service.borrow_mut().input(Input::Over(session));
        }
    }
    if count > 0 {
        info!(count, "going on with the connections of clients without sessions");
    }
}

impl Service {
    /// From now on clients are listened to, or not: then what they say is handed over, or waits in their sockets.
    pub(crate) fn listen(&mut self, listens: bool) {
        self.listens = listens;
        self.peers.values().for_each(|peer| peer.outbox.wake());
    }

    /// The connections that another program can go on with: those for which nothing waits for the disk.
    pub(crate) fn to_hand_over(&self) -> Vec<ToHandOver> {
        let awaited = self.host.awaited();
        let all = self.peers.iter().filter(|(_, peer)| {
            let knows_sessions = peer.version.is_none_or(|version| version >= SESSIONS);
            let brings_one = matches!(peer.calls, Calls::Theirs(_) | Calls::Coming(_));
            // Whose a connection is that was made for a guest, its socket does not tell.
            !knows_sessions && !brings_one && !peer.is_guest && peer.outbox.goes_on()
        });
        let (lost, kept): (Vec<_>, Vec<_>) = all.partition(|(conn, _)| awaited.contains(conn));
        if !lost.is_empty() {
            warn!(count = lost.len(), "the disk is too slow: clients without sessions are lost");
        }
        kept.into_iter().filter_map(|(_, peer)| to_hand_over(peer)).collect()
    }

    /// Goes on with a connection, if its session is known.
    fn go_on_with(&mut self, stream: &Rc<Stream>, handed: HandedOver) -> Option<ConnNo> {
        let (pid, uid) = stream.peer().ok()?;
        let unread = self.config.limits.unread_bytes;
        let outbox = Rc::new(Outbox::new(stream.clone(), uid, unread));
        self.let_in_again(uid, handed.visitor);
        let conn = self.open(&outbox, pid, stream, handed.visitor);
        outbox.put_back(handed.unsent);
        self.traffic.take_anyway(uid, outbox.len());
        let peer = self.peers.get_mut(&conn)?;
        peer.version = Some(handed.version);
        peer.incoming.borrow_mut().buffer().extend(handed.incoming);
        let Some(calls) = handed.calls else { return Some(conn) };
        let (session, secret, heard) = (calls.session, calls.secret, CallNo(0));
        peer.calls = Calls::Ours(calls);
        // What keeps it alive is known already.
        let hello = Hello { session, secret, uid, means: Means::Connection, returns: true, heard };
        self.input(Input::Attach { conn, hello });
        if self.books().sessions().of(conn).is_some() {
            self.unwatch(session); // Its connection tells.
            return Some(conn);
        }
        debug!(conn = conn.0, "a client without a session is not known any more");
        self.close(conn);
        None
    }

    /// Tells a client that knows no sessions what has come of its calls while there was nobody to tell it.
    pub(super) fn tell_missed(&mut self, conn: ConnNo, answers: Vec<(CallNo, Option<Reply>)>) {
        for (call, reply) in answers {
            let Some(peer) = self.peers.get(&conn) else { return };
            let Some(reply) = reply.filter(|reply| !peer.calls.was_told(call, reply)) else {
                continue;
            };
            if self.is_leased(&reply) {
                self.tell_later(conn, call, reply); // With the time until which it may be used.
                continue;
            }
            let Some(peer) = self.peers.get_mut(&conn) else { return };
            let goes_on = matches!(reply, Reply::Granted { .. } | Reply::Lost(_));
            let id = peer.calls.id_of(call, &reply);
            if !goes_on {
                peer.calls.over(call);
            }
            if let Some(id) = id {
                let reply = self.as_told(conn, reply);
                self.answer(conn, id, reply);
            }
        }
    }
}

/// A connection as it is told of; none if something cannot be told.
fn to_hand_over(peer: &Peer) -> Option<ToHandOver> {
    let mut incoming = Vec::new();
    if let Some(call) = &peer.at_leisure {
        frame::write(call, FROM_CLIENT_MAX, &mut incoming).ok()?;
    }
    incoming.extend_from_slice(peer.incoming.borrow_mut().buffer());
    let calls = match &peer.calls {
        Calls::Ours(calls) => Some(calls.clone()),
        _ => None,
    };
    let (version, unsent, visitor) = (peer.version?, peer.outbox.unsent()?, peer.visitor);
    let number = peer.outbox.stream().as_fd().as_raw_fd();
    let told = HandedOver { number, version, visitor, calls, incoming, unsent };
    Some(ToHandOver { told, outbox: peer.outbox.clone() })
}
