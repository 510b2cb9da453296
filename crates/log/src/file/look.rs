//! A look at a log that somebody else may have and write to.

use super::doubt::is_in_doubt;
use super::recover::{Extent, recover, sequences};
use crate::disk::Disk;
use crate::{Identity, OpenError, Record, Snapshot};

/// How often it is tried anew when the files change meanwhile.
const TRIES: usize = 10;

/// What a directory contains at some moment.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The cell's, if there is one.
    pub identity: Option<Identity>,
    /// Whether it was sealed, and nobody has opened it since.
    pub sealed: bool,
    /// Where to begin.
    pub snapshot: Option<Snapshot>,
    /// What happened since. A record that is being written is not among them.
    pub records: Vec<Record>,
}

/// Looks again if it finds what cannot be while files come and go, or a record is half written.
pub(super) fn look(disk: &dyn Disk) -> Result<Seen, OpenError> {
    let failed = |error| OpenError::Io { path: disk.path().into(), error };
    let boot = disk.boot().map_err(failed)?;
    let in_doubt = is_in_doubt(disk).map_err(failed)?;
    let mut tries = 0;
    loop {
        let before = sequences(disk)?;
        let found = recover(disk, boot, Extent { below: None, in_doubt });
        let is_same = sequences(disk)? == before;
        tries += 1;
        match found {
            Ok(found) if is_same || tries == TRIES => {
                let (identity, sealed) = (found.identity, found.sealed);
                let (snapshot, records) = (found.snapshot, found.records);
                return Ok(Seen { identity, sealed, snapshot, records });
            }
            Err(error) if tries == TRIES || matches!(error, OpenError::Newer { .. }) => {
                return Err(error);
            }
            _ => {}
        }
    }
}
