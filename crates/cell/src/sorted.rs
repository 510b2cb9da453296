//! Maps whose order is that of their hashes, written in the order of their keys: equal maps are equal bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map, to be written like that.
pub(crate) struct Sorted<'a, M>(pub(crate) &'a M);

impl<'a, M, K, V> Serialize for Sorted<'a, M>
where
    &'a M: IntoIterator<Item = (&'a K, &'a V)>,
    K: Ord + Serialize + 'a,
    V: Serialize + 'a,
{
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serialize(self.0, to)
    }
}

pub(crate) fn serialize<'a, M, K, V, S>(map: &'a M, to: S) -> Result<S::Ok, S::Error>
where
    &'a M: IntoIterator<Item = (&'a K, &'a V)>,
    K: Ord + Serialize + 'a,
    V: Serialize + 'a,
    S: Serializer,
{
    let mut all: Vec<(&K, &V)> = map.into_iter().collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all.serialize(to)
}

pub(crate) fn deserialize<'de, M, K, V, D>(from: D) -> Result<M, D::Error>
where
    M: FromIterator<(K, V)>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
}
