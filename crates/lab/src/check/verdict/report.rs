//! From what the search found to verdicts.

use std::collections::BTreeMap;
use std::fmt;

use holdall_core::{Assumes, Order, Property};
use holdall_registry::questions::Kind;
use serde::Serialize;

use super::for_ever::{Endless, for_ever};
use super::trace::{Describe, Path, Trace, replay};
use crate::check::search::model::{Breach, Model};
use crate::check::search::walk::{Walked, Way};
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
    /// How many random walks were taken, if that is what was done. A limit may have come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walks: Option<u64>,
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
    /// In everything that was seen, but not everything was; or, if it is about requests that come to
    /// an end, everywhere but in a deadlock, which is reported as that.
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

/// A violation: of which property, to whom, and by which way.
struct Violation {
    property: Property,
    user: Option<usize>,
    path: Path,
    what: String,
}

/// What a search found.
pub(crate) fn report(
    chosen: &Chosen,
    model: &dyn Model,
    world: &dyn Describe,
    found: &Explored,
) -> Report {
    let way = |state: u32| found.way(&found.graph.way_to(state));
    let breaches = found.breaches.iter().map(|(state, breach)| (way(*state), breach));
    let mut violations = safety(breaches);
    let stuck = found.stuck.iter().min_by_key(|(_, state)| **state);
    violations.extend(at_rest(
        found.deadlock.map(way),
        found.residue.map(way),
        stuck.map(|(lane, state)| (*lane, way(*state))),
    ));
    let patient = world.settings().timers == Timers::Quiet;
    let promises = promises(chosen, world.settings());
    let endless = for_ever(model, &found.graph, patient, &promises).into_iter();
    violations.extend(endless.map(|Endless { property, user, path, cycle, what }| {
        let path = Path { steps: found.way(&path), cycle: found.way(&cycle), breaks: None };
        Violation { property, user, path, what }
    }));
    let answers = found.answers.iter().map(|(question, state)| (*question, way(*state))).collect();
    Judge { chosen, model, world, violations, answers, complete: found.is_complete() }.report(
        Seen {
            states: found.graph.states(),
            transitions: found.graph.transitions(),
            depth: found.depth,
            cut_off: found.cut_off,
            walks: None,
            growing_gap: found.growing_gap(),
        },
    )
}

/// What was seen on random walks.
pub(crate) fn report_walks(
    chosen: &Chosen,
    model: &dyn Model,
    world: &dyn Describe,
    seen: &Walked,
) -> Report {
    let mut violations = safety(seen.breaches.iter().map(|(way, breach)| (way.clone(), breach)));
    let stuck = seen.stuck.iter().min_by_key(|(_, way)| way.len());
    violations.extend(at_rest(
        seen.deadlock.clone(),
        seen.residue.clone(),
        stuck.map(|(lane, way)| (*lane, way.clone())),
    ));
    let answers = seen.answers.clone();
    Judge { chosen, model, world, violations, answers, complete: false }.report(Seen {
        states: seen.states,
        transitions: seen.steps,
        depth: seen.longest,
        cut_off: Some(CutOff::RandomWalk),
        walks: Some(seen.walks),
        growing_gap: None,
    })
}

/// How much was seen.
#[derive(Clone, Copy)]
struct Seen {
    states: usize,
    transitions: usize,
    depth: usize,
    cut_off: Option<CutOff>,
    walks: Option<u64>,
    growing_gap: Option<u64>,
}

/// Turns what was found into verdicts.
struct Judge<'a> {
    chosen: &'a Chosen,
    model: &'a dyn Model,
    world: &'a dyn Describe,
    violations: Vec<Violation>,
    /// The ways to the answers of questions.
    answers: BTreeMap<usize, Way>,
    complete: bool,
}

impl Judge<'_> {
    fn report(&self, seen: Seen) -> Report {
        let (chosen, settings) = (self.chosen, self.world.settings());
        let Seen { states, transitions, depth, cut_off, walks, growing_gap } = seen;
        let promises = promises(chosen, settings);
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
        let bound = settings.overtaking.or_else(|| chosen.about.overtaking_bound());
        properties.extend(bound.map(Property::BoundedOvertaking));
        let within = within_assumptions(chosen.about.assumes, settings);
        let lasting = settings.holds_outlast_crash();
        let promised = |property: Property| {
            within && promises.contains(&property) && !(lasting && is_progress(property))
        };
        let decide = |property: Property| self.decide(property, promised(property));
        Report {
            protocol: chosen.as_typed(),
            scope: describe(self.world.scope(), settings, chosen.about.assumes),
            states,
            transitions,
            depth,
            complete: self.complete,
            cut_off,
            walks,
            growing_gap,
            properties: properties.into_iter().map(decide).collect(),
            questions: self.answers(),
        }
    }

    fn decide(&self, property: Property, promised: bool) -> Verdict {
        let violation = self.violations.iter().find(|v| v.property == property);
        let deadlock = self.violations.iter().any(|v| v.property == Property::NoDeadlock);
        let verdict = match violation {
            Some(_) => Outcome::Violated,
            None if !self.complete || deadlock && is_about_requests(property) => Outcome::Undecided,
            None => Outcome::Holds,
        };
        let trace = |v: &Violation| replay(self.model, self.world, &v.path, v.what.clone());
        Verdict {
            name: property.name(),
            promised,
            verdict,
            user: violation.and_then(|v| v.user),
            trace: violation.map(trace),
        }
    }

    /// The answers to questions of one's own.
    fn answers(&self) -> Vec<Answer> {
        let answer = |(number, (name, kind)): (usize, &(&'static str, Kind))| {
            let seen = self.answers.get(&number);
            let (kind, verdict, end) = match (kind, seen) {
                (Kind::Always, Some(_)) => (Asked::Always, Outcome::Violated, "does not hold"),
                (Kind::Always, None) => (Asked::Always, Outcome::Holds, ""),
                (Kind::Sometime, Some(_)) => (Asked::Sometime, Outcome::Holds, "holds"),
                (Kind::Sometime, None) => (Asked::Sometime, Outcome::Violated, ""),
            };
            let trace = |way: &Way| {
                let path = Path { steps: way.clone(), ..Path::default() };
                replay(self.model, self.world, &path, format!("here it {end} that {name}"))
            };
            let decided = seen.is_some() || self.complete;
            let verdict = if decided { verdict } else { Outcome::Undecided };
            Answer { name, kind, verdict, trace: seen.map(trace) }
        };
        self.world.questions().iter().enumerate().map(answer).collect()
    }
}

/// What is promised with these settings.
fn promises(chosen: &Chosen, settings: &Settings) -> Vec<Property> {
    let mut promises = chosen.about.promises.clone();
    if settings.timers == Timers::Quiet {
        promises.extend(&chosen.about.with_patience);
    }
    // Whoever names a bound demands it.
    promises.extend(settings.overtaking.map(Property::BoundedOvertaking));
    promises
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
    if settings.reduce {
        text.push_str(" --reduce");
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

/// Whether a property says that requests come to an end: it cannot be said to hold where some of them
/// stand still.
fn is_about_requests(property: Property) -> bool {
    use Property::{Concurrency, CurrentConflicts, Independence, NoLivelock, NoStarvation};
    matches!(property, Concurrency | CurrentConflicts | Independence | NoLivelock | NoStarvation)
}

fn safety<'a>(breaches: impl Iterator<Item = (Way, &'a Breach)>) -> Vec<Violation> {
    let violation = |(steps, breach): (Way, &Breach)| Violation {
        property: breach.property,
        user: breach.lane,
        path: Path { steps, cycle: Way::new(), breaks: Some(breach.property) },
        what: breach.what.clone(),
    };
    breaches.map(violation).collect()
}

fn at_rest(
    deadlock: Option<Way>,
    residue: Option<Way>,
    stuck: Option<(usize, Way)>,
) -> Vec<Violation> {
    let at = |steps: Way, property: Property, user, what: String| Violation {
        property,
        user,
        path: Path { steps, ..Path::default() },
        what,
    };
    let mut violations = Vec::new();
    if let Some(way) = deadlock {
        let what = "nothing moves any more, and a request is unsatisfied".into();
        violations.push(at(way, Property::NoDeadlock, None, what));
    }
    if let Some(way) = residue {
        let what = "all requests are over, but a role still remembers one".into();
        violations.push(at(way, Property::NoResidue, None, what));
    }
    if let Some((lane, way)) = stuck {
        let what = format!("u{lane} waits until somebody ends with whom it shares nothing");
        violations.push(at(way, Property::Concurrency, Some(lane), what));
    }
    violations
}
