//! How often a request was passed, by pool: most requests need one pool or two, and then nothing is allocated.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::hint;
use core::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// A count for each need.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub(super) enum Passed {
    /// Of one pool.
    One([u32; 1]),
    /// Of two.
    Two([u32; 2]),
    /// Elsewhere, since they are few who need so many.
    #[expect(clippy::box_collection, reason = "all others need half the room then")]
    More(Box<Vec<u32>>),
}

impl Passed {
    /// None so far of so many pools.
    pub(super) fn none_of(pools: usize) -> Self {
        match pools {
            1 => Self::One([0]),
            2 => Self::Two([0; 2]),
            // Not room that comes as zeros, as a compiler makes of it: that takes an allocator longer.
            more => Self::More(Box::new((0..more).map(|_| hint::black_box(0)).collect())),
        }
    }
}

impl Deref for Passed {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::One(counts) => counts,
            Self::Two(counts) => counts,
            Self::More(counts) => counts,
        }
    }
}

impl DerefMut for Passed {
    fn deref_mut(&mut self) -> &mut [u32] {
        match self {
            Self::One(counts) => counts,
            Self::Two(counts) => counts,
            Self::More(counts) => counts,
        }
    }
}

impl From<Vec<u32>> for Passed {
    fn from(counts: Vec<u32>) -> Self {
        match counts[..] {
            [one] => Self::One([one]),
            [one, other] => Self::Two([one, other]),
            _ => Self::More(Box::new(counts)),
        }
    }
}

impl From<Passed> for Vec<u32> {
    fn from(counts: Passed) -> Self {
        counts.to_vec()
    }
}

impl PartialEq for Passed {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Passed {}

impl Hash for Passed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
