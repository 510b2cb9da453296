//! What a directory tells of its log.
//!
//! Segments are read in the order of their numbers. A segment's first index makes void whatever
//! earlier ones hold from that index on: so whoever opens a log cuts off a tail by beginning a
//! segment, in one step.
//!
//! # What cannot be read
//! - The last segment is as long as it was made, unless it was sealed: if it is shorter, somebody else
//!   has cut off its end, and nobody knows what was there. Only whoever opens a log on a full disk cuts
//!   it, at the end of its records, and leaves [`OPENING`] until the next segment has its name.
//! - While the machine runs, everything that was written is there, in the order of writing. So only
//!   the last record can be there in part, if its process was killed: nobody was told of it, and
//!   nothing is lost. A whole record that is wrong and the last: the end is torn. Anything else is
//!   damage.
//! - After a restart of the machine anything that was not synced may be missing, also between what
//!   is there: the end is torn. If a later record tells that it *was* synced, that is damage. After a
//!   sync that failed it is the same.

use std::path::PathBuf;

use bytes::Bytes;

use super::format::{
    Bad, Kind, Read, RecordHeader, SEGMENT_HEADER, SegmentHeader, SnapshotHeader, find_records,
    read_record,
};
use crate::disk::Disk;
use crate::{Identity, Index, OpenError, Record, Snapshot};

/// A segment that is being begun.
pub(super) const NEW_SEGMENT: &str = "segment.new";
/// There while the log is being opened.
pub(super) const OPENING: &str = "opening";

/// What a directory contains.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) identity: Option<Identity>,
    /// The last segment that was begun.
    pub(super) last: Option<SegmentHeader>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) records: Vec<Record>,
    /// The index of the next record.
    pub(super) next: Index,
    pub(super) sealed: bool,
    /// Where the end cannot be read.
    pub(super) cut: Option<(PathBuf, u64)>,
    /// Whether a sync has failed.
    in_doubt: bool,
    /// Whether somebody has begun to open the log, and perhaps cut its end for room.
    pub(super) is_being_opened: bool,
    /// Whether more can be missing than a record that was being written.
    pub(super) torn: bool,
    /// The segment that holds the end, and where in it that is.
    pub(super) end: Option<(String, u64)>,
    /// The number of the next file.
    pub(super) next_sequence: u64,
    /// Segments that hold something that counts.
    pub(super) used: Vec<String>,
    /// Files that hold nothing that counts, or will not when a segment is begun.
    pub(super) unused: Vec<String>,
    /// Those of them that nothing was written to.
    pub(super) blank: Vec<String>,
}

/// The name of a segment.
pub(super) fn segment_name(sequence: u64) -> String {
    format!("segment-{sequence:016x}")
}

/// The name of a snapshot.
pub(super) fn snapshot_name(sequence: u64) -> String {
    format!("snapshot-{sequence:016x}")
}

fn sequence_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The numbers of all segments and snapshots.
pub(super) fn sequences(disk: &dyn Disk) -> Result<(Vec<u64>, Vec<u64>), OpenError> {
    let failed = |error| OpenError::Io { path: disk.path().into(), error };
    let names = disk.names().map_err(failed)?;
    let of = |prefix: &str| {
        let mut found: Vec<u64> =
            names.iter().filter_map(|name| sequence_of(name, prefix)).collect();
        found.sort_unstable();
        found
    };
    Ok((of("segment-"), of("snapshot-")))
}

/// A segment with its bytes.
struct Segment {
    header: SegmentHeader,
    name: String,
    bytes: Bytes,
    /// The first index of those after it.
    limit: Option<Index>,
}

/// What is to be read, and how.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Only segments below this number.
    pub(super) below: Option<u64>,
    /// Whether a sync has failed: then it is as after a restart of the machine.
    pub(super) in_doubt: bool,
}

/// Reads what a directory contains.
pub(super) fn recover(disk: &dyn Disk, boot: u128, extent: Extent) -> Result<Recovered, OpenError> {
    let (mut sequences, mut snapshots) = sequences(disk)?;
    if let Some(below) = extent.below {
        sequences.retain(|sequence| *sequence < below);
        snapshots.retain(|sequence| *sequence < below);
    }
    let newest = sequences.iter().chain(&snapshots).max();
    let next_sequence = newest.map_or(Some(1), |sequence| sequence.checked_add(1));
    let next_sequence = next_sequence.ok_or_else(|| {
        damaged(disk, &segment_name(u64::MAX), 0, "no file of the last number there is")
    })?;
    let in_doubt = extent.in_doubt;
    let names = disk.names().map_err(|error| OpenError::Io { path: disk.path().into(), error })?;
    let is_being_opened = names.iter().any(|name| name == OPENING);
    let mut found = Recovered {
        next: Index(1),
        next_sequence,
        in_doubt,
        is_being_opened,
        ..Recovered::default()
    };
    if let Some(sequence) = snapshots.pop() {
        found.take_snapshot(disk, sequence)?;
        found.unused.extend(snapshots.into_iter().map(snapshot_name));
        let old = sequences.extract_if(.., |old| *old < sequence);
        found.unused.extend(old.map(segment_name));
    }
    let mut segments = Vec::new();
    let mut last_is_odd = None;
    for sequence in sequences {
        let (name, bytes) = read(disk, segment_name(sequence))?;
        match SegmentHeader::read(&bytes) {
            Ok(header) => {
                last_is_odd = None;
                segments.push(Segment { header, name, bytes, limit: None });
            }
            Err(Bad::Version(version)) => {
                return Err(OpenError::Newer { path: disk.path().join(name), version });
            }
            // Perhaps somebody can make something of it: it is left.
            Err(Bad::Wrong(what)) => last_is_odd = Some((name, what)),
            // Made, and nothing was written to it.
            Err(Bad::Blank | Bad::Part) => {
                found.blank.push(name.clone());
                found.unused.push(name);
            }
        }
    }
    if let Some((name, what)) = last_is_odd {
        // Only the machine's end leaves that behind; and the first segment was synced.
        if segments.last().is_none_or(|last| last.header.boot == boot && !in_doubt) {
            return Err(damaged(disk, &name, 0, what));
        }
    }
    found.take_segments(disk, boot, segments)?;
    found.torn |= in_doubt;
    Ok(found)
}

fn read(disk: &dyn Disk, name: String) -> Result<(String, Bytes), OpenError> {
    match disk.open(&name).and_then(|file| file.read()) {
        Ok(bytes) => Ok((name, bytes.into())),
        Err(error) => Err(OpenError::Io { path: disk.path().join(name), error }),
    }
}

fn damaged(disk: &dyn Disk, name: &str, offset: usize, what: impl Into<String>) -> OpenError {
    OpenError::Damaged {
        path: disk.path().join(name),
        offset: offset as u64,
        what: format!("there should be {}", what.into()),
    }
}

impl Recovered {
    fn take_snapshot(&mut self, disk: &dyn Disk, sequence: u64) -> Result<(), OpenError> {
        let (name, bytes) = read(disk, snapshot_name(sequence))?;
        match SnapshotHeader::read(&bytes) {
            Ok((header, payload)) if header.sequence == sequence => {
                self.next = header.upto.next();
                self.identity = Some(header.identity);
                self.snapshot = Some(Snapshot { upto: header.upto, logic: header.logic, payload });
                Ok(())
            }
            Ok(_) => Err(damaged(disk, &name, 16, "the number in its name")),
            Err((_, Bad::Version(version))) => {
                Err(OpenError::Newer { path: disk.path().join(name), version })
            }
            Err((at, Bad::Wrong(what))) => Err(damaged(disk, &name, at, what)),
            Err((at, _)) => Err(damaged(disk, &name, at, "a snapshot")),
        }
    }

    fn take_segments(
        &mut self,
        disk: &dyn Disk,
        boot: u128,
        mut segments: Vec<Segment>,
    ) -> Result<(), OpenError> {
        if let Some(last) = segments.last() {
            self.identity = Some(last.header.identity);
            self.last = Some(last.header.clone());
        }
        let mut limit: Option<Index> = None;
        for segment in segments.iter_mut().rev() {
            segment.limit = limit;
            let first = segment.header.first;
            limit = Some(limit.map_or(first, |limit| limit.min(first)));
        }
        let is_void =
            |segment: &Segment| segment.limit.is_some_and(|limit| segment.header.first >= limit);
        self.unused.extend(segments.iter().filter(|s| is_void(s)).map(|s| s.name.clone()));
        segments.retain(|segment| !is_void(segment));
        if let Some(first) = segments.first()
            && first.header.first > self.next
        {
            let what = format!("record {}, which is in no file before it", self.next.0);
            return Err(damaged(disk, &first.name, 24, what));
        }
        for (at, segment) in segments.iter().enumerate() {
            let stopped = self.take_records(segment);
            self.used.push(segment.name.clone());
            self.end = Some((segment.name.clone(), stopped.at as u64));
            let is_short = segment.limit.is_some_and(|limit| self.next < limit);
            if is_short || stopped.is_odd || self.is_shortened(segment, &stopped) {
                let claims = claims_behind(&segments[at..], stopped.at + 1);
                self.judge(disk, boot, segment, &stopped, claims)?;
                self.unused.extend(segments[at + 1..].iter().map(|s| s.name.clone()));
                break;
            }
        }
        Ok(())
    }

    /// Takes the records of a segment, and tells where they stop.
    fn take_records(&mut self, segment: &Segment) -> Stopped {
        let mut index = segment.header.first;
        let mut at = SEGMENT_HEADER;
        self.sealed = false;
        while segment.limit.is_none_or(|limit| index < limit) {
            let bad = match read_record(&segment.bytes, at, segment.header.salt) {
                Ok(Read { header, .. }) if header.index != index => Bad::Wrong("the next record"),
                Ok(Read { header: RecordHeader { kind: Kind::Seal, .. }, end, .. }) => {
                    self.sealed = true;
                    at = end;
                    continue_after_seal(&segment.bytes, end)
                }
                Ok(Read { header, payload, end }) => {
                    if index >= self.next {
                        self.records.push(Record { index, logic: header.logic, payload });
                        self.next = index.next();
                    }
                    (index, at) = (index.next(), end);
                    continue;
                }
                Err(bad) => bad,
            };
            let is_whole = matches!(bad, Bad::Wrong(_) | Bad::Version(_));
            return Stopped { at, is_odd: bad != Bad::Blank, is_whole };
        }
        Stopped { at, is_odd: false, is_whole: false }
    }

    /// Whether somebody has cut off the end of the log.
    fn is_shortened(&self, segment: &Segment, stopped: &Stopped) -> bool {
        let length = segment.bytes.len();
        let is_last = segment.limit.is_none();
        let by_us = self.sealed || (self.is_being_opened && length == stopped.at);
        is_last && !by_us && (length as u64) < segment.header.capacity
    }

    /// What it means that records stop before their end.
    fn judge(
        &mut self,
        disk: &dyn Disk,
        boot: u128,
        segment: &Segment,
        stopped: &Stopped,
        claims: Claims,
    ) -> Result<(), OpenError> {
        let rebooted = segment.header.boot != boot || self.in_doubt;
        let was_synced = claims.synced >= self.next;
        if was_synced || (!rebooted && claims.newest.is_some_and(|newest| newest >= self.next)) {
            let what = format!("record {}", self.next.0);
            return Err(damaged(disk, &segment.name, stopped.at, what));
        }
        self.cut = Some((disk.path().join(&segment.name), stopped.at as u64));
        self.torn = rebooted || stopped.is_whole || self.is_shortened(segment, stopped);
        Ok(())
    }
}

/// What follows on a seal: nothing.
fn continue_after_seal(bytes: &[u8], end: usize) -> Bad {
    let rest = bytes.get(end..).unwrap_or_default();
    if rest.iter().all(|byte| *byte == 0) { Bad::Blank } else { Bad::Wrong("the end") }
}

/// Where the records of a segment stop.
struct Stopped {
    at: usize,
    /// Whether there is something else than zeros.
    is_odd: bool,
    /// Whether that is more than a record that was written in part.
    is_whole: bool,
}

/// What later records tell of those before.
#[derive(Clone, Copy, Default)]
struct Claims {
    /// Records up to here were synced.
    synced: Index,
    /// The newest there is.
    newest: Option<Index>,
}

impl Claims {
    fn add(&mut self, synced: Index, newest: Index) {
        self.synced = self.synced.max(synced);
        self.newest = self.newest.max(Some(newest));
    }
}

/// What is told by records in the first of some segments from a place on, and in all others.
fn claims_behind(segments: &[Segment], from: usize) -> Claims {
    let mut claims = Claims::default();
    for (at, segment) in segments.iter().enumerate() {
        if at > 0 {
            claims.add(segment.header.synced, segment.header.first.before());
        }
        let from = if at == 0 { from } else { SEGMENT_HEADER };
        for header in find_records(&segment.bytes, from, segment.header.salt) {
            claims.add(header.synced(), header.index);
        }
    }
    claims
}
