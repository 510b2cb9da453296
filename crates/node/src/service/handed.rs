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
use super::{Service, Shared};

/// A connection, as another program is told of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The number of its descriptor.
    pub(crate) number: i32,
    version: u32,
    calls: Option<Box<Numbered>>,
    /// What has come in and was not taken, and what could not be sent.
    incoming: Vec<u8>,
    unsent: Vec<u8>,
}

impl Kept {
    /// The session that was drawn for it.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.calls.as_ref().map(|calls| calls.session)
    }
}

/// A connection to be handed over. Its client has what was drawn for it no more.
pub(crate) struct ToKeep {
    pub(crate) kept: Kept,
    outbox: Rc<Outbox>,
}

impl AsFd for ToKeep {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.stream().as_fd()
    }
}

/// Goes on with the connections that the program before has handed over.
pub(crate) fn go_on_with(service: &Shared, all: Vec<(UnixStream, Kept)>) {
    let mut count = 0;
    for (socket, kept) in all {
        let went_on = Stream::new(socket).ok().and_then(|stream| {
            let stream = Rc::new(stream);
            let conn = service.borrow_mut().go_on_with(&stream, kept)?;
            tokio::task::spawn_local(listen_to(service.clone(), conn, stream));
            Some(())
        });
        count += went_on.map_or(0, |()| 1);
    }
    if count > 0 {
        info!(count, "going on with the connections of clients without sessions");
    }
}

impl Service {
    /// The connections that another program can go on with: none if something is still to be told.
    pub(crate) fn to_keep(&self) -> Vec<ToKeep> {
        let all = self.peers.values().filter(|peer| {
            let knows_sessions = peer.version.is_none_or(|version| version >= SESSIONS);
            !knows_sessions && !matches!(peer.calls, Calls::Theirs(_) | Calls::Coming(_))
        });
        if !self.has_told_all() {
            warn!(count = all.count(), "the disk is too slow: clients without sessions are lost");
            return Vec::new();
        }
        let kept = all.filter_map(|peer| {
            let mut incoming = Vec::new();
            if let Some(call) = &peer.at_leisure {
                frame::write(call, FROM_CLIENT_MAX, &mut incoming).ok()?;
            }
            incoming.extend_from_slice(peer.incoming.borrow_mut().buffer());
            let calls = match &peer.calls {
                Calls::Ours(calls) => Some(calls.clone()),
                _ => None,
            };
            let (version, unsent) = (peer.version?, peer.outbox.unsent()?);
            let number = peer.outbox.stream().as_fd().as_raw_fd();
            let kept = Kept { number, version, calls, incoming, unsent };
            Some(ToKeep { kept, outbox: peer.outbox.clone() })
        });
        kept.collect()
    }

    /// Goes on with a connection, if its session is known and there is room for it.
    fn go_on_with(&mut self, stream: &Rc<Stream>, kept: Kept) -> Option<ConnNo> {
        let (pid, uid) = stream.peer().ok()?;
        let unread = self.config.limits.unread_bytes;
        let outbox = Rc::new(Outbox::new(stream.clone(), uid, unread));
        frame::common(kept.version).filter(|spoken| *spoken == kept.version)?;
        let conn = self.open(&outbox, pid, stream)?;
        outbox.put_back(kept.unsent);
        self.traffic.take_anyway(uid, outbox.len());
        let peer = self.peers.get_mut(&conn)?;
        peer.version = Some(kept.version);
        peer.incoming.borrow_mut().buffer().extend(kept.incoming);
        let Some(calls) = kept.calls else { return Some(conn) };
        let (session, secret, heard) = (calls.session, calls.secret, CallNo(0));
        peer.calls = Calls::Ours(calls);
        // What keeps it alive is known already.
        let hello = Hello { session, secret, uid, means: Means::Connection, returns: true, heard };
        self.input(Input::Attach { conn, hello });
        if self.books().sessions().of(conn).is_some() {
            return Some(conn);
        }
        debug!(conn = conn.0, "a client without a session is not known any more");
        self.close(conn);
        None
    }

    /// Tells a client that knows no sessions what has come of its calls while there was nobody to tell it.
    pub(super) fn tell_missed(&mut self, conn: ConnNo, answers: Vec<(CallNo, Option<Reply>)>) {
        for (call, reply) in answers {
            let Some(peer) = self.peers.get_mut(&conn) else { return };
            let Some(reply) = reply.filter(|reply| !peer.calls.was_told(call, reply)) else {
                continue;
            };
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

/// The first version whose clients have sessions, and come back.
const SESSIONS: u32 = 6;
