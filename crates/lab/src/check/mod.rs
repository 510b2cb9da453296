//! The model checker: every interleaving of a small scope.
//!
//! `docs/checking.md` says what exactly is explored and decided. In short: [`Scope`] is what a
//! person writes on the command line; the world makes states and their successors from it; the
//! search numbers all states; safety is looked at in every step, rest in every state, and fair
//! cycles in the finished graph; a violation is told as a story.

mod fair;
mod graph;
mod machine;
mod moves;
mod parts;
mod print;
mod report;
mod scope;
mod search;
mod seat;
mod steps;
mod story;
mod suite;
mod walker;
mod world;

use holdall_core::{Order, Protocol, Unsupported};
use holdall_protocols::Visitor;

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
    /// The user that may stop silently at any stage; a perfect detector then tells the managers.
    pub crash: Option<usize>,
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
    scope.suits(&chosen.about)?;
    for (option, lane) in [("--crash", settings.crash), ("--suspect", settings.suspect)] {
        if let Some(lane) = lane.filter(|lane| *lane >= scope.users.len()) {
            let last = scope.users.len() - 1;
            return Err(BadScope(format!("{option} {lane}: the users are 0 to {last}")));
        }
    }
    let order = Some(settings.order.unwrap_or(chosen.about.assumes.order));
    let settings = Settings { order, ..settings.clone() };
    let cfg = P::new(&scope.topology(&chosen.about), &chosen.options);
    let cfg = cfg.map_err(|Unsupported(why)| BadScope(why))?;
    let bound = settings.overtaking.or_else(|| chosen.about.overtaking_bound());
    let world = World::new(cfg, scope, &settings, bound);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = settings.threads.unwrap_or_else(cores);
    let found = search::search(&world, settings.max_states, threads, progress);
    Ok(report::report(chosen, &world, &world, &found))
}
