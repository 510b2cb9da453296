//! What is known of a peer: whether there is a link, what runs over it, why there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::bounds::Budget;
use crate::cell::CellId;
use crate::config::Config;
use crate::frame::{Frame, MESSAGE_MAX};
use crate::home;

/// What those above can see of a peer.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// Which peer.
    pub id: CellId,
    /// Whether there is a link.
    pub up: bool,
    /// Since when there is one, or none, in milliseconds since 1970.
    pub since: u64,
    /// Why there is none, or why the last attempt failed.
    pub why: Option<String>,
    /// How long the last question took that was answered.
    pub round_trip: Option<Duration>,
    /// Frames sent over all links with it.
    pub frames_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Bytes of them.
    pub bytes_received: u64,
    /// Messages to it that did not fit into the queue.
    pub dropped_out: u64,
    /// Messages from it that nobody above took in time.
    pub dropped_in: u64,
}

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// There is no link.
    #[error("there is no link")]
    Down,
    /// The queue is full; it was dropped.
    #[error("the queue is full")]
    Full,
    /// It is longer than any message may be.
    #[error("a message may have {MESSAGE_MAX} bytes")]
    Long,
}

/// Why a link is ended from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("this cell was removed from the cluster")]
    Expelled,
    #[error("it was removed from the cluster")]
    Removed,
    #[error("another connection took its place")]
    Replaced,
    #[error("{0}")]
    Unwanted(&'static str),
}

/// What has passed over all links with a peer.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) frames_sent: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) frames_received: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) dropped_out: AtomicU64,
    pub(crate) dropped_in: AtomicU64,
    /// In microseconds; 0 if none is known.
    pub(crate) round_trip: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// What waits for a peer. Pings go first, that no amount of news makes a link look dead; then what is about the members.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    pings: mpsc::Sender<Frame>,
    control: mpsc::Sender<Frame>,
    messages: mpsc::Sender<Vec<u8>>,
    budget: Arc<Budget>,
}

/// The way to a peer, over one link and no other. Nothing here waits, nor for a lock.
#[derive(Clone, Debug)]
pub struct Way {
    pub(crate) outbox: Outbox,
    pub(crate) stop: watch::Sender<Option<Stop>>,
    pub(crate) counts: Arc<Counts>,
}

impl Way {
    /// Sends something to the peer. What arrives is a beginning of what was sent over the link, in order and once, as long
    /// as whoever is told that something did not fit ends it.
    ///
    /// # Errors
    /// If it was not even put into the queue.
    pub fn send(&self, bytes: Vec<u8>) -> Result<(), Unsent> {
        if bytes.len() > MESSAGE_MAX {
            return Err(Unsent::Long);
        }
        let sent = self.outbox.send(bytes);
        sent.inspect_err(|_| count(&self.counts.dropped_out, 1))
    }

    /// Ends the link. The peer is told why.
    pub fn end(&self, why: &'static str) {
        self.stop.send_if_modified(|stop| {
            let stands = stop.is_none();
            if stands {
                *stop = Some(Stop::Unwanted(why));
            }
            stands
        });
    }
}

/// The other end of an [`Outbox`].
pub(crate) struct Outgoing {
    pub(crate) pings: mpsc::Receiver<Frame>,
    pub(crate) control: mpsc::Receiver<Frame>,
    pub(crate) messages: mpsc::Receiver<Vec<u8>>,
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    pub(crate) budget: Arc<Budget>,
}

/// How many frames about the members may wait; what is lost of them is compared or asked again.
const CONTROL: usize = 64;
/// How many pings and answers to them.
const PINGS: usize = 16;

pub(crate) fn outbox(config: &Config) -> (Outbox, watch::Sender<Option<Stop>>, Outgoing) {
    let (pings, pings_out) = mpsc::channel(PINGS);
    let (control, control_out) = mpsc::channel(CONTROL);
    let (messages, messages_out) = mpsc::channel(config.queue_frames.max(1));
    let budget = Arc::new(Budget::new(config.queue_bytes));
    let (stop, stop_out) = watch::channel(None);
    let outgoing = Outgoing {
        pings: pings_out,
        control: control_out,
        messages: messages_out,
        stop: stop_out,
        budget: budget.clone(),
    };
    (Outbox { pings, control, messages, budget }, stop, outgoing)
}

impl Outbox {
    /// Says something about the link or the members.
    pub(crate) fn say(&self, frame: Frame) {
        let queue = match frame {
            // Nothing comes before the word that the link stands.
            Frame::Ping(_) | Frame::Pong(_) | Frame::Ready => &self.pings,
            _ => &self.control,
        };
        drop(queue.try_send(frame));
    }

    fn send(&self, bytes: Vec<u8>) -> Result<(), Unsent> {
        let length = bytes.len();
        if !self.budget.take(length) {
            return Err(Unsent::Full);
        }
        self.messages.try_send(bytes).map_err(|unsent| {
            self.budget.give_back(length);
            match unsent {
                mpsc::error::TrySendError::Full(_) => Unsent::Full,
                mpsc::error::TrySendError::Closed(_) => Unsent::Down,
            }
        })
    }
}

/// A link that is up.
#[derive(Debug)]
pub(crate) struct Live {
    /// Who has connected.
    pub(crate) dialer: CellId,
    /// The number that the peer has drawn when it started.
    pub(crate) start: u64,
    pub(crate) since: Instant,
    pub(crate) outbox: Outbox,
    pub(crate) stop: watch::Sender<Option<Stop>>,
}

impl Live {
    /// Whether a new connection takes the place of this link. There is one link between two cells, and both ends
    /// come to the same one:
    ///
    /// - the peer was started anew, or connects again: it knows nothing of this link any more;
    /// - this link has stood longer than connections take to cross each other: whoever connects nevertheless has lost it;
    /// - of two that crossed each other, the one stays that the cell with the smaller id has begun.
    pub(crate) fn gives_way(&self, dialer: CellId, start: u64, handshake: Duration) -> bool {
        let forgotten = start != self.start || dialer == self.dialer;
        forgotten || self.since.elapsed() > handshake || dialer < self.dialer
    }
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) live: Option<Live>,
    pub(crate) counts: Arc<Counts>,
    since: u64,
    why: Option<String>,
}

impl Default for Peer {
    fn default() -> Self {
        Self { live: None, counts: Arc::default(), since: home::now(), why: None }
    }
}

impl Peer {
    pub(crate) fn up(&mut self, live: Live) {
        (self.live, self.since, self.why) = (Some(live), home::now(), None);
    }

    pub(crate) fn down(&mut self, why: String) {
        (self.live, self.since, self.why) = (None, home::now(), Some(why));
    }

    /// It could not be reached.
    pub(crate) fn failed(&mut self, why: String) {
        if self.live.is_none() {
            self.why = Some(why);
        }
    }

    /// The way to it, if there is a link.
    #[cfg(test)]
    pub(crate) fn way(&self) -> Option<Way> {
        let live = self.live.as_ref()?;
        let (outbox, stop, counts) = (live.outbox.clone(), live.stop.clone(), self.counts.clone());
        Some(Way { outbox, stop, counts })
    }

    pub(crate) fn view(&self, id: CellId) -> PeerView {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let round_trip = Duration::from_micros(read(&self.counts.round_trip));
        PeerView {
            id,
            up: self.live.is_some(),
            since: self.since,
            why: self.why.clone(),
            round_trip: Some(round_trip).filter(|it| !it.is_zero()),
            frames_sent: read(&self.counts.frames_sent),
            bytes_sent: read(&self.counts.bytes_sent),
            frames_received: read(&self.counts.frames_received),
            bytes_received: read(&self.counts.bytes_received),
            dropped_out: read(&self.counts.dropped_out),
            dropped_in: read(&self.counts.dropped_in),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn live(dialer: u128, start: u64) -> (Live, Outgoing) {
        let config = Config { queue_frames: 2, queue_bytes: 10, ..Config::default() };
        let (outbox, stop, outgoing) = outbox(&config);
        let since = Instant::now();
        (Live { dialer: CellId(dialer), start, since, outbox, stop }, outgoing)
    }

    #[test]
    fn of_two_crossing_connections_both_ends_keep_the_same() {
        let (small, large) = (CellId(1), CellId(2));
        assert!(!live(1, 5).0.gives_way(large, 5, LONG), "the one of the smaller stays");
        assert!(live(2, 5).0.gives_way(small, 5, LONG), "and takes the other's place");
    }

    #[test]
    fn who_knows_nothing_of_the_link_gets_another() {
        let large = CellId(2);
        assert!(live(1, 5).0.gives_way(large, 6, LONG), "it was started anew");
        assert!(live(2, 5).0.gives_way(large, 5, LONG), "it connects again");
        let (old, _outgoing) = live(1, 5);
        std::thread::sleep(Duration::from_millis(2));
        assert!(old.gives_way(large, 5, Duration::from_millis(1)), "nothing crosses that long");
    }

    #[test]
    fn news_do_not_hold_up_pings() {
        let (live, mut outgoing) = live(1, 5);
        for _ in 0..1000 {
            live.outbox.say(Frame::Told(vec![]));
        }
        live.outbox.say(Frame::Ping(7));
        assert_eq!(outgoing.pings.try_recv(), Ok(Frame::Ping(7)));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let mut peer = Peer::default();
        assert!(peer.way().is_none());
        let (live, mut outgoing) = live(1, 5);
        peer.up(live);
        let way = peer.way().expect("a link");
        assert_eq!(way.send(vec![0; MESSAGE_MAX + 1]), Err(Unsent::Long));
        assert_eq!(way.send(vec![0; 11]), Err(Unsent::Full), "too many bytes");
        assert_eq!(way.send(vec![0; 4]), Ok(()));
        assert_eq!(way.send(vec![0; 4]), Ok(()));
        assert_eq!(way.send(vec![0; 1]), Err(Unsent::Full), "too many messages");
        assert_eq!(peer.view(CellId(1)).dropped_out, 2);
        assert_eq!(outgoing.messages.try_recv(), Ok(vec![0; 4]));
        way.end("enough");
        way.end("more than enough");
        assert_eq!(*outgoing.stop.borrow(), Some(Stop::Unwanted("enough")));
        drop(outgoing);
        assert_eq!(way.send(vec![0]), Err(Unsent::Down), "it leads over that link alone");
    }
}
