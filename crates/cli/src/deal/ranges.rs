//! A set of items, most of them consecutive.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges, by their starts. No two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn contains(&self, item: u64) -> bool {
        self.0.range(..=item).next_back().is_some_and(|(_, end)| item < *end)
    }

    /// The first item of `range` that is in the set.
    pub(super) fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        if self.contains(range.start) {
            return Some(range.start);
        }
        self.0.range(range.clone()).next().map(|(start, _)| *start)
    }

    pub(super) fn insert(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Those that overlap or touch become one.
        let near = self.0.range(..=end).rev().take_while(|(_, until)| **until >= start);
        for (from, until) in near.map(|(from, until)| (*from, *until)).collect::<Vec<_>>() {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(until));
        }
        self.0.insert(start, end);
    }

    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let overlap = self.0.range(..range.end).rev().take_while(|(_, end)| **end > range.start);
        for (start, end) in overlap.map(|(start, end)| (*start, *end)).collect::<Vec<_>>() {
            self.0.remove(&start);
            self.insert(&(start..range.start.min(end)));
            self.insert(&(range.end.max(start)..end));
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// The items before an end.
    pub(super) fn before(&self, end: u64) -> impl Iterator<Item = Range<u64>> {
        let before = self.iter().take_while(move |range| range.start < end);
        before.map(move |range| range.start..range.end.min(end))
    }

    pub(super) fn count_before(&self, end: u64) -> u64 {
        self.before(end).map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_a_set() {
        let (mut ranges, mut set, mut random) = (Ranges::default(), BTreeSet::new(), 1_u64);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..3000 {
            let start = next(50);
            let range = start..start + next(9);
            let first = set.range(range.clone()).next().copied();
            assert_eq!(ranges.first_in(&range), if range.is_empty() { None } else { first });
            if next(2) == 0 {
                ranges.insert(&range);
                set.extend(range);
            } else {
                ranges.remove(&range);
                set.retain(|item| !range.contains(item));
            }
            assert!(ranges.iter().flatten().eq(set.iter().copied()));
            assert!((0..60).all(|item| ranges.contains(item) == set.contains(&item)));
            assert_eq!(ranges.count_before(25), set.range(..25).count() as u64);
            let starts: Vec<_> = ranges.iter().collect();
            assert!(starts.windows(2).all(|pair| pair[0].end < pair[1].start), "{starts:?}");
        }
    }
}
