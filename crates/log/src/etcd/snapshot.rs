//! Snapshots in etcd: in pieces, put in force by one key, and only then what is in them deleted.
//!
//! # Invariants
//! - The key that puts a snapshot in force is written when all its pieces are there, by the leader,
//!   if no other snapshot was put in force since: one that arrives late changes nothing.
//! - What is deleted is deleted by a transaction that compares that very key.
//! - The pieces of each try have a name of their own. Those of one that was not put in force, as far
//!   as is known, stay until the next one is: it might still be. Then they are deleted by name: a
//!   deletion that arrives late does not meet the pieces of a later try.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use holdall_etcd::messages::{Compare, Delete, Operation, Put, Range, Transaction};
use holdall_etcd::{Failure, Kind};

use super::kv::Kv;
use super::layout::Pointer;
use super::lead::{Elected, Place, pause};
use crate::{Error, Index, OpenError, Record, Snapshot};

/// How long a piece is: etcd takes requests of a megabyte and a half.
pub(super) const PIECE: usize = 1 << 20;
/// How many snapshots are deleted at once: etcd takes 128 operations in a transaction.
const NAMES: usize = 100;
/// How long a piece may take to be written.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps snapshots of a log, one at a time.
pub(super) struct Keeper<K> {
    place: Place<K>,
    elected: Arc<Elected>,
    /// The revision at which the key that puts one in force was last written.
    in_force: AtomicI64,
    /// How many were tried.
    tried: AtomicU64,
}

impl<K: Kv> Keeper<K> {
    pub(super) fn new(place: Place<K>, elected: Arc<Elected>) -> Self {
        let in_force = AtomicI64::new(elected.meta.snapshot_modified);
        Self { place, elected, in_force, tried: AtomicU64::new(0) }
    }

    /// The snapshot before, and the records from there on up to one; waits until that is committed.
    pub(super) async fn history(
        &self,
        upto: Index,
    ) -> Result<(Option<Snapshot>, Vec<Record>), OpenError> {
        let failed = |error: Error| OpenError::Io {
            path: self.place.name.clone().into(),
            error: std::io::Error::other(error),
        };
        self.elected.told.watch().reached(upto).await.map_err(failed)?;
        let mut read = self.place.read().await?;
        read.records.retain(|record| record.index <= upto);
        Ok((read.snapshot, read.records))
    }

    /// Keeps a state, and deletes what is in it.
    pub(super) async fn keep(&self, upto: Index, logic: u32, payload: Bytes) -> Result<(), Error> {
        self.elected.told.watch().reached(upto).await?;
        let number = self.tried.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:016x}-{:x}-{number:x}", upto.0, self.elected.term);
        if !self.place.options.rules.deletes_last {
            self.sweep(upto, &name, self.in_force.load(Ordering::Relaxed)).await?;
        }
        let mut count = 0;
        for start in (0..payload.len()).step_by(PIECE) {
            let piece = payload.slice(start..payload.len().min(start + PIECE));
            self.put_piece(&name, count, piece).await?;
            count += 1;
        }
        let (bytes, crc) = (payload.len() as u64, crc32c::crc32c(&payload));
        let pointer = Pointer { upto, logic, pieces: count, bytes, crc, name };
        let in_force = self.put_in_force(&pointer).await?;
        self.in_force.store(in_force, Ordering::Relaxed);
        // If that fails, the next one does it.
        let _ = self.sweep(upto, &pointer.name, in_force).await;
        Ok(())
    }

    async fn put_piece(&self, name: &str, number: u32, piece: Bytes) -> Result<(), Error> {
        let put = Put { key: self.place.keys.piece(name, number), value: piece, lease: 0 };
        let transaction = Transaction {
            compare: self.place.is_leader(self.elected.term),
            success: vec![put.into()],
            failure: Vec::new(),
        };
        let mut patience = self.patience();
        loop {
            // It may be written twice: it is the same.
            match self.place.kv.transact(transaction.clone()).await {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(_) => return Err(self.deposed()),
                Err(failure) => patience.again(failure).await?,
            }
        }
    }

    /// Makes it the one that counts; the revision at which it was.
    async fn put_in_force(&self, pointer: &Pointer) -> Result<i64, Error> {
        let key = self.place.keys.meta("snapshot");
        let mut before = self.in_force.load(Ordering::Relaxed);
        let mut patience = self.patience();
        loop {
            let mut compare = self.place.is_leader(self.elected.term);
            if self.place.options.rules.compares_snapshot {
                compare.push(Compare::was_modified(key.clone(), before));
            }
            let put = Put { key: key.clone(), value: pointer.write(), lease: 0 };
            let (success, failure) = (vec![put.into()], Vec::new());
            let answer = self.place.kv.transact(Transaction { compare, success, failure }).await;
            // Whatever was answered, or not: what is there counts.
            match self.place.meta().await {
                Ok(meta) if meta.snapshot.as_ref() == Some(pointer) => {
                    return Ok(meta.snapshot_modified);
                }
                Ok(meta) if !meta.is_led_by(self.elected.term) => return Err(self.deposed()),
                // One before it, of which nothing was known any more, is in force by now.
                Ok(meta) => before = meta.snapshot_modified,
                Err(_) => {}
            }
            let late = || Failure::unknown("it is not known whether a snapshot is in force");
            patience.again(answer.err().unwrap_or_else(late)).await?;
        }
    }

    /// Deletes what is in a snapshot, and the pieces of others; tells etcd to forget.
    async fn sweep(&self, upto: Index, name: &str, in_force: i64) -> Result<(), Error> {
        let failed = |failure: Failure| self.place.error(&failure);
        let keys = &self.place.keys;
        let until = self.place.batch_of(upto.next(), 0).await.map_err(failed)?;
        let mut compare = self.place.is_leader(self.elected.term);
        compare.push(Compare::was_modified(keys.meta("snapshot"), in_force));
        let others = self.others(name).await.map_err(failed)?;
        let mut success: Vec<Operation> = others
            .iter()
            .map(|other| {
                let (key, end) = keys.pieces(other);
                Delete { key, end }.into()
            })
            .collect();
        if let Some(end) = until {
            let (key, _) = keys.batches();
            // The last batch up to there stays if it has what comes after, or is all there is.
            success.push(Delete { key, end }.into());
        }
        let transaction = Transaction { compare, success, failure: Vec::new() };
        let answer = self.place.kv.transact(transaction).await.map_err(failed)?;
        let now = answer.header.as_ref().map_or(0, |header| header.revision);
        let before = self.elected.forgettable(now);
        if answer.succeeded && self.place.options.compact {
            self.place.kv.compact(before).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The names of other snapshots that have pieces, as many as one transaction can delete.
    async fn others(&self, name: &str) -> Result<BTreeSet<String>, Failure> {
        let (key, end) = self.place.keys.all_pieces();
        let range = Range { key, end, keys_only: true, ..Range::default() };
        let found = self.place.ask(&range).await?.found;
        let names = found.iter().filter_map(|piece| self.place.keys.snapshot_of(&piece.key));
        Ok(names.filter(|other| other != name).take(NAMES).collect())
    }

    fn patience(&self) -> Patience<'_, K> {
        Patience { keeper: self, since: self.place.kv.now(), tries: 0 }
    }

    fn deposed(&self) -> Error {
        Error::Deposed(self.place.name.clone())
    }
}

/// Tries until it is known what came of it, but not for ever.
struct Patience<'a, K> {
    keeper: &'a Keeper<K>,
    since: u64,
    tries: u32,
}

impl<K: Kv> Patience<'_, K> {
    /// Waits a little, if it is to be tried again.
    async fn again(&mut self, failure: Failure) -> Result<(), Error> {
        let Keeper { place, elected, .. } = self.keeper;
        if elected.told.progress().has_ended() {
            return Err(self.keeper.deposed());
        }
        let is_over = place.kv.now() - self.since > PATIENCE.as_millis() as u64;
        if failure.kind != Kind::Unknown || is_over {
            return Err(place.error(&failure));
        }
        tokio::time::sleep(pause(self.tries)).await;
        self.tries += 1;
        Ok(())
    }
}
