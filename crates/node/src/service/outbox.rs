//! Replies on their way to one client.

use std::cell::{Cell, RefCell};

use holdall_wire::Answer;
use holdall_wire::frame::{self, FROM_NODE_MAX};
use tokio::sync::Notify;

/// Bytes to be sent. Whoever reads too slowly for too long is dropped.
pub(super) struct Outbox {
    bytes: RefCell<Vec<u8>>,
    max: usize,
    overrun: Cell<bool>,
    wake: Notify,
}

impl Outbox {
    pub(super) fn new(max: usize) -> Self {
        let bytes = RefCell::new(Vec::new());
        Self { bytes, max, overrun: Cell::new(false), wake: Notify::new() }
    }

    pub(super) fn push(&self, answer: &Answer) {
        let mut bytes = self.bytes.borrow_mut();
        let failed = frame::write(answer, FROM_NODE_MAX, &mut bytes).is_err();
        if failed || bytes.len() > self.max {
            self.overrun.set(true);
        }
        self.wake.notify_one();
    }

    pub(super) fn greet(&self) {
        frame::greet(&mut self.bytes.borrow_mut());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.borrow().is_empty()
    }

    /// Whether the client must be dropped.
    pub(super) fn overrun(&self) -> bool {
        self.overrun.get()
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&self, stream: &tokio::net::UnixStream) -> std::io::Result<()> {
        let mut bytes = self.bytes.borrow_mut();
        let mut sent = 0;
        while sent < bytes.len() {
            match stream.try_write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        bytes.drain(..sent);
        Ok(())
    }

    /// Waits for something to send.
    pub(super) async fn filled(&self) {
        self.wake.notified().await;
    }
}
