//! The numbers of states, by their fingerprints.
//!
//! A list of slots, each with a whole fingerprint, so that to look for one is to wait for memory once. The upper bits
//! say where a fingerprint would stand best; it stands there or in the next slot that was free. So a list that
//! grows is copied from front to back.

/// The number of no state.
const FREE: u32 = u32::MAX;

/// How many slots there are at first.
const FIRST_SLOTS: usize = 1 << 10;

pub(super) struct Known {
    /// As many as a power of two, of which an eighth stays free.
    slots: Vec<(u64, u32)>,
    /// How far to shift a fingerprint to have its slot.
    shift: u32,
    count: usize,
}

impl Known {
    /// None known yet, with room for so many.
    pub(super) fn with_room(states: usize) -> Self {
        let slots = (states + states / 4).next_power_of_two().max(FIRST_SLOTS);
        Self { slots: vec![(0, FREE); slots], shift: 64 - slots.ilog2(), count: 0 }
    }

    pub(super) fn find(&self, fingerprint: u64) -> Option<u32> {
        let (known, id) = self.slots[self.slot(fingerprint)];
        (known == fingerprint && id != FREE).then_some(id)
    }

    /// Fetches the slots of some fingerprints into the cache. Nothing is decided here, so that the processor waits for
    /// all of them at once.
    pub(super) fn fetch(&self, fingerprints: impl Iterator<Item = u64>) {
        let slot = |fingerprint: u64| self.slots[(fingerprint >> self.shift) as usize].1;
        std::hint::black_box(fingerprints.fold(0, |all, fingerprint| all ^ slot(fingerprint)));
    }

    /// Enters a state that is not known.
    pub(super) fn insert(&mut self, fingerprint: u64, id: u32) {
        if 8 * self.count >= 7 * self.slots.len() {
            self.grow();
        }
        let slot = self.slot(fingerprint);
        self.slots[slot] = (fingerprint, id);
        self.count += 1;
    }

    /// Where a fingerprint stands, or would.
    fn slot(&self, fingerprint: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = (fingerprint >> self.shift) as usize;
        loop {
            let (known, id) = self.slots[slot & mask];
            if known == fingerprint || id == FREE {
                return slot & mask;
            }
            slot += 1;
        }
    }

    fn grow(&mut self) {
        let mut larger = Self::with_room(self.slots.len());
        for (fingerprint, id) in self.slots.iter().filter(|(_, id)| *id != FREE) {
            let slot = larger.slot(*fingerprint);
            larger.slots[slot] = (*fingerprint, *id);
        }
        *self = Self { count: self.count, ..larger };
    }
}

#[cfg(test)]
mod tests {
    use holdall_registry::roles::mix;

    use super::*;

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
