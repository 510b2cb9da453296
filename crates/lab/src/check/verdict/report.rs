//! From what the search found to verdicts.

use std::fmt;

use holdall_core::{Assumes, Order, Property};
use holdall_registry::questions::Kind;
use serde::Serialize;

use super::for_ever::for_ever;
use super::trace::{Describe, Path, Trace, replay};
use crate::check::search::model::{Breach, Model};
use crate::check::search::{CutOff, Explored};
use crate::check::{Scope, Settings, Timers};
use crate::registry::Chosen;

/// The verdicts of one exploration. The field names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The protocol's name.
    pub protocol: String,
    /// What was explored, as on the command line.
    pub scope: String,
    /// How many states there are (or were seen).
    pub states: usize,
    /// How many steps between them.
    pub transitions: usize,
    /// How many steps the farthest state is away.
    pub depth: usize,
    /// Whether everything was seen.
    pub complete: bool,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<CutOff>,
    /// How far clocks or counters were apart at the end of a search that was cut off, if they went
    /// apart all the way: there may be no end of states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growing_gap: Option<u64>,
    /// What was decided.
    pub properties: Vec<Verdict>,
    /// What was asked besides, and the answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Answer>,
}

/// The answer to a question of one's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The question.
    pub name: &'static str,
    /// Whether something was asked to hold always, or sometime.
    pub kind: Asked,
    /// Whether it does.
    pub verdict: Outcome,
    /// A shortest way to where it does not hold, or does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

/// What a question of one's own is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// Every state.
    Always,
    /// Some state.
    Sometime,
}

/// What was decided of one property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The property.
    pub name: &'static str,
    /// Whether the protocol promises it here.
    pub promised: bool,
    /// Whether it holds.
    pub verdict: Outcome,
    /// The user to whom it was denied, if one in particular.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<usize>,
    /// A shortest way to see it violated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

/// Whether a property holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// In everything there is to see.
    Holds,
    /// Not, as the trace shows.
    Violated,
    /// In everything that was seen, but not everything was.
    Undecided,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Violated => "violated",
            Self::Undecided => "undecided",
        })
    }
}

impl Report {
    /// What was decided of a property.
    pub fn verdict(&self, property: &str) -> Option<Outcome> {
        self.properties.iter().find(|verdict| verdict.name == property).map(|v| v.verdict)
    }

    /// Whether a promise is broken, or something does not hold that was asked to hold always.
    pub fn broken(&self) -> bool {
        let asked = |a: &Answer| a.kind == Asked::Always && a.verdict == Outcome::Violated;
        self.properties.iter().any(|v| v.promised && v.verdict == Outcome::Violated)
            || self.questions.iter().any(asked)
    }
}

/// A violation: of which property, to whom, and by which states (and then, by which cycle).
pub(super) struct Violation {
    pub(super) property: Property,
    pub(super) user: Option<usize>,
    pub(super) path: Vec<u32>,
    pub(super) cycle: Vec<u32>,
    pub(super) what: String,
}

impl Violation {
    fn trace(&self, model: &dyn Model, world: &dyn Describe, found: &Explored) -> Trace {
        let fingerprints =
            |states: &[u32]| states.iter().map(|s| found.fingerprints[*s as usize]).collect();
        let breaks = found.breaches.iter().any(|(_, breach)| breach.property == self.property);
        let path = Path {
            steps: fingerprints(&self.path),
            cycle: fingerprints(&self.cycle),
            breaks: breaks.then_some(self.property),
        };
        replay(model, world, &path, self.what.clone())
    }
}

pub(crate) fn report(
    chosen: &Chosen,
    model: &dyn Model,
    world: &dyn Describe,
    found: &Explored,
) -> Report {
    let mut violations = safety(found);
    violations.extend(at_rest(found));
    let within = within_assumptions(chosen.about.assumes, world.settings());
    let mut promises = chosen.about.promises.clone();
    if world.settings().timers == Timers::Quiet {
        promises.extend(&chosen.about.with_patience);
    }
    let patient = world.settings().timers == Timers::Quiet;
    violations.extend(for_ever(model, &found.graph, patient, &promises));
    let mut properties: Vec<Property> = vec![
        Property::Exclusion,
        Property::AllOrNothing,
        Property::Local,
        Property::NoDeadlock,
        Property::NoResidue,
        Property::NoLivelock,
        Property::NoStarvation,
        Property::Concurrency,
    ];
    // Decided of those alone who promise it: what is stronger is decided of all.
    let narrower = [Property::CurrentConflicts, Property::Independence];
    properties.extend(narrower.into_iter().filter(|property| promises.contains(property)));
    let bound = world.settings().overtaking.or_else(|| chosen.about.overtaking_bound());
    properties.extend(bound.map(Property::BoundedOvertaking));
    // Whoever names a bound demands it.
    promises.extend(world.settings().overtaking.map(Property::BoundedOvertaking));
    let lasting = world.settings().holds_outlast_crash();
    let decide = |property: Property| {
        let violation = violations.iter().find(|v| v.property == property);
        let otherwise = if found.is_complete() { Outcome::Holds } else { Outcome::Undecided };
        Verdict {
            name: property.name(),
            promised: within && promises.contains(&property) && !(lasting && is_progress(property)),
            verdict: violation.map_or(otherwise, |_| Outcome::Violated),
            user: violation.and_then(|v| v.user),
            trace: violation.map(|v| v.trace(model, world, found)),
        }
    };
    Report {
        protocol: chosen.as_typed(),
        scope: describe(world.scope(), world.settings(), chosen.about.assumes),
        states: found.graph.states(),
        transitions: found.graph.transitions(),
        depth: found.depth,
        complete: found.is_complete(),
        cut_off: found.cut_off,
        growing_gap: found.growing_gap(),
        properties: properties.into_iter().map(decide).collect(),
        questions: answers(model, world, found),
    }
}

/// The answers to questions of one's own.
fn answers(model: &dyn Model, world: &dyn Describe, found: &Explored) -> Vec<Answer> {
    let answer = |(number, (name, kind)): (usize, &(&'static str, Kind))| {
        let seen = found.answers.get(&number);
        let (kind, verdict, end) = match (kind, seen) {
            (Kind::Always, Some(_)) => (Asked::Always, Outcome::Violated, "this does not hold"),
            (Kind::Always, None) => (Asked::Always, Outcome::Holds, ""),
            (Kind::Sometime, Some(_)) => (Asked::Sometime, Outcome::Holds, "this holds"),
            (Kind::Sometime, None) => (Asked::Sometime, Outcome::Violated, ""),
        };
        let decided = seen.is_some() || found.is_complete();
        let way = |state: &u32| {
            let steps = found.graph.way_to(*state);
            let steps = steps.iter().map(|state| found.fingerprints[*state as usize]).collect();
            let path = Path { steps, cycle: Vec::new(), breaks: None };
            replay(model, world, &path, format!("{end}: {name}"))
        };
        Answer {
            name,
            kind,
            verdict: if decided { verdict } else { Outcome::Undecided },
            trace: seen.map(way),
        }
    };
    world.questions().iter().enumerate().map(answer).collect()
}

/// The options that say what was explored.
pub(crate) fn describe(scope: &Scope, settings: &Settings, assumes: Assumes) -> String {
    let mut text = scope.to_string();
    if settings.departures {
        text.push_str(" --departures");
    }
    if let Some(lane) = settings.crash {
        text.push_str(&format!(" --crash {lane}"));
    }
    if let Some(manager) = settings.crash_manager {
        text.push_str(&format!(" --crash-manager {manager}"));
    }
    // Of a manager that stops nobody is told.
    if let Some(detector) = settings.detector.filter(|_| settings.crash_manager.is_none()) {
        text.push_str(&format!(" --detector {detector}"));
    }
    if settings.crash_idle {
        text.push_str(" --idle");
    }
    if settings.crash_amid {
        text.push_str(" --amid");
    }
    if let Some(lane) = settings.suspect {
        text.push_str(&format!(" --suspect {lane}"));
    }
    if settings.overlap {
        text.push_str(" --overlap");
    }
    if let Some(cell) = settings.reboot {
        text.push_str(&format!(" --reboot {}", cell.0));
    }
    if settings.timers == Timers::Quiet {
        text.push_str(" --timers quiet");
    }
    if let Some(order) = settings.order.filter(|order| *order != assumes.order) {
        text.push_str(match order {
            Order::Fifo => " --order fifo",
            Order::Unordered => " --order unordered",
        });
    }
    if settings.loss > 0 {
        text.push_str(&format!(" --loss {}", settings.loss));
    }
    if let Some(times) = settings.overtaking {
        text.push_str(&format!(" --overtaking {times}"));
    }
    if settings.keep_stale {
        text.push_str(" --keep-stale");
    }
    if settings.duplicates {
        text.push_str(" --duplicates");
    }
    text
}

/// Nothing is promised where an assumption is not met.
fn within_assumptions(assumes: Assumes, settings: &Settings) -> bool {
    let order = assumes.order == Order::Unordered || settings.order == Some(Order::Fifo);
    let once = !settings.duplicates || !assumes.exactly_once;
    let departures = assumes.departures
        || !settings.departures
            && settings.crash.is_none()
            && settings.suspect.is_none()
            && settings.reboot.is_none();
    let loss = settings.loss == 0 || !assumes.no_loss;
    let suspicions = assumes.suspicions || !settings.suspects();
    order && once && loss && departures && suspicions
}

/// Whether a property is one of progress, which nobody can promise to those who wait for units that
/// a dead user holds and nobody takes back.
fn is_progress(property: Property) -> bool {
    use Property::{
        Concurrency, CurrentConflicts, Independence, NoDeadlock, NoLivelock, NoResidue,
        NoStarvation,
    };
    matches!(
        property,
        Concurrency
            | CurrentConflicts
            | Independence
            | NoDeadlock
            | NoLivelock
            | NoResidue
            | NoStarvation
    )
}

fn safety(found: &Explored) -> Vec<Violation> {
    let violation = |(state, breach): &(u32, Breach)| Violation {
        property: breach.property,
        user: breach.lane,
        path: found.graph.way_to(*state),
        cycle: Vec::new(),
        what: breach.what.clone(),
    };
    found.breaches.iter().map(violation).collect()
}

fn at_rest(found: &Explored) -> Vec<Violation> {
    let at = |state: u32, property: Property, user, what: String| Violation {
        property,
        user,
        path: found.graph.way_to(state),
        cycle: Vec::new(),
        what,
    };
    let mut violations = Vec::new();
    if let Some(state) = found.deadlock {
        let what = "nothing moves any more, and a request is unsatisfied".into();
        violations.push(at(state, Property::NoDeadlock, None, what));
    }
    if let Some(state) = found.residue {
        let what = "all requests are over, but a role still remembers one".into();
        violations.push(at(state, Property::NoResidue, None, what));
    }
    if let Some((&lane, &state)) = found.stuck.iter().min_by_key(|(_, state)| **state) {
        let what = format!("u{lane} waits until somebody ends with whom it shares nothing");
        violations.push(at(state, Property::Concurrency, Some(lane), what));
    }
    violations
}
