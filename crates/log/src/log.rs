//! The contract between a cell and its log, wherever that is.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;

use crate::{Error, OpenError, Watch};

/// The most bytes a record can have.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// The number of a record: the first is 1, and none is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u64);

impl Index {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The one before it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// What tells a cell from all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub u128);

/// What tells the lives of a cell apart: random, and new whenever memory may have been lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u128);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Whether a record can be done without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Something new: refused where it would take the room that is kept ([`Log::keep_room`]).
    May,
    /// What follows from something that was let in, above all that it ends: takes the room that is
    /// kept.
    Must,
}

/// What is appended.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Whether it can be done without.
    pub class: Class,
    /// The version of the code that wrote it.
    pub logic: u32,
    /// The record itself.
    pub payload: &'a [u8],
    /// Whether it shall be synced soon, so that somebody can wait for it ([`Watch::synced`]).
    pub sync: bool,
}

/// What was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub index: Index,
    /// The version of the code that wrote it.
    pub logic: u32,
    /// The record itself.
    pub payload: Bytes,
}

/// The state of a cell after a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that it contains.
    pub upto: Index,
    /// The version of the code that wrote it.
    pub logic: u32,
    /// The state itself.
    pub payload: Bytes,
}

/// Whether everything that may have left is remembered. What was lost is told until whoever opened
/// the log has appended something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All of it.
    Kept,
    /// Perhaps not: what is there is the beginning of what happened.
    Lost(Lost),
    /// There was nothing before: this is a new cell.
    New,
}

/// How memory was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The directory is a copy, and was adopted.
    Adopted,
    /// There is an epoch, and no log that belongs to it.
    Missing,
    /// The machine was restarted.
    Rebooted,
    /// The end of the log cannot be read, and was cut off.
    Torn,
}

/// What a log contains when it is opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The cell's.
    pub identity: Identity,
    /// Higher than ever before; numbers may be made of it.
    pub epoch: u32,
    /// The same as before if nothing was lost.
    pub life: Life,
    /// Whether anything was.
    pub memory: Memory,
    /// The file and the byte from which on it was cut off, because it could not be read; if its
    /// memory is kept, that was a record whose process was killed while it wrote.
    pub cut: Option<(PathBuf, u64)>,
    /// Whether it was sealed: whoever had it ended on purpose.
    pub sealed: bool,
    /// Where to begin.
    pub snapshot: Option<Snapshot>,
    /// What happened since.
    pub records: Vec<Record>,
}

/// Where a log is kept.
pub trait Store {
    /// Opens the log. This may wait: for a disk, or to be elected.
    ///
    /// # Errors
    /// If it is in use, damaged, or cannot be read.
    fn open(&self) -> Result<(Box<dyn Log>, Opened), OpenError>;
}

/// A log that is open. Nothing waits for a disk or a network but [`Log::seal`].
///
/// If it is dropped, what may not leave yet can be lost, as if its process had been killed.
pub trait Log: Send {
    /// Whether so many bytes could be appended now, in one new record or several, so that whoever
    /// asks for something can be refused before it is let in.
    ///
    /// # Errors
    /// [`Error::Full`], or what ended the log.
    fn admit(&mut self, bytes: usize) -> Result<(), Error>;

    /// Numbers a record. It is kept some time after [`Log::flush`]; the watch tells when.
    ///
    /// # Errors
    /// Nothing was appended then. [`Error::Full`] for [`Class::Must`] only where more is owed than
    /// room was kept for.
    fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error>;

    /// Hands over what was appended.
    ///
    /// # Errors
    /// [`Error::Full`] if it could not be written: it is tried again with the next one. Otherwise
    /// the log is at its end.
    fn flush(&mut self) -> Result<(), Error>;

    /// How far it has come.
    fn watch(&self) -> Watch;

    /// From now on so many bytes are kept free for what must be appended, as far as a store can
    /// promise that. It counts from the next record that may be.
    fn keep_room(&mut self, bytes: u64);

    /// Records, for good and in a while, that numbers up to this epoch may be in use; they may be
    /// when [`crate::Progress::epoch`] says so.
    ///
    /// # Errors
    /// What ended the log.
    fn raise_epoch(&mut self, to: u32) -> Result<(), Error>;

    /// Begins a snapshot of the state after the last record that was appended, to be made by
    /// somebody else while this log goes on.
    ///
    /// # Errors
    /// [`Error::Snapshotting`] if there is one already, [`Error::Full`], or what ended the log.
    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error>;

    /// Syncs everything, marks that this was the end on purpose, and closes the log.
    ///
    /// # Errors
    /// If it cannot. What may have left is kept all the same.
    fn seal(self: Box<Self>) -> Result<(), Error>;

    /// Calls the host that is to lead next, where several can, so that it gets ready while this one goes on
    /// ([`crate::Progress::heir`]); or, if it is to be none after all, says so.
    fn call(&mut self, _heir: Option<&str>) {}

    /// As [`Log::seal`], and makes the host leader that was called, which goes on at once.
    ///
    /// # Errors
    /// [`Error::NotReady`] if it is not ready, and [`Error::Full`] if the store has no room for that: then the log goes on as
    /// before. After any other it is at its end. What may have left is kept all the same.
    fn hand_over(&mut self, _heir: &str) -> Result<(), Error> {
        Err(Error::Closed("a log that no other host can lead".into()))
    }

    /// As [`Log::seal`], and nobody is to lead next.
    ///
    /// # Errors
    /// [`Error::Full`] if the store has no room for that: then the log goes on as before. After any other it is at its end.
    fn retire(&mut self) -> Result<(), Error> {
        Err(Error::Closed("a log that no other host can lead".into()))
    }
}

/// A snapshot to be made, on a thread of its own: read the history, replay it, keep the state.
/// Nothing changes if it is dropped.
pub trait SnapshotJob: Send {
    /// The last record that it shall contain.
    fn upto(&self) -> Index;

    /// The snapshot before, and the records from there on.
    ///
    /// # Errors
    /// If they cannot be read.
    fn history(&self) -> Result<(Option<Snapshot>, Vec<Record>), OpenError>;

    /// Keeps the state, and then removes what is in it. A crash in between is harmless.
    ///
    /// # Errors
    /// If it cannot be kept; then everything is as before.
    fn keep(self: Box<Self>, logic: u32, payload: &[u8]) -> Result<(), Error>;
}
