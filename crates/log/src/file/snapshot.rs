//! A snapshot that is being made beside the log.
//!
//! The segment that follows it is synced, with its name; then it is written under another name and
//! synced; then it gets its name, and that is synced; then what it stands for is removed. After a crash
//! before the name is there, the old files are; after that, they are of no meaning.

use std::io;
use std::sync::Arc;

use super::backlog::Waiter;
use super::format::SnapshotHeader;
use super::recover::{Extent, recover, segment_name, sequences, snapshot_name};
use super::writer::Origin;
use crate::disk::{Disk, Lock, is_full, remove_if_there};
use crate::{Error, Identity, Index, OpenError, Record, Snapshot, SnapshotJob};

const NEW_SNAPSHOT: &str = "snapshot.new";

/// A snapshot to be made of all segments below one.
pub(super) struct FileSnapshot {
    disk: Arc<dyn Disk>,
    boot: u128,
    identity: Identity,
    sequence: u64,
    upto: Index,
    /// What belongs to the history, and the segment after it, may still be in there.
    backlog: Waiter,
    /// No other log is opened here before this is done.
    lock: Arc<dyn Lock>,
    /// No other snapshot is begun.
    _token: Arc<()>,
}

impl FileSnapshot {
    pub(super) fn new(
        origin: &Origin,
        sequence: u64,
        upto: Index,
        backlog: Waiter,
        lock: Arc<dyn Lock>,
        token: Arc<()>,
    ) -> Self {
        let (disk, boot, identity) = (origin.disk.clone(), origin.boot, origin.identity);
        Self { disk, boot, identity, sequence, upto, backlog, lock, _token: token }
    }

    fn write(&self, logic: u32, payload: &[u8]) -> io::Result<()> {
        let (sequence, upto, identity) = (self.sequence, self.upto, self.identity);
        let header = SnapshotHeader { sequence, upto, identity, logic };
        remove_if_there(&*self.disk, NEW_SNAPSHOT)?;
        let file = self.disk.create(NEW_SNAPSHOT)?;
        let header = header.to_bytes(payload);
        file.allocate((header.len() + payload.len()) as u64)?;
        file.write_at(&header, 0)?;
        file.write_at(payload, header.len() as u64)?;
        file.sync()?;
        self.disk.rename(NEW_SNAPSHOT, &snapshot_name(self.sequence))?;
        self.disk.sync_names()
    }

    /// Removes what the snapshot stands for. What is left is removed when the log is opened.
    fn remove_old(&self) {
        let Ok((segments, snapshots)) = sequences(&*self.disk) else { return };
        let is_old = |sequence: &u64| *sequence < self.sequence;
        let segments = segments.into_iter().filter(is_old).map(segment_name);
        let snapshots = snapshots.into_iter().filter(is_old).map(snapshot_name);
        for name in segments.chain(snapshots) {
            drop(self.disk.remove(&name));
        }
    }
}

impl SnapshotJob for FileSnapshot {
    fn upto(&self) -> Index {
        self.upto
    }

    fn history(&self) -> Result<(Option<Snapshot>, Vec<Record>), OpenError> {
        let path = self.disk.path().join(segment_name(self.sequence));
        if let Err(error) = self.backlog.wait() {
            return Err(OpenError::Io { path, error: io::Error::other(error) });
        }
        let extent = Extent { below: Some(self.sequence), in_doubt: false };
        let found = recover(&*self.disk, self.boot, extent)?;
        if found.next != self.upto.next() {
            let what = format!("record {}, which is in no file before it", found.next.0);
            return Err(OpenError::Damaged { path, offset: 24, what });
        }
        Ok((found.snapshot, found.records))
    }

    fn keep(self: Box<Self>, logic: u32, payload: &[u8]) -> Result<(), Error> {
        if !self.lock.in_place() {
            return Err(Error::Gone(self.disk.path().into()));
        }
        // The segment after it must be there before it is all there is besides.
        self.backlog.wait()?;
        // Soon the first there is; its header says whose this is, and of which run of the machine.
        let place = self.disk.path().display().to_string();
        let following = self.disk.open(&segment_name(self.sequence)).map_err(|error| {
            Error::Failed { place: place.clone(), error: Arc::new(error) } // Nothing was lost by that.
        })?;
        // Its name, too: one that gets lost after this snapshot has got its own would leave a gap.
        let is_there = following.sync().and_then(|()| self.disk.sync_names());
        is_there.map_err(|error| self.backlog.fail(error))?;
        if let Err(error) = self.write(logic, payload) {
            drop(self.disk.remove(NEW_SNAPSHOT));
            let error = if is_full(&error) {
                Error::Full(place)
            } else {
                Error::Failed { place, error: Arc::new(error) }
            };
            return Err(error);
        }
        self.remove_old();
        Ok(())
    }
}
