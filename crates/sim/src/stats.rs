//! From what was seen to what is reported.

use std::collections::BTreeMap;

use serde::Serialize;

/// What one protocol did, over all graphs. `docs/simulation.md` says what each figure means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Its name.
    pub protocol: String,
    /// Requests granted.
    pub grants: u64,
    /// Ticks from asking to the grant.
    pub response: Response,
    /// Requests still waiting at the end.
    pub unfinished: u64,
    /// How long the oldest of them had waited, in ticks.
    pub unfinished_longest: Option<u64>,
    /// Messages between machines for each grant.
    pub messages_per_grant: Option<f64>,
    /// The share of unit-time in use.
    pub utilisation: f64,
    /// The mean number of other users whose set shares a pool with a user's.
    pub degree: f64,
    /// The most times a request was overtaken while it waited.
    pub overtaken_max: u64,
    /// Jain's index of the users' grants: 1 if all got the same number.
    pub jain: Option<f64>,
    /// Entries into a pool that had no room.
    pub violations: u64,
    /// Steps of roles.
    pub events: u64,
    /// What the protocol itself counts, by name.
    pub tallies: BTreeMap<&'static str, Tally>,
}

/// Something that a protocol counts, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// How often it happened.
    pub number: u64,
    /// The sizes added up.
    pub sum: u64,
    /// The largest size.
    pub max: u64,
}

/// What a protocol counted in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies(BTreeMap<&'static str, Tally>);

impl Tallies {
    pub(super) fn add(&mut self, what: &'static str, size: u64) {
        self.include(what, Tally { number: 1, sum: size, max: size });
    }

    fn include(&mut self, what: &'static str, more: Tally) {
        let tally = self.0.entry(what).or_default();
        tally.number += more.number;
        tally.sum += more.sum;
        tally.max = tally.max.max(more.max);
    }
}

/// Response times: of requests asked after the warm-up, and granted. Nothing if there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Response {
    /// The mean.
    pub mean: Option<f64>,
    /// Half the width of the mean's 95 % confidence interval.
    pub ci95: Option<f64>,
    /// The mean by Little's law, in which starvation cannot hide: of all waits, however they ended.
    pub little: Option<f64>,
    /// The median.
    pub p50: Option<u64>,
    /// As long as 99 % of them, at most.
    pub p99: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
}

/// Into how many parts a single run is cut for its confidence interval.
const BATCHES: u64 = 10;

/// Response times of one run.
#[derive(Clone, Debug)]
pub(super) struct ResponseTimes {
    /// Requests asked before this are left out.
    from: u64,
    end: u64,
    /// Requests asked after the warm-up and granted: when asked, and how long they waited.
    samples: Vec<(u64, u64)>,
    /// Sum and number of those asked in each tenth of the time.
    batches: [(u128, u64); BATCHES as usize],
    /// How long users waited after the warm-up, added up, whenever and whatever came of it.
    waited: u128,
    /// Waits that ended after the warm-up, with a grant or because the client left or stopped.
    ended: u64,
}

impl ResponseTimes {
    pub(super) fn new(from: u64, end: u64) -> Self {
        let (samples, batches) = Default::default();
        Self { from, end, samples, batches, waited: 0, ended: 0 }
    }

    /// A request was given up before it was granted.
    pub(super) fn give_up(&mut self, asked: u64, now: u64) {
        self.wait(asked, now);
        self.ended += u64::from(now >= self.from);
    }

    /// A request waited until now; it may have to wait on.
    pub(super) fn wait(&mut self, asked: u64, until: u64) {
        self.waited += u128::from(until.saturating_sub(asked.max(self.from)));
    }

    /// A request was granted.
    pub(super) fn add(&mut self, asked: u64, granted: u64) {
        self.wait(asked, granted);
        self.ended += u64::from(granted >= self.from);
        let Some(since) = asked.checked_sub(self.from) else { return };
        self.samples.push((asked, granted - asked));
        let (sum, number) = &mut self.batches[(since * BATCHES / (self.end - self.from)) as usize];
        *sum += u128::from(granted - asked);
        *number += 1;
    }

    fn mean(&self) -> Option<f64> {
        let (sum, number) = self.batches.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        ratio(sum as f64, number)
    }

    /// The mean number of waiting users divided by the waits that end in a tick.
    fn little(&self) -> Option<f64> {
        ratio(self.waited as f64, self.ended)
    }

    fn batch_means(&self) -> Vec<f64> {
        self.batches.iter().filter_map(|(sum, number)| ratio(*sum as f64, *number)).collect()
    }
}

/// What one run showed.
#[derive(Clone, Debug)]
pub(super) struct RunStats {
    pub(super) grants: u64,
    pub(super) times: ResponseTimes,
    pub(super) unfinished: u64,
    pub(super) unfinished_longest: Option<u64>,
    pub(super) messages: u64,
    pub(super) utilisation: f64,
    pub(super) degree: f64,
    pub(super) overtaken_max: u64,
    pub(super) jain: Option<f64>,
    pub(super) violations: u64,
    pub(super) events: u64,
    pub(super) tallies: Tallies,
}

/// Combines the runs of one protocol: counts are added up, the rest is averaged with every graph
/// counting the same.
pub(super) fn report(protocol: &str, runs: &[RunStats]) -> Report {
    let total = |figure: fn(&RunStats) -> u64| runs.iter().map(figure).sum::<u64>();
    let average =
        |figure: fn(&RunStats) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
    let grants = total(|run| run.grants);
    Report {
        protocol: protocol.into(),
        grants,
        response: response(runs),
        unfinished: total(|run| run.unfinished),
        unfinished_longest: runs.iter().filter_map(|run| run.unfinished_longest).max(),
        messages_per_grant: ratio(total(|run| run.messages) as f64, grants),
        utilisation: average(|run| run.utilisation),
        degree: average(|run| run.degree),
        overtaken_max: runs.iter().map(|run| run.overtaken_max).max().unwrap_or(0),
        jain: mean(&runs.iter().filter_map(|run| run.jain).collect::<Vec<_>>()),
        violations: total(|run| run.violations),
        events: total(|run| run.events),
        tallies: tallies(runs).0,
    }
}

fn tallies(runs: &[RunStats]) -> Tallies {
    let mut all = Tallies::default();
    for (what, tally) in runs.iter().flat_map(|run| &run.tallies.0) {
        all.include(what, *tally);
    }
    all
}

fn response(runs: &[RunStats]) -> Response {
    let means: Vec<f64> = runs.iter().filter_map(|run| run.times.mean()).collect();
    let ci95 = match runs {
        [one] => half_width(&one.times.batch_means()),
        _ => half_width(&means),
    };
    let samples = runs.iter().flat_map(|run| &run.times.samples);
    let mut times: Vec<u64> = samples.map(|(_, time)| *time).collect();
    times.sort_unstable();
    let little: Vec<f64> = runs.iter().filter_map(|run| run.times.little()).collect();
    Response {
        mean: mean(&means),
        ci95,
        little: mean(&little),
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        max: times.last().copied(),
    }
}

/// One request that was asked after the warm-up, and granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// In which run, counted from 0.
    pub graph: u32,
    /// When it was asked for.
    pub asked: u64,
    /// How long it waited, in ticks.
    pub response: u64,
}

/// All such requests, in the order in which they were granted.
pub(super) fn samples(runs: &[RunStats]) -> Vec<Sample> {
    let mut all = Vec::with_capacity(runs.iter().map(|run| run.times.samples.len()).sum());
    for (graph, run) in (0..).zip(runs) {
        let sample = |(asked, response): &(u64, u64)| {
            let (asked, response) = (*asked, *response);
            Sample { graph, asked, response }
        };
        all.extend(run.times.samples.iter().map(sample));
    }
    all
}

/// The smallest time that so many percent do not exceed, of times in order.
fn percentile(times: &[u64], percent: usize) -> Option<u64> {
    let wanted = (times.len() * percent).div_ceil(100);
    times.get(wanted.checked_sub(1)?).copied()
}

/// Jain's index of fairness.
pub(super) fn jain(shares: impl Iterator<Item = u64> + Clone) -> Option<f64> {
    let sum: f64 = shares.clone().map(|share| share as f64).sum();
    let squares: f64 = shares.clone().map(|share| (share as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (shares.count() as f64 * squares))
}

/// The mean of samples, if there are any.
pub fn mean(samples: &[f64]) -> Option<f64> {
    ratio(samples.iter().sum(), samples.len() as u64)
}

fn ratio(sum: f64, number: u64) -> Option<f64> {
    (number > 0).then(|| sum / number as f64)
}

/// Half the width of the 95 % confidence interval of the mean of independent samples.
pub fn half_width(samples: &[f64]) -> Option<f64> {
    let mean = mean(samples)?;
    let freedom = samples.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let error = (squares / freedom as f64 / samples.len() as f64).sqrt();
    Some(student(freedom) * error)
}

/// The two-sided 95 % point of Student's t: from the table, beyond it by the expansion of Fisher
/// and Cornish, which is good to four digits there.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const Z: f64 = 1.959_964;
    TABLE.get(freedom.wrapping_sub(1)).copied().unwrap_or_else(|| {
        let n = freedom as f64;
        Z + (Z.powi(3) + Z) / (4.0 * n)
            + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * n * n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_rank() {
        let times = [vec![1; 50], vec![2; 49], vec![9]].concat();
        assert_eq!(percentile(&times, 50), Some(1));
        assert_eq!(percentile(&times, 51), Some(2));
        assert_eq!(percentile(&times, 99), Some(2));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn confidence() {
        assert_eq!(half_width(&[1.0]), None);
        let half = half_width(&[1.0, 2.0, 3.0]).expect("three samples");
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{half}");
        assert!((student(31) - 2.0395).abs() < 1e-3 && (student(100_000) - 1.96).abs() < 1e-3);
    }

    #[test]
    fn fairness() {
        assert_eq!(jain([3, 3, 3].into_iter()), Some(1.0));
        assert_eq!(jain([6, 0].into_iter()), Some(0.5));
        assert_eq!(jain([0, 0].into_iter()), None);
    }

    #[test]
    fn what_is_asked_in_the_warm_up_is_left_out() {
        let mut times = ResponseTimes::new(20, 100);
        times.add(19, 90);
        times.add(20, 30);
        times.add(99, 99);
        assert_eq!(times.mean(), Some(5.0));
        assert_eq!(times.batch_means(), [10.0, 0.0]);
        times.wait(10, 40);
        assert_eq!(times.little(), Some((70.0 + 10.0 + 20.0) / 3.0));
    }

    /// Ten users ask at once; five are granted after 8 ticks, five give up after 2.
    #[test]
    fn who_gives_up_is_counted_as_a_wait_that_ended() {
        let mut times = ResponseTimes::new(0, 100);
        for _ in 0..5 {
            times.add(0, 8);
            times.give_up(0, 2);
        }
        assert_eq!((times.mean(), times.little()), (Some(8.0), Some(5.0)));
    }
}
