//! One connection: a greeting, then calls until either side has enough.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use holdall_wire::frame::{self, FROM_CLIENT_MAX, Incoming};
use holdall_wire::{Call, From, Who};
use tokio::net::UnixStream;
use tracing::debug;

use super::outbox::Outbox;
use super::{ConnNo, Peer, Service, Shared};

/// How long a client may take to say what it is.
const GREETING: Duration = Duration::from_secs(10);

/// Serves a connection to its end.
pub(crate) async fn serve(service: Shared, stream: UnixStream) {
    let Ok(cred) = stream.peer_cred() else { return };
    let pid = cred.pid().map_or(0, i32::unsigned_abs);
    let Some((conn, outbox)) = service.borrow_mut().open(cred.uid(), pid) else {
        debug!(uid = cred.uid(), "too many connections of this user");
        // Greeted and sent away: it knows that somebody is there.
        let outbox = Outbox::new(0);
        outbox.greet();
        let _ = outbox.flush(&stream);
        return;
    };
    if let Err(error) = talk(&service, conn, &outbox, &stream).await {
        debug!(conn, "a connection ends: {error}");
    }
    service.borrow_mut().close(conn);
}

async fn talk(
    service: &Shared,
    conn: ConnNo,
    outbox: &Rc<Outbox>,
    stream: &UnixStream,
) -> io::Result<()> {
    let mut incoming = Incoming::new(FROM_CLIENT_MAX);
    outbox.greet();
    let greeting = greeted(stream, &mut incoming, outbox);
    let version = tokio::time::timeout(GREETING, greeting).await.map_err(io::Error::from)??;
    if version != frame::VERSION {
        // It has our greeting, which tells it why.
        return Ok(());
    }
    loop {
        while let Some(content) = incoming.next_frame()? {
            let call: Call = frame::read(content)?;
            service.borrow_mut().call(conn, call);
        }
        outbox.flush(stream)?;
        if outbox.overrun() {
            return Err(io::Error::other("it does not read its replies"));
        }
        // Whoever does not read is not listened to either.
        let heard = outbox.is_empty();
        tokio::select! {
            ready = stream.readable(), if heard => {
                ready?;
                if !fill(stream, &mut incoming)? {
                    return Ok(());
                }
            }
            ready = stream.writable(), if !heard => ready?,
            () = outbox.filled() => {}
        }
    }
}

async fn greeted(stream: &UnixStream, incoming: &mut Incoming, outbox: &Outbox) -> io::Result<u32> {
    outbox.flush(stream)?;
    loop {
        if let Some(content) = incoming.next_frame()? {
            return Ok(frame::version(content)?);
        }
        stream.readable().await?;
        if !fill(stream, incoming)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads what is there; false at the end.
fn fill(stream: &UnixStream, incoming: &mut Incoming) -> io::Result<bool> {
    match stream.try_read_buf(incoming.buffer()) {
        Ok(n) => Ok(n > 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

impl Service {
    /// Takes a connection in, unless its user has too many.
    fn open(&mut self, uid: u32, pid: u32) -> Option<(ConnNo, Rc<Outbox>)> {
        let same = self.peers.values().filter(|peer| peer.who.uid == uid).count();
        if same >= self.config.limits.connections {
            return None;
        }
        let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
        let user = user.map_or_else(|| uid.to_string(), |user| user.name);
        let who = Who { uid, user, host: self.host.clone(), pid, from: From::default() };
        let outbox = Rc::new(Outbox::new(self.config.limits.unread_bytes));
        self.last_peer += 1;
        let peer = Peer { who, outbox: outbox.clone(), requests: Default::default() };
        self.peers.insert(self.last_peer, peer);
        Some((self.last_peer, outbox))
    }
}
