//! A set that mostly has few members: as long as it does, they are in one place in order. For one alone
//! nothing is allocated.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeFrom;
use core::{mem, slice};

/// How many are few.
const FEW: usize = 32;

/// A set in order.
#[derive(Clone, Default)]
pub(crate) enum Few<T> {
    #[default]
    None,
    One(T),
    Several(Vec<T>),
    #[expect(clippy::box_collection, reason = "all others need a quarter less room then")]
    Many(Box<BTreeSet<T>>),
}

impl<T: Copy + Ord> Few<T> {
    /// The members, as long as they are few.
    fn few(&self) -> &[T] {
        match self {
            Self::None | Self::Many(_) => &[],
            Self::One(one) => slice::from_ref(one),
            Self::Several(few) => few,
        }
    }

    /// The members, if they are many.
    fn many(&self) -> Option<&BTreeSet<T>> {
        match self {
            Self::Many(many) => Some(many),
            _ => None,
        }
    }

    pub(crate) fn insert(&mut self, one: T) {
        match self {
            Self::None => *self = Self::One(one),
            Self::One(other) if one == *other => {}
            Self::One(other) => *self = Self::Several(vec![one.min(*other), one.max(*other)]),
            Self::Several(few) => match few.binary_search(&one) {
                Ok(_) => {}
                Err(place) if few.len() < FEW => few.insert(place, one),
                Err(_) => {
                    let all = mem::take(few).into_iter().chain([one]);
                    *self = Self::Many(Box::new(all.collect()));
                }
            },
            Self::Many(many) => drop(many.insert(one)),
        }
    }

    pub(crate) fn remove(&mut self, one: &T) {
        match self {
            Self::None => {}
            Self::One(only) if only == one => *self = Self::None,
            Self::One(_) => {}
            Self::Several(few) => {
                if let Ok(place) = few.binary_search(one) {
                    few.remove(place);
                }
            }
            Self::Many(many) => {
                many.remove(one);
                if many.is_empty() {
                    *self = Self::None;
                }
            }
        }
    }

    pub(crate) fn contains(&self, one: &T) -> bool {
        self.few().binary_search(one).is_ok() || self.many().is_some_and(|many| many.contains(one))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few().is_empty() && self.many().is_none()
    }

    /// Forgets all, but not the room they had, if they were few.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Several(few) => few.clear(),
            _ => *self = Self::None,
        }
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.few().iter().chain(self.many().into_iter().flatten())
    }

    /// From a member on.
    pub(crate) fn range(&self, from: RangeFrom<T>) -> impl Iterator<Item = &T> {
        let few = self.few();
        let start = few.partition_point(|one| *one < from.start);
        few[start..]
            .iter()
            .chain(self.many().into_iter().flat_map(move |many| many.range(from.start..)))
    }

    /// The last one before another.
    pub(crate) fn last_before(&self, before: T) -> Option<&T> {
        let few = self.few();
        let place = few.partition_point(|one| *one < before);
        let many = || self.many().and_then(|many| many.range(..before).next_back());
        few[..place].last().or_else(many)
    }
}

impl<T: Copy + Ord> PartialEq for Few<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Copy + Ord> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|one| self.insert(one));
    }
}

impl<T: Copy + Ord> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut few = Self::default();
        few.extend(all);
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_many_it_is_the_same_set() {
        let (mut few, mut all) = (Few::default(), BTreeSet::new());
        // As many as there are numbers below the bound, then fewer again.
        for bound in [1, 2, 20, 101, 3, 1] {
            for n in 0u32..200 {
                let one = n * 37 % bound;
                few.insert(one);
                all.insert(one);
                if n % 3 == 0 {
                    few.remove(&(n / 2));
                    all.remove(&(n / 2));
                }
                assert!(few.iter().eq(&all) && few == all.iter().copied().collect());
                assert!(few.range(50..).eq(all.range(50..)));
                assert_eq!(few.last_before(50), all.range(..50).next_back());
                assert_eq!((few.first(), few.is_empty()), (all.first(), all.is_empty()));
                assert!((0..101).all(|one| few.contains(&one) == all.contains(&one)));
            }
            for one in 1..101 {
                few.remove(&one);
                all.remove(&one);
            }
            assert!(few.iter().eq(&all));
        }
        few.clear();
        assert!(few.is_empty() && few.iter().next().is_none());
    }
}
