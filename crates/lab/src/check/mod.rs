//! The model checker: every interleaving of a small scope.
//!
//! `docs/checking.md` says what exactly is explored and decided. In short: [`Scope`] is what a
//! person writes on the command line; the world makes states and their successors from it; the
//! search numbers all states; safety is looked at in every step, rest in every state, and fair
//! cycles in the finished graph; a violation is told as a story.

mod fair;
mod graph;
mod locality;
mod machine;
mod moves;
mod parts;
mod print;
mod report;
mod scope;
mod search;
mod seat;
mod stages;
mod steps;
mod story;
mod suite;
mod walker;
mod world;
mod wreck;

use std::fmt;

use holdall_core::{Order, Protocol, Unsupported};
use holdall_protocols::Visitor;
use serde::Serialize;

pub use self::locality::{Blocked, Crash, Distance, InStage, Locality, locality};
pub use self::report::{Outcome, Report, Verdict};
pub use self::scope::{BadScope, Scope, Script, Then};
pub use self::story::{Scene, Story};
pub use self::suite::{Suite, every_assignment};
use self::world::World;
use crate::registry::{self, Chosen};

/// What else may happen in a scope, and how far to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether users may depart at any stage.
    pub departures: bool,
    /// The user that may stop silently at any stage of a request.
    pub crash: Option<usize>,
    /// Whether it may also stop while it has no request under way.
    pub crash_idle: bool,
    /// Whether it may also stop in the middle of a step, when some of its messages have left.
    pub crash_amid: bool,
    /// What the managers are told of it; [`Detector::Departed`] if not said.
    pub detector: Option<Detector>,
    /// The user that may once be taken for dead at any stage although it lives: its claims are
    /// dropped, its lease runs out, and what it held is reclaimed.
    pub suspect: Option<usize>,
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
    /// Give up after this many states.
    pub max_states: usize,
    /// Whether states are the same up to a shift of their stamps. If not said: where somebody
    /// asks for ever, or the protocol may start again for ever, and only there.
    pub canonical: Option<bool>,
    /// How many threads make successors; all cores if not said.
    pub threads: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            departures: false,
            crash: None,
            crash_idle: false,
            crash_amid: false,
            detector: None,
            suspect: None,
            timers: Timers::Any,
            order: None,
            duplicates: false,
            loss: 0,
            overtaking: None,
            keep_stale: false,
            max_states: 10_000_000,
            canonical: None,
            threads: None,
        }
    }
}

impl Settings {
    fn detector(&self) -> Detector {
        self.detector.unwrap_or(Detector::Departed)
    }

    /// Whether managers may be told that somebody is gone who lives, or is heard of later.
    fn suspects(&self) -> bool {
        let crash = self.crash.is_some();
        self.suspect.is_some()
            || crash && matches!(self.detector(), Detector::Reclaim | Detector::Suspect)
    }

    /// Whether nobody takes back what a crashed user held.
    fn holds_outlast_crash(&self) -> bool {
        self.crash.is_some() && matches!(self.detector(), Detector::None | Detector::Suspect)
    }

    fn threads(&self) -> usize {
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

/// Explores a scope. `progress` is told now and then how many states were found.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn check(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Report, BadScope> {
    let visitor = Check { chosen, scope, settings, progress };
    registry::with(&chosen.name, visitor).map_err(|unknown| BadScope(unknown.0))?
}

struct Check<'a> {
    chosen: &'a Chosen,
    scope: &'a Scope,
    settings: &'a Settings,
    progress: &'a (dyn Fn(usize) + Sync),
}

impl Visitor for Check<'_> {
    type Out = Result<Report, BadScope>;

    fn visit<P: Protocol>(self) -> Self::Out {
        check_protocol::<P>(self.chosen, self.scope, self.settings, self.progress)
    }
}

/// Explores a scope with a protocol that need not be in any registry.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn check_protocol<P: Protocol>(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Report, BadScope> {
    let (cfg, settings) = prepare::<P>(chosen, scope, settings)?;
    let bound = settings.overtaking.or_else(|| chosen.about.overtaking_bound());
    let world = World::new(cfg, scope, &settings, bound);
    let found = search::search(&world, settings.max_states, settings.threads(), progress);
    Ok(report::report(chosen, &world, &world, &found))
}

/// Makes sure that the protocol serves the scope, and fills in what the settings leave open.
fn prepare<P: Protocol>(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
) -> Result<(P, Settings), BadScope> {
    scope.suits(&chosen.about)?;
    for (option, lane) in [("--crash", settings.crash), ("--suspect", settings.suspect)] {
        if let Some(lane) = lane.filter(|lane| *lane >= scope.users.len()) {
            let last = scope.users.len() - 1;
            return Err(BadScope(format!("{option} {lane}: the users are 0 to {last}")));
        }
    }
    let cfg = P::new(&scope.topology(&chosen.about), &chosen.options);
    let cfg = cfg.map_err(|Unsupported(why)| BadScope(why))?;
    if let Some(detector) = settings.detector.filter(|detector| *detector != Detector::None)
        && cfg.managers().is_empty()
    {
        return Err(BadScope(format!(
            "--detector {detector}: {} has no managers that could be told; use --detector none",
            chosen.name
        )));
    }
    let order = Some(settings.order.unwrap_or(chosen.about.assumes.order));
    Ok((cfg, Settings { order, ..settings.clone() }))
}
