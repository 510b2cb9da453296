//! What is mostly as usual: then it takes one word, and nothing is allocated for it.
//!
//! Of requests that wait there may be a million, and most of what can be known of one is known of few. It is
//! compared, hashed, and written down as what is in it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What mostly is the same.
pub trait Usual: Default + PartialEq + 'static {
    /// What it mostly is, which is the default.
    const USUAL: &'static Self;
}

impl<T: PartialEq + 'static> Usual for Option<T> {
    const USUAL: &'static Self = &None;
}

impl<T: PartialEq + 'static> Usual for Vec<T> {
    const USUAL: &'static Self = &Self::new();
}

impl<T: Ord + 'static> Usual for BTreeSet<T> {
    const USUAL: &'static Self = &Self::new();
}

impl<K: Ord + 'static, V: PartialEq + 'static> Usual for BTreeMap<K, V> {
    const USUAL: &'static Self = &Self::new();
}

/// Something that is mostly as usual.
#[derive(Clone)]
pub struct Seldom<T>(Option<Box<T>>);

impl<T> Seldom<T> {
    /// What is as usual.
    pub const USUAL: Self = Self(None);
}

impl<T: Usual> Seldom<T> {
    /// Changes it; whatever is as usual then takes no room.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let known = self.0.get_or_insert_default();
        let result = change(known);
        if **known == *T::USUAL {
            self.0 = None;
        }
        result
    }

    /// It is as usual from now on.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl<T: Usual> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::USUAL)
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self::USUAL
    }
}

impl<T: Usual> From<T> for Seldom<T> {
    fn from(value: T) -> Self {
        Self((value != *T::USUAL).then(|| Box::new(value)))
    }
}

impl<T: Usual> PartialEq for Seldom<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Usual + Eq> Eq for Seldom<T> {}

impl<T: Usual + Hash> Hash for Seldom<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Usual + fmt::Debug> fmt::Debug for Seldom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Usual + Serialize> Serialize for Seldom<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(to)
    }
}

impl<'de, T: Usual + Deserialize<'de>> Deserialize<'de> for Seldom<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_usual_takes_no_room() {
        let mut some: Seldom<BTreeSet<u32>> = Seldom::default();
        assert!(some.0.is_none() && some.is_empty() && some == BTreeSet::new().into());
        assert!(some.change(|some| some.insert(7)) && some.contains(&7));
        assert_ne!(some, Seldom::default());
        assert!(some.change(|some| some.remove(&7)) && some.0.is_none());
        some.change(|some| some.extend([1, 2]));
        some.clear();
        assert!(some.0.is_none() && Seldom::from(BTreeSet::<u32>::new()).0.is_none());
        assert_eq!(size_of_val(&some), size_of::<usize>());
    }
}
