//! The units that are given to nobody, and when that is over.

use holdall_wire::{Drained, Name};
use serde::{Deserialize, Serialize};

/// Units that are drained: a list, which is all that is kept, and the earliest end of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Name, Drained)>", into = "Vec<(Name, Drained)>")]
pub(super) struct DrainedUnits {
    all: Vec<(Name, Drained)>,
    until: Option<u64>,
}

impl DrainedUnits {
    pub(super) fn all(&self) -> &[(Name, Drained)] {
        &self.all
    }

    /// When the first of them is given out again.
    pub(super) fn until(&self) -> Option<u64> {
        self.until
    }
}

impl From<Vec<(Name, Drained)>> for DrainedUnits {
    fn from(all: Vec<(Name, Drained)>) -> Self {
        let until = all.iter().filter_map(|(_, drained)| drained.until).min();
        Self { all, until }
    }
}

impl From<DrainedUnits> for Vec<(Name, Drained)> {
    fn from(drained: DrainedUnits) -> Self {
        drained.all
    }
}
