//! A log in files on a simulated disk, which syncs with every flush and has no threads.

use holdall_log::file::{FileLog, FileStore};
use holdall_log::{Entry, Error, Index, Log, OpenError, Opened, SnapshotJob, Store, Watch};

pub(crate) struct Synced(pub(crate) FileStore);

struct SyncedLog(FileLog);

impl Store for Synced {
    fn open(&self) -> Result<(Box<dyn Log>, Opened), OpenError> {
        let (log, opened) = self.0.open_file()?;
        Ok((Box::new(SyncedLog(log)), opened))
    }
}

impl Log for SyncedLog {
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
        self.0.admit(bytes)
    }
    fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error> {
        self.0.append(entry)
    }
    fn flush(&mut self) -> Result<(), Error> {
        self.0.flush()?;
        self.0.sync()
    }
    fn watch(&self) -> Watch {
        self.0.watch()
    }
    fn keep_room(&mut self, bytes: u64) {
        self.0.keep_room(bytes);
    }
    fn raise_epoch(&mut self, to: u32) -> Result<(), Error> {
        self.0.raise_epoch(to)
    }
    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error> {
        self.0.begin_snapshot()
    }
    fn seal(self: Box<Self>) -> Result<(), Error> {
        Box::new(self.0).seal()
    }
}
