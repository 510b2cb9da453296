//! A set that mostly has few members: as long as it does, they are in one place in order, and nothing
//! is allocated for each.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::RangeFrom;

/// How many are few.
const FEW: usize = 32;

/// A set in order. Either of the two is empty.
#[derive(Clone)]
pub(crate) struct Few<T> {
    few: Vec<T>,
    many: BTreeSet<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { few: Vec::new(), many: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> Few<T> {
    pub(crate) fn insert(&mut self, one: T) {
        if !self.many.is_empty() {
            self.many.insert(one);
        } else if let Err(place) = self.few.binary_search(&one) {
            if self.few.len() < FEW {
                self.few.insert(place, one);
            } else {
                self.many.extend(self.few.drain(..));
                self.many.insert(one);
            }
        }
    }

    pub(crate) fn remove(&mut self, one: &T) {
        self.many.remove(one);
        if let Ok(place) = self.few.binary_search(one) {
            self.few.remove(place);
        }
    }

    pub(crate) fn contains(&self, one: &T) -> bool {
        self.few.binary_search(one).is_ok() || self.many.contains(one)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// Forgets all, but not the room they had.
    pub(crate) fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.few.iter().chain(&self.many)
    }

    /// From a member on.
    pub(crate) fn range(&self, from: RangeFrom<T>) -> impl Iterator<Item = &T> {
        let start = self.few.partition_point(|one| *one < from.start);
        self.few[start..].iter().chain(self.many.range(from))
    }
}

impl<T: Copy + Ord> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|one| self.insert(one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_many_it_is_the_same_set() {
        let (mut few, mut all) = (Few::default(), BTreeSet::new());
        for n in 0u32..200 {
            let one = n * 37 % 101;
            few.insert(one);
            all.insert(one);
            if n % 3 == 0 {
                few.remove(&(n / 2));
                all.remove(&(n / 2));
            }
            assert!(few.iter().eq(&all));
            assert!(few.range(50..).eq(all.range(50..)));
            assert!((0..101).all(|one| few.contains(&one) == all.contains(&one)));
        }
        few.clear();
        assert!(few.is_empty() && few.iter().next().is_none());
    }
}
