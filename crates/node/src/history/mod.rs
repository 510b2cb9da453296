//! The history that an agent keeps, and what it tells those who wait (`docs/history.md`).
//!
//! The agent's thread hands over what has happened, once that is in the log, and is done with it. A thread of its own writes
//! it down (`writer`) and keeps up with who waits and who holds what; another one, which yields to everybody else, plays on from
//! there (`estimates`). What it comes to is on a board at which the agent's thread only looks.
//!
//! # Invariants
//! - What is written goes as far into the log as its last mark says: no more, and nothing before is missing but for gaps that
//!   are noted. After a crash the rest is made up for from the log ([`Before`]).
//! - Nothing here waits for a disk, or for a lock that is held for long, on the agent's thread, but for [`History::flush`].

mod board;
mod config;
mod estimates;
mod page;
mod turned_away;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdall_core::Length;
use holdall_history::forecast::Live;
use holdall_history::{Keeper, Line, Mark, What as Noted};
use holdall_wire::event::What;
use holdall_wire::{Ask, Outlook, Prospects, RequestNo, Taken, Who, needs_size};
use tracing::{error, info, warn};

use self::board::Board;
pub use self::config::{History as Config, Keep};
use self::estimates::Estimates;
pub(crate) use self::page::page;
use self::turned_away::TurnedAway;
use crate::handoff::{Giver, Item};

/// How often it is told at most how it stands.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Something that has happened.
#[derive(Debug)]
enum Happened {
    /// By a record of the log, at a time by the wall.
    Event(u64, u64, What),
    /// At the door.
    Line(Line),
    /// This is how it stands, at a time by the wall.
    Standing(u64, Vec<(u64, What)>),
    /// Nothing else up to this record of the log.
    Nothing(u64),
}

impl Item for Happened {
    fn size(&self) -> usize {
        let taken = |taken: &[Taken]| {
            taken.iter().map(|taken| 64 + 64 * taken.units.len().min(100)).sum::<usize>()
        };
        256 + match self {
            Self::Event(_, _, What::Asked { ask, who, .. }) => needs_size(&ask.needs) + who.size(),
            Self::Event(_, _, What::Granted { taken: all, .. }) => taken(all),
            Self::Event(..) | Self::Nothing(_) | Self::Standing(..) => 0,
            Self::Line(Line { what: Noted::Ask(ask), .. }) => {
                let texts = [&ask.user, &ask.name, &ask.command].into_iter().flatten();
                needs_size(&ask.needs) + texts.map(String::len).sum::<usize>()
            }
            Self::Line(_) => 0,
        }
    }

    fn must_stay(&self) -> bool {
        // Without the clock, whatever comes after would be at other times.
        matches!(
            self,
            Self::Nothing(_) | Self::Standing(..) | Self::Event(_, _, What::ClockSet { .. })
        )
    }
}

/// What happened before, as far as the log tells and the history does not.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// What is to be made up for, in order.
    pub(crate) events: Vec<(u64, What)>,
    /// How many records are missing before that; 0 if that is not known.
    pub(crate) gap: Option<u64>,
    /// Up to which record that goes.
    pub(crate) upto: u64,
    /// What stands after it.
    pub(crate) standing: Vec<(u64, What)>,
    /// What time it is.
    pub(crate) now: u64,
}

/// A history that is about to be gone on with.
#[derive(Debug)]
pub(crate) struct Kept {
    keeper: Keeper,
    config: Config,
}

impl Kept {
    /// Opens what a data directory has of it, unless none is to be kept, or none can be: an agent serves without it, too.
    pub(crate) fn open(dir: &Path, config: &Config, now: u64) -> Option<Self> {
        match Keeper::open(dir, config.retention()?, now) {
            Ok(keeper) => {
                if let Some((path, version)) = keeper.later() {
                    warn!(
                        "{} is a history of version {version}, which this agent does not know: it stays as it is, and \
                         another file is begun",
                        path.display()
                    );
                }
                Some(Self { keeper, config: config.clone() })
            }
            Err(error) => {
                error!("no history is kept: that in {} cannot be written: {error}", dir.display());
                None
            }
        }
    }

    /// How far it goes.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.keeper.mark()
    }
}

/// Where everything goes that has happened.
pub(crate) struct History {
    giver: Giver<Happened>,
    turned_away: TurnedAway,
    board: Board,
    /// Something was left out, so that nobody knows how it stands; and when that was last told.
    lost_track: Arc<AtomicBool>,
    told: Option<Instant>,
    /// As long as this is there they are made.
    estimates: Estimates,
}

impl History {
    /// Goes on with a history, of this log.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(crate) fn start(
        dir: &Path,
        kept: Kept,
        log: String,
        before: Before,
    ) -> std::io::Result<Self> {
        let Kept { keeper, config } = kept;
        if let Some(gap) = before.gap {
            info!(records = gap, "the history has a gap: the log does not have them any more");
        }
        let (board, lost_track) = (Board::default(), Arc::default());
        let estimates = Estimates::start(Live::new(config.is_anonymous()), board.clone())?;
        let writer = writer::Writer {
            keeper,
            dir: dir.to_owned(),
            log,
            upto: before.upto,
            queue: estimates.queue(),
            lost_track: Arc::clone(&lost_track),
            last: 0,
            lost: 0,
        };
        let giver = Giver::start("history", move |taker| writer.run(&taker, before))?;
        let turned_away = TurnedAway::default();
        Ok(Self { giver, turned_away, board, lost_track, told: None, estimates })
    }

    /// Whether it wants to be told [how it stands](History::stands): not too often, since that takes a while, and whoever
    /// loses track has much to do.
    pub(crate) fn has_lost_track(&self) -> bool {
        self.lost_track.load(Ordering::Relaxed)
            && self.told.is_none_or(|told| told.elapsed() >= TELL_AGAIN)
    }

    /// This is how it stands.
    pub(crate) fn stands(&mut self, now: u64, standing: Vec<(u64, What)>) {
        self.told = Some(Instant::now());
        self.lost_track.store(false, Ordering::Relaxed);
        self.giver.add(Happened::Standing(now, standing));
    }

    /// Something has happened, by a record that is in the log. All that a record leads to is added before any of it is handed
    /// over.
    pub(crate) fn add(&mut self, record: u64, at: u64, what: &What) {
        let matters = match what {
            What::Asked { .. } | What::Granted { .. } | What::Renewed { .. } => true,
            What::Forced { .. } | What::TakenAway { .. } | What::Ended { .. } => true,
            What::Refused { .. } | What::Changed { .. } | What::Pool { .. } => true,
            What::Restored { .. } | What::ClockSet { .. } => true,
            What::Started { .. } | What::Queued { .. } => false,
            What::Runs { .. } | What::Ending { .. } => false,
        };
        if matters {
            self.giver.add(Happened::Event(record, at, what.clone()));
        }
    }

    /// Somebody was turned away at the door.
    pub(crate) fn turn_away(&mut self, at: u64, user: &str, ask: &Ask) {
        for line in self.turned_away.lines(at, user, ask) {
            self.giver.add(Happened::Line(line));
        }
    }

    /// Hands over what has happened.
    pub(crate) fn hand_over(&mut self) {
        self.giver.hand_over();
    }

    /// What has happened up to a record is to be written now: the log is about to forget it.
    pub(crate) fn hurry(&mut self, upto: u64) {
        self.giver.add(Happened::Nothing(upto));
        self.giver.hurry();
    }

    /// So many events are left out.
    #[cfg(test)]
    pub(crate) fn leave_out(&self, events: usize) {
        self.giver.leave_out(events);
    }

    /// Waits until all is written that has happened up to a record.
    pub(crate) fn flush(&mut self, upto: u64) {
        self.turned_away
            .rest()
            .map(Happened::Line)
            .into_iter()
            .for_each(|rest| self.giver.add(rest));
        self.giver.add(Happened::Nothing(upto));
        self.giver.flush();
    }

    /// How long the use will probably take of what somebody asks for.
    pub(crate) fn length(&self, who: &Who, ask: &Ask) -> Option<Length> {
        self.estimates.length(who, ask)
    }

    /// When a request that waits will probably be granted.
    pub(crate) fn outlook(&self, request: RequestNo) -> Outlook {
        self.board.outlook(request)
    }

    /// The same of all of them.
    pub(crate) fn prospects(&self) -> Prospects {
        self.board.prospects()
    }
}
