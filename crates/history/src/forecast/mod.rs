//! When it is somebody's turn: from the queue as it is and from how long such uses have taken.
//!
//! The rest is played out some hundred times through the very protocol that serves. In each run every use that is under way
//! or still to come takes as long as some use like it took ([`Past`]), one that lasts already longer than
//! that; what ends at a known time ends then. Others come meanwhile as they came on some day before, at the same hour. What a
//! request can expect is the middle half, and the middle nine tenths, of the times at which it is granted ([`Estimate`]).
//!
//! # Invariants
//! - It is a function of its arguments: the same queue, past and seed lead to the same estimates.
//! - Without any use to go by there is no estimate.

mod backtest;
mod live;
mod past;

use holdall_core::{Need, Needs, PoolId};
use holdall_sim::{Asked, Contender, Error, Trace, TracePool, play, trace_settings};
use serde::Serialize;

pub use self::backtest::{Backtest, Checked, Effort, Failed, backtest, given};
pub use self::live::{Live, Outset, Unknown};
pub use self::past::{Kind, Past};
use crate::replay::agent_settings;

/// How often the rest is played out unless told otherwise.
pub const RUNS: u32 = 200;
/// The most who wait that are looked at, from the front.
pub const WAITING_MAX: usize = 500;

/// The queue as it is, and how it came to be: the protocol remembers how long somebody has been waiting. Pools have
/// numbers here.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// The pools.
    pub pools: Vec<TracePool>,
    /// For how many milliseconds before now all requests are known.
    pub lead: u64,
    /// Those that wait or hold now, and those that did since then, in the order of asking.
    pub requests: Vec<Known>,
}

/// What is known of a request. Times are in milliseconds before now.
#[derive(Clone, Debug)]
pub struct Known {
    /// What it needs.
    pub needs: Needs,
    /// What kind of use it is.
    pub kind: Kind,
    /// When it was asked for.
    pub asked: u64,
    /// When it was granted, if it was.
    pub granted: Option<u64>,
    /// When it ended or was given up, if it did.
    pub ended: Option<u64>,
    /// How long it lasts from its grant on, if that is known: it is a reservation. A unit that is drained is held like this.
    pub lasts: Option<u64>,
    /// How long it lasts at most.
    pub limit: Option<u64>,
}

impl Known {
    /// Whether it waits now.
    pub const fn waits(&self) -> bool {
        self.granted.is_none() && self.ended.is_none()
    }

    /// How much longer it lasts, granted so long ago.
    fn rest<N>(&self, past: &Past<N>, age: u64, draw: &mut impl FnMut(u64) -> u64) -> u64 {
        let known = self.lasts.map(|lasts| lasts.saturating_sub(age));
        let rest = known.unwrap_or_else(|| past.rest(&self.kind, age, draw));
        rest.min(self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(age)))
    }

    /// How long it lasts, once it is granted.
    fn length<N>(&self, past: &Past<N>, draw: &mut impl FnMut(u64) -> u64) -> u64 {
        let length = self.lasts.unwrap_or_else(|| past.length(&self.kind, draw));
        length.min(self.limit.unwrap_or(u64::MAX))
    }
}

/// When a request will be granted, in milliseconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// In half of the cases it is granted within this range: a quarter earlier, a quarter later.
    pub half: (u64, u64),
    /// In nine of ten cases.
    pub nine: (u64, u64),
}

impl Estimate {
    /// From times in order. A range leaves out as many at its beginning as at its end: what comes is one more of them, so that
    /// it is within the earliest and the latest of twenty in 19 of 21 cases.
    fn of(times: &[u64]) -> Option<Self> {
        let without = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            Some((*times.get(rank - 1)?, *times.get(times.len() - rank)?))
        };
        Some(Self { half: without(25)?, nine: without(5)? })
    }

    /// Whether it will very probably not be granted within so many milliseconds.
    pub fn is_later_than(&self, millis: u64) -> bool {
        self.nine.0 > millis
    }
}

/// One way in which it may go on.
#[derive(Clone, Debug)]
pub struct Course {
    trace: Trace,
    /// Which of its requests are looked at: of those that wait now some, in the order of the queue. It is played until these
    /// are granted.
    waiting: Vec<usize>,
    lead: u64,
}

impl Course {
    /// Plays it: when those who are looked at are granted, in milliseconds from now.
    fn granted(&self, contender: &Contender) -> Result<Vec<u64>, Error> {
        let settings = trace_settings(&self.trace, &agent_settings());
        let played = play(&settings, contender, &self.trace)?;
        let granted = |at: &usize| played.fates[*at].granted.map(|at| at.saturating_sub(self.lead));
        Ok(self.waiting.iter().map(|at| granted(at).unwrap_or(FAR)).collect())
    }
}

/// When those who are looked at are granted, in each of the courses that were played.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Vec<u64>>);

impl Runs {
    /// Plays one more.
    ///
    /// # Errors
    /// If the protocol cannot serve such requests.
    pub fn play(&mut self, course: &Course, contender: &Contender) -> Result<(), Error> {
        self.0.resize(course.waiting.len(), Vec::new());
        for (times, granted) in self.0.iter_mut().zip(course.granted(contender)?) {
            times.push(granted);
        }
        Ok(())
    }

    /// The times of each, in order.
    fn sorted(&self) -> Vec<Vec<u64>> {
        let mut all = self.0.clone();
        all.iter_mut().for_each(|times| times.sort_unstable());
        all
    }

    /// What those who are looked at can expect as far as was played, in the order of the queue.
    pub fn estimates(&self) -> Vec<Estimate> {
        self.sorted().iter().filter_map(|times| Estimate::of(times)).collect()
    }
}

/// Of what has no end: ten years.
pub const FAR: u64 = 10 * 365 * 24 * 3_600_000;

/// How things went and may go on, from the lead on, for the first [`WAITING_MAX`] who wait. `in_numbers` tells what needs of
/// the past are in those of the queue, if there are such pools. Nothing if nobody waits, or there is no use to go by.
pub fn course<N>(
    queue: &Queue,
    past: &Past<N>,
    now: u64,
    in_numbers: impl Fn(&N) -> Option<Needs>,
    draw: &mut impl FnMut(u64) -> u64,
) -> Option<Course> {
    course_of(queue, past, now, in_numbers, draw, |waiting| waiting.truncate(WAITING_MAX))
}

/// The same for those only that `choose` leaves of those who wait.
fn course_of<N>(
    queue: &Queue,
    past: &Past<N>,
    now: u64,
    in_numbers: impl Fn(&N) -> Option<Needs>,
    draw: &mut impl FnMut(u64) -> u64,
    choose: impl Fn(&mut Vec<usize>),
) -> Option<Course> {
    if past.is_empty() || !queue.requests.iter().any(Known::waits) {
        return None;
    }
    let lead = queue.lead;
    // What was held when the lead began comes first.
    let mut asked: Vec<(u64, bool, Option<usize>, Asked)> = Vec::new();
    for (number, known) in queue.requests.iter().enumerate() {
        let early = known.granted.is_some_and(|granted| granted >= lead);
        let used = known.granted.map(|granted| granted.min(lead));
        let (service, patience) = match (used, known.ended) {
            (Some(used), Some(ended)) => (used.saturating_sub(ended), None),
            (Some(used), None) => {
                let left = known.rest(past, known.granted.unwrap_or(used), draw);
                // What is over now has not been given back yet.
                (used.saturating_add(left.max(1)), None)
            }
            (None, Some(ended)) => (0, Some(known.asked.min(lead).saturating_sub(ended))),
            (None, None) => (known.length(past, draw), None),
        };
        let at = lead.saturating_sub(known.asked);
        let (needs, service) = (known.needs.clone(), service.min(FAR));
        let request = Asked { at, needs, service, patience, user: 0 };
        asked.push((if early { 0 } else { at }, !early, Some(number), request));
    }
    let waiting = queue.requests.iter().filter(|known| known.waits()).count();
    for (after, needs, kind) in past.arrivals(now, waiting, draw) {
        if let Some(needs) = in_numbers(needs).filter(|needs| fits(needs, &queue.pools)) {
            let (at, service) = (lead + after, past.length(kind, draw).min(FAR));
            let request = Asked { at, needs, service, patience: None, user: 0 };
            asked.push((at, true, None, request));
        }
    }
    asked.sort_by_key(|(at, late, ..)| (*at, *late));
    let waits = |number: &Option<usize>| number.is_some_and(|n| queue.requests[n].waits());
    let mut waiting: Vec<usize> = (0..asked.len()).filter(|at| waits(&asked[*at].2)).collect();
    choose(&mut waiting);
    let requests = asked.into_iter().map(|(at, _, _, request)| Asked { at, ..request }).collect();
    let watched = Some(waiting.iter().copied().collect());
    let trace = Trace { pools: queue.pools.clone(), requests, watched };
    Some(Course { trace, waiting, lead })
}

/// Whether there is such a thing at all: pools may have been changed since.
fn fits(needs: &Needs, pools: &[TracePool]) -> bool {
    needs.iter().all(|need| pools.get(need.pool.index()).is_some_and(|p| need.units <= p.capacity))
}

/// A need of a pool by its number.
pub fn need(pool: usize, units: u32) -> Need {
    Need::any(PoolId(pool as u64), units)
}

#[cfg(test)]
mod tests {
    use holdall_sim::draws;

    use super::*;

    const MINUTE: u64 = 60_000;

    fn needs(units: u32) -> Needs {
        Needs::new(vec![need(0, units)]).expect("sensible")
    }

    fn kind(name: &str) -> Kind {
        Kind { label: Some(name.into()), user: None, pools: vec!["gpu".parse().expect("a name")] }
    }

    fn house() -> Contender {
        crate::served()
    }

    fn queue(units: u32, held: Vec<Known>, waiting: usize) -> Queue {
        let one = Known { granted: None, ..self::held(0, None) };
        let pools = vec![TracePool { capacity: units, listed: false }];
        let lead = held.iter().map(|known| known.asked).max().unwrap_or(0);
        Queue { pools, lead, requests: held.into_iter().chain(vec![one; waiting]).collect() }
    }

    fn held(age: u64, left: Option<u64>) -> Known {
        let (asked, granted, lasts) = (age, Some(age), left.map(|left| age + left));
        let kind = kind("job");
        Known { needs: needs(1), kind, asked, granted, ended: None, lasts, limit: None }
    }

    fn ask(queue: &Queue, past: &Past) -> Option<Vec<Estimate>> {
        let mut runs = Runs::default();
        for run in 0..100 {
            let in_numbers = |needs: &Needs| Some(needs.clone());
            let course = course(queue, past, 0, in_numbers, &mut draws(1, run))?;
            runs.play(&course, &house()).expect("played");
        }
        Some(runs.estimates())
    }

    #[test]
    fn a_range_leaves_out_as_many_early_as_late_runs() {
        let estimate = |runs: u64| Estimate::of(&(1..=runs).collect::<Vec<_>>());
        assert_eq!(estimate(0), None);
        assert_eq!(estimate(1), Some(Estimate { half: (1, 1), nine: (1, 1) }));
        assert_eq!(estimate(20), Some(Estimate { half: (5, 16), nine: (1, 20) }));
        assert_eq!(estimate(200), Some(Estimate { half: (50, 151), nine: (10, 191) }));
    }

    #[test]
    fn known_ends_are_used_exactly() {
        let mut past = Past::default();
        past.add(&kind("job"), 5 * MINUTE);
        let all = ask(&queue(1, vec![held(0, Some(7 * MINUTE))], 3), &past).expect("estimates");
        let expected = [7, 12, 17].map(|minutes| minutes * MINUTE);
        for (estimate, expected) in all.iter().zip(expected) {
            assert_eq!(estimate.nine, (expected, expected));
        }
    }

    #[test]
    fn what_lasts_already_is_taken_to_last_longer() {
        let mut past = Past::default();
        (1..=10).for_each(|minutes| past.add(&kind("job"), minutes * MINUTE));
        let all = ask(&queue(1, vec![held(8 * MINUTE, None)], 1), &past).expect("estimates");
        assert_eq!(all[0].nine, (MINUTE, 2 * MINUTE), "9 or 10 minutes in all");
    }

    #[test]
    fn a_limit_is_no_deadline() {
        let mut past = Past::default();
        (1..=9).for_each(|minutes| past.add(&kind("job"), minutes * MINUTE));
        let limited = Known { limit: Some(5 * MINUTE), ..held(0, None) };
        let all = ask(&queue(1, vec![limited], 1), &past).expect("estimates");
        assert_eq!(all[0].nine, (MINUTE, 5 * MINUTE), "most end before it, and all at it");
        // So does what is still to be granted.
        let mut queue = queue(1, vec![held(0, Some(7 * MINUTE))], 2);
        queue.requests[1].limit = Some(3 * MINUTE);
        let mut past = Past::default();
        past.add(&kind("job"), 9 * MINUTE);
        let all = ask(&queue, &past).expect("estimates");
        assert_eq!(all[1].nine, (10 * MINUTE, 10 * MINUTE));
    }

    #[test]
    fn without_a_past_nothing_is_guessed() {
        assert_eq!(ask(&queue(1, vec![held(0, None)], 1), &Past::default()), None);
    }

    #[test]
    fn the_same_leads_to_the_same() {
        let mut past = Past::default();
        (1..=10).for_each(|minutes| past.add(&kind("job"), minutes * MINUTE));
        let queue = queue(2, vec![held(0, None), held(3 * MINUTE, None)], 5);
        let all = ask(&queue, &past).expect("estimates");
        assert_eq!(Some(all.clone()), ask(&queue, &past));
        assert!(all.windows(2).all(|pair| pair[0].half.0 <= pair[1].half.0), "{all:?}");
        assert!(all.iter().all(|e| e.nine.0 <= e.half.0 && e.half.1 <= e.nine.1), "{all:?}");
        assert!(all[4].is_later_than(MINUTE) && !all[0].is_later_than(MINUTE * 10));
    }
}
