//! States of which something was found out lately.

/// How many are kept at most.
const KEPT: usize = 1 << 14;

/// Fingerprints of states, each in the one place that it may have, until another takes it.
pub(super) struct Lately(Vec<u64>);

impl Default for Lately {
    /// In each place stands what would not stand there.
    fn default() -> Self {
        Self((1..=KEPT as u64).collect())
    }
}

impl Lately {
    pub(super) fn contains(&self, fingerprint: u64) -> bool {
        self.0[place(fingerprint)] == fingerprint
    }

    pub(super) fn note(&mut self, fingerprint: u64) {
        self.0[place(fingerprint)] = fingerprint;
    }
}

const fn place(fingerprint: u64) -> usize {
    fingerprint as usize % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_what_was_noted_and_nothing_else() {
        let mut lately = Lately::default();
        let all = 0..3 * KEPT as u64;
        assert!(!all.clone().any(|fingerprint| lately.contains(fingerprint)));
        all.clone().for_each(|fingerprint| lately.note(fingerprint));
        let kept = all.filter(|fingerprint| lately.contains(*fingerprint));
        assert!(kept.eq(2 * KEPT as u64..3 * KEPT as u64));
    }
}
