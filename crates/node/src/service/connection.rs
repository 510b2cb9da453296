//! One connection: a greeting, then calls until either side has enough.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdall_cell::session::ConnNo;
use holdall_holders::Stream;
use holdall_wire::frame::{self, FROM_CLIENT_MAX, Incoming};
use holdall_wire::{Answer, Attach, Body, Call, Fault, From, Lasting, Reply, Who};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{debug, warn};

use super::commands::on_child;
use super::memory::until_known;
use super::outbox::Outbox;
use super::readers::history_page;
use super::sessions::Calls;
use super::{Peer, Service, Shared};
use crate::rights::Rights;

/// How long a client may take to say what it is.
const GREETING: Duration = Duration::from_secs(10);
/// How many calls of one connection are taken before others have their turn.
const CALLS: usize = 16;
/// How long they may take: what a call costs depends on how much there is.
const TURN: Duration = Duration::from_millis(1);
/// After what time it is looked again whether there is room on the disk.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How many bytes a client may say while it waits for its turn.
const SAID_MEANWHILE: usize = 1 << 16;
/// How many connections beyond its limit a user may have, to look and to end things, not to ask.
pub(super) const VISITORS: usize = 16;

/// Serves a connection to its end.
pub(crate) async fn serve(service: Shared, stream: Stream) {
    let Ok((pid, uid)) = stream.peer() else { return };
    serve_as(service, stream, pid, uid, false, |_| {}).await;
}

/// Serves a connection that the gateway of HTTP has made for somebody.
pub(crate) async fn serve_guest(service: Shared, stream: UnixStream, guest: holdall_http::Peer) {
    let Ok(stream) = Stream::new(stream) else { return };
    let holdall_http::Peer { uid, pid, groups, name, may } = guest;
    let rights = match may {
        Some(may) => Rights::of(&may),
        None => service.borrow().rights.of(uid, || groups),
    };
    let introduce = |peer: &mut Peer| {
        peer.rights = rights;
        peer.who.user = name.unwrap_or_else(|| peer.who.user.clone());
    };
    serve_as(service, stream, pid, uid, true, introduce).await;
}

pub(super) async fn serve_as(
    service: Shared,
    stream: Stream,
    pid: u32,
    uid: u32,
    is_guest: bool,
    introduce: impl FnOnce(&mut Peer),
) {
    let stream = Rc::new(stream);
    let unread = service.borrow().config.limits.unread_bytes;
    let outbox = Rc::new(Outbox::new(stream.clone(), uid, unread));
    let let_in = service.borrow_mut().let_in(uid);
    let Some(visitor) = let_in else {
        debug!(uid, "too many connections of this user");
        // Greeted and sent away: it knows that somebody is there.
        outbox.greet(frame::VERSION);
        if is_guest {
            let why = "this user has as many connections as it may (limits.connections)";
            let reply = Reply::Failed(Fault::Conflict(why.into()));
            outbox.push(&Answer { id: holdall_http::NO_CALL, reply });
        }
        let _ = outbox.flush();
        return;
    };
    let conn = service.borrow_mut().open(&outbox, pid, &stream, visitor);
    if let Some(peer) = service.borrow_mut().peers.get_mut(&conn) {
        peer.is_guest = is_guest;
        introduce(peer);
    }
    let greeted = greet(&service, conn, &outbox, &stream).await;
    let greeted = greeted.inspect_err(|error| debug!(conn = conn.0, "it does not greet: {error}"));
    if greeted.is_ok_and(|served| served) {
        return listen_to(service, conn, stream).await;
    }
    service.borrow_mut().close(conn);
}

/// Serves a client that is known to its end.
pub(super) async fn listen_to(service: Shared, conn: ConnNo, stream: Rc<Stream>) {
    let known = service.borrow().peers.get(&conn).map(|peer| {
        let named = peer.who.user != unnamed(peer.who.uid);
        (peer.outbox.clone(), peer.turn.clone(), peer.incoming.clone(), named)
    });
    let Some((outbox, turn, incoming, named)) = known else { return };
    if !named {
        let names = service.borrow().user_names.clone();
        let user = names.of(outbox.uid()).await;
        if let Some(peer) = service.borrow_mut().peers.get_mut(&conn) {
            peer.who.user = user;
        }
    }
    if let Err(error) = talk(&service, conn, &outbox, &stream, &turn, &incoming).await {
        debug!(conn = conn.0, "a connection ends: {error}");
    }
    service.borrow_mut().close(conn);
}

/// What a user is called as long as its name is not known.
fn unnamed(uid: u32) -> Arc<str> {
    uid.to_string().into()
}

/// Finds out which version is spoken; false if there is none.
async fn greet(
    service: &Shared,
    conn: ConnNo,
    outbox: &Outbox,
    stream: &Stream,
) -> io::Result<bool> {
    let Some(incoming) = service.borrow().incoming(conn) else { return Ok(false) };
    let greeting = greeted(stream, &incoming);
    let theirs = tokio::time::timeout(GREETING, greeting).await.map_err(io::Error::from)??;
    let version = frame::common(theirs);
    // If there is none, our greeting tells why it is not served.
    outbox.greet(version.unwrap_or(frame::VERSION));
    service.borrow_mut().traffic.take_anyway(outbox.uid(), outbox.len());
    let sent = outbox.flush()?;
    service.borrow_mut().sent(conn, sent);
    if let Some(peer) = service.borrow_mut().peers.get_mut(&conn) {
        peer.version = version;
    }
    Ok(version.is_some())
}

async fn talk(
    service: &Shared,
    conn: ConnNo,
    outbox: &Outbox,
    stream: &Stream,
    turn: &Semaphore,
    incoming: &RefCell<Incoming>,
) -> io::Result<()> {
    // Whoever has read takes what it has read in the same turn.
    let mut read_in = None;
    loop {
        let takes = incoming.borrow().ready() && is_heard(service, outbox);
        let its_turn = read_in.take().filter(|_| takes);
        if takes {
            // Of each user one connection at a time is served, and then others have their turn:
            // nobody is served more often than others by having more connections.
            let at_leisure = {
                let _turn = match its_turn {
                    Some(turn) => turn,
                    None => taken_in_turn(turn).await,
                };
                service.borrow_mut().begin_moment();
                let taken = take_some(service, conn, outbox, &mut incoming.borrow_mut());
                service.borrow_mut().end_moment();
                taken?
            };
            service.borrow_mut().end_long_round();
            if let Some(call) = at_leisure {
                service.borrow_mut().take_time(conn, Some(call.clone()));
                let taken = take_at_leisure(service, conn, call, stream, incoming).await;
                service.borrow_mut().take_time(conn, None);
                taken?;
            }
            if incoming.borrow().ready() {
                tokio::task::yield_now().await;
            }
        }
        if outbox.overrun() {
            return Err(io::Error::other("it does not read its replies"));
        }
        if outbox.has_ended() {
            return Ok(());
        }
        let heard = is_heard(service, outbox);
        if heard && incoming.borrow().ready() {
            continue;
        }
        // What the end of a round could not send.
        let stuck = outbox.is_stuck();
        tokio::select! {
            ready = stream.readable(), if heard => {
                let ready = ready?;
                let turn = taken_in_turn(turn).await;
                if ready.read(incoming.borrow_mut().buffer())? == Some(0) {
                    return Ok(());
                }
                if !service.borrow_mut().expects(conn, incoming.borrow().large()) {
                    return Err(io::Error::other("its user has no room for so long a call"));
                }
                read_in = Some(turn);
            }
            ready = stream.writable(), if stuck => {
                ready?;
                let sent = outbox.flush()?;
                service.borrow_mut().sent(conn, sent);
            }
            () = outbox.stopped() => {}
        }
    }
}

/// Waits for the turn of a connection; mostly nobody else is at it. It is not closed.
async fn taken_in_turn(turn: &Semaphore) -> Option<SemaphorePermit<'_>> {
    match turn.try_acquire() {
        Ok(turn) => Some(turn),
        Err(_) => turn.acquire().await.ok(),
    }
}

/// Whoever does not read is not listened to either, and nobody is when another program takes over.
fn is_heard(service: &Shared, outbox: &Outbox) -> bool {
    !outbox.is_full() && service.borrow().listens
}

/// Takes some of the calls that have come in, up to one that takes time.
fn take_some(
    service: &Shared,
    conn: ConnNo,
    outbox: &Outbox,
    incoming: &mut Incoming,
) -> io::Result<Option<Call>> {
    let start = service.borrow().now();
    for _ in 0..CALLS {
        // It may have had to wait for its turn.
        if !service.borrow().listens {
            break;
        }
        let Some(content) = incoming.next_frame()? else { return Ok(None) };
        let call: Call = frame::read(content)?;
        let costly = costly(&call.body);
        if service.borrow_mut().takes_time(conn, &call, outbox.stream()) {
            return Ok(Some(call));
        }
        service.borrow_mut().call(conn, call, outbox.stream());
        // Most say one thing, and hear the answer.
        if costly || outbox.is_full() || !incoming.ready() || start.elapsed() > TURN {
            break;
        }
    }
    Ok(None)
}

/// Takes a call that takes time: those that the same client makes after it wait, and nobody else.
async fn take_at_leisure(
    service: &Shared,
    conn: ConnNo,
    call: Call,
    stream: &Stream,
    incoming: &RefCell<Incoming>,
) -> io::Result<()> {
    let until_its_time = async {
        if let Body::Attach(attach) = &call.body {
            return until_room(service, conn, attach, stream).await;
        }
        let why = service.borrow().awaited.told();
        if let Some(why) = why {
            service.borrow_mut().answer(conn, call.id, Reply::Warning(why));
        }
        until_known(service).await;
    };
    let until_its_time = async {
        until_its_time.await;
        while !service.borrow().listens {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    if let Body::Child { request, pid } = call.body {
        on_child(service, conn, call.id, request, pid, stream).await;
        return Ok(());
    }
    if let Body::History { from } = call.body {
        tokio::select! {
            reply = history_page(service, conn, from) => {
                service.borrow_mut().answer(conn, call.id, reply);
            }
            gone = until_gone(stream, incoming) => return Err(gone),
        }
        return Ok(());
    }
    tokio::select! {
        () = until_its_time => {}
        gone = until_gone(stream, incoming) => return Err(gone),
    }
    service.borrow_mut().call(conn, call, stream);
    Ok(())
}

/// Waits until a session may come back.
async fn until_room(service: &Shared, conn: ConnNo, attach: &Attach, stream: &Stream) {
    while service.borrow_mut().is_to_wait(conn, attach, stream) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Waits until a client is gone, and keeps some of what it says meanwhile.
async fn until_gone(stream: &Stream, incoming: &RefCell<Incoming>) -> io::Error {
    loop {
        if incoming.borrow_mut().buffer().len() > SAID_MEANWHILE {
            return std::future::pending().await;
        }
        let ready = stream.readable().await;
        let read = ready.and_then(|ready| ready.read(incoming.borrow_mut().buffer()));
        match read {
            Ok(Some(0)) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// Whether a call may take much longer than most: it looks at everything.
fn costly(body: &Body) -> bool {
    match body {
        Body::Status { .. } | Body::Explain { .. } | Body::Prospects => true,
        Body::Change(_) | Body::Drain { .. } | Body::Attach(_) => true,
        Body::Release { .. } | Body::Stop { .. } => true,
        Body::Ask(ask) => ask.now || matches!(ask.lasting, Lasting::Reservation(_)),
        _ => false,
    }
}

async fn greeted(stream: &Stream, incoming: &RefCell<Incoming>) -> io::Result<u32> {
    loop {
        if let Some(content) = incoming.borrow_mut().next_frame()? {
            return Ok(frame::version(content)?);
        }
        let ready = stream.readable().await?;
        if ready.read(incoming.borrow_mut().buffer())? == Some(0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

impl Service {
    /// Takes in a connection that is let in.
    pub(super) fn open(
        &mut self,
        outbox: &Rc<Outbox>,
        pid: u32,
        stream: &Stream,
        visitor: bool,
    ) -> ConnNo {
        let uid = outbox.uid();
        // Groups that cannot be told give no rights.
        let rights = self.rights.of(uid, || stream.groups().unwrap_or_default());
        let user = unnamed(uid); // Its name is asked for when it is let in.
        let who = Who { uid, user, host: self.host_name.clone(), pid, from: From::default() };
        let turn = self.turns.get(&uid).and_then(Weak::upgrade).unwrap_or_else(|| {
            self.turns.retain(|_, turn| turn.strong_count() > 0);
            let turn = Rc::new(Semaphore::new(1));
            self.turns.insert(uid, Rc::downgrade(&turn));
            turn
        });
        self.last_peer += 1;
        let peer = Peer {
            who,
            rights,
            asker: None,
            outbox: outbox.clone(),
            version: None,
            incoming: Rc::new(RefCell::new(Incoming::new(FROM_CLIENT_MAX))),
            at_leisure: None,
            calls: Calls::None,
            turn,
            visitor,
            is_guest: false,
            unseen: false,
            expected: 0,
            walk: None,
        };
        self.peers.insert(ConnNo(self.last_peer), peer);
        ConnNo(self.last_peer)
    }

    /// A connection is over.
    pub(super) fn close(&mut self, conn: ConnNo) {
        let Some(peer) = self.peers.remove(&conn) else { return };
        self.give_back(&peer);
        self.detach(conn, &peer.calls);
        self.touch(false);
    }

    /// Whether others are served before a call is done: who a child is takes the kernel some time, after a
    /// loss of memory nothing is granted for a while, and on a full disk nobody comes back over and over.
    fn takes_time(&mut self, conn: ConnNo, call: &Call, stream: &Stream) -> bool {
        match &call.body {
            Body::Attach(attach) => self.is_to_wait(conn, attach, stream),
            Body::Child { .. } => !self.was_made(conn, call.id),
            Body::Ask(ask) => !ask.now && self.awaited.lasts(),
            Body::History { .. } => true,
            _ => false,
        }
    }

    /// Lets in one more connection of a user, unless there are too many; whether it may look and release
    /// only.
    fn let_in(&mut self, uid: u32) -> Option<bool> {
        let may = self.connections.take(uid, 1);
        let fits = may && self.files.take(uid, 1);
        if may && !fits {
            self.connections.give(uid, 1);
        }
        (fits || self.visitors.take(uid, 1)).then_some(!fits)
    }

    /// Whoever was let in by the program before is, whatever has become of the limits.
    pub(super) fn let_in_again(&mut self, uid: u32, visitor: bool) {
        if visitor {
            return self.visitors.take_anyway(uid, 1);
        }
        self.connections.take_anyway(uid, 1);
        self.files.take_anyway(uid, 1);
    }

    pub(super) fn is_visitor(&self, conn: ConnNo) -> bool {
        self.peers.get(&conn).is_some_and(|peer| peer.visitor)
    }

    /// From now on a connection may look and release, and not ask, if it is not so already; false if there
    /// are too many of those.
    pub(super) fn make_visitor(&mut self, conn: ConnNo) -> bool {
        let Some(peer) = self.peers.get_mut(&conn) else { return false };
        let uid = peer.who.uid;
        if !peer.visitor && self.visitors.take(uid, 1) {
            peer.visitor = true;
            self.connections.give(uid, 1);
            self.files.give(uid, 1);
        }
        peer.visitor
    }

    /// What a connection had is free again.
    fn give_back(&mut self, peer: &Peer) {
        let uid = peer.who.uid;
        if peer.visitor {
            self.visitors.give(uid, 1);
        } else {
            self.connections.give(uid, 1);
            self.files.give(uid, 1);
        }
        self.traffic.give(uid, peer.outbox.len() + peer.expected);
        // The last words to one who no longer speaks but may listen.
        let _ = peer.outbox.flush();
        peer.outbox.give_up();
    }

    fn incoming(&self, conn: ConnNo) -> Option<Rc<RefCell<Incoming>>> {
        self.peers.get(&conn).map(|peer| peer.incoming.clone())
    }

    /// A call takes its time, or none does.
    fn take_time(&mut self, conn: ConnNo, call: Option<Call>) {
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.at_leisure = call;
        }
    }

    fn sent(&mut self, conn: ConnNo, bytes: usize) {
        if let Some(peer) = self.peers.get(&conn).filter(|_| bytes > 0) {
            self.traffic.give(peer.who.uid, bytes);
        }
    }

    /// A call of so many bytes is under way; false if there is no room for it.
    fn expects(&mut self, conn: ConnNo, bytes: usize) -> bool {
        let Some(peer) = self.peers.get_mut(&conn) else { return false };
        if peer.expected == 0 && bytes == 0 {
            return true;
        }
        self.traffic.give(peer.who.uid, peer.expected);
        let room = self.traffic.take(peer.who.uid, bytes);
        peer.expected = if room { bytes } else { 0 };
        room
    }

    /// Sends a reply. If its user has left too much unread, what was left longest goes first: whoever
    /// reads a long reply is not taken for one who does not.
    pub(super) fn tell(&mut self, conn: ConnNo, answer: &Answer) {
        let Some(peer) = self.peers.get(&conn) else { return };
        let (uid, outbox) = (peer.who.uid, peer.outbox.clone());
        let bytes = outbox.push(answer);
        self.round.add(&outbox);
        self.traffic.take_anyway(uid, bytes);
        if !self.traffic.is_fair(uid) {
            self.send(); // Nobody could read so far what is to be sent in the end.
        }
        while !self.traffic.is_fair(uid) {
            let others = self.peers.values().filter(|peer| peer.who.uid == uid);
            let others = others.filter(|peer| !Rc::ptr_eq(&peer.outbox, &outbox));
            let much = others.map(|peer| &peer.outbox).filter(|outbox| outbox.is_full());
            let Some(longest) =
                much.min_by_key(|outbox| outbox.unread_since().unwrap_or_else(Instant::now))
            else {
                self.traffic.give(uid, outbox.give_up());
                return;
            };
            warn!(uid, "too many replies are not read; dropping a connection");
            self.traffic.give(uid, longest.give_up());
        }
    }
}
