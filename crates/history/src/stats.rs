//! Figures of waits.

use serde::Serialize;

/// The smallest of these, in order, that so many percent do not exceed.
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let wanted = (sorted.len() * percent).div_ceil(100);
    sorted.get(wanted.saturating_sub(1)).copied()
}

/// How long some requests waited, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// How many.
    pub requests: usize,
    /// The mean.
    pub mean: Option<f64>,
    /// Half of them waited at most so long.
    pub p50: Option<u64>,
    /// Nine of ten.
    pub p90: Option<u64>,
    /// 99 of a hundred.
    pub p99: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
}

impl Waits {
    /// Of these waits.
    pub fn of(mut waits: Vec<u64>) -> Self {
        waits.sort_unstable();
        let sum: u128 = waits.iter().map(|wait| u128::from(*wait)).sum();
        Self {
            requests: waits.len(),
            mean: (!waits.is_empty()).then(|| sum as f64 / waits.len() as f64),
            p50: percentile(&waits, 50),
            p90: percentile(&waits, 90),
            p99: percentile(&waits, 99),
            max: waits.last().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_by_rank() {
        let waits = Waits::of((1..=200).rev().collect());
        assert_eq!(
            (waits.p50, waits.p90, waits.p99, waits.max),
            (Some(100), Some(180), Some(198), Some(200))
        );
        assert_eq!(waits.mean, Some(100.5));
        assert_eq!(Waits::of(Vec::new()), Waits::default());
        assert_eq!(percentile(&[7], 1), Some(7));
    }
}
