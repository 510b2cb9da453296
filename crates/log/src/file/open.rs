//! How a log is opened: what is there is read and judged, a new epoch is put in force, and a new
//! segment begun. Only that last step changes what the directory says.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::backlog::Backlog;
use super::doubt::{DOUBT, is_in_doubt, leave_doubt};
use super::format::{SEGMENT_HEADER, SegmentHeader};
use super::recover::{Extent, NEW_SEGMENT, OPENING, Recovered, recover, segment_name, sequences};
use super::syncer::Syncer;
use super::writer::{Origin, Segment};
use super::{FileLog, Options};
use crate::disk::{self, Disk, DiskFile, Place};
use crate::epoch::{self, Epochs};
use crate::{Life, Lost, Memory, OpenError, Opened, Progress};

const LOCK: &str = "lock";

pub(super) fn open(
    disk: &Arc<dyn Disk>,
    twin: Option<&epoch::Place>,
    options: Options,
) -> Result<(FileLog, Opened), OpenError> {
    let failed = |error| OpenError::Io { path: disk.path().into(), error };
    let lock = disk.lock(LOCK).map_err(failed)?;
    let lock = lock.ok_or_else(|| OpenError::InUse(disk.path().into()))?;
    let (boot, place) = (disk.boot().map_err(failed)?, disk.place().map_err(failed)?);
    let in_doubt = is_in_doubt(&**disk).map_err(failed)?;
    if in_doubt {
        forget_unwritten(&**disk)?;
    }
    let found = recover(&**disk, boot, Extent { below: None, in_doubt })?;
    let epochs = Epochs::new(disk.clone(), twin.cloned());
    let kept = epochs.read()?;
    let memory = judge(&found, kept.map(|kept| kept.epoch), boot, place);
    let is_copy = found.last.as_ref().is_some_and(|last| last.boot == boot && last.place != place);
    if is_copy && !options.adopt {
        return Err(OpenError::Copied(disk.path().into()));
    }
    let identity = match found.identity.or_else(|| kept.and_then(|kept| kept.identity)) {
        Some(identity) => identity,
        None => crate::Identity(disk.random().map_err(failed)?),
    };
    let life = match &found.last {
        Some(last) if memory == Memory::Kept => last.life,
        _ => Life(disk.random().map_err(failed)?),
    };
    // What was read is relied on from now on.
    for name in &found.used {
        disk.open(name).and_then(|file| file.sync()).map_err(|error| {
            leave_doubt(&**disk);
            failed(error)
        })?;
    }
    disk.sync_names().map_err(failed)?;

    let in_log = found.last.as_ref().map(|last| last.epoch);
    let mut epoch = epoch::next(kept, in_log).ok_or_else(|| OpenError::Exhausted(epochs.path()))?;
    let raised = announce(&**disk).and_then(|()| epochs.raise(epoch, identity));
    let is_in_force = raised.is_ok();
    if let Err((path, error)) = raised {
        // Nothing was lost, so numbers can go on where they were. The twin may be ahead by now.
        if memory != Memory::Kept || !disk::is_full(&error) {
            return Err(OpenError::Io { path, error });
        }
        epoch -= 1;
    }
    let opened_at = found.next;
    let origin = Origin { disk: disk.clone(), identity, life, boot, place, memory, opened_at };
    let mut header = SegmentHeader {
        sequence: found.next_sequence,
        first: found.next,
        synced: found.next.before(),
        identity,
        life,
        boot,
        epoch,
        salt: origin.draw_salt().map_err(failed)?,
        place,
        capacity: options.segment,
        memory,
    };
    let segment = begin(&**disk, &mut header, &found).map_err(failed)?;
    if in_doubt {
        disk::remove_if_there(&**disk, DOUBT).map_err(failed)?; // The header says it from now on.
    }
    tidy(&**disk, &found);
    if is_in_force {
        drop(disk::remove_if_there(&**disk, OPENING)); // If it stays, so much less is noticed.
    }

    let progress = Progress::new(found.next.before(), epoch);
    let syncer = Syncer::new(&origin, epochs, options, progress).map_err(failed)?;
    let backlog = Backlog::new(syncer.shared(), options.syncing).map_err(failed)?;
    let log = FileLog::new(origin, lock.into(), options, segment, backlog, syncer);
    let Recovered { cut, snapshot, records, sealed, .. } = found;
    Ok((log, Opened { identity, epoch, life, memory, cut, sealed, snapshot, records }))
}

/// What is read from now on is what the disk holds: pages of a sync that has failed are taken for
/// clean, and nobody will write them any more.
fn forget_unwritten(disk: &dyn Disk) -> Result<(), OpenError> {
    for name in sequences(disk)?.0.into_iter().map(segment_name) {
        let file = disk.open(&name);
        let forgotten = file.and_then(|file| file.sync().and_then(|()| file.forget()));
        forgotten.map_err(|error| OpenError::Io { path: disk.path().join(&name), error })?;
    }
    Ok(())
}

/// Whether everything that may have left is remembered.
fn judge(found: &Recovered, kept: Option<u32>, boot: u128, place: Place) -> Memory {
    let Some(last) = &found.last else {
        let is_new = kept.is_none() && found.snapshot.is_none();
        return if is_new { Memory::New } else { Memory::Lost(Lost::Missing) };
    };
    if last.boot != boot {
        return Memory::Lost(Lost::Rebooted);
    }
    if last.place != place {
        return Memory::Lost(Lost::Adopted);
    }
    // Somebody has opened it after it was sealed, and the segment which that one began is gone.
    let goes_on =
        found.sealed && !found.is_being_opened && kept.is_some_and(|kept| kept > last.epoch);
    if found.torn || goes_on {
        return Memory::Lost(Lost::Torn);
    }
    // Whoever opened it last may have ended before it could do anything about it.
    if found.next == last.first { last.memory } else { Memory::Kept }
}

/// Leaves a sign until the next segment has its name: an epoch may be in force which no segment has, and
/// the end of the last segment may be cut off.
pub(super) fn announce(disk: &dyn Disk) -> Result<(), (PathBuf, io::Error)> {
    let created = match disk.create(OPENING) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.and_then(|_| disk.sync_names()),
    };
    created.map_err(|error| (disk.path().join(OPENING), error))
}

/// Begins a segment: with it, whatever was void is cut off, and all the header says is in force. On a
/// full disk it is as long as it can be.
fn begin(disk: &dyn Disk, header: &mut SegmentHeader, found: &Recovered) -> io::Result<Segment> {
    disk::remove_if_there(disk, NEW_SEGMENT)?;
    let file = disk.create(NEW_SEGMENT)?;
    match file.allocate(header.capacity) {
        Err(error) if disk::is_full(&error) => {
            if header.memory == Memory::Kept {
                announce(disk).map_err(|(_, error)| error)?;
                // The room that the segment before has kept, and what was made ahead.
                found.blank.iter().for_each(|name| drop(disk.remove(name)));
                cut_end(disk, found)?;
            }
            header.capacity = allocate_most(&*file, header.capacity)?;
        }
        allocated => allocated?,
    }
    file.write_at(&header.to_bytes(), 0)?;
    file.sync()?;
    disk.rename(NEW_SEGMENT, &segment_name(header.sequence))?;
    disk.sync_names()?;
    Ok(Segment::new(file, header))
}

/// Makes a file as long as there is room for, in eighths of what is wanted: others need room, too. If
/// there is not even one, the disk is full, and the file takes what the segment before has given back,
/// but for a small part: so a start leaves the next one all that it has not used itself.
fn allocate_most(file: &dyn DiskFile, wanted: u64) -> io::Result<u64> {
    let least = (wanted / 512).max(2 * SEGMENT_HEADER as u64);
    let eighths = (1..8).rev().map(|eighths| wanted / 8 * eighths);
    for length in eighths.filter(|length| *length >= least) {
        match file.allocate(length) {
            Err(error) if disk::is_full(&error) => file.cut(0)?,
            allocated => return allocated.map(|()| length),
        }
    }
    let (mut length, mut step) = (0, wanted / 16);
    while step >= (wanted / 2048).max(1) {
        match file.allocate(length + step) {
            Ok(()) => length += step,
            Err(error) if disk::is_full(&error) => file.cut(length)?,
            Err(error) => return Err(error),
        }
        step /= 2;
    }
    if length < least {
        file.cut(0)?;
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(length)
}

/// Gives back the room that is not needed any more. If that fails, it is done another time.
fn tidy(disk: &dyn Disk, found: &Recovered) {
    drop(cut_end(disk, found));
    for name in &found.unused {
        drop(disk.remove(name));
    }
}

fn cut_end(disk: &dyn Disk, found: &Recovered) -> io::Result<()> {
    match &found.end {
        Some((name, end)) => disk.open(name)?.cut(*end),
        None => Ok(()),
    }
}
