//! Reads a log out of etcd: the last snapshot, and the records after it, as of one revision.
//!
//! If etcd forgets that revision meanwhile, whoever reads begins again with a later one.

use bytes::BytesMut;
use holdall_etcd::messages::{KeyValue, Range};
use holdall_etcd::{Failure, Kind};

use super::batch;
use super::kv::Kv;
use super::layout::{Meta, Pointer};
use super::lead::Place;
use crate::{Index, OpenError, Record, Snapshot};

/// How many keys are asked for at once, at least: each has a megabyte at most, and an answer is taken of 256.
const PAGE: i64 = 16;
/// And at most, where as many as the page before had on average are no more than so many bytes.
const LONG_PAGE: i64 = 128;
const SMALL: usize = 4 << 20;
/// The last key first.
const LAST_FIRST: i32 = 2;

/// What was read.
#[derive(Debug)]
pub(super) struct Read {
    /// As of when.
    pub(super) meta: Meta,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) records: Vec<Record>,
}

/// Why nothing was.
enum Stopped {
    /// etcd has forgotten the revision.
    Compacted,
    Failed(OpenError),
}

impl<K: Kv> Place<K> {
    /// Reads the log as it is now.
    pub(super) async fn read(&self) -> Result<Read, OpenError> {
        loop {
            let meta = self.meta().await?;
            match self.read_at(meta).await {
                Err(Stopped::Compacted) => {}
                Err(Stopped::Failed(error)) => return Err(error),
                Ok(read) => return Ok(read),
            }
        }
    }

    async fn read_at(&self, meta: Meta) -> Result<Read, Stopped> {
        let snapshot = match &meta.snapshot {
            Some(pointer) => Some(self.read_snapshot(pointer, meta.revision).await?),
            None => None,
        };
        let upto = snapshot.as_ref().map_or(Index(0), |snapshot| snapshot.upto);
        let records = self.read_records(&meta, upto).await?;
        Ok(Read { meta, snapshot, records })
    }

    fn stopped(&self, failure: Failure) -> Stopped {
        match failure.kind {
            Kind::Compacted => Stopped::Compacted,
            _ => Stopped::Failed(self.open_error(failure)),
        }
    }

    /// All keys of a range, page by page.
    async fn pages(
        &self,
        (first, end): (Vec<u8>, Vec<u8>),
        revision: i64,
    ) -> Result<Vec<KeyValue>, Stopped> {
        let mut range = Range { key: first, end, limit: PAGE, revision, ..Range::default() };
        let mut longest = LONG_PAGE;
        let mut found: Vec<KeyValue> = Vec::new();
        loop {
            let page = match range.limit {
                PAGE => self.ask(&range).await,
                _ => self.kv.range(range.clone()).await,
            };
            let page = match page {
                // A shorter page may come in time.
                Err(failure) if failure.kind == Kind::Unknown && range.limit > PAGE => {
                    (longest, range.limit) = (PAGE, PAGE);
                    continue;
                }
                page => page.map_err(|failure| self.stopped(failure))?,
            };
            let more = page.more;
            let bytes: usize = page.found.iter().map(|key| key.value.len()).sum();
            let fitting = SMALL * page.found.len() / bytes.max(1);
            range.limit = i64::try_from(fitting).unwrap_or(longest).clamp(PAGE, longest);
            found.extend(page.found);
            match found.last() {
                Some(last) if more => range.key = [&last.key[..], &[0]].concat(),
                _ => return Ok(found),
            }
        }
    }

    async fn read_snapshot(&self, pointer: &Pointer, revision: i64) -> Result<Snapshot, Stopped> {
        let pieces = self.pages(self.keys.pieces(&pointer.name), revision).await?;
        let mut payload = BytesMut::with_capacity(pointer.bytes as usize);
        let count = pieces.len();
        for piece in pieces {
            payload.extend_from_slice(&piece.value);
        }
        let is_whole = count == pointer.pieces as usize
            && payload.len() as u64 == pointer.bytes
            && crc32c::crc32c(&payload) == pointer.crc;
        if !is_whole {
            let (first, _) = self.keys.pieces(&pointer.name);
            let wrong = self.wrong_key(&first, "is a snapshot with pieces that are not its own");
            return Err(Stopped::Failed(wrong));
        }
        let Pointer { upto, logic, .. } = *pointer;
        Ok(Snapshot { upto, logic, payload: payload.freeze() })
    }

    /// The records after one, up to the head, without a gap.
    async fn read_records(&self, meta: &Meta, upto: Index) -> Result<Vec<Record>, Stopped> {
        let from = self.batch_of(upto.next(), meta.revision).await;
        let from = from.map_err(|failure| self.stopped(failure))?;
        let (first, end) = self.keys.batches();
        let batches = self.pages((from.unwrap_or(first), end), meta.revision).await?;
        let mut records = Vec::new();
        let mut next = upto.next();
        for KeyValue { key, value, .. } in batches {
            let wrong = |what: &str| Stopped::Failed(self.wrong_key(&key, what));
            let batch = batch::read(value).ok_or_else(|| wrong("is no batch of records"))?;
            for record in batch.into_iter().filter(|record| record.index > upto) {
                if record.index != next {
                    return Err(wrong(&format!("does not go on with record {}", next.0)));
                }
                next = next.next();
                records.push(record);
            }
        }
        if meta.next.unwrap_or(Index(1)) != next {
            let what = format!("and the records, which end before {}, differ", next.0);
            return Err(Stopped::Failed(self.wrong_key(&self.keys.meta("head"), &what)));
        }
        Ok(records)
    }

    /// The key of the batch that has a record, or would begin with it; none if there is nothing
    /// up to there.
    pub(super) async fn batch_of(
        &self,
        index: Index,
        revision: i64,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let (first, _) = self.keys.batches();
        let mut end = self.keys.batch(index);
        end.push(0);
        let range =
            Range { key: first, end, limit: 1, revision, order: LAST_FIRST, keys_only: true };
        Ok(self.ask(&range).await?.found.pop().map(|found| found.key))
    }
}
