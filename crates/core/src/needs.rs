//! What a client asks for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::ids::{PoolId, RequestId};

/// Among so few needs each is compared with each.
const FEW: usize = 8;

/// The number of a unit in its pool.
pub type Unit = u32;

/// Units of listed pools, by pool: those that a manager picked for a request.
pub type Picked = BTreeMap<PoolId, BTreeSet<Unit>>;

/// Units of one pool: so many, these among them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Need {
    /// The pool.
    pub pool: PoolId,
    /// How many of its units, at least one; those asked for by name are counted as well.
    pub units: u32,
    /// Those asked for by name. Any others of the pool make up the rest.
    pub named: BTreeSet<Unit>,
}

impl Need {
    /// So many units of a pool, whichever they are.
    pub const fn any(pool: PoolId, units: u32) -> Self {
        Self { pool, units, named: BTreeSet::new() }
    }

    /// How many units are asked for beside those named.
    pub fn more(&self) -> u32 {
        self.units.saturating_sub(self.named.len() as u32)
    }
}

/// `p0`, `p0:2`; with units by name `p0.1`, and `p0.1:2` for unit 1 and two more.
impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.pool)?;
        for unit in &self.named {
            write!(f, ".{unit}")?;
        }
        match self.more() {
            0 => Ok(()),
            1 if self.named.is_empty() => Ok(()),
            more => write!(f, ":{more}"),
        }
    }
}

/// The needs of one request, in the order the client named them: at least one, no pool twice, no
/// need for zero units, or for fewer than it names. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Need>", into = "Vec<Need>")]
pub struct Needs(Arc<[Need]>);

impl Needs {
    /// Makes needs of a list, if they make sense together.
    ///
    /// # Errors
    /// If the list is empty, names a pool twice, or asks for zero units, or for fewer than it names.
    pub fn new(list: Vec<Need>) -> Result<Self, BadNeeds> {
        if list.is_empty() {
            return Err(BadNeeds::Empty);
        }
        let mut seen = BTreeSet::new();
        for (at, need) in list.iter().enumerate() {
            if need.units == 0 {
                return Err(BadNeeds::Zero(need.pool));
            }
            if need.named.len() > need.units as usize {
                return Err(BadNeeds::MoreNamed(need.pool));
            }
            let again = match list.len() {
                ..=FEW => list[..at].iter().any(|other| other.pool == need.pool),
                _ => !seen.insert(need.pool),
            };
            if again {
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

    /// What is needed of a pool, if anything.
    pub fn of(&self, pool: PoolId) -> Option<&Need> {
        self.0.iter().find(|need| need.pool == pool)
    }

    /// How many units of a pool are needed, if any.
    pub fn units_of(&self, pool: PoolId) -> u64 {
        self.of(pool).map_or(0, |need| u64::from(need.units))
    }

    /// The same with the units that were picked for them, each by name.
    #[must_use]
    pub fn with(&self, picked: &Picked) -> Self {
        if picked.is_empty() {
            return self.clone();
        }
        let with_units = |need: &Need| {
            let named = picked.get(&need.pool).unwrap_or(&need.named).clone();
            Need { named, ..need.clone() }
        };
        Self(self.0.iter().map(with_units).collect())
    }

    /// Whether what was granted is what was asked for here: the same pools and as many units, of listed
    /// pools each unit by name, those asked for among them.
    pub fn are_met_by(&self, granted: &Self, is_listed: impl Fn(PoolId) -> bool) -> bool {
        let met = |(asked, granted): (&Need, &Need)| {
            let told = if is_listed(asked.pool) { asked.units } else { 0 };
            (asked.pool, asked.units) == (granted.pool, granted.units)
                && asked.named.is_subset(&granted.named)
                && granted.named.len() == told as usize
        };
        self.0.len() == granted.0.len() && self.0.iter().zip(granted.iter()).all(met)
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
    /// More units are named than asked for.
    #[error("more units of pool {} are named than asked for", .0.0)]
    MoreNamed(PoolId),
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
        Need::any(PoolId(pool), units)
    }

    fn named(pool: u64, units: u32, named: &[Unit]) -> Need {
        Need { named: named.iter().copied().collect(), ..need(pool, units) }
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

    #[test]
    fn units_by_name_are_counted_and_shown() {
        let few = vec![named(1, 1, &[0, 2])];
        assert_eq!(Needs::new(few), Err(BadNeeds::MoreNamed(PoolId(1))));
        let asked = Needs::new(vec![named(0, 2, &[0, 2]), named(1, 3, &[4]), need(2, 1)]);
        let asked = asked.expect("sensible");
        assert_eq!(alloc::format!("{asked:?}"), "p0.0.2+p1.4:2+p2");
        assert_eq!(asked[1].more(), 2);
    }

    #[test]
    fn a_grant_names_every_unit_of_a_listed_pool() {
        let asked = Needs::new(vec![named(0, 2, &[3]), need(1, 2)]).expect("sensible");
        let listed = |pool| pool == PoolId(0);
        let picked = |units: &[Unit]| Picked::from([(PoolId(0), units.iter().copied().collect())]);
        assert!(asked.are_met_by(&asked.with(&picked(&[1, 3])), listed));
        assert!(!asked.are_met_by(&asked, listed), "which is the other one?");
        assert!(!asked.are_met_by(&asked.with(&picked(&[1, 2])), listed), "unit 3 is missing");
        assert!(
            !asked.are_met_by(&asked.with(&picked(&[1, 2, 3])), listed),
            "that is one too many"
        );
        assert!(
            !asked.are_met_by(&asked.with(&picked(&[1, 3])), |_| false),
            "there are no numbers"
        );
    }
}
