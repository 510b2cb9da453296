//! Failure locality: how far away a user may be that is blocked for ever because another stopped
//! without a word. `docs/locality.md` says what exactly is measured.

use std::fmt;

use holdall_core::Needs;
use rayon::prelude::*;
use serde::{Serialize, Serializer};

use super::crash::{AfterCrash, Blocking, CrashEffect};
use super::report;
use super::trace::{Describe, Path, Trace, replay};
use crate::check::scope::{BadScope, Scope};
use crate::check::search::model::{Model, StageNumber};
use crate::check::search::{self, Explored, Watch};
use crate::check::world::World;
use crate::check::{Detector, Settings, prepare};
use crate::registry::Chosen;

/// How far a protocol lets a crash be felt. The field names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Locality {
    /// The protocol's name.
    pub protocol: String,
    /// What was explored, as on the command line.
    pub scope: String,
    /// What the managers are told of the crash.
    pub detector: Detector,
    /// The greatest distance of a user that a fair run may never satisfy; 0 if there is none.
    pub locality: Distance,
    /// The greatest distance of a user that may be left without any path; 0 if there is none. At
    /// least that, if not everything was seen.
    pub locality_no_path: Distance,
    /// Whether `locality` is that; otherwise it is at least that, because not everything was seen.
    pub exact: bool,
    /// How many states there are (or were seen), over all crashes.
    pub states: usize,
    /// Whether everything was seen.
    pub complete: bool,
    /// Safety properties that were broken on the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<&'static str>,
    /// The user that crashes, one after another, or the manager.
    pub crashes: Vec<Crash>,
    /// A shortest way to a user that is blocked at the greatest distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<Trace>,
}

/// What the crash of one user, or of one manager, does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// The user, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<usize>,
    /// The manager, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<usize>,
    /// As for all of them.
    pub locality: Distance,
    /// As for all of them.
    pub locality_no_path: Distance,
    /// How many states there are (or were seen).
    pub states: usize,
    /// Whether everything was seen.
    pub complete: bool,
    /// By the stage in which it crashes.
    pub stages: Vec<InStage>,
    /// Users that a fair run may never satisfy even if nobody crashes. They count as blocked by a
    /// crash only where no path is left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starving_anyway: Vec<usize>,
}

/// What a crash in one stage does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InStage {
    /// The stage: where the client stands, and the protocol's word for it if it has one.
    pub stage: String,
    /// Who can be blocked for ever.
    pub blocked: Vec<Blocked>,
}

/// A user that can be blocked for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// The user.
    pub user: usize,
    /// How far it is from the one that crashed.
    pub distance: Distance,
    /// Whether it can come to where no path leads to its satisfaction.
    pub no_path: bool,
    /// Whether a fair run may never satisfy it.
    pub fair_run: bool,
}

/// The length of a shortest way between two users over users that share a pool. From a manager, the
/// users of the pools it guards are one step away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// So many steps.
    Steps(u32),
    /// There is no way.
    Unconnected,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(n) => write!(f, "{n}"),
            Self::Unconnected => f.write_str("unconnected"),
        }
    }
}

impl Serialize for Distance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Steps(n) => serializer.serialize_u32(*n),
            Self::Unconnected => serializer.serialize_str("unconnected"),
        }
    }
}

/// Measures the failure locality of a protocol in a scope: of the crash of the user that the
/// settings name, or of each user in turn. `watch` is told now and then how far the search has
/// come.
///
/// # Errors
/// If the protocol does not serve the scope, or a use in it does not end.
pub fn locality(
    chosen: &Chosen,
    scope: &Scope,
    settings: &Settings,
    watch: Watch<'_>,
) -> Result<Locality, BadScope> {
    if let Some(lane) = scope.users.iter().position(|user| user.endless) {
        return Err(BadScope::Endless(lane));
    }
    let lanes = match settings {
        Settings { crash_manager: Some(_), .. } => vec![None],
        Settings { crash: Some(lane), .. } => vec![Some(*lane)],
        _ => (0..scope.users.len()).map(Some).collect(),
    };
    let measure = |crash: Option<usize>| {
        let crash_amid = crash.is_some();
        let settings = Settings { crash, crash_amid, ..settings.clone() };
        let (roles, settings) = prepare(chosen, scope, &settings)?;
        let managers = roles.managers();
        let world = World::new(roles, scope, &settings, None).with_stages();
        let found = search::search(&world, &settings, watch);
        let names = match crash {
            Some(_) => world.stage_names(&found.graph),
            None => vec![(StageNumber::default(), "at any time".into())],
        };
        let distances = match (crash, settings.crash_manager) {
            (None, Some(manager)) => from_manager(scope, manager, managers),
            (lane, _) => distances(&world.sharing, 1 << lane.unwrap_or_default(), 0),
        };
        Ok(part(&world, &world, &names, &found, &distances))
    };
    let parts = lanes.into_iter().map(measure).collect::<Result<Vec<Part>, BadScope>>()?;
    Ok(whole(chosen, scope, settings, parts))
}

/// What the crash of one user does, and how.
struct Part {
    crash: Crash,
    /// The greatest distance that a user could have.
    farthest: Distance,
    broken: Vec<&'static str>,
    story: Option<Trace>,
}

fn part(
    model: &dyn Model,
    world: &dyn Describe,
    names: &[(StageNumber, String)],
    found: &Explored,
    distances: &[Distance],
) -> Part {
    let Settings { crash: lane, crash_manager, .. } = *world.settings();
    let after_crash = AfterCrash::new(&found.graph);
    let others: Vec<usize> = (0..distances.len()).filter(|other| Some(*other) != lane).collect();
    let effects: Vec<_> =
        others.par_iter().map(|other| (*other, after_crash.effect(*other))).collect();
    let crash_stages = after_crash.crash_stages();
    let names = names.iter().filter(|(number, _)| crash_stages & number.mask() != 0);
    let stages: Vec<InStage> = names
        .map(|(number, stage)| InStage {
            stage: stage.clone(),
            blocked: blocked(*number, &effects, distances),
        })
        .collect();
    let crash = Crash {
        user: lane,
        manager: crash_manager,
        locality: reach(&stages, |blocked| blocked.fair_run),
        locality_no_path: reach(&stages, |blocked| blocked.no_path),
        states: found.graph.states(),
        complete: found.is_complete(),
        starving_anyway: effects.iter().filter(|(_, f)| f.anyway).map(|(user, _)| *user).collect(),
        stages,
    };
    let mut farthest = effects.iter().filter(|(user, effect)| {
        distances[*user] == crash.locality && (effect.no_path != 0 || !effect.anyway)
    });
    let story = farthest.find_map(|(user, effect)| {
        let blocking = effect.first.as_ref()?;
        let stopped = match (lane, crash_manager) {
            (None, Some(manager)) => format!("m{manager}"),
            (lane, _) => format!("u{}", lane.unwrap_or_default()),
        };
        let end = end(*user, &stopped, effect);
        Some(replay(model, world, &path(found, blocking), end))
    });
    Part {
        farthest: others.iter().map(|other| distances[*other]).max().unwrap_or(crash.locality),
        broken: found.breaches.iter().map(|(_, breach)| breach.property.name()).collect(),
        story,
        crash,
    }
}

/// Who can be blocked by a crash in one stage.
fn blocked(
    stage: StageNumber,
    effects: &[(usize, CrashEffect)],
    distances: &[Distance],
) -> Vec<Blocked> {
    let blocked = |(user, effect): &(usize, CrashEffect)| {
        let no_path = effect.no_path & stage.mask() != 0;
        let fair_run = no_path || !effect.anyway && effect.fair_run & stage.mask() != 0;
        fair_run.then(|| Blocked { user: *user, distance: distances[*user], no_path, fair_run })
    };
    effects.iter().filter_map(blocked).collect()
}

/// The greatest distance of those who count.
fn reach(stages: &[InStage], counts: impl Fn(&Blocked) -> bool) -> Distance {
    let blocked = stages.iter().flat_map(|stage| &stage.blocked).filter(|blocked| counts(blocked));
    blocked.map(|blocked| blocked.distance).max().unwrap_or(Distance::Steps(0))
}

/// The distance of every user from a manager. Where there is one for each pool, or several, they are
/// numbered like pools, one row after another; otherwise one guards what everybody needs.
fn from_manager(scope: &Scope, manager: usize, managers: usize) -> Vec<Distance> {
    let pool = managers.is_multiple_of(scope.pools.len()).then(|| manager % scope.pools.len());
    let needs =
        |needs: &Needs| needs.iter().any(|need| pool.is_none_or(|p| need.pool.index() == p));
    let users = scope.users.iter().enumerate();
    let own = users.filter(|(_, user)| user.needs().any(needs));
    distances(&scope.sharing(), own.fold(0, |mask, (lane, _)| mask | 1 << lane), 1)
}

/// The distance of every user from those of a mask, which are so many steps away, given for each the
/// mask of those it shares a pool with.
fn distances(sharing: &[u32], from: u32, first: u32) -> Vec<Distance> {
    let mut distances = vec![Distance::Unconnected; sharing.len()];
    let mut ring = from;
    let mut seen = 0;
    for steps in first.. {
        ring &= !seen;
        if ring == 0 {
            break;
        }
        seen |= ring;
        let members = (0..sharing.len()).filter(|lane| ring >> lane & 1 == 1);
        let next = members.clone().fold(0, |next, lane| next | sharing[lane]);
        members.for_each(|lane| distances[lane] = Distance::Steps(steps));
        ring = next;
    }
    distances
}

fn path(found: &Explored, blocking: &Blocking) -> Path {
    let fingerprints =
        |states: &[u32]| states.iter().map(|s| found.fingerprints[*s as usize]).collect();
    Path {
        steps: fingerprints(&found.graph.way_to(blocking.state)),
        cycle: fingerprints(&blocking.cycle),
        breaks: None,
    }
}

fn end(user: usize, crashed: &str, effect: &CrashEffect) -> String {
    let what = match (&effect.first, effect.no_path) {
        (Some(Blocking { cycle, .. }), 0) if !cycle.is_empty() => {
            "this may repeat for ever, fairly, and never satisfies"
        }
        (_, 0) => "nothing happens by itself any more that would satisfy",
        _ => "whatever happens from here on, nothing satisfies",
    };
    format!("{crashed} has crashed, and {what} u{user}")
}

fn whole(chosen: &Chosen, scope: &Scope, settings: &Settings, parts: Vec<Part>) -> Locality {
    let most = |of: fn(&Part) -> Distance| parts.iter().map(of).max();
    let locality = most(|part| part.crash.locality).unwrap_or(Distance::Steps(0));
    let complete = parts.iter().all(|part| part.crash.complete);
    let mut broken: Vec<_> = parts.iter().flat_map(|part| part.broken.clone()).collect();
    broken.sort_unstable();
    broken.dedup();
    let story = parts.iter().filter(|part| part.crash.locality == locality);
    let story = story.filter_map(|part| part.story.clone()).min_by_key(|story| story.steps.len());
    Locality {
        protocol: chosen.as_typed(),
        scope: report::describe(scope, settings, chosen.about.assumes),
        detector: settings.detector(),
        locality,
        locality_no_path: most(|part| part.crash.locality_no_path).unwrap_or(locality),
        exact: complete || most(|part| part.farthest) == Some(locality),
        states: parts.iter().map(|part| part.crash.states).sum(),
        complete,
        broken,
        story,
        crashes: parts.into_iter().map(|part| part.crash).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_shared_pools() {
        let of = |users: &str, from| {
            let scope = Scope::parse("1,1,1,1", users, None).expect("sensible");
            distances(&scope.sharing(), 1u32 << from, 0)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("0/0+1/1+2/2", 0), ["0", "1", "2", "3"]);
        assert_eq!(of("0+1/1+2/2+3/3+0", 3), ["1", "2", "1", "0"]);
        assert_eq!(of("0/1/1", 0), ["0", "unconnected", "unconnected"]);
        assert!(Distance::Steps(9) < Distance::Unconnected);
    }

    #[test]
    fn the_users_of_a_manager_are_one_step_away() {
        let scope = Scope::parse("1,1,1", "0/0+1/1+2/2", None).expect("sensible");
        let from = |manager, managers| {
            let distances = from_manager(&scope, manager, managers);
            distances.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(from(0, 3), ["1", "1", "2", "3"]);
        assert_eq!(from(5, 6), ["3", "2", "1", "1"], "the second manager of pool 2");
        assert_eq!(from(0, 1), ["1", "1", "1", "1"], "it guards all pools");
    }
}
