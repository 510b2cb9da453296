//! What a client asks for.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::ids::{PoolId, RequestId};

/// A number of units of one pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Need {
    /// The pool.
    pub pool: PoolId,
    /// How many of its units, at least one.
    pub units: u32,
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.units {
            1 => write!(f, "{:?}", self.pool),
            n => write!(f, "{:?}:{n}", self.pool),
        }
    }
}

/// The needs of one request, in the order the client named them: at least one, no pool twice, no
/// need for zero units. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Need>", into = "Vec<Need>")]
pub struct Needs(Arc<[Need]>);

impl Needs {
    /// Makes needs of a list, if they make sense together.
    ///
    /// # Errors
    /// If the list is empty, names a pool twice, or asks for zero units.
    pub fn new(list: Vec<Need>) -> Result<Self, BadNeeds> {
        if list.is_empty() {
            return Err(BadNeeds::Empty);
        }
        let mut seen = BTreeSet::new();
        for need in &list {
            if need.units == 0 {
                return Err(BadNeeds::Zero(need.pool));
            }
            if !seen.insert(need.pool) {
                return Err(BadNeeds::Twice(need.pool));
            }
        }
        Ok(Self(list.into()))
    }

    /// The same needs in the global order of pools.
    #[must_use]
    pub fn sorted(&self) -> Self {
        self.sorted_by_key(|need| need.pool)
    }

    /// The same needs in another order.
    #[must_use]
    pub fn sorted_by_key<K: Ord>(&self, key: impl Fn(&Need) -> K) -> Self {
        if self.0.is_sorted_by_key(&key) {
            return self.clone();
        }
        let mut list = self.0.to_vec();
        list.sort_by_key(key);
        Self(list.into())
    }

    /// How many units of a pool are needed, if any.
    pub fn units_of(&self, pool: PoolId) -> u64 {
        self.0.iter().find(|need| need.pool == pool).map_or(0, |need| u64::from(need.units))
    }

    /// Whether some pool is in both.
    pub fn share_a_pool_with(&self, other: &Self) -> bool {
        self.0.iter().any(|mine| other.0.iter().any(|theirs| mine.pool == theirs.pool))
    }
}

impl Deref for Needs {
    type Target = [Need];

    fn deref(&self) -> &[Need] {
        &self.0
    }
}

impl TryFrom<Vec<Need>> for Needs {
    type Error = BadNeeds;

    fn try_from(list: Vec<Need>) -> Result<Self, BadNeeds> {
        Self::new(list)
    }
}

impl From<Needs> for Vec<Need> {
    fn from(needs: Needs) -> Self {
        needs.0.to_vec()
    }
}

impl fmt::Debug for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, need) in self.0.iter().enumerate() {
            write!(f, "{}{need:?}", if i == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

/// Why a list is not the needs of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNeeds {
    /// There is nothing in it.
    #[error("a request needs at least one pool")]
    Empty,
    /// A pool appears twice.
    #[error("pool {} is asked for twice in one request", .0.0)]
    Twice(PoolId),
    /// Zero units are asked for.
    #[error("zero units of pool {} are asked for; ask for at least 1", .0.0)]
    Zero(PoolId),
}

/// A set of needs, asked for by one client, granted all or nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What is asked for.
    pub needs: Needs,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:?}", self.id, self.needs)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn need(pool: u64, units: u32) -> Need {
        Need { pool: PoolId(pool), units }
    }

    #[test]
    fn senseless_lists_are_refused() {
        assert_eq!(Needs::new(vec![]), Err(BadNeeds::Empty));
        assert_eq!(Needs::new(vec![need(3, 0)]), Err(BadNeeds::Zero(PoolId(3))));
        let twice = vec![need(1, 1), need(2, 1), need(1, 2)];
        assert_eq!(Needs::new(twice), Err(BadNeeds::Twice(PoolId(1))));
    }

    #[test]
    fn the_order_asked_is_kept_until_sorted() {
        let asked = Needs::new(vec![need(2, 1), need(0, 3)]).expect("sensible");
        assert_eq!(alloc::format!("{asked:?}"), "p2+p0:3");
        assert_eq!(alloc::format!("{:?}", asked.sorted()), "p0:3+p2");
    }
}
