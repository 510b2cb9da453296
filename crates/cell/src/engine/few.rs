//! A map in order that mostly has few members: as long as it does, they are in one place, and nothing is
//! allocated for each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many are few.
const FEW: usize = 16;

/// A map in order. Either of the two is empty.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "K: Serialize, V: Serialize",
    deserialize = "K: Deserialize<'de> + Ord, V: Deserialize<'de>"
))]
pub(crate) struct Few<K, V = ()> {
    few: Vec<(K, V)>,
    many: BTreeMap<K, V>,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self { few: Vec::new(), many: BTreeMap::new() }
    }
}

impl<K: Copy + Ord, V: Copy> Few<K, V> {
    fn place(&self, key: K) -> Result<usize, usize> {
        self.few.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// Puts something in, and returns what was in its place.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if !self.many.is_empty() {
            return self.many.insert(key, value);
        }
        match self.place(key) {
            Ok(place) => Some(std::mem::replace(&mut self.few[place].1, value)),
            Err(place) if self.few.len() < FEW => {
                self.few.insert(place, (key, value));
                None
            }
            Err(_) => {
                self.many.extend(self.few.drain(..));
                self.many.insert(key, value)
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        match self.place(*key) {
            Ok(place) => Some(self.few.remove(place).1),
            Err(_) => self.many.remove(key),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.place(*key) {
            Ok(place) => Some(&self.few[place].1),
            Err(_) => self.many.get(key),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.few.iter().map(|(key, _)| key).chain(self.many.keys())
    }

    /// The keys before one.
    pub(crate) fn before(&self, key: K) -> impl Iterator<Item = &K> {
        let place = self.place(key).unwrap_or_else(|place| place);
        let few = self.few[..place].iter().map(|(key, _)| key);
        few.chain(self.many.range(..key).map(|(key, _)| key))
    }

    /// The keys from one on and before another, which is not less.
    pub(crate) fn between(&self, from: K, key: K) -> impl Iterator<Item = &K> {
        let few = self.few.iter().map(|(key, _)| key);
        let few = few.filter(move |one| (from..key).contains(*one));
        few.chain(self.many.range(from..key).map(|(key, _)| key))
    }
}

#[cfg(test)]
impl<K: Copy + Ord, V: Copy> Few<K, V> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.few.iter().map(|(key, value)| (key, value)).chain(&self.many)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_many_it_is_the_same_map() {
        let (mut few, mut all) = (Few::default(), BTreeMap::new());
        for n in 0u32..200 {
            let key = n * 37 % 101;
            assert_eq!(few.insert(key, n), all.insert(key, n));
            if n % 3 == 0 {
                assert_eq!(few.remove(&(n / 2)), all.remove(&(n / 2)));
            }
            assert!(few.iter().eq(&all) && few.keys().eq(all.keys()));
            assert_eq!((few.len(), few.is_empty()), (all.len(), all.is_empty()));
            assert!(few.before(50).eq(all.range(..50).map(|(key, _)| key)));
            assert!(few.between(20, 50).eq(all.range(20..50).map(|(key, _)| key)));
            assert!((0..101).all(|key| few.get(&key) == all.get(&key)));
        }
    }
}
