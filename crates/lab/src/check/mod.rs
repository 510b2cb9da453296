//! The model checker: every interleaving of a small scope.
//!
//! `docs/checking.md` says what exactly is explored and decided.
//!
//! - `scope`: what a person writes on the command line, and prepared sets of it;
//! - `world`: a protocol at work in a scope, as states and their successors;
//! - `search`: numbers all states, and keeps the graph of the steps between them;
//! - `verdict`: what the graph shows, from deadlocks to fair cycles; a violation comes with a trace.

mod scope;
mod search;
mod settings;
mod verdict;
mod world;

use holdall_core::{Protocol, Topology};
use holdall_protocols::Visitor;

pub use self::scope::suite::{Suite, every_assignment};
pub use self::scope::{BadScope, Scope, Script, Then};
pub use self::search::CutOff;
pub use self::search::shift::Shifted;
pub use self::settings::{Detector, Settings, Timers};
pub use self::verdict::locality::{Blocked, Crash, Distance, InStage, Locality, locality};
pub use self::verdict::report::{Outcome, Report, Verdict};
pub use self::verdict::trace::{Trace, TraceStep};
use self::world::World;
use crate::registry::{self, Chosen};

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
    registry::with(&chosen.name, visitor).map_err(|unknown| BadScope(unknown.to_string()))?
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
    Ok(verdict::report::report(chosen, &world, &world, &found))
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
    registry::with(&chosen.name, CompareShifted { chosen, scope, settings })
        .map_err(|unknown| BadScope(unknown.to_string()))?
}

struct CompareShifted<'a> {
    chosen: &'a Chosen,
    scope: &'a Scope,
    settings: &'a Settings,
}

impl Visitor for CompareShifted<'_> {
    type Out = Result<Shifted, BadScope>;

    fn visit<P: Protocol>(self) -> Self::Out {
        let (cfg, settings) = prepare::<P>(self.chosen, self.scope, self.settings)?;
        let settings = Settings { canonical: Some(false), ..settings };
        let bound = settings.overtaking.or_else(|| self.chosen.about.overtaking_bound());
        let world = World::new(cfg, self.scope, &settings, bound);
        let show = |state: &[u32]| world.show_state(state);
        Ok(search::shift::compare(&world, settings.max_states, &show))
    }
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
    if let Some(cell) = settings.reboot
        && scope.users.iter().all(|user| user.cell != cell)
    {
        return Err(BadScope(format!(
            "--reboot {}: no user is in that cell; --homes puts users in cells",
            cell.0
        )));
    }
    let cfg = P::new(
        &Topology { origin: settings.origin, ..scope.topology(&chosen.about) },
        &chosen.options,
    );
    let cfg = cfg.map_err(|why| BadScope(why.to_string()))?;
    if let Some(detector) = settings.detector.filter(|detector| *detector != Detector::None)
        && cfg.managers().is_empty()
    {
        return Err(BadScope(format!(
            "--detector {detector}: {} has no managers that could be told; use --detector none",
            chosen.name
        )));
    }
    let order = Some(settings.order.unwrap_or(chosen.about.assumes.order));
    let nobody_told = settings.crash.is_some() && cfg.managers().is_empty();
    let detector = if nobody_told { Some(Detector::None) } else { settings.detector };
    Ok((cfg, Settings { order, detector, ..settings.clone() }))
}
