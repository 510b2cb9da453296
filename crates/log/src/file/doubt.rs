//! A sync has failed: what the disk holds is not known, and pages that were not written are taken for
//! clean. Whoever opens the log next must not believe them, as long as the machine remembers them.

use std::io;

use crate::disk::Disk;

/// It is there from a sync that failed to the next start. It need not be synced: a machine that was
/// restarted has forgotten those pages.
pub(super) const DOUBT: &str = "doubt";

/// Notes that a sync has failed. Where that cannot be noted, no segment can be begun either.
pub(super) fn leave_doubt(disk: &dyn Disk) {
    drop(disk.create(DOUBT));
}

/// Whether a sync has failed since the log was last opened.
pub(super) fn is_in_doubt(disk: &dyn Disk) -> io::Result<bool> {
    Ok(disk.names()?.iter().any(|name| name == DOUBT))
}
