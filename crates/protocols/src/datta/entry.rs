//! What stands in a resource's queues.

use core::fmt;
use core::hash::{Hash, Hasher};

use holdall_core::{Family, PoolId, RequestId};
use serde::{Deserialize, Serialize};

use crate::ring::Spot;

/// One attempt of a request to get one of its resources. A request at whose expense a loop was
/// broken tries again, and whatever still travels on behalf of the old attempt is known by its
/// number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    /// The request.
    pub request: RequestId,
    /// Which of its resources; 0 is its home.
    pub place: u32,
    /// How often it had to give up at this place before.
    pub attempt: u64,
}

impl Claim {
    /// The attempt after this one.
    #[must_use]
    pub(super) const fn again(self) -> Self {
        Self { attempt: self.attempt.saturating_add(1), ..self }
    }
}

impl Hash for Claim {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.request.hash(state);
        self.place.hash(state);
        Family::Attempt(self.request.user.lane(), self.place).hash_stamp(self.attempt, state);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}~{}", self.request, self.place, self.attempt)
    }
}

/// How well a claim stands when a loop is broken; the least is the victim. First whether the token
/// protects it, then its home: all homes in a loop differ, so no two levels in it are equal.
pub type Level = (bool, PoolId);

/// One request at one of its resources.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The present attempt here; of an entry that stands aside, the one that comes next.
    pub(super) claim: Claim,
    /// The same for the place after this one.
    pub(super) onward: Claim,
    pub(super) spot: Spot,
    /// Past its home: whether the token was at its home when it was let on from there.
    pub(super) shielded: bool,
    /// At its home: whether it ever was the victim.
    pub(super) beaten: bool,
}

impl Entry {
    pub(super) fn new(spot: Spot) -> Self {
        let claim = Claim { request: spot.id(), place: spot.place, attempt: 0 };
        let onward = Claim { place: spot.place.saturating_add(1), ..claim };
        Self { claim, onward, spot, shielded: false, beaten: false }
    }

    pub(super) fn request(&self) -> RequestId {
        self.claim.request
    }

    pub(super) fn home(&self) -> PoolId {
        self.spot.request.needs[0].pool
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.claim, self.spot.request.needs)?;
        f.write_str(if self.shielded { " shielded" } else { "" })?;
        f.write_str(if self.beaten { " beaten" } else { "" })
    }
}
