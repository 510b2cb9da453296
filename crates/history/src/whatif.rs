//! What would be: recorded requests, played again with something changed, beside the same requests unchanged.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::str::FromStr;

use holdall_sim::{Contender, Error, Fate, Played, Progress, play_told, trace_settings};
use holdall_wire::{Name, UNITS_MAX, span};
use serde::Serialize;

use crate::history::{History, Period};
use crate::replay::{BadChange, Changes, Replay, agent_settings};
use crate::stats::Waits;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The change cannot be made.
    #[error(transparent)]
    Change(#[from] BadChange),
    /// The protocol cannot be played like that, or went wrong.
    #[error(transparent)]
    Sim(#[from] Error),
    /// The protocol granted something twice.
    #[error("{0} broke exclusion {1} times")]
    Broken(String, u64),
    /// Too many wait.
    #[error("{how}: more than {most} requests wait at once, {} hours on: it cannot be served (--most-waiting plays on)", after / 3_600_000)]
    Overloaded {
        /// What was played.
        how: String,
        /// So many may wait.
        most: usize,
        /// After how many milliseconds it was broken off.
        after: u64,
    },
    /// No number of units is enough.
    #[error(
        "{goal} cannot be had with any number of units of '{pool}': {value} with {most}; something else is short"
    )]
    Never {
        /// What was wanted.
        goal: Goal,
        /// Of which pool.
        pool: Name,
        /// The most units that were tried.
        most: u32,
        /// What it is with these.
        value: String,
    },
}

/// Figures of some requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Their waits, in milliseconds.
    pub waits: Waits,
    /// How many were given up.
    pub given_up: usize,
    /// The share of the unit-time that was used; only of a pool.
    pub utilisation: Option<f64>,
}

/// What became of all requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// All of them.
    pub all: Figures,
    /// Those that need something of a pool.
    pub pools: BTreeMap<String, Figures>,
    /// Those of a user; `-` if it is not recorded.
    pub users: BTreeMap<String, Figures>,
    /// All waits.
    #[serde(skip)]
    pub waits: Vec<u64>,
}

/// How near the replay of the unchanged history comes to what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Nearness {
    /// Requests whose wait is known both ways.
    pub requests: usize,
    /// Their mean wait as recorded, in milliseconds.
    pub recorded: f64,
    /// As played.
    pub played: f64,
    /// By how much they differ on average.
    pub difference: f64,
    /// The share that differ by at most a tenth of the wait, or a second.
    pub close: f64,
}

/// Whoever wants to see how far it is: it may take minutes.
pub trait Watch {
    /// So many requests are about to be played, like this.
    fn begins(&self, how: &str, requests: usize);
    /// How far it is.
    fn sees(&self, progress: Progress);
}

/// Nobody.
impl Watch for () {
    fn begins(&self, _: &str, _: usize) {}
    fn sees(&self, _: Progress) {}
}

/// If more wait at once, they cannot be served, unless told otherwise: what comes of the rest takes ever longer to find out.
pub const MOST_WAITING: usize = 10_000;

/// Where requests are played.
pub struct Stage<'a> {
    /// Who looks on.
    pub watch: &'a dyn Watch,
    /// It is broken off when more than so many wait at once.
    pub most_waiting: usize,
}

impl Default for Stage<'_> {
    fn default() -> Self {
        Self { watch: &(), most_waiting: MOST_WAITING }
    }
}

impl Stage<'_> {
    /// Plays requests as an agent would serve them, but through any protocol. `how` says for whoever looks on what is
    /// different.
    ///
    /// # Errors
    /// If the protocol cannot do it, or breaks exclusion, or too many wait at once.
    pub fn play(
        &self,
        replay: &Replay,
        contender: &Contender,
        how: &str,
    ) -> Result<Played, Failed> {
        let settings = trace_settings(&replay.trace, &agent_settings());
        self.watch.begins(how, replay.trace.requests.len());
        let stopped = Cell::new(None);
        let progress = |progress: Progress| {
            self.watch.sees(progress);
            if progress.waiting > self.most_waiting {
                stopped.set(Some(progress.now));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let played = play_told(&settings, contender, &replay.trace, &progress)?;
        if let Some(after) = stopped.get() {
            let (most, how) = (self.most_waiting, how.to_owned());
            return Err(Failed::Overloaded { how, most, after });
        }
        match played.violations {
            0 => Ok(played),
            violations => Err(Failed::Broken(contender.name().into(), violations)),
        }
    }
}

/// Plays requests as an agent would serve them, but through any protocol.
///
/// # Errors
/// As for [`Stage::play`].
pub fn played(replay: &Replay, contender: &Contender) -> Result<Played, Failed> {
    Stage::default().play(replay, contender, "")
}

impl Summary {
    /// Of requests with these fates.
    pub fn of(replay: &Replay, fates: &[Fate]) -> Self {
        let mut groups = Groups::default();
        for (request, fate) in fates.iter().enumerate() {
            let asked = &replay.trace.requests[request];
            let wait = replay.wait(request, fate);
            let given_up =
                replay.counted[request] && fate.granted.is_none() && fate.ended.is_some();
            let user = replay.askers[request].user.as_deref().unwrap_or("-");
            groups.all.add(wait, given_up);
            groups.users.entry(user.into()).or_default().add(wait, given_up);
            let end = fate.ended.unwrap_or(replay.length).min(replay.length);
            let held = fate.granted.map_or(0, |granted| end.saturating_sub(granted));
            for need in asked.needs.iter() {
                let pool = groups.pools.entry(need.pool.index()).or_default();
                pool.add(wait, given_up);
                pool.busy += u128::from(held) * u128::from(need.units);
            }
        }
        let waits = groups.all.waits.clone();
        let of_pool = |(at, group): (usize, Group)| {
            let all = u128::from(replay.trace.pools[at].capacity) * u128::from(replay.length);
            let utilisation = Some(group.busy as f64 / all.max(1) as f64);
            (replay.pools[at].to_string(), Figures { utilisation, ..group.figures() })
        };
        Self {
            all: groups.all.figures(),
            pools: groups.pools.into_iter().map(of_pool).collect(),
            users: groups.users.into_iter().map(|(user, group)| (user, group.figures())).collect(),
            waits,
        }
    }
}

#[derive(Default)]
struct Groups {
    all: Group,
    pools: BTreeMap<usize, Group>,
    users: BTreeMap<String, Group>,
}

#[derive(Default)]
struct Group {
    waits: Vec<u64>,
    given_up: usize,
    /// Units times ticks.
    busy: u128,
}

impl Group {
    fn add(&mut self, wait: Option<u64>, given_up: bool) {
        self.waits.extend(wait);
        self.given_up += usize::from(given_up);
    }

    fn figures(self) -> Figures {
        Figures { waits: Waits::of(self.waits), given_up: self.given_up, utilisation: None }
    }
}

/// How near fates come to what was recorded; nothing if no waits were.
pub fn nearness(replay: &Replay, fates: &[Fate]) -> Option<Nearness> {
    let pair = |(request, fate): (usize, &Fate)| {
        let recorded = replay.recorded[request].as_ref()?;
        Some((replay.wait(request, recorded)?, replay.wait(request, fate)?))
    };
    let pairs: Vec<(u64, u64)> = fates.iter().enumerate().filter_map(pair).collect();
    if pairs.is_empty() {
        return None;
    }
    let mean = |figure: fn(&(u64, u64)) -> u64| {
        pairs.iter().map(|pair| figure(pair) as f64).sum::<f64>() / pairs.len() as f64
    };
    let close =
        |(recorded, played): &&(u64, u64)| recorded.abs_diff(*played) <= (recorded / 10).max(1000);
    Some(Nearness {
        requests: pairs.len(),
        recorded: mean(|pair| pair.0),
        played: mean(|pair| pair.1),
        difference: mean(|pair| pair.0.abs_diff(pair.1)),
        close: pairs.iter().filter(close).count() as f64 / pairs.len() as f64,
    })
}

/// What is wanted of a pool: `p99(gpu) < 10m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    figure: Figure,
    /// The pool.
    pub pool: Name,
    /// Below this, in milliseconds; at most this, if it may be reached.
    limit: u64,
    reached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Mean,
    P50,
    P90,
    P99,
    Max,
}

const FIGURES: [(&str, Figure); 5] = [
    ("mean", Figure::Mean),
    ("p50", Figure::P50),
    ("p90", Figure::P90),
    ("p99", Figure::P99),
    ("max", Figure::Max),
];

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no goal; write it like 'p99(gpu) < 10m', with mean, p50, p90, p99 or max"
            )
        };
        let (left, right) = text.split_once('<').ok_or_else(wrong)?;
        let (reached, right) = match right.strip_prefix('=') {
            Some(right) => (true, right),
            None => (false, right),
        };
        let (figure, rest) = left.trim().split_once('(').ok_or_else(wrong)?;
        let pool = rest.trim().strip_suffix(')').ok_or_else(wrong)?.trim();
        let figure = FIGURES.iter().find(|(word, _)| *word == figure.trim()).ok_or_else(wrong)?.1;
        let pool = pool.parse().map_err(|error| format!("'{text}': {error}"))?;
        let limit = span(right.trim())?;
        Ok(Self { figure, pool, limit: limit.as_millis() as u64, reached })
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = FIGURES.iter().find(|(_, figure)| *figure == self.figure).map_or("", |(w, _)| w);
        let sign = if self.reached { "<=" } else { "<" };
        write!(f, "{word}({}) {sign} {}s", self.pool, self.limit as f64 / 1000.0)
    }
}

impl Goal {
    /// What the figure is, in milliseconds. If nobody waited for the pool it is 0.
    fn value(&self, summary: &Summary) -> f64 {
        let waits = summary.pools.get(self.pool.as_str()).map(|figures| figures.waits);
        let whole = |millis: Option<u64>| millis.map(|millis| millis as f64);
        let value = waits.and_then(|waits| match self.figure {
            Figure::Mean => waits.mean,
            Figure::P50 => whole(waits.p50),
            Figure::P90 => whole(waits.p90),
            Figure::P99 => whole(waits.p99),
            Figure::Max => whole(waits.max),
        });
        value.unwrap_or(0.0)
    }

    fn is_met(&self, value: f64) -> bool {
        let limit = self.limit as f64;
        if self.reached { value <= limit } else { value < limit }
    }
}

/// The smallest number of units that is enough.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// So many.
    pub units: u32,
    /// What the figure is with them, in milliseconds.
    pub value: f64,
    /// All numbers that were tried, with what the figure was.
    pub tried: BTreeMap<u32, f64>,
}

/// Searches for the smallest number of units of a pool with which a goal is met, everything else changed as it is said. It is taken for
/// granted that more units do not make waits longer.
///
/// # Errors
/// If no number is enough, or it cannot be played.
pub fn find(
    history: &History,
    period: Period,
    changes: &Changes,
    contender: &Contender,
    goal: &Goal,
    stage: &Stage<'_>,
) -> Result<Found, Failed> {
    let mut tried = BTreeMap::new();
    let mut attempt = |units: u32| -> Result<f64, Failed> {
        let mut changes = changes.clone();
        changes.units.insert(goal.pool.clone(), units);
        let replay = Replay::of(history, period, &changes)?;
        let how = format!("with {units} units of '{}'", goal.pool);
        let value = match stage.play(&replay, contender, &how) {
            Ok(played) => goal.value(&Summary::of(&replay, &played.fates)),
            // It is not enough, whatever the figure would be in the end.
            Err(Failed::Overloaded { .. }) => f64::INFINITY,
            Err(error) => return Err(error),
        };
        tried.insert(units, value);
        Ok(value)
    };
    // With fewer units than one request wants, requests would have to be cut.
    let largest = history.pools().get(&goal.pool).map_or(1, |pool| pool.most.max(1));
    // With so many nobody ever waits for it.
    let most = most_at_once(history, period, changes, goal)?.clamp(largest, UNITS_MAX);
    let value = attempt(most)?;
    if !goal.is_met(value) {
        let value = match value.is_finite() {
            true => format!("it is {}s", value / 1000.0),
            false => format!("more than {} requests wait at once", stage.most_waiting),
        };
        let (goal, pool) = (goal.clone(), goal.pool.clone());
        return Err(Failed::Never { goal, pool, most, value });
    }
    let (mut low, mut high, mut best) = (largest, most, value);
    while low < high {
        let middle = low + (high - low) / 2;
        let value = attempt(middle)?;
        if goal.is_met(value) {
            (high, best) = (middle, value);
        } else {
            low = middle + 1;
        }
    }
    Ok(Found { units: high, value: best, tried })
}

/// All units of a pool that are ever wanted, as if by all at once.
fn most_at_once(
    history: &History,
    period: Period,
    changes: &Changes,
    goal: &Goal,
) -> Result<u32, Failed> {
    let mut changes = changes.clone();
    changes.units.insert(goal.pool.clone(), UNITS_MAX);
    let replay = Replay::of(history, period, &changes)?;
    let pool = replay.pools.iter().position(|pool| *pool == goal.pool);
    let needs = replay.trace.requests.iter().flat_map(|asked| asked.needs.iter());
    let units =
        needs.filter(|need| Some(need.pool.index()) == pool).map(|need| u64::from(need.units));
    Ok(u32::try_from(units.sum::<u64>()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
