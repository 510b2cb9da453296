//! What is wanted of each node. Mostly that is one, and then nothing is allocated.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};
use core::slice;

use holdall_core::{ManagerId, Needs, Picked, Seldom};
use serde::{Deserialize, Serialize};

/// What is wanted of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) manager: ManagerId,
    pub(super) needs: Needs,
    /// The latest stance there.
    pub(super) n: u32,
    pub(super) answered: bool,
    pub(super) held: bool,
    /// The units that are held there of listed pools.
    pub(super) units: Seldom<Picked>,
    /// Whether the latest stance was to keep only the place.
    pub(super) parked: bool,
    /// Whether the request waits there behind an overdue holder, as of the manager's `turn`.
    pub(super) blocked: bool,
    pub(super) turn: u32,
}

impl Part {
    pub(super) fn new(manager: ManagerId, needs: Needs) -> Self {
        Self {
            manager,
            needs,
            n: 0,
            answered: false,
            held: false,
            units: Seldom::USUAL,
            parked: false,
            blocked: false,
            turn: 0,
        }
    }
}

/// One for each node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<Part>", into = "Vec<Part>")]
pub(super) enum Parts {
    One(Part),
    Several(Box<[Part]>),
}

impl Deref for Parts {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        match self {
            Self::One(part) => slice::from_ref(part),
            Self::Several(parts) => parts,
        }
    }
}

impl DerefMut for Parts {
    fn deref_mut(&mut self) -> &mut [Part] {
        match self {
            Self::One(part) => slice::from_mut(part),
            Self::Several(parts) => parts,
        }
    }
}

impl From<Vec<Part>> for Parts {
    fn from(parts: Vec<Part>) -> Self {
        match <[Part; 1]>::try_from(parts) {
            Ok([part]) => Self::One(part),
            Err(parts) => Self::Several(parts.into()),
        }
    }
}

impl From<Parts> for Vec<Part> {
    fn from(parts: Parts) -> Self {
        parts.to_vec()
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Parts {}

impl Hash for Parts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
