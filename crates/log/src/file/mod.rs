//! A log in a directory.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked as long as the log is open: one log a directory |
//! | `segment-N` | records; the last one is written to |
//! | `snapshot-N` | the state before segment N |
//! | `epoch` | the highest epoch that may have been used ([`crate::epoch`]) |
//! | `doubt` | a sync has failed since the last start |
//! | `*.new` | being written; of no meaning |
//!
//! Records are written, one `write` for all of a flush, and not synced: they outlive the process.
//! Syncing is done by a thread of its own, for as many records as have come meanwhile; and as long as
//! that is under way, writing by another, so that no file system can make the caller wait. The next
//! segment is made ahead by the first of the two.
//!
//! # Invariants
//! - Bytes of a segment are written once, in order, into zeros that were allocated before; so what
//!   was let in can be written though the disk is full.
//! - `may_leave` does not pass a record before its `write` has returned ([`Durability::Written`]),
//!   or its sync ([`Durability::Synced`]).
//! - A snapshot has its name only when it is synced, and what it stands for is removed only when
//!   that name is.
//! - A segment that a log is opened with is synced, its name too, before the first record is taken.

mod backlog;
mod doubt;
mod format;
mod look;
mod open;
mod recover;
mod snapshot;
mod spare;
mod syncer;
mod writer;

use std::sync::Arc;

use crate::disk::Disk;
use crate::{Log, OpenError, Opened, Store, epoch};

pub use self::look::Seen;
pub use self::writer::FileLog;

/// When effects may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When they are written: survives the end of the process, at any moment.
    #[default]
    Written,
    /// When they are synced: survives the end of the machine.
    Synced,
}

/// Who syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncing {
    /// A thread of the log.
    #[default]
    Thread,
    /// Whoever calls [`FileLog::sync`]; for simulations, which have no threads.
    Caller,
    /// The same, and what a thread would write while a sync is under way is written, piece by piece,
    /// by whoever calls [`FileLog::write_next`].
    Steps,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When effects may leave.
    pub durability: Durability,
    /// Who syncs.
    pub syncing: Syncing,
    /// How long a segment is, in bytes, unless more room is to be kept.
    pub segment: u64,
    /// Whether a copied directory is taken over. Its memory is lost then.
    pub adopt: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            syncing: Syncing::default(),
            segment: 8 << 20,
            adopt: false,
        }
    }
}

/// A directory for a log.
pub struct FileStore {
    disk: Arc<dyn Disk>,
    twin: Option<epoch::Place>,
    options: Options,
}

impl FileStore {
    /// A directory, and where the epoch is kept besides.
    pub fn new(disk: Arc<dyn Disk>, twin: Option<epoch::Place>, options: Options) -> Self {
        Self { disk, twin, options }
    }

    /// Looks at what is there without taking it, also while somebody else has it and writes.
    ///
    /// # Errors
    /// If it is damaged, or cannot be read.
    pub fn look(&self) -> Result<Seen, OpenError> {
        look::look(&*self.disk)
    }

    /// Opens the log.
    ///
    /// # Errors
    /// If it is in use, damaged, a copy, or cannot be read or written.
    pub fn open_file(&self) -> Result<(FileLog, Opened), OpenError> {
        open::open(&self.disk, self.twin.as_ref(), self.options)
    }
}

impl Store for FileStore {
    fn open(&self) -> Result<(Box<dyn Log>, Opened), OpenError> {
        let (log, opened) = self.open_file()?;
        Ok((Box::new(log), opened))
    }
}
