//! The smallest number of units with which waits are short enough.

use std::collections::BTreeMap;
use std::str::FromStr;

use holdall_sim::Contender;
use holdall_wire::{Amount, Name, Need, UNITS_MAX};
use serde::Serialize;

use super::{Failed, Stage, Summary};
use crate::history::{History, Period, Use};
use crate::replay::{Changes, Replay};
use crate::words::span;

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
        let limit = holdall_wire::span(right.trim())?.as_millis() as u64;
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
        let limit = match self.limit {
            0 => "0".into(),
            short @ ..1000 => format!("{short}ms"),
            long => span(long),
        };
        write!(f, "{word}({}) {sign} {limit}", self.pool)
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

/// So many numbers below the smallest that is enough are tried, each of them.
const TRIED_BELOW: u32 = 64;

/// The smallest number of units that is enough.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// So many.
    pub units: u32,
    /// What the figure is with them, in milliseconds.
    pub value: f64,
    /// All numbers from this one to what was found were tried, and only the last of them is enough. It is what the largest request wants,
    /// or `TRIED_BELOW` less than what was found.
    pub least: u32,
    /// All numbers that were tried, with what the figure was.
    pub tried: BTreeMap<u32, f64>,
}

/// Searches for the smallest number of units of a pool with which a goal is met, everything else changed as it is said, and not
/// below what the largest request wants.
///
/// Halving finds a number that is enough where the one below is not. But more units may make waits longer: wide requests
/// that fit now make narrow ones wait. So the numbers below it are tried, too, until `TRIED_BELOW` in a row are not enough.
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
    let (largest, all) = search.largest_and_all()?;
    // With so many nobody ever waits for it.
    let most = all.clamp(largest, UNITS_MAX);
    if !search.is_enough(most)? {
        return Err(search.never(most));
    }
    let enough = search.halve(largest, most)?;
    let (units, least) = smaller(largest, enough, &mut |units| search.is_enough(units))?;
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

    /// Not even so many are enough.
    fn never(&self, most: u32) -> Failed {
        let value = self.tried[&most];
        let value = match value.is_finite() {
            true => format!("it is {}", span(value.round() as u64)),
            false => format!("more than {} requests wait at once", self.stage.most_waiting),
        };
        Failed::Never { goal: self.goal.clone(), pool: self.goal.pool.clone(), most, value }
    }

    /// How many units of the pool the largest of the requests that are played wants, whatever there is; and how many all of them, as if
    /// at once.
    fn largest_and_all(&self) -> Result<(u32, u32), Failed> {
        let replay = self.replay(UNITS_MAX)?;
        let wanted = replay.of.iter().map(|of| self.wanted(&self.history.uses[*of]));
        let largest = wanted.max().unwrap_or(1).clamp(1, UNITS_MAX);
        let pool = replay.pools.iter().position(|pool| *pool == self.goal.pool);
        let needs = replay.trace.requests.iter().flat_map(|asked| asked.needs.iter());
        let units =
            needs.filter(|need| Some(need.pool.index()) == pool).map(|need| u64::from(need.units));
        Ok((largest, u32::try_from(units.sum::<u64>()).unwrap_or(u32::MAX)))
    }

    /// How many units of the pool a request wants; of one that wants all there are, any number is enough.
    fn wanted(&self, one: &Use) -> u32 {
        let units = |need: &Need| match need.amount {
            Amount::Units(units) => units,
            Amount::One | Amount::All | Amount::Shared => 1,
        };
        let of_pool =
            one.needs.iter().filter(|need| self.history.pool_of(need).0 == self.goal.pool);
        of_pool.map(units).fold(
            one.units_of(&self.goal.pool) * u32::from(one.needs.is_empty()),
            u32::saturating_add,
        )
    }
}

/// The smallest number that is enough, from one downwards that is; and down to which number all were tried.
pub(super) fn smaller(
    low: u32,
    mut enough: u32,
    is_enough: &mut impl FnMut(u32) -> Result<bool, Failed>,
) -> Result<(u32, u32), Failed> {
    let mut least = enough;
    while least > low && enough - least < TRIED_BELOW {
        least -= 1;
        if is_enough(least)? {
            enough = least;
        }
    }
    Ok((enough, least))
}
