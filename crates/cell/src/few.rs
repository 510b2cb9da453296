//! A map in order that mostly has few members: as long as it does, they are in one place, and nothing is
//! allocated for each.

use std::collections::BTreeMap;
use std::mem;

use serde::{Deserialize, Serialize, Serializer};

/// How many are few.
const FEW: usize = 16;

/// A map in order. For one member alone nothing is allocated.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Written<K, V>")]
#[serde(bound(deserialize = "K: Deserialize<'de> + Ord, V: Deserialize<'de>"))]
pub(crate) enum Few<K, V = ()> {
    #[default]
    None,
    One([(K, V); 1]),
    Several(Vec<(K, V)>),
    #[expect(clippy::box_collection, reason = "all others need a quarter less room then")]
    Many(Box<BTreeMap<K, V>>),
}

/// As it is written down. Either of the two is empty.
#[derive(Serialize, Deserialize)]
#[serde(bound(
    serialize = "A: Serialize, B: Serialize",
    deserialize = "A: Deserialize<'de>, B: Deserialize<'de>"
))]
struct Parts<A, B> {
    few: A,
    many: B,
}

type Written<K, V> = Parts<Vec<(K, V)>, BTreeMap<K, V>>;

impl<K: Serialize, V: Serialize> Serialize for Few<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let none = BTreeMap::new();
        let many = if let Self::Many(many) = self { many } else { &none };
        Parts { few: self.few(), many }.serialize(to)
    }
}

impl<K, V> From<Written<K, V>> for Few<K, V> {
    fn from(Parts { few, many }: Written<K, V>) -> Self {
        if !many.is_empty() {
            return Self::Many(Box::new(many));
        }
        match <[(K, V); 1]>::try_from(few) {
            Ok(one) => Self::One(one),
            Err(few) if few.is_empty() => Self::None,
            Err(few) => Self::Several(few),
        }
    }
}

impl<K, V> Few<K, V> {
    /// The members, as long as they are few.
    fn few(&self) -> &[(K, V)] {
        match self {
            Self::None | Self::Many(_) => &[],
            Self::One(one) => one,
            Self::Several(few) => few,
        }
    }

    /// The members, if they are many.
    fn many(&self) -> Option<&BTreeMap<K, V>> {
        match self {
            Self::Many(many) => Some(many),
            _ => None,
        }
    }
}

impl<K: Copy + Ord, V: Copy> Few<K, V> {
    fn place(&self, key: K) -> Result<usize, usize> {
        self.few().binary_search_by_key(&key, |(key, _)| *key)
    }

    /// Puts something in, and returns what was in its place.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::None => {
                *self = Self::One([(key, value)]);
                None
            }
            Self::One([(other, known)]) if *other == key => Some(mem::replace(known, value)),
            Self::One([other]) => {
                let mut both = vec![*other, (key, value)];
                both.sort_unstable_by_key(|(key, _)| *key);
                *self = Self::Several(both);
                None
            }
            Self::Several(few) => match few.binary_search_by_key(&key, |(key, _)| *key) {
                Ok(place) => Some(mem::replace(&mut few[place].1, value)),
                Err(place) if few.len() < FEW => {
                    few.insert(place, (key, value));
                    None
                }
                Err(_) => {
                    let all = mem::take(few).into_iter().chain([(key, value)]);
                    *self = Self::Many(Box::new(all.collect()));
                    None
                }
            },
            Self::Many(many) => many.insert(key, value),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(*key).ok();
        let (removed, left) = match self {
            Self::None => return None,
            Self::One([(_, value)]) => (place.map(|_| *value), usize::from(place.is_none())),
            Self::Several(few) => (place.map(|place| few.remove(place).1), few.len()),
            Self::Many(many) => (many.remove(key), many.len()),
        };
        if left == 0 {
            *self = Self::None;
        }
        removed
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.place(*key) {
            Ok(place) => Some(&self.few()[place].1),
            Err(_) => self.many()?.get(key),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.few().len() + self.many().map_or(0, BTreeMap::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        let many = self.many().into_iter().flat_map(BTreeMap::keys);
        self.few().iter().map(|(key, _)| key).chain(many)
    }

    /// The last key.
    pub(crate) fn last(&self) -> Option<&K> {
        let few = self.few().last().map(|(key, _)| key);
        few.or_else(|| self.many()?.last_key_value().map(|(key, _)| key))
    }

    /// The keys before one.
    pub(crate) fn before(&self, key: K) -> impl Iterator<Item = &K> {
        let place = self.place(key).unwrap_or_else(|place| place);
        let few = self.few()[..place].iter().map(|(key, _)| key);
        let many = self.many().into_iter().flat_map(move |many| many.range(..key));
        few.chain(many.map(|(key, _)| key))
    }

    /// The keys from one on and before another, which is not less.
    pub(crate) fn between(&self, from: K, key: K) -> impl Iterator<Item = &K> {
        let few = self.few().iter().map(|(key, _)| key);
        let few = few.filter(move |one| (from..key).contains(*one));
        let many = self.many().into_iter().flat_map(move |many| many.range(from..key));
        few.chain(many.map(|(key, _)| key))
    }
}

impl<K, V> Few<K, V> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.few().iter().map(|(key, value)| (key, value)).chain(self.many().into_iter().flatten())
    }

    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Few<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for Few<K, V> {}

/// The keys alone, written down as any set is.
pub(crate) mod as_set {
    use std::collections::BTreeSet;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Few;

    pub(crate) fn serialize<K, S>(few: &Few<K>, to: S) -> Result<S::Ok, S::Error>
    where
        K: Copy + Ord + Serialize,
        S: Serializer,
    {
        few.keys().collect::<BTreeSet<_>>().serialize(to)
    }

    pub(crate) fn deserialize<'de, K, D>(from: D) -> Result<Few<K>, D::Error>
    where
        K: Copy + Ord + Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let mut few = Few::default();
        for key in BTreeSet::deserialize(from)? {
            few.insert(key, ());
        }
        Ok(few)
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
            assert_eq!(few.last(), all.last_key_value().map(|(key, _)| key));
            assert!(few.before(50).eq(all.range(..50).map(|(key, _)| key)));
            assert!(few.between(20, 50).eq(all.range(20..50).map(|(key, _)| key)));
            assert!((0..101).all(|key| few.get(&key) == all.get(&key)));
        }
    }
}
