//! The model checker: every interleaving of a small scope.
//!
//! `docs/checking.md` says what exactly is explored and decided.
//!
//! - `scope`: what a person writes on the command line, and prepared sets of it;
//! - `world`: a protocol at work in a scope, as states and their successors;
//! - `search`: numbers all states, and keeps the graph of the steps between them;
//! - `verdict`: what the graph shows, from deadlocks to fair cycles; a violation comes with a trace;
//! - `checkpoint`: a search on disk, to be resumed;
//! - `explore`: the same world, step by step by hand;
//! - `record`: the same world, written down;
//! - `chart`: a trace as a message sequence chart, in text and in SVG;
//! - `diagram`: the state graph of a small scope, for Graphviz and in SVG.

mod chart;
mod checkpoint;
mod diagram;
mod explore;
mod record;
mod scope;
mod search;
mod settings;
mod verdict;
mod world;

use holdall_core::Topology;
use holdall_registry::roles::Roles;

use self::checkpoint::Checkpoint;
pub use self::checkpoint::{BadCheckpoint, Saving, saved_search};
pub use self::diagram::{StateGraph, state_graph};
pub use self::explore::{Explorer, explore};
pub use self::record::{Steps, record};
pub use self::scope::suite::{Suite, every_assignment};
pub use self::scope::{BadScope, Scope, Script, Then, Unreadable, Wanted};
pub use self::search::limits::Interrupt;
pub use self::search::shift::Shifted;
pub use self::search::{CutOff, Progress, Watch};
pub use self::settings::{Detector, Settings, Timers};
pub use self::verdict::locality::{Blocked, Crash, Distance, InStage, Locality, locality};
pub use self::verdict::report::{Answer, Asked, Outcome, Report, Verdict};
pub use self::verdict::trace::{Sent, SentKind, StepKind, Trace, TraceStep, Who};
use self::world::World;
use crate::registry::Chosen;

/// Explores a scope. `watch` is told now and then how far it has come.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn check(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    watch: Watch<'_>,
) -> Result<Report, BadScope> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let world = World::of(chosen, roles, scope, &settings);
    let found = search::search(&world, &settings, watch);
    Ok(verdict::report::report(chosen, &world, &world, &found))
}

/// The same, saved to a new file now and then, and at the end if the search was cut off.
///
/// # Errors
/// If the protocol does not serve the scope, or nothing can be saved there.
pub fn check_saving(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    saving: &Saving<'_>,
    watch: Watch<'_>,
) -> Result<Report, BadCheckpoint> {
    check_with(chosen, scope, settings, |line| Checkpoint::create(saving, line), watch)
}

/// Goes on with a search that was saved, and saves it to the same file. The report is that of a search
/// that was never interrupted.
///
/// # Errors
/// If there is no such search in the file, or not of this protocol, scope and program.
pub fn resume(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    saving: &Saving<'_>,
    watch: Watch<'_>,
) -> Result<Report, BadCheckpoint> {
    check_with(chosen, scope, settings, |line| Checkpoint::open(saving, &line), watch)
}

fn check_with<'a>(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    checkpoint: impl FnOnce(String) -> Result<Checkpoint<'a>, BadCheckpoint>,
    watch: Watch<'_>,
) -> Result<Report, BadCheckpoint> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let checkpoint = checkpoint(line(chosen, scope, &settings))?;
    let world = World::of(chosen, roles, scope, &settings);
    let found = search::search_saving(&world, &settings, checkpoint, watch)?;
    Ok(verdict::report::report(chosen, &world, &world, &found))
}

/// What decides the states of a search and their order, as on the command line.
fn line(chosen: &Chosen, scope: &Scope, settings: &Settings) -> String {
    let described = verdict::report::describe(scope, settings, chosen.about.assumes);
    let plain = if settings.canonical == Some(false) { " --plain" } else { "" };
    format!("{} {described}{plain}", chosen.as_typed())
}

/// Takes so many random walks through a scope, which may be too large for [`check`]. What is seen
/// violated is; all else is undecided. The same seed takes the same walks.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn random_walks(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    (walks, seed): (u64, u64),
    watch: Watch<'_>,
) -> Result<Report, BadScope> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let world = World::of(chosen, roles, scope, &settings);
    let seen = search::walk::walk(&world, &settings, (walks, seed), watch);
    Ok(verdict::report::report_walks(chosen, &world, &world, &seen))
}

/// Looks at the states of a scope one by one, as they are, and finds out whether those that differ
/// only by a shift of their stamps behave alike, so that [`check`] may take them for one. At most
/// `settings.max_states` are looked at.
///
/// # Errors
/// If the protocol does not serve the scope.
pub fn compare_shifted(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
) -> Result<Shifted, BadScope> {
    let (roles, settings) = prepare(chosen, scope, settings)?;
    let settings = Settings { canonical: Some(false), ..settings };
    let world = World::of(chosen, roles, scope, &settings);
    let show = |state: &[u32]| world.show_state(state);
    Ok(search::shift::compare(&world, settings.max_states, &show))
}

/// Makes sure that the protocol serves the scope, and fills in what the settings leave open.
fn prepare(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
) -> Result<(Box<dyn Roles>, Settings), BadScope> {
    scope.suits(&chosen.about)?;
    for (option, lane) in [("--crash", settings.crash), ("--suspect", settings.suspect)] {
        if let Some(lane) = lane.filter(|lane| *lane >= scope.users.len()) {
            let last = scope.users.len() - 1;
            return Err(BadScope::Nobody { option, number: lane, what: "user", last });
        }
    }
    if let Some(cell) = settings.reboot
        && scope.users.iter().all(|user| user.cell != cell)
    {
        return Err(BadScope::NoCell(cell));
    }
    if settings.memory.is_some() && search::limits::memory_in_use().is_none() {
        return Err(BadScope::MemoryUnknown);
    }
    let topology = Topology { origin: settings.origin, ..scope.topology(&chosen.about) };
    let roles = chosen.roles(&topology)?;
    if let Some(manager) = settings.crash_manager.filter(|manager| *manager >= roles.managers()) {
        let (option, what) = ("--crash-manager", "manager");
        return Err(match roles.managers().checked_sub(1) {
            None => BadScope::NoManagers { manager, protocol: chosen.name.clone() },
            Some(last) => BadScope::Nobody { option, number: manager, what, last },
        });
    }
    if let Some(detector) = settings.detector.filter(|detector| *detector != Detector::None)
        && roles.managers() == 0
    {
        return Err(BadScope::Detector { detector, protocol: chosen.name.clone() });
    }
    let order = Some(settings.order.unwrap_or(chosen.about.assumes.order));
    let nobody_told = settings.crash.is_some() && roles.managers() == 0;
    let detector = if nobody_told { Some(Detector::None) } else { settings.detector };
    Ok((roles, Settings { order, detector, ..settings.clone() }))
}
