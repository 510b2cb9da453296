//! What the links tell those above, and how it waits for them.
//!
//! A link whose messages do not fit is ended: of what was sent over one, a beginning arrives. Everything else waits for its
//! turn, and there is at most one of it per link, cell or connection, so what waits is bounded. Between `Up` and
//! `Down` of a peer all messages are of one connection, in the order sent.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;

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
    events: mpsc::Sender<Event>,
    budget: Arc<Budget>,
}

/// Where events are taken.
#[derive(Debug)]
pub struct Events {
    events: mpsc::Receiver<Event>,
    budget: Arc<Budget>,
}

/// An inbox for so many events and so many bytes of messages.
pub(crate) fn inbox(frames: usize, bytes: usize) -> (Inbox, Events) {
    let (sender, receiver) = mpsc::channel(frames.max(1));
    let budget = Arc::new(Budget::new(bytes));
    (Inbox { events: sender, budget: budget.clone() }, Events { events: receiver, budget })
}

impl Inbox {
    /// Waits until there is room. Nobody may be above any more; then it is of no use to anybody.
    pub(crate) async fn put(&self, event: Event) {
        drop(self.events.send(event).await);
    }

    /// Whether there was room for a message.
    pub(crate) fn put_message(&self, peer: CellId, bytes: Vec<u8>) -> bool {
        let length = bytes.len();
        if !self.budget.take(length) {
            return false;
        }
        let put = self.events.try_send(Event::Message { peer, bytes }).is_ok();
        if !put {
            self.budget.give_back(length);
        }
        put
    }
}

impl Events {
    /// The next event; none once the links are stopped.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        if let Some(Event::Message { bytes, .. }) = &event {
            self.budget.give_back(bytes.len());
        }
        event
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
        assert!(!inbox.put_message(peer, vec![0; 1]), "too many events");
        assert!(matches!(events.next().await, Some(Event::Message { .. })));
        assert!(inbox.put_message(peer, vec![0; 9]), "all of the room is back");
    }
}
