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

/// What a request needs, one for each node.
#[derive(Clone, Debug)]
pub(super) enum Parts {
    One(Part),
    /// With all of it, in the order asked.
    Several(Needs, Box<[Part]>),
}

impl Parts {
    /// These parts of what a request needs.
    pub(super) fn new(needs: Needs, parts: Vec<Part>) -> Self {
        match <[Part; 1]>::try_from(parts) {
            Ok([part]) => Self::One(part),
            Err(parts) => Self::Several(needs, parts.into()),
        }
    }

    /// All that is needed.
    pub(super) fn needs(&self) -> &Needs {
        match self {
            Self::One(part) => &part.needs,
            Self::Several(needs, _) => needs,
        }
    }
}

impl Deref for Parts {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        match self {
            Self::One(part) => slice::from_ref(part),
            Self::Several(_, parts) => parts,
        }
    }
}

impl DerefMut for Parts {
    fn deref_mut(&mut self) -> &mut [Part] {
        match self {
            Self::One(part) => slice::from_mut(part),
            Self::Several(_, parts) => parts,
        }
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.needs() == other.needs() && **self == **other
    }
}

impl Eq for Parts {}

impl Hash for Parts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.needs().hash(state);
        (**self).hash(state);
    }
}
