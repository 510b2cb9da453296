//! What else may happen in a scope, and how far to search.

use std::fmt;
use std::time::Duration;

use holdall_core::{CellId, Order, Origin};
use serde::Serialize;

use super::search::limits::Interrupt;

/// What else may happen in a scope, and how far to search.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether users may depart at any stage.
    pub departures: bool,
    /// The user that may stop silently at any stage of a request.
    pub crash: Option<usize>,
    /// Whether it may also stop while it has no request under way.
    pub crash_idle: bool,
    /// Whether it may also stop in the middle of a step, when some of its messages have left.
    pub crash_amid: bool,
    /// What the managers are told of it. If not said, [`Detector::Departed`]; where there are no
    /// managers, [`Detector::None`].
    pub detector: Option<Detector>,
    /// The manager that may stop silently at any time and never comes back. Nobody is told.
    pub crash_manager: Option<usize>,
    /// The user that may once be taken for dead at any stage although it lives: its claims are
    /// dropped, its lease runs out, and what it held is reclaimed.
    pub suspect: Option<usize>,
    /// Whether the next user of a lane may begin while its predecessor is still heard of.
    pub overlap: bool,
    /// The cell that may once stop with all its users and come back without its memory.
    pub reboot: Option<CellId>,
    /// When a timer may ring.
    pub timers: Timers,
    /// The order of messages; what the protocol assumes if not said.
    pub order: Option<Order>,
    /// Whether the network may deliver a message twice.
    pub duplicates: bool,
    /// How many messages may be lost, in all.
    pub loss: u32,
    /// Decide whether a settled request is overtaken more often than this, whatever is promised.
    pub overtaking: Option<u32>,
    /// Whether messages are kept that their receivers say they will ignore.
    pub keep_stale: bool,
    /// Whether messages that may as well be received at once are: fewer states, the same verdicts.
    pub reduce: bool,
    /// Give up after this many states.
    pub max_states: usize,
    /// Give up after this long.
    pub time: Option<Duration>,
    /// Give up when the process takes up more than this many bytes.
    pub memory: Option<u64>,
    /// Give up when somebody says so.
    pub interrupt: Interrupt,
    /// Whether states are the same up to a shift of their stamps. If not said: where somebody
    /// asks for ever, or the protocol may start again for ever, and only there.
    pub canonical: Option<bool>,
    /// Where stamps begin; nothing may depend on it.
    pub origin: Origin,
    /// How many threads make successors; all cores if not said.
    pub threads: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            departures: false,
            crash: None,
            crash_manager: None,
            crash_idle: false,
            crash_amid: false,
            detector: None,
            suspect: None,
            overlap: false,
            reboot: None,
            timers: Timers::Any,
            order: None,
            duplicates: false,
            loss: 0,
            overtaking: None,
            keep_stale: false,
            reduce: false,
            max_states: 10_000_000,
            time: None,
            memory: None,
            interrupt: Interrupt::default(),
            canonical: None,
            origin: Origin::default(),
            threads: None,
        }
    }
}

impl Settings {
    pub(crate) fn detector(&self) -> Detector {
        self.detector.unwrap_or(Detector::Departed)
    }

    /// Whether managers may be told that somebody is gone who lives, or is heard of later.
    pub(crate) fn suspects(&self) -> bool {
        let crash = self.crash.is_some();
        self.suspect.is_some()
            || crash && matches!(self.detector(), Detector::Reclaim | Detector::Suspect)
    }

    /// Whether nobody takes back what a crashed user held.
    pub(crate) fn holds_outlast_crash(&self) -> bool {
        self.crash.is_some() && matches!(self.detector(), Detector::None | Detector::Suspect)
    }

    /// Whether messages may be lost or doubled, or wait for each other, so that none of them may as well be
    /// received at once.
    pub(crate) fn is_order_seen(&self) -> bool {
        self.loss > 0 || self.duplicates || self.order == Some(Order::Fifo)
    }

    /// Whether a role may be ended from outside before it has received all it is sent.
    pub(crate) fn has_faults(&self) -> bool {
        self.departures
            || self.crash.is_some()
            || self.crash_manager.is_some()
            || self.suspect.is_some()
            || self.reboot.is_some()
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }
}

/// What every manager is told of a user that stopped silently. Users are told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Detector {
    /// That it has departed, after the last message it sent to that manager.
    Departed,
    /// Nothing, ever.
    None,
    /// That it is suspected, at any time after; and when all know, its lease runs out and they are
    /// told to reclaim what it held. Messages of its may still arrive later.
    Reclaim,
    /// That it is suspected, at any time after. Messages of its may still arrive later.
    Suspect,
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Departed => "departed",
            Self::None => "none",
            Self::Reclaim => "reclaim",
            Self::Suspect => "suspect",
        })
    }
}

/// When a timer may ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timers {
    /// At any time.
    Any,
    /// Only when nothing else can move: no message, and no use that ends.
    Quiet,
}
