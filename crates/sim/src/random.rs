//! Streams of random numbers that are the same on every machine.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

/// What a stream is for. Streams of different purposes are independent of each other, so a
/// protocol that sends more messages does not thereby change what its users ask for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// What one user does.
    User(u32),
    /// When and how one user fails.
    Failures(u32),
    /// How long messages take.
    Delays,
    /// Which messages are lost, or arrive twice.
    Copies,
    /// Which pools one user may ask for at all.
    Maximum(u32),
    /// How wrong one user is about the time of its uses.
    Told(u32),
}

impl Purpose {
    const fn code(self) -> u64 {
        match self {
            Self::User(lane) => 1 << 32 | lane as u64,
            Self::Failures(lane) => 2 << 32 | lane as u64,
            Self::Delays => 3 << 32,
            Self::Copies => 5 << 32,
            Self::Maximum(lane) => 4 << 32 | lane as u64,
            Self::Told(lane) => 6 << 32 | lane as u64,
        }
    }
}

/// A stream.
#[derive(Clone, Debug)]
pub(super) struct Stream(Pcg64Mcg);

impl Stream {
    pub(super) fn new(seed: u64, graph: u32, purpose: Purpose) -> Self {
        let high = mix(mix(mix(seed) ^ u64::from(graph)) ^ purpose.code());
        Self(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(mix(high))))
    }

    /// A number from 0 up to, not including, `n`, each as likely up to n/2^64; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// A number from 0 up to, not including, 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The finalizer of `SplitMix64`, which leaves no trace of neighbouring inputs.
const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_numbers_stay_below() {
        let draw = |graph, purpose| {
            let mut stream = Stream::new(7, graph, purpose);
            (0..1000).map(|_| stream.below(10)).collect::<Vec<_>>()
        };
        let one = draw(0, Purpose::User(1));
        assert_eq!(one, draw(0, Purpose::User(1)));
        assert_ne!(one, draw(1, Purpose::User(1)));
        assert_ne!(one, draw(0, Purpose::User(2)));
        assert_ne!(one, draw(0, Purpose::Failures(1)));
        assert!((0..10).all(|n| one.contains(&n)) && one.iter().all(|n| *n < 10));
    }

    #[test]
    fn certainty_and_impossibility() {
        let mut stream = Stream::new(0, 0, Purpose::Delays);
        assert!((0..1000).all(|_| stream.chance(1.0) && !stream.chance(0.0)));
    }
}
