//! One connection to an agent: frames go out, frames come in.
//!
//! Whoever calls writes its frame itself, and only if the socket is full leaves it to the task
//! that also reads; so an uncontended call is one write and one read.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;

use holdall_holders::Stream;
use holdall_wire::frame::{self, Bad, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{Answer, Body, FIRST_QUERY};
use serde::Serialize;
use tokio::sync::Notify;

use crate::at::At;
use crate::locked;

/// As a [`holdall_wire::Call`], whose bytes it has.
#[derive(Serialize)]
struct Call<'a> {
    id: u64,
    body: &'a Body,
}

#[derive(Debug)]
pub(crate) struct Link {
    stream: Stream,
    unsent: Mutex<Vec<u8>>,
    full: Notify,
}

impl Link {
    /// Connects, and greets with what is sent first.
    async fn connect(at: &At, version: u32) -> io::Result<Self> {
        let stream = at.connect().await?;
        let mut unsent = Vec::new();
        frame::greet(&mut unsent, version);
        Ok(Self { stream, unsent: Mutex::new(unsent), full: Notify::new() })
    }

    /// Adds a call to what is sent next.
    pub(crate) fn push(&self, id: u64, body: &Body) -> Result<(), Bad> {
        frame::write(&Call { id, body }, FROM_CLIENT_MAX, &mut locked(&self.unsent))
    }

    /// Sends as much as the socket takes; the rest is left to whoever reads.
    pub(crate) fn flush(&self) {
        if !flush(&self.stream, &mut locked(&self.unsent)) {
            self.full.notify_one();
        }
    }

    /// Both sides learn that it is over.
    pub(crate) fn close(&self) {
        // If it fails, it is over already.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }
}

/// Where frames come in.
#[derive(Debug)]
pub(crate) struct Reader {
    link: Arc<Link>,
    incoming: Incoming,
    /// Something is left to send. Reading goes on meanwhile: an agent that cannot get rid of its replies
    /// takes no calls either.
    stuck: bool,
}

impl Reader {
    fn new(link: Arc<Link>) -> Self {
        Self { link, incoming: Incoming::new(FROM_NODE_MAX), stuck: false }
    }

    /// The version that the agent says.
    async fn version(&mut self) -> io::Result<u32> {
        loop {
            if let Some(content) = self.incoming.next_frame()? {
                return Ok(frame::version(content)?);
            }
            self.fill().await?;
        }
    }

    /// The next answer. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> io::Result<Answer> {
        loop {
            if let Some(content) = self.incoming.next_frame()? {
                return Ok(frame::read(content)?);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        let Self { link, incoming, stuck } = self;
        loop {
            tokio::select! {
                ready = link.stream.readable() => match ready?.read(incoming.buffer())? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(_) => return Ok(()),
                    None => {}
                },
                () = link.full.notified(), if !*stuck => *stuck = true,
                ready = link.stream.writable(), if *stuck => {
                    ready?;
                    *stuck = !flush(&link.stream, &mut locked(&link.unsent));
                }
            }
        }
    }
}

/// Connects, makes some calls at once, and returns which version is spoken. Agents of version 5 hang up on
/// those who greet with another: they are greeted with their own, and not told of sessions and their calls.
pub(crate) async fn greeted(
    at: &At,
    first: &[(u64, Body)],
) -> io::Result<(Arc<Link>, Reader, u32)> {
    let mut version = frame::VERSION;
    loop {
        let link = Arc::new(Link::connect(at, version).await?);
        let mut reader = Reader::new(link.clone());
        let is_known = |id: u64, body: &Body| {
            version == frame::VERSION || (id > FIRST_QUERY && !matches!(body, Body::Attach(_)))
        };
        for (id, body) in first.iter().filter(|(id, body)| is_known(*id, body)) {
            link.push(*id, body)?;
        }
        link.flush();
        let theirs = reader.version().await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => error,
            // An agent that is just ending closes the connection instead of greeting.
            _ => io::Error::new(io::ErrorKind::ConnectionAborted, "it is just ending"),
        })?;
        if !(frame::OLDEST..version).contains(&theirs) {
            return Ok((link, reader, theirs));
        }
        version = theirs;
    }
}

/// Sends as much as the socket takes; false if something is left.
fn flush(stream: &Stream, unsent: &mut Vec<u8>) -> bool {
    while !unsent.is_empty() {
        match stream.write(unsent) {
            Ok(n) => drop(unsent.drain(..n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => unsent.clear(), // The reader notices that the connection is lost.
        }
    }
    true
}
