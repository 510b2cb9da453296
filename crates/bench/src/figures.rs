//! What is measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The figures of one target in one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// Acquisitions.
    pub(crate) grants: u64,
    /// The same for a second.
    pub(crate) per_second: f64,
    /// Waits, in milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Also of those that still wait in the end.
    pub(crate) max: f64,
    /// Of the numbers of grants of clients that want equally much: 1 if all have got as many.
    pub(crate) jain: f64,
    /// Grants of clients that want everything.
    pub(crate) wide: u64,
    /// Microseconds of the server's processors for an acquisition and release.
    pub(crate) server_us: Option<f64>,
    /// The same of the clients.
    pub(crate) client_us: f64,
    /// Megabytes that the server has, in the end.
    pub(crate) server_mb: Option<f64>,
    /// How often somebody was granted what another had.
    pub(crate) violations: u64,
}

/// Everything that has happened, from which figures are made.
pub(crate) struct Tally {
    pub(crate) waits: Histogram<u64>,
    pub(crate) grants: Vec<u64>,
    pub(crate) wide: Vec<bool>,
    pub(crate) violations: u64,
}

impl Tally {
    pub(crate) fn figures(&self, span: Duration, longest: Duration) -> Figures {
        let all = self.waits.len();
        let at = |share| self.waits.value_at_quantile(share) as f64 / 1000.0;
        let kinds = || self.grants.iter().zip(&self.wide);
        let equal: Vec<f64> =
            kinds().filter(|(_, wide)| !**wide).map(|(grants, _)| *grants as f64).collect();
        Figures {
            grants: all,
            per_second: all as f64 / span.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: (self.waits.max() as f64 / 1000.0).max(longest.as_secs_f64() * 1000.0),
            jain: jain(&equal),
            wide: kinds().filter(|(_, wide)| **wide).map(|(grants, _)| grants).sum(),
            server_us: None,
            client_us: 0.0,
            server_mb: None,
            violations: self.violations,
        }
    }
}

fn jain(all: &[f64]) -> f64 {
    let (sum, squares) = all.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (all.len() as f64 * squares) }
}

/// The median of each figure over some rounds; of the longest wait the longest, of what must not be all.
pub(crate) fn median(rounds: &[Figures]) -> Figures {
    let of = |figure: &dyn Fn(&Figures) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
        (low + high) / 2.0
    };
    let known = |figure: &dyn Fn(&Figures) -> Option<f64>| {
        rounds.iter().all(|r| figure(r).is_some()).then(|| of(&|r| figure(r).unwrap_or(0.0)))
    };
    Figures {
        grants: of(&|r| r.grants as f64) as u64,
        per_second: of(&|r| r.per_second),
        p50: of(&|r| r.p50),
        p99: of(&|r| r.p99),
        p999: of(&|r| r.p999),
        max: rounds.iter().map(|r| r.max).fold(0.0, f64::max),
        jain: of(&|r| r.jain),
        wide: of(&|r| r.wide as f64) as u64,
        server_us: known(&|r| r.server_us),
        client_us: of(&|r| r.client_us),
        server_mb: known(&|r| r.server_mb),
        violations: rounds.iter().map(|r| r.violations).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair_and_one_alone_is_not() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[4.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
    }
}
