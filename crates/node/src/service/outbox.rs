//! Replies on their way to one client.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use holdall_holders::Stream;
use holdall_wire::frame::{self, FROM_NODE_MAX};
use holdall_wire::{Answer, Reply};
use tokio::sync::Notify;

/// How many bytes a client may leave unread and still be listened to.
const UNREAD: usize = 1 << 16;
/// How many replies of a client may wait for the log until it is not listened to any more.
const AWAITED: usize = 64;
/// How much room an outbox keeps when it is empty.
const KEPT: usize = 1 << 14;

/// Bytes to be sent. Whoever reads too slowly for too long is dropped.
pub(super) struct Outbox {
    stream: Rc<Stream>,
    uid: u32,
    /// Whether it is sent when the round ends.
    in_round: Cell<bool>,
    bytes: RefCell<Vec<u8>>,
    /// How many replies wait for the log before they come here; long ones count as many.
    awaited: Cell<usize>,
    /// How many of the bytes have been sent.
    sent: Cell<usize>,
    /// Since when the client has read nothing, if it has left something unread.
    unread_since: Cell<Option<Instant>>,
    max: usize,
    overrun: Cell<bool>,
    /// Whether the connection ends when everything is sent.
    ends: Cell<bool>,
    wake: Notify,
    /// A descriptor that goes along with the byte at this place.
    handed: RefCell<Option<(usize, OwnedFd)>>,
}

impl Outbox {
    /// For a client of this user, who is dropped if it leaves more than `max` bytes unread.
    pub(super) fn new(stream: Rc<Stream>, uid: u32, max: usize) -> Self {
        Self {
            stream,
            uid,
            in_round: Cell::new(false),
            bytes: RefCell::default(),
            awaited: Cell::new(0),
            sent: Cell::new(0),
            unread_since: Cell::new(None),
            max,
            overrun: Cell::new(false),
            ends: Cell::new(false),
            wake: Notify::new(),
            handed: RefCell::default(),
        }
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Lets it be sent when the round ends; true if it was not to be.
    pub(super) fn join_round(&self) -> bool {
        !self.in_round.replace(true)
    }

    /// Sends what the socket takes, and says how much that was. The rest is left to whoever serves
    /// the connection.
    pub(super) fn end_round(&self) -> usize {
        self.in_round.set(false);
        let was_full = self.is_full();
        let sent = self.flush().unwrap_or_else(|_| {
            // Whoever reads from it finds out what is wrong with it.
            self.wake.notify_one();
            0
        });
        if was_full || self.len() > 0 || self.overrun.get() || self.ends.get() {
            self.wake.notify_one();
        }
        sent
    }

    /// Adds a reply, and says how many bytes it has.
    pub(super) fn push(&self, answer: &Answer) -> usize {
        if self.overrun.get() {
            return 0;
        }
        let before = self.len();
        let failed = frame::write(answer, FROM_NODE_MAX, &mut self.bytes.borrow_mut()).is_err();
        if failed || self.len() > self.max {
            self.overrun.set(true);
        }
        self.len() - before
    }

    /// A descriptor goes along with the reply that is added next.
    pub(super) fn hand_over(&self, handle: OwnedFd) {
        *self.handed.borrow_mut() = Some((self.bytes.borrow().len(), handle));
    }

    /// What is not sent yet; none if a descriptor has to go along with it.
    pub(super) fn unsent(&self) -> Option<Vec<u8>> {
        let unsent = || self.bytes.borrow()[self.sent.get()..].to_vec();
        self.handed.borrow().is_none().then(unsent)
    }

    /// What could not be sent before comes first.
    pub(super) fn put_back(&self, unsent: Vec<u8>) {
        *self.bytes.borrow_mut() = unsent;
    }

    pub(super) fn greet(&self, version: u32) {
        frame::greet(&mut self.bytes.borrow_mut(), version);
    }

    /// The connection ends when everything is sent.
    pub(super) fn end(&self) {
        self.ends.set(true);
        self.wake.notify_one();
    }

    /// Whether it ends now.
    pub(super) fn has_ended(&self) -> bool {
        self.ends.get() && self.len() == 0
    }

    /// Whether everything that is said and heard so far can be gone on from: the client is not to be
    /// dropped.
    pub(super) fn goes_on(&self) -> bool {
        !self.overrun.get() && !self.ends.get()
    }

    /// Looks again whether its client is listened to.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// How many bytes are not sent yet.
    pub(super) fn len(&self) -> usize {
        self.bytes.borrow().len() - self.sent.get()
    }

    /// Whether the client has left so much unread, or is to be told so much when that is in the log, that
    /// it is not listened to.
    pub(super) fn is_full(&self) -> bool {
        self.len() > UNREAD || self.awaited.get() > AWAITED
    }

    /// A reply waits for the log.
    pub(super) fn await_reply(&self, reply: &Reply) {
        self.awaited.set(self.awaited.get() + weight(reply));
    }

    /// It waits no more.
    pub(super) fn reply_comes(&self, reply: &Reply) {
        let was_full = self.is_full();
        self.awaited.set(self.awaited.get().saturating_sub(weight(reply)));
        if was_full && !self.is_full() {
            self.wake.notify_one();
        }
    }

    /// Since when the client has read nothing of what there is.
    pub(super) fn unread_since(&self) -> Option<Instant> {
        self.unread_since.get()
    }

    /// Whether the client must be dropped.
    pub(super) fn overrun(&self) -> bool {
        self.overrun.get()
    }

    /// The client is to be dropped: what it has not read is forgotten. Returns how much that was.
    pub(super) fn give_up(&self) -> usize {
        let unsent = self.len();
        self.overrun.set(true);
        self.sent.set(0);
        *self.bytes.borrow_mut() = Vec::new();
        *self.handed.borrow_mut() = None;
        self.wake.notify_one();
        unsent
    }

    /// Sends as much as the socket takes, and says how much that was.
    pub(super) fn flush(&self) -> std::io::Result<usize> {
        let stream = self.stream();
        let (mut bytes, mut handed) = (self.bytes.borrow_mut(), self.handed.borrow_mut());
        let before = self.sent.get();
        let mut sent = before;
        while sent < bytes.len() {
            let written = match &*handed {
                Some((place, handle)) if *place == sent => {
                    let written = holdall_holders::send(stream, &bytes[sent..], handle.as_fd());
                    written.inspect(|_| *handed = None)
                }
                Some((place, _)) => stream.write(&bytes[sent..*place]),
                None => stream.write(&bytes[sent..]),
            };
            match written {
                Ok(n) => sent += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.sent.set(sent);
        if sent == bytes.len() {
            self.unread_since.set(None);
        } else if sent > before || self.unread_since.get().is_none() {
            self.unread_since.set(Some(Instant::now()));
        }
        if sent > KEPT && sent > bytes.len() / 2 || sent == bytes.len() {
            bytes.drain(..sent);
            if let Some((place, _)) = &mut *handed {
                *place -= sent;
            }
            bytes.shrink_to(KEPT);
            self.sent.set(0);
        }
        Ok(sent - before)
    }

    /// Whether the end of a round could not send everything.
    pub(super) fn is_stuck(&self) -> bool {
        !self.in_round.get() && self.len() > 0
    }

    /// Waits until it is stuck or no longer full, or the client must be dropped.
    pub(super) async fn stopped(&self) {
        self.wake.notified().await;
    }
}

/// As how many replies one counts: of long ones, only one waits at a time.
fn weight(reply: &Reply) -> usize {
    let is_long = matches!(
        reply,
        Reply::Status { .. } | Reply::Explanation(_) | Reply::Prospects(_) | Reply::History(_)
    );
    if is_long { AWAITED + 1 } else { 1 }
}
