//! The bytes of segments and snapshots. `docs/log.md` has them as tables.
//!
//! Checksums are CRC-32C: every burst of up to 32 wrong bits is found, as torn and decayed sectors
//! make them, processors compute it, and four bytes are enough for records of some hundred. It is
//! no protection against whoever can write to the directory, and nothing could be.
//!
//! # Invariants
//! - A header and a record end with a byte that is not zero. So of a record that was written in
//!   part, into zeros, the last byte is zero, and of one that was written and then damaged it is not.
//! - The checksum of a record's header contains a number drawn for its segment, so that nothing in a
//!   payload, and no record of another file, can be taken for a record.

use bytes::Bytes;

use crate::disk::Place;
use crate::{Identity, Index, Life, Lost, Memory, PAYLOAD_MAX};

/// The version of everything in here.
pub(super) const FORMAT: u32 = 1;
pub(super) const SEGMENT_HEADER: usize = 128;
pub(super) const RECORD_HEADER: usize = 32;
pub(super) const SNAPSHOT_HEADER: usize = 64;
/// Where records begin: at multiples of this.
const ALIGNMENT: usize = 8;
const SEGMENT_MAGIC: &[u8; 8] = b"holdallG";
const SNAPSHOT_MAGIC: &[u8; 8] = b"holdallS";
/// The last byte of a segment's header and of a record.
const END: u8 = 0xed;

/// What a segment begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The file's number.
    pub(super) sequence: u64,
    /// The index of its first record. Records with this index and above in earlier segments are
    /// void.
    pub(super) first: Index,
    /// Up to here records were synced when it was begun.
    pub(super) synced: Index,
    pub(super) identity: Identity,
    pub(super) life: Life,
    /// The run of the machine it was written in.
    pub(super) boot: u128,
    pub(super) epoch: u32,
    /// Drawn for this file.
    pub(super) salt: u32,
    /// The directory it was written in.
    pub(super) place: Place,
    /// How long the file was made; 0 if that is not known.
    pub(super) capacity: u64,
    /// What became of the memory before, if no record was appended since.
    pub(super) memory: Memory,
}

/// Why something is not what it should be there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// There are zeros, or nothing.
    Blank,
    /// Written in part: it ends within itself, and only zeros follow.
    Part,
    /// Anything else.
    Wrong(&'static str),
    /// Of another version.
    Version(u32),
}

impl SegmentHeader {
    pub(super) fn to_bytes(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        put(&mut bytes, 0, SEGMENT_MAGIC);
        put(&mut bytes, 8, &FORMAT.to_le_bytes());
        put(&mut bytes, 16, &self.sequence.to_le_bytes());
        put(&mut bytes, 24, &self.first.0.to_le_bytes());
        put(&mut bytes, 32, &self.synced.0.to_le_bytes());
        put(&mut bytes, 40, &self.identity.0.to_le_bytes());
        put(&mut bytes, 56, &self.life.0.to_le_bytes());
        put(&mut bytes, 72, &self.boot.to_le_bytes());
        put(&mut bytes, 88, &self.epoch.to_le_bytes());
        put(&mut bytes, 92, &self.salt.to_le_bytes());
        put(&mut bytes, 96, &self.place.device.to_le_bytes());
        put(&mut bytes, 104, &self.place.inode.to_le_bytes());
        put(&mut bytes, 112, &self.capacity.to_le_bytes());
        bytes[SEGMENT_HEADER - 2] = code_of(self.memory);
        bytes[SEGMENT_HEADER - 1] = END;
        let check = crc32c::crc32c(&bytes[16..]);
        put(&mut bytes, 12, &check.to_le_bytes());
        bytes
    }

    pub(super) fn read(file: &[u8]) -> Result<Self, Bad> {
        let Some(bytes) = file.get(..SEGMENT_HEADER) else {
            return Err(part_or(file, SEGMENT_HEADER, "a header of a segment"));
        };
        let version = u32_at(bytes, 8);
        if bytes.starts_with(SEGMENT_MAGIC) && version > FORMAT {
            return Err(Bad::Version(version));
        }
        let is_ours = bytes.starts_with(SEGMENT_MAGIC) && version == FORMAT;
        if !is_ours || crc32c::crc32c(&bytes[16..]) != u32_at(bytes, 12) {
            return Err(part_or(file, SEGMENT_HEADER, "a header of a segment"));
        }
        Ok(Self {
            sequence: u64_at(bytes, 16),
            first: Index(u64_at(bytes, 24)),
            synced: Index(u64_at(bytes, 32)),
            identity: Identity(u128_at(bytes, 40)),
            life: Life(u128_at(bytes, 56)),
            boot: u128_at(bytes, 72),
            epoch: u32_at(bytes, 88),
            salt: u32_at(bytes, 92),
            place: Place { device: u64_at(bytes, 96), inode: u64_at(bytes, 104) },
            capacity: u64_at(bytes, 112),
            memory: memory_of(bytes[SEGMENT_HEADER - 2]),
        })
    }
}

const MEMORIES: [Memory; 6] = [
    Memory::Kept,
    Memory::New,
    Memory::Lost(Lost::Adopted),
    Memory::Lost(Lost::Missing),
    Memory::Lost(Lost::Rebooted),
    Memory::Lost(Lost::Torn),
];

fn code_of(memory: Memory) -> u8 {
    MEMORIES.iter().position(|known| *known == memory).unwrap_or(0) as u8
}

fn memory_of(code: u8) -> Memory {
    MEMORIES.get(usize::from(code)).copied().unwrap_or(Memory::Lost(Lost::Missing))
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// One that was appended.
    Entry = 1,
    /// The end, on purpose. It has the index that the next record will have.
    Seal = 2,
}

/// What a record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) index: Index,
    pub(super) logic: u32,
    /// How many records before it were not known to be synced when it was written.
    pub(super) behind: u32,
    pub(super) kind: Kind,
}

impl RecordHeader {
    /// Up to where records were synced when it was written.
    pub(super) fn synced(&self) -> Index {
        Index(self.index.before().0.saturating_sub(u64::from(self.behind)))
    }

    /// Writes it and its payload at the end of a buffer.
    pub(super) fn write(&self, salt: u32, payload: &[u8], buffer: &mut Vec<u8>) {
        let start = buffer.len();
        let mut header = [0; RECORD_HEADER];
        put(&mut header, 4, &crc32c::crc32c(payload).to_le_bytes());
        put(&mut header, 8, &self.index.0.to_le_bytes());
        put(&mut header, 16, &(payload.len() as u32).to_le_bytes());
        put(&mut header, 20, &self.logic.to_le_bytes());
        put(&mut header, 24, &self.behind.to_le_bytes());
        header[RECORD_HEADER - 1] = self.kind as u8;
        let checked = check(salt, &header).to_le_bytes();
        put(&mut header, 0, &checked);
        buffer.extend_from_slice(&header);
        buffer.extend_from_slice(payload);
        buffer.resize(start + record_size(payload.len()), 0);
        if let Some(last) = buffer.last_mut() {
            *last = END;
        }
    }
}

/// How many bytes a record takes.
pub(super) fn record_size(payload: usize) -> usize {
    (RECORD_HEADER + payload + 1).next_multiple_of(ALIGNMENT)
}

/// A record as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) header: RecordHeader,
    pub(super) payload: Bytes,
    /// Where the next one begins.
    pub(super) end: usize,
}

/// Reads the record at some place of a segment.
pub(super) fn read_record(file: &Bytes, at: usize, salt: u32) -> Result<Read, Bad> {
    let rest = file.get(at..).unwrap_or_default();
    let Some((header, length)) = record_header(rest, salt) else {
        return Err(part_or(rest, RECORD_HEADER, "a record"));
    };
    let size = record_size(length);
    let payload = rest.get(RECORD_HEADER..RECORD_HEADER + length).unwrap_or_default();
    let is_whole = rest.get(size - 1) == Some(&END);
    if !is_whole || crc32c::crc32c(payload) != u32_at(rest, 4) {
        return Err(part_or(rest, size, "a record"));
    }
    let start = at + RECORD_HEADER;
    Ok(Read { header, payload: file.slice(start..start + length), end: at + size })
}

fn record_header(rest: &[u8], salt: u32) -> Option<(RecordHeader, usize)> {
    let header = rest.get(..RECORD_HEADER)?;
    let kind = match header[RECORD_HEADER - 1] {
        1 => Kind::Entry,
        2 => Kind::Seal,
        _ => return None,
    };
    let length = u32_at(header, 16) as usize;
    if length > PAYLOAD_MAX || check(salt, header) != u32_at(header, 0) {
        return None;
    }
    let index = Index(u64_at(header, 8));
    let (logic, behind) = (u32_at(header, 20), u32_at(header, 24));
    Some((RecordHeader { index, logic, behind, kind }, length))
}

/// All headers of records that can be found from some place on, whatever is between them.
pub(super) fn find_records(
    file: &[u8],
    from: usize,
    salt: u32,
) -> impl Iterator<Item = RecordHeader> {
    let places = (from.next_multiple_of(ALIGNMENT)..file.len()).step_by(ALIGNMENT);
    places.filter_map(move |at| record_header(&file[at..], salt)).map(|(header, _)| header)
}

/// What is there instead of something of a size that ends with a byte that is not zero.
fn part_or(rest: &[u8], size: usize, what: &'static str) -> Bad {
    match rest.iter().rposition(|byte| *byte != 0) {
        None => Bad::Blank,
        Some(last) if last + 1 < size => Bad::Part,
        Some(_) => Bad::Wrong(what),
    }
}

/// What a snapshot begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SnapshotHeader {
    /// The number of the segment that follows.
    pub(super) sequence: u64,
    /// The last record in it.
    pub(super) upto: Index,
    pub(super) identity: Identity,
    pub(super) logic: u32,
}

impl SnapshotHeader {
    pub(super) fn to_bytes(&self, payload: &[u8]) -> [u8; SNAPSHOT_HEADER] {
        let mut bytes = [0; SNAPSHOT_HEADER];
        put(&mut bytes, 0, SNAPSHOT_MAGIC);
        put(&mut bytes, 8, &FORMAT.to_le_bytes());
        put(&mut bytes, 16, &self.sequence.to_le_bytes());
        put(&mut bytes, 24, &self.upto.0.to_le_bytes());
        put(&mut bytes, 32, &self.identity.0.to_le_bytes());
        put(&mut bytes, 48, &(payload.len() as u64).to_le_bytes());
        put(&mut bytes, 56, &self.logic.to_le_bytes());
        put(&mut bytes, 60, &crc32c::crc32c(payload).to_le_bytes());
        let check = crc32c::crc32c(&bytes[16..]);
        put(&mut bytes, 12, &check.to_le_bytes());
        bytes
    }

    /// Reads a snapshot; an error tells where.
    pub(super) fn read(file: &Bytes) -> Result<(Self, Bytes), (usize, Bad)> {
        let wrong = (0, Bad::Wrong("a header of a snapshot"));
        let Some(bytes) = file.get(..SNAPSHOT_HEADER) else { return Err(wrong) };
        let version = u32_at(bytes, 8);
        if bytes.starts_with(SNAPSHOT_MAGIC) && version > FORMAT {
            return Err((8, Bad::Version(version)));
        }
        let is_ours = bytes.starts_with(SNAPSHOT_MAGIC) && version == FORMAT;
        if !is_ours || crc32c::crc32c(&bytes[16..]) != u32_at(bytes, 12) {
            return Err(wrong);
        }
        let payload = file.slice(SNAPSHOT_HEADER..);
        let is_whole = payload.len() as u64 == u64_at(bytes, 48);
        if !is_whole || crc32c::crc32c(&payload) != u32_at(bytes, 60) {
            return Err((SNAPSHOT_HEADER, Bad::Wrong("the state that the header tells of")));
        }
        let header = Self {
            sequence: u64_at(bytes, 16),
            upto: Index(u64_at(bytes, 24)),
            identity: Identity(u128_at(bytes, 32)),
            logic: u32_at(bytes, 56),
        };
        Ok((header, payload))
    }
}

/// The checksum of a record's header, in a segment.
fn check(salt: u32, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &header[4..RECORD_HEADER])
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(field(bytes, at))
}
