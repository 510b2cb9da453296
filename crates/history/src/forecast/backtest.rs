//! How often estimates would have held: each is made from what was known at the time, and compared with what came.

use holdall_core::Needs;
use holdall_sim::{Contender, Error, TracePool, draws};
use rayon::prelude::*;
use serde::Serialize;

use super::{Estimate, Kind, Known, Past, Queue, course_of};
use crate::history::{History, Period, Use};
use crate::replay::{BadChange, Changes, Replay};

/// An estimate, and what came.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Checked {
    /// When it was made, in milliseconds since 1970.
    pub at: u64,
    /// What was expected.
    pub estimate: Estimate,
    /// After how many milliseconds it was granted.
    pub came: u64,
    /// The share of runs in which it was granted earlier; of those in which it was granted at the same time, half. Of
    /// estimates that were given it is not known.
    pub rank: Option<f64>,
}

/// All estimates that were checked.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Backtest {
    /// One for each request that was looked at.
    pub checked: Vec<Checked>,
    /// Of those looked at, the requests that waited when there was nothing to go by.
    pub unknown: usize,
    /// How many requests waited: if they are more, those looked at are evenly spread over them.
    pub waited: usize,
}

impl Backtest {
    fn share(&self, holds: impl Fn(&Checked) -> bool) -> Option<f64> {
        let held = self.checked.iter().filter(|checked| holds(checked)).count();
        (!self.checked.is_empty()).then(|| held as f64 / self.checked.len() as f64)
    }

    /// How often the range for half of the cases held.
    pub fn half(&self) -> Option<f64> {
        self.share(|c| (c.estimate.half.0..=c.estimate.half.1).contains(&c.came))
    }

    /// How often the range for nine of ten cases held.
    pub fn nine(&self) -> Option<f64> {
        self.share(|c| (c.estimate.nine.0..=c.estimate.nine.1).contains(&c.came))
    }

    /// How often the range held that is for this share of the cases.
    pub fn holds(&self, share: f64) -> Option<f64> {
        self.share(|c| c.rank.is_some_and(|rank| (rank - 0.5).abs() <= share / 2.0))
    }

    /// How often it came before the range for nine of ten cases, and after it.
    pub fn outside(&self) -> Option<(f64, f64)> {
        let early = self.share(|c| c.came < c.estimate.nine.0)?;
        Some((early, self.share(|c| c.came > c.estimate.nine.1)?))
    }
}

/// How many estimates are checked at most, how often each is played out, and where chance comes from.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The most requests.
    pub requests: usize,
    /// Runs for each.
    pub runs: u32,
    /// So many requests are played at most, in all runs of all estimates, but for those that come later: of long queues fewer
    /// estimates are checked.
    pub played: usize,
    /// The seed.
    pub seed: u64,
}

/// The estimates that were given, as far as they were recorded, and what came.
pub fn given(history: &History, period: Period) -> Backtest {
    let asked = |one: &&Use| one.asked.is_some_and(|asked| period.has(asked));
    let checked = history.uses.iter().filter(asked).filter_map(|one| {
        let ((at, estimate), granted) = (one.expected?, one.granted?);
        let (came, at) = (granted.checked_sub(at)?, history.wall(at));
        Some(Checked { at, estimate, came, rank: None })
    });
    Backtest { checked: checked.collect(), ..Backtest::default() }
}

/// Looks at requests of a period that had to wait, evenly spread over all of them: what would have been expected when they
/// were made, and what came. The history before the period counts as known. `watch` is told how many of how many were
/// looked at.
///
/// # Errors
/// If the history cannot be played, or not through this protocol.
pub fn backtest(
    history: &History,
    period: Period,
    contender: &Contender,
    effort: Effort,
    watch: &dyn Fn(usize, usize),
) -> Result<Backtest, Failed> {
    // Needs in numbers, of the whole history.
    let replay = Replay::of(history, history.period(None, None), &Changes::default())?;
    let needs = needs_of_uses(history, &replay);
    let pools = &replay.trace.pools;
    let waited = |at: &usize| {
        let one = &history.uses[*at];
        let asked = one.asked.is_some_and(|asked| period.has(asked));
        asked && one.waited().is_some_and(|wait| wait >= SHORTEST) && needs[*at].is_some()
    };
    let candidates: Vec<usize> = (0..history.uses.len()).filter(waited).collect();
    let played = |at: &usize| queue_at(history, &needs, pools, *at).requests.len();
    let chosen = sample(&candidates, played, effort);
    let mut done = Backtest { waited: candidates.len(), ..Backtest::default() };
    let mut known = Sofar::new(history, &needs);
    for (number, at) in chosen.iter().copied().enumerate() {
        watch(number, chosen.len());
        let one = &history.uses[at];
        let Some(came) = one.waited() else { continue };
        let past = known.until(one.first());
        let queue = queue_at(history, &needs, pools, at);
        let seed = effort.seed.wrapping_add(at as u64);
        match expected(&queue, past, one.first(), contender, effort.runs, seed)? {
            Some(runs) => done.checked.extend(checked(history.wall(one.first()), &runs, came)),
            None => done.unknown += 1,
        }
    }
    Ok(done)
}

/// Of these requests as many as can be looked at with such an effort, evenly spread; `played` tells how many are played for one
/// of them.
fn sample(candidates: &[usize], played: impl Fn(&usize) -> usize, effort: Effort) -> Vec<usize> {
    let most = evenly(candidates, effort.requests);
    let all: usize = most.iter().map(played).sum();
    let (all, runs) = (all as u128 * u128::from(effort.runs), most.len() as u128);
    let affordable = effort.played as u128 * runs / all.max(1);
    evenly(candidates, usize::try_from(affordable.max(1)).unwrap_or(usize::MAX).min(most.len()))
}

/// At most so many of them, as far from each other as from the beginning and the end.
fn evenly(all: &[usize], most: usize) -> Vec<usize> {
    let number = most.min(all.len());
    (0..number).map(|n| all[(2 * n + 1) * all.len() / (2 * number)]).collect()
}

/// When the last of a queue is granted, in milliseconds from now, in each of so many runs, in order. They are played
/// on all cores, and are the same on any number of them.
fn expected(
    queue: &Queue,
    past: &Past,
    now: u64,
    contender: &Contender,
    runs: u32,
    seed: u64,
) -> Result<Option<Vec<u64>>, Error> {
    let last = |waiting: &mut Vec<usize>| drop(waiting.drain(..waiting.len().saturating_sub(1)));
    let one = |run| {
        let (in_numbers, draw) = (|needs: &Needs| Some(needs.clone()), &mut draws(seed, run));
        let course = course_of(queue, past, now, in_numbers, draw, last);
        course.map(|course| course.granted(contender)).transpose()
    };
    let times: Vec<Option<Vec<u64>>> =
        (0..runs).into_par_iter().map(one).collect::<Result<_, _>>()?;
    let times: Option<Vec<_>> = times.into_iter().collect();
    Ok(times.map(|times| {
        let mut times: Vec<u64> = times.into_iter().flatten().collect();
        times.sort_unstable();
        times
    }))
}

/// What was known at one time after another.
struct Sofar<'a> {
    history: &'a History,
    needs: &'a [Option<Needs>],
    /// The uses that ended, in this order, and how many of them are known; and of how many it is known that they were asked for.
    ended: Vec<usize>,
    over: usize,
    asked: usize,
    past: Past,
}

impl<'a> Sofar<'a> {
    fn new(history: &'a History, needs: &'a [Option<Needs>]) -> Self {
        let mut ended: Vec<usize> =
            (0..history.uses.len()).filter(|at| history.uses[*at].held().is_some()).collect();
        ended.sort_by_key(|at| history.uses[*at].ended);
        Self { history, needs, ended, over: 0, asked: 0, past: Past::default() }
    }

    /// What was known at this time, which is not before the last.
    fn until(&mut self, now: u64) -> &Past {
        let Self { history, needs, ended, over, asked, past } = self;
        while let Some(one) = ended.get(*over).map(|at| &history.uses[*at])
            && one.ended <= Some(now)
        {
            past.add(&kind(history, one), one.held().unwrap_or(0));
            *over += 1;
        }
        while let Some(one) = history.uses.get(*asked).filter(|one| one.first() < now) {
            if let Some(needs) = &needs[*asked] {
                past.ask(one.first(), needs.clone(), kind(history, one).into());
            }
            *asked += 1;
        }
        past
    }
}

fn checked(at: u64, runs: &[u64], came: u64) -> Option<Checked> {
    let (earlier, until) =
        (runs.partition_point(|time| *time < came), runs.partition_point(|time| *time <= came));
    let rank = Some((earlier + until) as f64 / (2 * runs.len()) as f64);
    Some(Checked { at, estimate: Estimate::of(runs)?, came, rank })
}

/// Who waits less than this, in milliseconds, needs no estimate.
const SHORTEST: u64 = 1000;

/// Why nothing can be checked.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The history cannot be played.
    #[error(transparent)]
    History(#[from] BadChange),
    /// The protocol cannot serve such requests.
    #[error(transparent)]
    Sim(#[from] Error),
}

/// What each request asked for, in numbers, if it can be played.
fn needs_of_uses(history: &History, replay: &Replay) -> Vec<Option<Needs>> {
    let mut needs = vec![None; history.uses.len()];
    for (asked, of) in replay.trace.requests.iter().zip(&replay.of) {
        needs[*of] = Some(asked.needs.clone());
    }
    needs
}

/// What kind of use a request is.
pub(crate) fn kind(history: &History, one: &Use) -> Kind {
    let mut pools: Vec<_> = one.needs.iter().map(|need| history.pool_of(need).0).collect();
    pools.dedup();
    Kind { label: one.name.clone().or_else(|| one.command.clone()), user: one.user.clone(), pools }
}

/// At most so many requests before now are played again, to come to what the protocol remembers.
pub(super) const LEAD_MAX: usize = 500;

/// The queue at the moment at which a request has just been made.
fn queue_at(history: &History, needs: &[Option<Needs>], pools: &[TracePool], last: usize) -> Queue {
    let now = history.uses[last].first();
    let lead = now - lead_begins(history, now, last);
    let mut queue = Queue { pools: pools.to_vec(), lead, requests: Vec::new() };
    for (at, one) in history.uses.iter().enumerate().take(last + 1) {
        let over = one.ended.filter(|ended| *ended <= now);
        let Some(needs) = needs[at].as_ref().filter(|_| over.is_none_or(|o| now - o <= lead))
        else {
            continue;
        };
        let ago = |time: u64| now - time;
        let granted = one.granted.filter(|granted| *granted <= now);
        let since = |end: u64| one.granted.filter(|_| granted.is_some()).map(|from| end - from);
        queue.requests.push(Known {
            needs: needs.clone(),
            kind: kind(history, one),
            asked: ago(one.first()),
            granted: granted.map(ago),
            ended: over.map(ago),
            lasts: one.until.and_then(since),
            limit: one.limit.and_then(since),
        });
    }
    queue
}

/// When the oldest of those who wait now was made; and if others waited then, the oldest of these, and so on.
fn lead_begins(history: &History, now: u64, last: usize) -> u64 {
    let earliest = history.uses[last.saturating_sub(LEAD_MAX)].first();
    let mut begin = now;
    let mut at = last;
    while at > 0 {
        at -= 1;
        let one = &history.uses[at];
        if one.first() < earliest {
            break;
        }
        if one.waits_at(begin) {
            begin = one.first();
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::join::Joiner;

    const MINUTE: u64 = 60_000;

    /// One unit, that is asked for so often at once and used for a minute by one after another, in order; one use was before.
    fn crowd(requests: u64) -> History {
        let mut joiner = Joiner::default();
        let mut line = |at: u64, rest: String| {
            let line = format!("{{\"t\":{at},{rest}}}");
            joiner.add(serde_json::from_str(&line).expect("a line"));
        };
        line(1, r#""k":"pool","pool":"gpu","units":1"#.into());
        for number in 0..=requests {
            let at = if number == 0 { 1 } else { 2 * MINUTE + number };
            line(at, format!(r#""k":"ask","r":"1-{number}","u":"anna","needs":["gpu"]"#));
            if number == 0 {
                line(1, r#""k":"grant","r":"1-0","got":{"gpu":["gpu/0"]}"#.into());
                line(1 + MINUTE, r#""k":"end","r":"1-0","how":"released""#.into());
            }
        }
        for number in 1..=requests {
            let at = (1 + number) * MINUTE + 1;
            line(at, format!(r#""k":"grant","r":"1-{number}","got":{{"gpu":["gpu/0"]}}"#));
            line(at + MINUTE, format!(r#""k":"end","r":"1-{number}","how":"released""#));
        }
        joiner.finish()
    }

    const EFFORT: Effort = Effort { requests: 400, runs: 2, played: usize::MAX, seed: 1 };

    fn looked_at(history: &History, from: u64, effort: Effort) -> (Backtest, Vec<(usize, usize)>) {
        let period = Period { from, ..history.period(None, None) };
        let seen = RefCell::new(Vec::new());
        let watch = |number, of| seen.borrow_mut().push((number, of));
        let done = backtest(history, period, &crate::served(), effort, &watch).expect("played");
        (done, seen.into_inner())
    }

    #[test]
    fn of_many_some_are_looked_at_evenly_chosen_and_it_is_known_that_there_are_more() {
        let history = crowd(30);
        let (all, _) = looked_at(&history, 0, EFFORT);
        assert_eq!((all.checked.len(), all.unknown, all.waited), (29, 0, 29));
        let (some, seen) = looked_at(&history, 0, Effort { requests: 5, ..EFFORT });
        assert_eq!((some.checked.len(), some.waited), (5, 29));
        assert_eq!(seen, [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
        let waited: Vec<u64> = some.checked.iter().map(|checked| checked.came / MINUTE).collect();
        assert_eq!(waited, [2, 8, 14, 20, 26]);
        // Some 17 are played in each of two runs.
        let (some, _) = looked_at(&history, 0, Effort { played: 6 * 17, ..EFFORT });
        assert!((2..=5).contains(&some.checked.len()), "{}", some.checked.len());
        let (one, _) = looked_at(&history, 0, Effort { played: 0, ..EFFORT });
        assert_eq!(one.checked.len(), 1);
    }

    #[test]
    fn nothing_is_known_that_came_later() {
        const DAY: u64 = 24 * 60 * MINUTE;
        let history = crowd(5);
        let replay = Replay::of(&history, history.period(None, None), &Changes::default());
        let needs = needs_of_uses(&history, &replay.expect("a replay"));
        let mut known = Sofar::new(&history, &needs);
        // The third is asked for at this very time.
        let past = known.until(2 * MINUTE + 3);
        assert_eq!((past.added(), past.arrivals(DAY + 1, 1, &mut draws(1, 0)).count()), (1, 3));
        // Now the second ends.
        let past = known.until(4 * MINUTE + 1);
        assert_eq!((past.added(), past.arrivals(DAY + 1, 1, &mut draws(1, 0)).count()), (3, 6));
    }

    #[test]
    fn it_is_looked_at_who_asked_last_however_many_wait() {
        let many = super::super::WAITING_MAX as u64 + 20;
        let history = crowd(many);
        let (done, _) = looked_at(&history, 2 * MINUTE + many, Effort { runs: 1, ..EFFORT });
        let [Checked { estimate, came, .. }] = done.checked[..] else { panic!("one: {done:?}") };
        let away = estimate.nine.0.abs_diff(came);
        assert!(away < MINUTE, "{} or {came}", estimate.nine.0);
    }
}
