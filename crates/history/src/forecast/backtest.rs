//! How often estimates would have held: each is made from what was known at the time, and compared with what came.

use holdall_core::Needs;
use holdall_sim::{Contender, Error, TracePool, draws};
use serde::Serialize;

use super::{Estimate, Kind, Known, Past, Queue, Runs, course};
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
    /// Requests that waited when there was nothing to go by.
    pub unknown: usize,
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
    Backtest { checked: checked.collect(), unknown: 0 }
}

/// Looks at requests of a period that had to wait, evenly spread over all of them: what would have been expected when they
/// were made, and what came. The history before the period counts as known.
///
/// # Errors
/// If the history cannot be played, or not through this protocol.
pub fn backtest(
    history: &History,
    period: Period,
    contender: &Contender,
    effort: Effort,
) -> Result<Backtest, Failed> {
    // Needs in numbers, of the whole history.
    let replay = Replay::of(history, history.period(None, None), &Changes::default())?;
    let needs = needs_of_uses(history, &replay);
    let waited = |at: &usize| {
        let one = &history.uses[*at];
        let asked = one.asked.is_some_and(|asked| period.has(asked));
        asked && one.waited().is_some_and(|wait| wait >= SHORTEST) && needs[*at].is_some()
    };
    let candidates: Vec<usize> = (0..history.uses.len()).filter(waited).collect();
    let step = candidates.len().div_ceil(effort.requests.max(1)).max(1);
    let mut ended: Vec<usize> =
        (0..history.uses.len()).filter(|at| history.uses[*at].held().is_some()).collect();
    ended.sort_by_key(|at| history.uses[*at].ended);
    let (mut ended, mut asked) = (ended.into_iter().peekable(), 0);
    let (mut past, mut done) = (Past::default(), Backtest::default());
    for at in candidates.into_iter().step_by(step) {
        let one = &history.uses[at];
        let (Some(now), Some(came)) = (one.asked, one.waited()) else { continue };
        while let Some(over) = ended.next_if(|over| history.uses[*over].ended <= Some(now)) {
            let over = &history.uses[over];
            past.add(&kind(history, over), over.held().unwrap_or(0));
        }
        while let Some(other) = history.uses.get(asked).filter(|other| other.first() < now) {
            if let Some(needs) = &needs[asked] {
                past.ask(other.first(), needs.clone(), kind(history, other).into());
            }
            asked += 1;
        }
        let queue = queue_at(history, &needs, &replay.trace.pools, now, at);
        let seed = effort.seed.wrapping_add(at as u64);
        let mut runs = Runs::default();
        for run in 0..effort.runs {
            let in_numbers = |needs: &Needs| Some(needs.clone());
            match course(&queue, &past, now, in_numbers, &mut draws(seed, run)) {
                Some(course) => runs.play(&course, contender)?,
                None => break,
            }
        }
        match runs.sorted().pop() {
            Some(runs) => done.checked.extend(checked(history.wall(now), &runs, came)),
            None => done.unknown += 1,
        }
    }
    Ok(done)
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

/// The queue at a moment, at which one request has just been made.
fn queue_at(
    history: &History,
    needs: &[Option<Needs>],
    pools: &[TracePool],
    now: u64,
    last: usize,
) -> Queue {
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
