//! Chance that is the same on every machine.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number from 0 up to, not including, `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// A number from `least` to `most`.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// True so many times in a thousand.
    pub(crate) fn per_mille(&mut self, chance: usize) -> bool {
        self.below(1000) < chance
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// The index of one of these weights, each as likely as it is heavy.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|weight| {
                let hit = left < *weight;
                left = left.saturating_sub(*weight);
                hit
            })
            .unwrap_or(0)
    }
}
