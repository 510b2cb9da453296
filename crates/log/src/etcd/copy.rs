//! A copy of a cell in one file, for another etcd or the same one: what it says, and how it is put back.
//!
//! | byte | size | |
//! |---|---|---|
//! | 0 | 4 | `hlC1` |
//! | 4 | 4 | CRC-32C of what follows |
//! | 8 | 16 | identity of the cell |
//! | 24 | 16 | its life |
//! | 40 | 4 | the highest epoch that was in use |
//! | 44 | 8 | the last record that is in the snapshot |
//! | 52 | 4 | logic number of the snapshot |
//! | 56 | 8 | its length, or all ones if there is none |
//! | 64 | | the snapshot; then for each record after it: 4 length, 4 logic number, the payload |
//!
//! All numbers are little-endian.
//!
//! # Invariants
//! - A copy is put only where nothing is, and no key is overwritten.
//! - What is put is a backup, of an etcd that is not this one: nobody leads it before it was adopted, and then in a new life
//!   and with epochs that are far ahead.
//! - `meta` is written last, in one transaction: half a copy is no cell.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdall_etcd::Kind;
use holdall_etcd::messages::{Compare, Operation, Put, Range, Transaction};

use super::batch;
use super::kv::Kv;
use super::layout::{CellValue, Head, Pointer, write_epoch};
use super::lead::{Place, pause};
use super::snapshot::PIECE;
use crate::disk::random;
use crate::{Identity, Index, Life, OpenError, PAYLOAD_MAX, Record, Snapshot};

const MAGIC: &[u8; 4] = b"hlC1";
const HEADER: usize = 64;
const NO_SNAPSHOT: u64 = u64::MAX;
/// How often a key is tried to be put that is not answered.
const TRIES: u32 = 8;

/// A cell as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellCopy {
    /// Which it is.
    pub identity: Identity,
    /// The life that it was in.
    pub life: Life,
    /// The highest epoch that was in use.
    pub epoch: u32,
    /// Where to begin.
    pub snapshot: Option<Snapshot>,
    /// What happened since.
    pub records: Vec<Record>,
}

impl CellCopy {
    /// The copy as the content of a file.
    pub fn write(&self) -> Bytes {
        let Self { identity, life, epoch, snapshot, records } = self;
        let mut out = BytesMut::new();
        out.put_slice(MAGIC);
        out.put_u32_le(0);
        out.put_u128_le(identity.0);
        out.put_u128_le(life.0);
        out.put_u32_le(*epoch);
        out.put_u64_le(self.upto().0);
        out.put_u32_le(snapshot.as_ref().map_or(0, |snapshot| snapshot.logic));
        let length = snapshot.as_ref().map(|snapshot| snapshot.payload.len() as u64);
        out.put_u64_le(length.unwrap_or(NO_SNAPSHOT));
        if let Some(snapshot) = snapshot {
            out.put_slice(&snapshot.payload);
        }
        for record in records {
            out.put_u32_le(record.payload.len() as u32);
            out.put_u32_le(record.logic);
            out.put_slice(&record.payload);
        }
        let crc = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out.freeze()
    }

    /// The copy that a file contains; none if it is damaged, or something else.
    pub fn read(mut file: Bytes) -> Option<Self> {
        if file.len() < HEADER || !file.starts_with(MAGIC) {
            return None;
        }
        let crc = crc32c::crc32c(&file[8..]);
        file.advance(4);
        if file.get_u32_le() != crc {
            return None;
        }
        let (identity, life) = (Identity(file.get_u128_le()), Life(file.get_u128_le()));
        let (epoch, upto) = (file.get_u32_le(), Index(file.get_u64_le()));
        let (logic, length) = (file.get_u32_le(), file.get_u64_le());
        let snapshot = match length {
            NO_SNAPSHOT => None,
            length if length > file.remaining() as u64 => return None,
            length => Some(Snapshot { upto, logic, payload: file.split_to(length as usize) }),
        };
        let mut records = Vec::new();
        let mut index = if snapshot.is_some() { upto } else { Index(0) };
        while file.has_remaining() {
            if file.remaining() < batch::FRAME {
                return None;
            }
            let (length, logic) = (file.get_u32_le() as usize, file.get_u32_le());
            if length > file.remaining().min(PAYLOAD_MAX) {
                return None;
            }
            index = index.next();
            records.push(Record { index, logic, payload: file.split_to(length) });
        }
        Some(Self { identity, life, epoch, snapshot, records })
    }

    /// A cell that nobody has heard of, which begins with a snapshot of its own, in epochs above those of this one.
    ///
    /// # Errors
    /// If the machine has no random bits.
    pub fn another(&self, logic: u32, payload: Bytes) -> std::io::Result<Self> {
        let snapshot = Some(Snapshot { upto: Index(1), logic, payload });
        let (identity, life) = (Identity(random()?), Life(random()?));
        Ok(Self { identity, life, epoch: self.epoch, snapshot, records: Vec::new() })
    }

    /// The last record that is in the snapshot.
    fn upto(&self) -> Index {
        self.snapshot.as_ref().map_or(Index(0), |snapshot| snapshot.upto)
    }

    /// The number of the next record.
    fn next(&self) -> Index {
        Index(self.upto().0 + self.records.len() as u64).next()
    }
}

impl<K: Kv> Place<K> {
    /// The cell as it is now; nobody has to lead it.
    pub(super) async fn copy(&self) -> Result<CellCopy, OpenError> {
        let read = self.read().await?;
        let none = || OpenError::NoCell(self.name.clone());
        let CellValue { identity, life, .. } = read.meta.cell.ok_or_else(none)?;
        let (epoch, snapshot, records) = (read.meta.epoch, read.snapshot, read.records);
        Ok(CellCopy { identity, life, epoch, snapshot, records })
    }

    /// Puts a copy where nothing is; it is to be adopted then.
    pub(super) async fn put_copy(&self, copy: &CellCopy) -> Result<(), OpenError> {
        let meta = self.meta().await?;
        let (key, end) = self.keys.all();
        let all = Range { key, end, limit: 1, keys_only: true, ..Range::default() };
        let found = self.ask(&all).await.map_err(|failure| self.open_error(failure))?.found;
        if let Some(there) = found.first() {
            return Err(self.wrong_key(&there.key, "is there; a copy is put only where nothing is"));
        }
        let put = |what, value| (self.keys.meta(what), value);
        // Of another etcd: whoever would lead it is refused, until it is adopted.
        let cell = CellValue { identity: copy.identity, life: copy.life, cluster: !meta.cluster };
        let mut last = vec![
            put("cell", cell.write()),
            put("epoch", write_epoch(copy.epoch)),
            put("head", Head { next: copy.next(), epoch: copy.epoch }.write()),
        ];
        if let Some(snapshot) = &copy.snapshot {
            last.push(put("snapshot", self.put_pieces(snapshot).await?.write()));
        }
        for records in batches(&copy.records) {
            let Some(first) = records.first() else { continue };
            let value = batch::write(copy.epoch, records.iter());
            self.put_new(vec![(self.keys.batch(first.index), value)]).await?;
        }
        self.put_new(last).await
    }

    async fn put_pieces(&self, snapshot: &Snapshot) -> Result<Pointer, OpenError> {
        let Snapshot { upto, logic, payload } = snapshot;
        let crc = crc32c::crc32c(payload);
        let name = format!("{:016x}-copy-{crc:x}", upto.0);
        let mut pieces = 0;
        for start in (0..payload.len()).step_by(PIECE) {
            let piece = payload.slice(start..payload.len().min(start + PIECE));
            self.put_new(vec![(self.keys.piece(&name, pieces), piece)]).await?;
            pieces += 1;
        }
        Ok(Pointer { upto: *upto, logic: *logic, pieces, bytes: payload.len() as u64, crc, name })
    }

    /// Puts keys that are not there, all or none.
    async fn put_new(&self, new: Vec<(Vec<u8>, Bytes)>) -> Result<(), OpenError> {
        let compare = |(key, _): &(Vec<u8>, Bytes)| Compare::was_created(key.clone(), 0);
        let put = |(key, value): &(Vec<u8>, Bytes)| {
            Operation::from(Put { key: key.clone(), value: value.clone(), lease: 0 })
        };
        let look = |(key, _): &(Vec<u8>, Bytes)| {
            Operation::from(Range { key: key.clone(), ..Range::default() })
        };
        let transaction = Transaction {
            compare: new.iter().map(compare).collect(),
            success: new.iter().map(put).collect(),
            failure: new.iter().map(look).collect(),
        };
        let mut tries = 0;
        loop {
            match self.kv.transact(transaction.clone()).await {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(answer) => {
                    // Perhaps it was this very one, whose answer was missing.
                    let found = answer.found();
                    let is_there = |(key, value): &(Vec<u8>, Bytes)| {
                        found.iter().any(|found| found.key == *key && found.value == *value)
                    };
                    return match new.iter().find(|new| !is_there(new)) {
                        None => Ok(()),
                        Some((key, _)) => {
                            Err(self.wrong_key(key, "was written by somebody else meanwhile"))
                        }
                    };
                }
                Err(failure) if failure.kind == Kind::Unknown && tries < TRIES => {
                    tokio::time::sleep(pause(tries)).await;
                    tries += 1;
                }
                Err(failure) => return Err(self.open_error(failure)),
            }
        }
    }
}

/// Records in batches that fit into a request.
fn batches(records: &[Record]) -> impl Iterator<Item = &[Record]> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let (mut bytes, mut count) = (0, 0);
        for record in rest {
            bytes += record.payload.len() + batch::FRAME;
            if count > 0 && bytes > PIECE {
                break;
            }
            count += 1;
        }
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}
