//! The next segment, made ahead by the thread that syncs: so whoever appends makes no file.
//!
//! It has its name from the beginning, and is blank until it is used: of no meaning to whoever opens
//! the log.

use std::sync::Arc;

use super::recover::segment_name;
use super::syncer::Shared;
use crate::disk::DiskFile;

/// Which one is to be made.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) sequence: u64,
    pub(super) capacity: u64,
}

/// A segment that nothing was written to.
pub(super) struct Spare {
    pub(super) sequence: u64,
    pub(super) capacity: u64,
    pub(super) file: Arc<dyn DiskFile>,
}

impl Shared {
    /// Makes a segment. If it cannot be, whoever needs one tries that itself, and is told why.
    pub(super) fn make_spare(&self, order: Order) {
        let Order { sequence, capacity } = order;
        let Ok(file) = self.disk().create(&segment_name(sequence)) else { return };
        let unused = match file.allocate(capacity) {
            Ok(()) => self.put_spare(Spare { sequence, capacity, file }),
            Err(_) => Some(Spare { sequence, capacity, file }),
        };
        if let Some(unused) = unused {
            drop(self.disk().remove(&segment_name(unused.sequence)));
        }
    }
}
