//! What the links tell those above, and how it waits for them.
//!
//! A link whose messages do not fit is ended: of what was sent over one, a beginning arrives. Each peer has room of its own, so
//! nobody is cut off because another one sends too much. Everything else waits for its turn, so what waits is bounded. Between
//! `Up` and `Down` of a peer all messages are of one connection, in the order sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, mpsc};

use crate::bounds::Budget;
use crate::cell::{Cell, CellId};
use crate::client::ClientStream;
use crate::member::Member;
use crate::peer::Way;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// There is a link; its greeting was accepted.
    Up {
        /// With whom.
        peer: Cell,
        /// What those above it said.
        greeting: Vec<u8>,
        /// How something is sent over it.
        way: Way,
    },
    /// The link is gone. What was under way may be lost.
    Down {
        /// With whom.
        peer: Cell,
        /// Why.
        why: String,
    },
    /// Those above a peer do not want this cell. Only a member is heard that was not removed.
    Refused {
        /// By whom.
        peer: CellId,
        /// Why, in its words.
        why: String,
    },
    /// Those above the peer say something.
    Message {
        /// Which peer.
        peer: CellId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Who is or was a member has changed; this is what is known now, and kept on disk.
    Members(Vec<(CellId, Member)>),
    /// Another cell says something else about itself.
    About {
        /// Which.
        cell: CellId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Somebody, perhaps here, said that what a cell holds is forgotten. It is told again at each start: perhaps it was
    /// not heard before.
    Forget {
        /// Which cell.
        cell: CellId,
        /// What was said with it.
        word: Vec<u8>,
    },
    /// A client without an agent, whose token was accepted.
    Client {
        /// The name of the token.
        name: String,
        /// From where.
        from: SocketAddr,
        /// What it says from now on.
        stream: ClientStream,
    },
}

/// Where events are put.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    events: mpsc::UnboundedSender<Event>,
    room: Arc<Room>,
}

/// Where events are taken.
#[derive(Debug)]
pub struct Events {
    events: mpsc::UnboundedReceiver<Event>,
    room: Arc<Room>,
}

/// What may wait: so many messages of each peer, and so many bytes of them; and so many other events.
#[derive(Debug)]
struct Room {
    frames: usize,
    bytes: usize,
    of_peers: Mutex<HashMap<CellId, (Budget, Budget)>>,
    others: Semaphore,
}

impl Room {
    fn take(&self, peer: CellId, length: usize) -> bool {
        self.of(peer, |frames, bytes| {
            let has_room = frames.take(1);
            let fits = has_room && bytes.take(length);
            if has_room && !fits {
                frames.give_back(1);
            }
            fits
        })
    }

    fn give_back(&self, peer: CellId, length: usize) {
        self.of(peer, |frames, bytes| {
            frames.give_back(1);
            bytes.give_back(length);
        });
    }

    fn of<T>(&self, peer: CellId, change: impl FnOnce(&Budget, &Budget) -> T) -> T {
        let mut peers = self.of_peers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || (Budget::new(self.frames), Budget::new(self.bytes));
        let (frames, bytes) = peers.entry(peer).or_insert_with(new);
        change(frames, bytes)
    }
}

/// An inbox for so many messages of each peer, with so many bytes, and as many other events of all together.
pub(crate) fn inbox(frames: usize, bytes: usize) -> (Inbox, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (of_peers, others) = (Mutex::default(), Semaphore::new(frames.max(1)));
    let room = Arc::new(Room { frames, bytes, of_peers, others });
    (Inbox { events: sender, room: room.clone() }, Events { events: receiver, room })
}

impl Inbox {
    /// Waits until there is room. Nobody may be above any more; then it is of no use to anybody.
    pub(crate) async fn put(&self, event: Event) {
        if let Ok(place) = self.room.others.acquire().await {
            place.forget();
            drop(self.events.send(event));
        }
    }

    /// Whether there was room for a message.
    pub(crate) fn put_message(&self, peer: CellId, bytes: Vec<u8>) -> bool {
        self.room.take(peer, bytes.len())
            && self.events.send(Event::Message { peer, bytes }).is_ok()
    }
}

impl Events {
    /// The next event; none once the links are stopped.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await?;
        match &event {
            Event::Message { peer, bytes } => self.room.give_back(*peer, bytes.len()),
            _ => self.room.others.add_permits(1),
        }
        Some(event)
    }
}

impl Drop for Events {
    /// Nobody waits for room that nobody makes.
    fn drop(&mut self) {
        self.room.others.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_that_do_not_fit_are_dropped_and_room_comes_back() {
        let (inbox, mut events) = inbox(2, 10);
        let peer = CellId(1);
        assert!(inbox.put_message(peer, vec![0; 8]));
        assert!(!inbox.put_message(peer, vec![0; 3]), "too many bytes");
        assert!(inbox.put_message(peer, vec![0; 1]));
        assert!(!inbox.put_message(peer, vec![0; 1]), "too many messages");
        assert!(matches!(events.next().await, Some(Event::Message { .. })));
        assert!(inbox.put_message(peer, vec![0; 9]), "all of the room is back");
    }

    #[tokio::test]
    async fn whoever_sends_without_end_takes_no_room_of_others() {
        let (inbox, mut events) = inbox(2, 10);
        let (loud, quiet) = (CellId(1), CellId(2));
        while inbox.put_message(loud, vec![0]) {}
        assert!(inbox.put_message(quiet, vec![0; 10]));
        let down = |cell| {
            let peer = Cell { id: cell, name: "a".parse().expect("a name") };
            Event::Down { peer, why: String::new() }
        };
        inbox.put(down(quiet)).await;
        inbox.put(down(loud)).await;
        let full = inbox.put(down(loud));
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), full).await;
        assert!(waits.is_err(), "what waits is bounded");
        for _ in 0..4 {
            events.next().await.expect("an event");
        }
        inbox.put(down(loud)).await;
        drop(events);
        inbox.put(down(loud)).await;
        inbox.put(down(loud)).await;
    }
}
