//! Replies on their way to one client.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use holdall_wire::Answer;
use holdall_wire::frame::{self, FROM_NODE_MAX};
use tokio::io::Interest;
use tokio::sync::Notify;

/// How much room an outbox keeps when it is empty.
const KEPT: usize = 1 << 14;

/// Bytes to be sent. Whoever reads too slowly for too long is dropped.
pub(super) struct Outbox {
    bytes: RefCell<Vec<u8>>,
    /// How many of them have been sent.
    sent: Cell<usize>,
    /// When the client last read something, or had nothing to read.
    read_at: Cell<Instant>,
    max: usize,
    overrun: Cell<bool>,
    wake: Notify,
    /// A descriptor that goes along with the byte at this place.
    handed: RefCell<Option<(usize, OwnedFd)>>,
}

impl Outbox {
    pub(super) fn new(max: usize) -> Self {
        let (bytes, sent) = (RefCell::new(Vec::new()), Cell::new(0));
        let (read_at, overrun) = (Cell::new(Instant::now()), Cell::new(false));
        let handed = RefCell::default();
        Self { bytes, sent, read_at, max, overrun, wake: Notify::new(), handed }
    }

    /// Adds a reply, and says how many bytes it has.
    pub(super) fn push(&self, answer: &Answer) -> usize {
        if self.overrun.get() {
            return 0;
        }
        let before = self.len();
        if before == 0 {
            self.read_at.set(Instant::now());
        }
        let failed = frame::write(answer, FROM_NODE_MAX, &mut self.bytes.borrow_mut()).is_err();
        if failed || self.len() > self.max {
            self.overrun.set(true);
        }
        self.wake.notify_one();
        self.len() - before
    }

    /// A descriptor goes along with the reply that is added next.
    pub(super) fn hand_over(&self, handle: OwnedFd) {
        *self.handed.borrow_mut() = Some((self.bytes.borrow().len(), handle));
    }

    pub(super) fn greet(&self) {
        frame::greet(&mut self.bytes.borrow_mut());
    }

    /// How many bytes are not sent yet.
    pub(super) fn len(&self) -> usize {
        self.bytes.borrow().len() - self.sent.get()
    }

    /// Since when the client has read nothing of what there is.
    pub(super) fn unread_since(&self) -> Instant {
        self.read_at.get()
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
    pub(super) fn flush(&self, stream: &tokio::net::UnixStream) -> std::io::Result<usize> {
        let (mut bytes, mut handed) = (self.bytes.borrow_mut(), self.handed.borrow_mut());
        let before = self.sent.get();
        let mut sent = before;
        while sent < bytes.len() {
            let written = match &*handed {
                Some((place, handle)) if *place == sent => {
                    let send = || holdall_holders::send(stream, &bytes[sent..], handle.as_fd());
                    stream.try_io(Interest::WRITABLE, send).inspect(|_| *handed = None)
                }
                Some((place, _)) => stream.try_write(&bytes[sent..*place]),
                None => stream.try_write(&bytes[sent..]),
            };
            match written {
                Ok(n) => sent += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.sent.set(sent);
        if sent > before {
            self.read_at.set(Instant::now());
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

    /// Waits for something to send.
    pub(super) async fn filled(&self) {
        self.wake.notified().await;
    }
}
