//! What can go wrong, with culprit and remedy.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::log::PAYLOAD_MAX;

/// Why a log does not take a record, or has come to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The log was closed, or sealed.
    #[error("the log of {0} is closed; open it again")]
    Closed(String),
    /// Another one leads: nothing of this log counts any more. Nobody may be told anything.
    #[error(
        "another host leads {0} now, and goes on from its log; this one grants nothing any more"
    )]
    Deposed(String),
    /// A file could not be made. Nothing was appended, and nothing is lost.
    #[error("cannot go on in {place}: {error}; nothing new is granted until that is mended")]
    Failed {
        /// Where.
        place: String,
        /// What failed.
        error: Arc<io::Error>,
    },
    /// There is no room. Nothing was appended; what is owed can still be, see [`crate::Class`].
    #[error(
        "no room for the log in {0}: nothing new is granted, what is held can be given back; make \
         room there"
    )]
    Full(String),
    /// Its files or its lock were removed or moved: another agent could begin in their place.
    #[error(
        "{0} was removed or moved under a running agent, and another could start there; stop this \
         agent, and put the directory back or begin anew"
    )]
    Gone(PathBuf),
    /// The host that is to lead next is not ready. Whoever leads goes on.
    #[error(
        "{heir} is not ready to lead {place}; look whether it stands by there, and runs the same version"
    )]
    NotReady {
        /// What.
        place: String,
        /// Who.
        heir: String,
    },
    /// A snapshot is being made already.
    #[error("a snapshot of {0} is being made; wait for it to be kept or dropped")]
    Snapshotting(String),
    /// A record is too long.
    #[error("a record of {0} bytes is too long for a log, which takes {PAYLOAD_MAX}; split it")]
    TooLong(usize),
    /// It is not known which of the last records are kept; whoever opens the log again will know.
    #[error(
        "{place} failed, and it is not known which of the last records are kept: {error}; look \
         after the disk, then start the agent again"
    )]
    Unknown {
        /// Where.
        place: String,
        /// What failed.
        error: Arc<io::Error>,
    },
}

impl Error {
    /// Whether the log can be used again when the cause is gone.
    pub fn passes(&self) -> bool {
        use Error::{Failed, Full, NotReady, Snapshotting, TooLong};
        matches!(self, Failed { .. } | Full(_) | NotReady { .. } | Snapshotting(_) | TooLong(_))
    }
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is a copy of the one that the log was written in.
    #[error(
        "{0} is a copy, or was moved from another file system: its original may be in use. If it \
         is not, start the agent once with `--adopt`; what was held there is then taken for lost"
    )]
    Copied(PathBuf),
    /// What was kept for good cannot be read.
    #[error(
        "{} is damaged at byte {offset}: {what}. Put back an undamaged copy of it; or, if nobody \
         uses what was granted here, move all `segment-*` and `snapshot-*` away: the memory is \
         then lost, and numbers stay ahead", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What was expected there.
        what: String,
    },
    /// A file holds something else than an epoch.
    #[error(
        "{} does not hold an epoch, and numbers could come again; write `epoch N` there, with an N \
         larger than the first part of every grant that was told", .0.display()
    )]
    Epoch(PathBuf),
    /// There are no epochs left.
    #[error("{} holds the last epoch there is; begin anew in an empty directory", .0.display())]
    Exhausted(PathBuf),
    /// Another agent has it.
    #[error("an agent runs already: it has {} for itself", .0.display())]
    InUse(PathBuf),
    /// A key in a replicated store says what it should not, or is missing.
    #[error(
        "{key} in {place} {what}. Put the store back from a backup; or, if nobody uses what was \
         granted here, delete all keys of the cell and make it anew"
    )]
    Key {
        /// Which store.
        place: String,
        /// The key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is no such cell, and it was not said to make one.
    #[error("there is no cell in {0}; look whether that is the right etcd and name, or make one")]
    NoCell(String),
    /// A replicated store is a copy, or was put back from a backup.
    #[error(
        "{0} was put back from a backup, or is a copy: what was granted since then is not known \
         there, and its original may be in use. If that is meant, adopt it: what was held is then \
         taken for lost, and numbers are ahead"
    )]
    Restored(String),
    /// It cannot be read, or written.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// What cannot.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It was written by a newer version.
    #[error("{} is of format {version}, which a newer holdall has written; use that", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
}
