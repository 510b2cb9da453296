//! A log that is open: what is appended is collected, and written with the next flush.

use std::io;
use std::sync::{Arc, Weak};

use super::Options;
use super::backlog::{Backlog, Job};
use super::format::{Kind, RecordHeader, SEGMENT_HEADER, SegmentHeader, record_size};
use super::recover::segment_name;
use super::snapshot::FileSnapshot;
use super::spare::Order;
use super::syncer::Syncer;
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
    /// Up to where it may be written.
    limit: u64,
    /// How much of it is written.
    written: u64,
}

/// Of a segment one part in so many is never written: its room is what a log on a full disk can be
/// opened with.
pub(super) const UNUSED_PART: u64 = 16;

impl Segment {
    /// One of which only the header is written.
    pub(super) fn new(file: Arc<dyn DiskFile>, header: &SegmentHeader) -> Self {
        let SegmentHeader { sequence, salt, capacity, .. } = *header;
        let limit = capacity - capacity / UNUSED_PART;
        Self { file, sequence, salt, limit, written: SEGMENT_HEADER as u64 }
    }
}

/// A log in a directory.
pub struct FileLog {
    /// First of all, so that its thread has ended when the lock goes.
    backlog: Backlog,
    syncer: Syncer,
    origin: Origin,
    lock: Arc<dyn Lock>,
    options: Options,
    segment: Segment,
    /// The number of the next segment that is made.
    next_sequence: u64,
    /// Whether one is to be made ahead for the end of this segment.
    has_spare: bool,
    /// What was appended and is not written: the segment goes on with it.
    pending: Vec<u8>,
    /// The index of the next record.
    next: Index,
    /// The last record that was flushed.
    handed_over: Index,
    /// Whether somebody waits for a record to be synced.
    wants_sync: bool,
    room_kept: u64,
    snapshotting: Weak<()>,
}

impl FileLog {
    pub(super) fn new(
        origin: Origin,
        lock: Arc<dyn Lock>,
        options: Options,
        segment: Segment,
        backlog: Backlog,
        syncer: Syncer,
    ) -> Self {
        let next = origin.opened_at;
        Self {
            backlog,
            syncer,
            origin,
            lock,
            options,
            next_sequence: segment.sequence + 1,
            has_spare: false,
            segment,
            pending: Vec::new(),
            next,
            handed_over: next.before(),
            wants_sync: false,
            room_kept: 0,
            snapshotting: Weak::new(),
        }
    }

    /// Writes a piece of what is put off, for [`super::Syncing::Steps`].
    pub fn write_next(&mut self) {
        self.backlog.work_here();
    }

    /// Syncs what is to be synced, for [`super::Syncing::Caller`] and [`super::Syncing::Steps`].
    ///
    /// # Errors
    /// What is wrong.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.syncer.work_here()
    }

    /// Fails if the log is at its end.
    fn check_alive(&self) -> Result<(), Error> {
        self.syncer.shared().check_alive()
    }

    /// Something is wrong.
    fn fail(&self, error: Error) -> Error {
        self.syncer.shared().set_trouble(&error);
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

    /// How many bytes the segment has left, besides what is to be kept free.
    fn room(&self, kept: u64) -> u64 {
        let end = self.segment.written + self.pending.len() as u64;
        self.segment.limit.saturating_sub(end + kept)
    }

    /// Whether so many bytes fit into the segment besides others, and a seal.
    fn fits(&self, bytes: usize, others: u64) -> bool {
        (bytes + record_size(0)) as u64 <= self.room(others)
    }

    fn make_room(&mut self, bytes: usize, class: Class) -> Result<(), Error> {
        let stalled = matches!(self.syncer.progress().borrow().trouble, Some(Error::Full(_)));
        let waiting = !self.pending.is_empty() || !self.backlog.is_idle();
        if class == Class::May && stalled && waiting {
            return Err(self.full());
        }
        if self.fits(bytes, self.room_kept) {
            return Ok(());
        }
        match self.begin_segment(bytes) {
            Err(error) if error.passes() && class == Class::Must && self.fits(bytes, 0) => Ok(()),
            begun => begun,
        }
    }

    /// Goes on in a new segment, with room for so many bytes and for what is to be kept free.
    fn begin_segment(&mut self, bytes: usize) -> Result<(), Error> {
        self.write(None)?;
        let least = (SEGMENT_HEADER + bytes + record_size(0)) as u64 + self.room_kept;
        let segment = self.next_segment(with_unused(least))?;
        let old = std::mem::replace(&mut self.segment, segment);
        // What was not flushed is written, and yet nobody has said that it may leave.
        let upto = self.handed_over;
        self.put(Job::Finish { file: old.file, length: old.written, upto })
    }

    /// How long a segment is to be: what is kept free must not leave it without room for what comes,
    /// or that would need the next one at once.
    fn capacity(&self) -> u64 {
        self.options.segment + with_unused(self.room_kept)
    }

    /// The segment that was made ahead, if it is ready, or another; as long as it is to be, or where
    /// there is no room for that, as long as it must be.
    fn next_segment(&mut self, least: u64) -> Result<Segment, Error> {
        let spare = self.syncer.take_spare();
        self.has_spare = false;
        let behind = self.segment.sequence;
        if let Some(late) = spare.as_ref().filter(|spare| spare.sequence < behind) {
            self.syncer.discard(segment_name(late.sequence));
        }
        let disk = self.origin.disk.clone();
        let wanted = self.capacity().max(least);
        let (sequence, made) = match spare.filter(|spare| spare.sequence > behind) {
            // More may be kept by now than when it was made.
            Some(spare) if spare.capacity >= least.max(wanted - self.options.segment / 2) => {
                (spare.sequence, Ok((spare.file, spare.capacity)))
            }
            Some(spare) => {
                let longer = lengthen(&*spare.file, spare.capacity, least, wanted);
                (spare.sequence, longer.map(|capacity| (spare.file, capacity)))
            }
            None => {
                let sequence = self.next_sequence;
                self.next_sequence += 1;
                let made = disk.create(&segment_name(sequence)).and_then(|file| {
                    let capacity = lengthen(&*file, 0, least, wanted)?;
                    Ok((file, capacity))
                });
                (sequence, made)
            }
        };
        let filled = made.and_then(|(file, capacity)| self.fill_new(&file, sequence, capacity));
        filled.map_err(|error| {
            let name = segment_name(sequence);
            drop(disk.remove(&name));
            if is_full(&error) {
                return self.full();
            }
            let place = disk.path().join(&name).display().to_string();
            Error::Failed { place, error: error.into() }
        })
    }

    /// Has the next segment made ahead when half of the room in this one is used.
    fn look_ahead(&mut self) {
        if !self.has_spare && self.room(self.room_kept) < self.options.segment / 2 {
            let (sequence, capacity) = (self.next_sequence, self.capacity());
            self.next_sequence += 1;
            self.has_spare = true;
            self.syncer.order_spare(Order { sequence, capacity });
        }
    }

    /// Gives a new segment its header, at once: a snapshot may soon be all there is besides.
    fn fill_new(
        &self,
        file: &Arc<dyn DiskFile>,
        sequence: u64,
        capacity: u64,
    ) -> io::Result<Segment> {
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
            capacity,
            memory: if is_unused { self.origin.memory } else { Memory::Kept },
        };
        let (file, bytes) = (file.clone(), header.to_bytes().to_vec());
        let segment = Segment::new(file.clone(), &header);
        let write = Job::Write { file, bytes, offset: 0, flushed: None, sync: false };
        self.backlog.put(write).map_err(|(_, error)| error)?;
        Ok(segment)
    }

    fn put(&self, job: Job) -> Result<(), Error> {
        let done = self.backlog.put(job).map(drop);
        done.map_err(|(_, error)| self.syncer.shared().fail(error))
    }

    /// Writes what is pending, or has it written. What was written in part is written again, over
    /// itself.
    fn write(&mut self, flushed: Option<Index>) -> Result<(), Error> {
        if self.pending.is_empty() && flushed.is_none() {
            return Ok(());
        }
        let written = self.pending.len() as u64;
        let write = Job::Write {
            file: self.segment.file.clone(),
            bytes: std::mem::take(&mut self.pending),
            offset: self.segment.written,
            flushed,
            sync: flushed.is_some() && std::mem::take(&mut self.wants_sync),
        };
        match self.backlog.put(write) {
            Ok(done) => {
                self.segment.written += written;
                if let Some(Job::Write { bytes, .. }) = done {
                    self.pending = bytes; // Its room is used again.
                    self.pending.clear();
                }
                self.look_ahead();
                Ok(())
            }
            Err((Job::Write { bytes, sync, .. }, error)) if is_full(&error) => {
                self.pending = bytes;
                self.wants_sync |= sync;
                Err(self.fail(self.full()))
            }
            Err((_, error)) => Err(self.syncer.shared().fail(error)),
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

/// So many bytes, and the part that is never written.
fn with_unused(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes + bytes / (UNUSED_PART - 1) + 1 }
}

/// Makes a file as long as is wanted, or at least as long as it must be; tells how long.
fn lengthen(file: &dyn DiskFile, length: u64, least: u64, wanted: u64) -> io::Result<u64> {
    match file.allocate(wanted) {
        Ok(()) => Ok(wanted),
        Err(error) if is_full(&error) => {
            // It may have been given a part of that.
            file.cut(length)?;
            if length < least {
                file.allocate(least)?;
            }
            Ok(length.max(least))
        }
        Err(error) => Err(error),
    }
}

impl Log for FileLog {
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
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
        let upto = self.next.before();
        if upto > self.handed_over || !self.pending.is_empty() {
            self.write(Some(upto))?;
            self.handed_over = upto;
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
        let backlog = self.backlog.waiter();
        Ok(Box::new(FileSnapshot::new(origin, sequence, upto, backlog, lock, token)))
    }

    fn seal(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()?;
        self.add(Kind::Seal, 0, &[]);
        self.write(None)?;
        self.backlog.waiter().wait()?;
        self.backlog.stop();
        self.syncer.stop();
        let (file, length) = (self.segment.file.clone(), self.segment.written);
        let finish = Job::Finish { file, length, upto: self.next.before() };
        self.put(finish)?;
        self.syncer.work_here()
    }
}
