//! The smallest number of units with which waits are short enough.

use std::collections::BTreeMap;
use std::str::FromStr;

use holdall_sim::Contender;
use holdall_wire::{Name, UNITS_MAX, span};
use serde::Serialize;

use super::{Failed, Stage, Summary};
use crate::history::{History, Period};
use crate::replay::{Changes, Replay};

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
        let limit = span(right.trim())?.as_millis() as u64;
        if limit == 0 && !reached {
            return Err(format!("'{text}': no wait is below 0; write '<= 0'"));
        }
        Ok(Self { figure, pool, limit, reached })
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

/// So many numbers below one that is enough are tried, each of them.
const TRIED_BELOW: u32 = 64;

/// The smallest number of units that is enough.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// So many.
    pub units: u32,
    /// What the figure is with them, in milliseconds.
    pub value: f64,
    /// The smallest number from which on all have been tried up to this one.
    pub least: u32,
    /// All numbers that were tried, with what the figure was.
    pub tried: BTreeMap<u32, f64>,
}

/// Searches for the smallest number of units of a pool with which a goal is met, everything else changed as it is said, and not
/// below what the largest request wants.
///
/// Halving finds a number that is enough where the one below is not. But more units may make waits longer: wide requests
/// that fit now make narrow ones wait. So all numbers below it are tried, too, up to [`TRIED_BELOW`].
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
    let mut search =
        Search { history, period, changes, contender, goal, stage, tried: BTreeMap::new() };
    // With fewer units than one request wants, requests would have to be cut.
    let largest = history.pools().get(&goal.pool).map_or(1, |pool| pool.most.max(1));
    // With so many nobody ever waits for it.
    let most = search.most_at_once()?.clamp(largest, UNITS_MAX);
    if !search.is_enough(most)? {
        return Err(search.never(most));
    }
    let enough = search.halve(largest, most)?;
    let least = enough.saturating_sub(TRIED_BELOW).max(largest);
    let units = search.first_from(least, enough)?;
    Ok(Found { units, value: search.tried[&units], least, tried: search.tried })
}

struct Search<'a> {
    history: &'a History,
    period: Period,
    changes: &'a Changes,
    contender: &'a Contender,
    goal: &'a Goal,
    stage: &'a Stage<'a>,
    tried: BTreeMap<u32, f64>,
}

impl Search<'_> {
    fn replay(&self, units: u32) -> Result<Replay, Failed> {
        let mut changes = self.changes.clone();
        changes.units.insert(self.goal.pool.clone(), units);
        Ok(Replay::of(self.history, self.period, &changes)?)
    }

    /// Whether the goal is met with so many units.
    fn is_enough(&mut self, units: u32) -> Result<bool, Failed> {
        let value = match self.tried.get(&units) {
            Some(value) => *value,
            None => self.value(units)?,
        };
        self.tried.insert(units, value);
        Ok(self.goal.is_met(value))
    }

    fn value(&self, units: u32) -> Result<f64, Failed> {
        let replay = self.replay(units)?;
        let how = format!("with {units} units of '{}'", self.goal.pool);
        match self.stage.play(&replay, self.contender, &how) {
            Ok(played) => Ok(self.goal.value(&Summary::of(&replay, &played.fates))),
            // It is not enough, whatever the figure would be in the end.
            Err(Failed::Overloaded { .. }) => Ok(f64::INFINITY),
            Err(error) => Err(error),
        }
    }

    /// A number that is enough, and the one below is not; of which the last one is known to be enough.
    fn halve(&mut self, mut low: u32, mut high: u32) -> Result<u32, Failed> {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_enough(middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(high)
    }

    /// The first number that is enough, of which the last one is known to be.
    fn first_from(&mut self, least: u32, enough: u32) -> Result<u32, Failed> {
        for units in least..enough {
            if self.is_enough(units)? {
                return Ok(units);
            }
        }
        Ok(enough)
    }

    /// Not even so many are enough.
    fn never(&self, most: u32) -> Failed {
        let value = self.tried[&most];
        let value = match value.is_finite() {
            true => format!("it is {}s", value / 1000.0),
            false => format!("more than {} requests wait at once", self.stage.most_waiting),
        };
        Failed::Never { goal: self.goal.clone(), pool: self.goal.pool.clone(), most, value }
    }

    /// All units of the pool that are ever wanted, as if by all at once.
    fn most_at_once(&self) -> Result<u32, Failed> {
        let replay = self.replay(UNITS_MAX)?;
        let pool = replay.pools.iter().position(|pool| *pool == self.goal.pool);
        let needs = replay.trace.requests.iter().flat_map(|asked| asked.needs.iter());
        let units =
            needs.filter(|need| Some(need.pool.index()) == pool).map(|need| u64::from(need.units));
        Ok(u32::try_from(units.sum::<u64>()).unwrap_or(u32::MAX))
    }
}
