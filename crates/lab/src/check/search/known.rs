//! The numbers of states, by their fingerprints.
//!
//! A list of buckets, each a cache line with some slots, so that to look for a fingerprint is to wait for memory once, nearly
//! always. The upper bits of a fingerprint say in which bucket it would stand best; it stands there, or in the next one that
//! was not full. So a list that grows is copied from front to back.

/// The number of no state.
const FREE: u32 = u32::MAX;

/// How many slots fill a cache line.
const WIDTH: usize = 5;

/// How many of them are taken in the mean when the list grows.
const FULL: usize = 4;

/// How many buckets there are at first.
const FIRST_BUCKETS: usize = 1 << 8;

pub(super) struct Known {
    /// As many as a power of two.
    buckets: Vec<Bucket>,
    /// How far to shift a fingerprint to have its bucket.
    shift: u32,
    count: usize,
}

/// Slots that are filled one after another.
#[derive(Clone)]
#[repr(C, align(64))]
struct Bucket {
    fingerprints: [u64; WIDTH],
    ids: [u32; WIDTH],
}

impl Bucket {
    const EMPTY: Self = Self { fingerprints: [0; WIDTH], ids: [FREE; WIDTH] };

    fn find(&self, fingerprint: u64) -> Option<u32> {
        let at = self.fingerprints.iter().position(|known| *known == fingerprint)?;
        // In a slot that is free stands the fingerprint 0; whoever has that is in the first that has it.
        Some(self.ids[at]).filter(|id| *id != FREE)
    }

    fn is_full(&self) -> bool {
        self.ids[WIDTH - 1] != FREE
    }

    /// Enters a state in a bucket that is not full.
    fn insert(&mut self, fingerprint: u64, id: u32) {
        if let Some(at) = self.ids.iter().position(|id| *id == FREE) {
            (self.fingerprints[at], self.ids[at]) = (fingerprint, id);
        }
    }
}

impl Known {
    /// None known yet, with room for so many.
    pub(super) fn with_room(states: usize) -> Self {
        let buckets = (states / FULL + 1).next_power_of_two().max(FIRST_BUCKETS);
        Self { buckets: vec![Bucket::EMPTY; buckets], shift: 64 - buckets.ilog2(), count: 0 }
    }

    pub(super) fn find(&self, fingerprint: u64) -> Option<u32> {
        let mut at = self.first(fingerprint);
        loop {
            let bucket = &self.buckets[at];
            let found = bucket.find(fingerprint);
            if found.is_some() || !bucket.is_full() {
                return found;
            }
            at = self.after(at);
        }
    }

    /// Fetches the buckets of some fingerprints into the cache. Nothing is decided here, so that the processor waits for
    /// all of them at once.
    pub(super) fn fetch(&self, fingerprints: impl Iterator<Item = u64>) {
        let bucket = |fingerprint: u64| self.buckets[self.first(fingerprint)].ids[0];
        std::hint::black_box(fingerprints.fold(0, |all, fingerprint| all ^ bucket(fingerprint)));
    }

    /// Enters a state that is not known.
    pub(super) fn insert(&mut self, fingerprint: u64, id: u32) {
        if self.count >= FULL * self.buckets.len() {
            self.grow();
        }
        let mut at = self.first(fingerprint);
        while self.buckets[at].is_full() {
            at = self.after(at);
        }
        self.buckets[at].insert(fingerprint, id);
        self.count += 1;
    }

    /// The bucket in which a fingerprint would stand best.
    fn first(&self, fingerprint: u64) -> usize {
        (fingerprint >> self.shift) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    fn grow(&mut self) {
        let mut larger = Self::with_room(FULL * self.buckets.len());
        for bucket in &self.buckets {
            for (fingerprint, id) in bucket.fingerprints.iter().zip(bucket.ids) {
                if id != FREE {
                    larger.insert(*fingerprint, id);
                }
            }
        }
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use holdall_registry::roles::mix;

    use super::*;

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn finds_what_was_entered_and_nothing_else() {
        let mut known = Known::with_room(0);
        // Zero is a fingerprint like any other, and so are those that crowd at the end.
        let crowded = (0..100).map(|low| u64::MAX - low);
        let all: Vec<u64> = (0..5000).map(mix).chain(crowded).chain([0]).collect();
        for (fingerprint, id) in all.iter().zip(0..) {
            assert_eq!(known.find(*fingerprint), None);
            known.insert(*fingerprint, id);
            assert_eq!(known.find(*fingerprint), Some(id));
        }
        for (fingerprint, id) in all.iter().zip(0..) {
            assert_eq!(known.find(*fingerprint), Some(id));
        }
        assert_eq!((5000..6000).map(mix).find_map(|other| known.find(other)), None);
    }
}
