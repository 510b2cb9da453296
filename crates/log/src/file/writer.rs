//! A log that is open: what is appended is collected, and written with the next flush.

use std::io;
use std::sync::{Arc, Weak};

use super::format::{Kind, RecordHeader, SEGMENT_HEADER, SegmentHeader, record_size};
use super::recover::segment_name;
use super::snapshot::FileSnapshot;
use super::syncer::Syncer;
use super::{Durability, Options};
use crate::disk::{Disk, DiskFile, Lock, Place, is_full};
use crate::{
    Class, Entry, Error, Identity, Index, Life, Log, Memory, PAYLOAD_MAX, SnapshotJob, Watch,
};

/// What every segment of a log says of where it comes from.
pub(super) struct Origin {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: Identity,
    pub(super) life: Life,
    pub(super) boot: u128,
    pub(super) place: Place,
    /// What became of the memory when the log was opened.
    pub(super) memory: Memory,
    /// The index of the first record since.
    pub(super) opened_at: Index,
}

impl Origin {
    pub(super) fn draw_salt(&self) -> io::Result<u32> {
        Ok(self.disk.random()? as u32)
    }

    /// Where, for people.
    pub(super) fn shown(&self) -> String {
        self.disk.path().display().to_string()
    }
}

/// The segment that is written to.
pub(super) struct Segment {
    file: Arc<dyn DiskFile>,
    pub(super) sequence: u64,
    salt: u32,
    /// How long it is.
    capacity: u64,
    /// How much of it is written.
    written: u64,
}

impl Segment {
    /// One of which only the header is written.
    pub(super) fn new(file: Arc<dyn DiskFile>, header: &SegmentHeader, capacity: u64) -> Self {
        let (sequence, salt) = (header.sequence, header.salt);
        Self { file, sequence, salt, capacity, written: SEGMENT_HEADER as u64 }
    }
}

/// A log in a directory.
pub struct FileLog {
    origin: Origin,
    lock: Arc<dyn Lock>,
    options: Options,
    segment: Segment,
    /// The number of the segment after it.
    next_sequence: u64,
    /// What was appended and is not written: the segment goes on with it.
    pending: Vec<u8>,
    /// The index of the next record.
    next: Index,
    /// Whether somebody waits for a record to be synced.
    wants_sync: bool,
    room_kept: u64,
    snapshotting: Weak<()>,
    syncer: Syncer,
}

impl FileLog {
    pub(super) fn new(
        origin: Origin,
        lock: Arc<dyn Lock>,
        options: Options,
        segment: Segment,
        next: Index,
        syncer: Syncer,
    ) -> Self {
        Self {
            origin,
            lock,
            options,
            next_sequence: segment.sequence + 1,
            segment,
            pending: Vec::new(),
            next,
            wants_sync: false,
            room_kept: 0,
            snapshotting: Weak::new(),
            syncer,
        }
    }

    /// Syncs what is to be synced, for [`super::Syncing::Caller`].
    ///
    /// # Errors
    /// What is wrong.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.syncer.work_here()
    }

    /// Fails if the log is at its end.
    fn check_alive(&self) -> Result<(), Error> {
        match &self.syncer.progress().borrow().trouble {
            Some(trouble) if !trouble.passes() => Err(trouble.clone()),
            _ => Ok(()),
        }
    }

    /// Something is wrong.
    fn fail(&self, error: Error) -> Error {
        self.syncer.progress().send_modify(|progress| progress.trouble = Some(error.clone()));
        error
    }

    fn full(&self) -> Error {
        Error::Full(self.origin.shown())
    }

    /// Whether another agent would find that this directory is taken.
    fn check_in_place(&self) -> Result<(), Error> {
        if self.lock.in_place() && self.segment.file.has_name() {
            Ok(())
        } else {
            Err(self.fail(Error::Gone(self.origin.disk.path().into())))
        }
    }

    /// Whether so many bytes fit into the segment besides others, and a seal.
    fn fits(&self, bytes: usize, others: u64) -> bool {
        let end = self.segment.written + self.pending.len() as u64;
        end + (bytes + record_size(0)) as u64 + others <= self.segment.capacity
    }

    fn make_room(&mut self, bytes: usize, class: Class) -> Result<(), Error> {
        let stalled = matches!(self.syncer.progress().borrow().trouble, Some(Error::Full(_)));
        if class == Class::May && stalled && !self.pending.is_empty() {
            return Err(self.full());
        }
        if self.fits(bytes, self.room_kept) {
            return Ok(());
        }
        match self.begin_segment(bytes) {
            Err(_) if class == Class::Must && self.fits(bytes, 0) => Ok(()),
            begun => begun,
        }
    }

    /// Goes on in a new segment, with room for so many bytes and for what is to be kept free.
    fn begin_segment(&mut self, bytes: usize) -> Result<(), Error> {
        self.write()?;
        let least = (SEGMENT_HEADER + bytes + record_size(0)) as u64 + self.room_kept;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let name = segment_name(sequence);
        let disk = self.origin.disk.clone();
        let made = disk.create(&name).and_then(|file| self.fill_new(&file, sequence, least));
        let segment = made.map_err(|error| {
            drop(disk.remove(&name));
            if is_full(&error) {
                return self.full();
            }
            Error::Failed {
                place: disk.path().join(&name).display().to_string(),
                error: error.into(),
            }
        })?;
        let old = std::mem::replace(&mut self.segment, segment);
        self.syncer.finish(&old.file, old.written, self.next.before());
        Ok(())
    }

    /// Gives a new segment its room and its header, at once: a snapshot may soon be all there is
    /// besides.
    fn fill_new(&self, file: &Arc<dyn DiskFile>, sequence: u64, least: u64) -> io::Result<Segment> {
        let capacity = self.options.segment.max(least);
        file.allocate(capacity)?;
        let (synced, epoch) = {
            let progress = self.syncer.progress().borrow();
            (progress.synced, progress.epoch)
        };
        let is_unused = self.next == self.origin.opened_at;
        let header = SegmentHeader {
            sequence,
            first: self.next,
            synced,
            identity: self.origin.identity,
            life: self.origin.life,
            boot: self.origin.boot,
            epoch,
            salt: self.origin.draw_salt()?,
            place: self.origin.place,
            memory: if is_unused { self.origin.memory } else { Memory::Kept },
        };
        file.write_at(&header.to_bytes(), 0)?;
        Ok(Segment::new(file.clone(), &header, capacity))
    }

    /// Writes what is pending. What was written in part is written again, over itself.
    fn write(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        match self.segment.file.write_at(&self.pending, self.segment.written) {
            Ok(()) => {
                self.segment.written += self.pending.len() as u64;
                self.pending.clear();
                Ok(())
            }
            Err(error) if is_full(&error) => Err(self.fail(self.full())),
            Err(error) => {
                let (place, error) = (self.origin.shown(), Arc::new(error));
                Err(self.fail(Error::Unknown { place, error }))
            }
        }
    }

    fn add(&mut self, kind: Kind, logic: u32, payload: &[u8]) {
        let synced = self.syncer.progress().borrow().synced;
        let behind = self.next.before().0.saturating_sub(synced.0);
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        let header = RecordHeader { index: self.next, logic, behind, kind };
        header.write(self.segment.salt, payload, &mut self.pending);
    }
}

impl Log for FileLog {
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes > PAYLOAD_MAX {
            return Err(Error::TooLong(bytes));
        }
        self.check_alive()?;
        self.make_room(record_size(bytes), Class::May)
    }

    fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error> {
        if entry.payload.len() > PAYLOAD_MAX {
            return Err(Error::TooLong(entry.payload.len()));
        }
        self.check_alive()?;
        self.make_room(record_size(entry.payload.len()), entry.class)?;
        self.add(Kind::Entry, entry.logic, entry.payload);
        let index = self.next;
        self.next = index.next();
        self.wants_sync |= entry.sync;
        Ok(index)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.check_alive()?;
        self.check_in_place()?;
        self.write()?;
        let upto = self.next.before();
        let is_written = self.options.durability == Durability::Written;
        let mut is_new = false;
        self.syncer.progress().send_if_modified(|progress| {
            let cleared = progress.trouble.take_if(|trouble| trouble.passes()).is_some();
            is_new = progress.synced < upto;
            let moves = is_written && progress.may_leave < upto;
            if moves {
                progress.may_leave = upto;
            }
            moves || cleared
        });
        if std::mem::take(&mut self.wants_sync) || (!is_written && is_new) {
            self.syncer.ask(&self.segment.file, upto);
        }
        Ok(())
    }

    fn watch(&self) -> Watch {
        Watch::new(self.syncer.progress().subscribe())
    }

    fn keep_room(&mut self, bytes: u64) {
        self.room_kept = bytes;
    }

    fn raise_epoch(&mut self, to: u32) -> Result<(), Error> {
        self.check_alive()?;
        self.syncer.raise_epoch(to);
        Ok(())
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error> {
        if self.snapshotting.strong_count() > 0 {
            return Err(Error::Snapshotting(self.origin.shown()));
        }
        self.flush()?;
        self.begin_segment(0)?;
        let token = Arc::new(());
        self.snapshotting = Arc::downgrade(&token);
        let sequence = self.segment.sequence;
        let upto = self.next.before();
        let (lock, origin) = (self.lock.clone(), &self.origin);
        Ok(Box::new(FileSnapshot::new(origin, sequence, upto, lock, token)))
    }

    fn seal(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()?;
        self.add(Kind::Seal, 0, &[]);
        self.write()?;
        self.syncer.stop();
        let written = self.segment.written;
        self.syncer.finish(&self.segment.file, written, self.next.before());
        self.syncer.work_here()
    }
}
