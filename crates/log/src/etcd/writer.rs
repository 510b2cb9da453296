//! Appends to a log in etcd: one transaction at a time, with as many records as came meanwhile.
//!
//! A transaction compares the revision at which the key of the leader was made, so that nobody else
//! has led since, and the revision at which the head was last written, so that it is carried out at
//! most once, and after all before it, however often and late it arrives.
//!
//! What was not answered is looked up: if the head is as it was, nothing has been carried out so
//! far, and the next transaction makes sure that nothing will be; else the head tells how far it has
//! come, as nobody but this leader can have written it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdall_etcd::messages::{Compare, Delete, Operation, Put, Transacted, Transaction};
use holdall_etcd::{Failure, Kind};
use tokio::sync::Notify;

use super::batch;
use super::kv::Kv;
use super::layout::{Meta, write_epoch, write_next};
use super::lead::{Elected, Place, pause};
use super::told::By;
use crate::{Error, Index, Memory, Record};

/// How much is put into one batch, unless a single record has more: etcd takes requests of a
/// megabyte and a half.
const BATCH_MAX: usize = 1 << 20;

/// What is to be written.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Record>,
    bytes: usize,
    /// The epoch that was asked for last.
    epoch: u32,
    /// That nothing more will come, and who is to lead then.
    seal: Option<Heir>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, records: impl Iterator<Item = Record>) {
        let mut waiting = self.lock();
        for record in records {
            waiting.bytes += record.payload.len();
            waiting.records.push_back(record);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// How many bytes wait to be written.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(super) fn raise_epoch(&self, to: u32) {
        let mut waiting = self.lock();
        waiting.epoch = waiting.epoch.max(to);
        drop(waiting);
        self.wake.notify_one();
    }

    /// When all of this is written, this one leads no longer.
    pub(super) fn seal(&self, heir: Heir) {
        self.lock().seal = Some(heir);
        self.wake.notify_one();
    }
}

/// The host that is to lead next, if one is.
pub(super) type Heir = Option<String>;

/// One transaction.
struct Batch {
    records: Vec<Record>,
    epoch: Option<u32>,
    /// That it is the last one, and who is to lead then.
    seal: Option<Heir>,
}

/// Where the writer is.
pub(super) struct Writer<'a, K> {
    place: &'a Place<K>,
    elected: &'a Elected,
    queue: &'a Queue,
    /// The revision at which the head was last written, as far as is known.
    head: i64,
    /// The number of the first record that is not committed.
    next: Index,
    /// The last record that was ever sent.
    sent: Index,
    epoch: u32,
    /// Whether it still says that memory was lost.
    says_lost: bool,
}

impl<'a, K: Kv> Writer<'a, K> {
    pub(super) fn new(place: &'a Place<K>, elected: &'a Elected, queue: &'a Queue) -> Self {
        let next = elected.meta.next.unwrap_or(Index(1));
        Self {
            place,
            elected,
            queue,
            head: elected.meta.head_modified,
            next,
            sent: next.before(),
            epoch: elected.epoch,
            says_lost: matches!(elected.memory, Memory::Lost(_)),
        }
    }

    /// Writes until the log is sealed, or does not count any more.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let Some(batch) = self.next_batch() else {
                self.queue.wake.notified().await;
                continue;
            };
            let is_done = self.write(&batch).await?;
            if is_done && batch.seal.is_some() {
                return Ok(());
            }
            if is_done {
                self.elected.told.trouble(By::Writer, None);
                tries = 0;
            } else {
                tokio::time::sleep(pause(tries)).await;
                tries += 1;
            }
        }
    }

    /// What there is to write.
    fn next_batch(&self) -> Option<Batch> {
        let waiting = self.queue.lock();
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in &waiting.records {
            bytes += record.payload.len() + batch::FRAME;
            if !records.is_empty() && bytes > BATCH_MAX {
                break;
            }
            records.push(record.clone());
        }
        let epoch = (waiting.epoch > self.epoch).then_some(waiting.epoch);
        let is_all = records.len() == waiting.records.len();
        let seal = waiting.seal.clone().filter(|_| is_all);
        let is_something = !records.is_empty() || epoch.is_some() || seal.is_some();
        is_something.then_some(Batch { records, epoch, seal })
    }

    /// Tries to write a batch: whether all of it is written. If not, what is left is tried again,
    /// with what has come meanwhile.
    async fn write(&mut self, batch: &Batch) -> Result<bool, Error> {
        self.sent = self.sent.max(batch.records.last().map_or(Index(0), |record| record.index));
        if !self.place.options.rules.tells_after_commit {
            self.elected.told.committed(self.sent, self.epoch);
        }
        if batch.seal.is_some() {
            self.elected.told.resign();
        }
        match self.place.kv.transact(self.transaction(batch)).await {
            Ok(answer) if answer.succeeded => {
                self.committed(batch, &answer);
                Ok(true)
            }
            Ok(_) => self.look(batch).await,
            Err(failure) => self.failed(batch, failure).await,
        }
    }

    fn transaction(&self, batch: &Batch) -> Transaction {
        let keys = &self.place.keys;
        let rules = &self.place.options.rules;
        let mut compare = self.place.is_leader(self.elected.term);
        if rules.compares_head {
            compare.push(Compare::was_modified(keys.meta("head"), self.head));
        }
        let put = |key, value| Operation::from(Put { key, value, lease: 0 });
        let delete = |key| Operation::from(Delete { key, end: Vec::new() });
        let next = batch.records.last().map_or(self.next, |record| record.index.next());
        let mut success = vec![put(keys.meta("head"), write_next(next))];
        if !batch.records.is_empty() {
            let value = batch::write(self.epoch, batch.records.iter());
            success.push(put(keys.batch(self.next), value));
            if self.says_lost {
                success.push(delete(keys.meta("lost")));
            }
        }
        if let Some(epoch) = batch.epoch {
            success.push(put(keys.meta("epoch"), write_epoch(epoch)));
        }
        if let Some(heir) = &batch.seal {
            let epoch = batch.epoch.unwrap_or(self.epoch);
            success.push(put(keys.meta("sealed"), write_epoch(epoch)));
            success.push(delete(keys.leader()));
            if let Some(heir) = heir {
                success.push(put(keys.meta("heir"), heir.clone().into()));
            }
        }
        Transaction { compare, success, failure: Vec::new() }
    }

    fn committed(&mut self, batch: &Batch, answer: &Transacted) {
        self.head = answer.header.as_ref().map_or(0, |header| header.revision);
        let next = batch.records.last().map_or(self.next, |record| record.index.next());
        self.advance(next, batch.epoch.unwrap_or(self.epoch));
    }

    /// Everything before a record is committed.
    fn advance(&mut self, next: Index, epoch: u32) {
        let mut waiting = self.queue.lock();
        while let Some(record) = waiting.records.pop_front_if(|record| record.index < next) {
            waiting.bytes -= record.payload.len();
        }
        drop(waiting);
        self.says_lost &= next == self.next;
        self.next = next;
        self.epoch = self.epoch.max(epoch);
        self.elected.told.committed(next.before(), self.epoch);
    }

    /// What a failure says: whether the batch is written all the same.
    async fn failed(&mut self, batch: &Batch, failure: Failure) -> Result<bool, Error> {
        self.elected.told.trouble(By::Writer, Some(self.place.error(&failure)));
        match failure.kind {
            Kind::Unknown if !self.place.options.rules.reads_back => {
                self.drop_unread(batch).await;
                Ok(true)
            }
            // This one was not carried out for want of room; an earlier one may have been.
            Kind::Unknown | Kind::Full => self.look(batch).await,
            Kind::LeaseOver => Err(Error::Deposed(self.place.name.clone())),
            Kind::Refused | Kind::Compacted | Kind::Wrong => Ok(false),
        }
    }

    /// Without the rule that looks: what was not answered is taken for failed.
    async fn drop_unread(&mut self, batch: &Batch) {
        self.queue.lock().records.drain(..batch.records.len());
        self.next = batch.records.last().map_or(self.next, |record| record.index.next());
        self.head = self.place.meta().await.map_or(self.head, |meta| meta.head_modified);
    }

    /// Looks what has become of a batch: whether it, or the beginning of it, is committed.
    async fn look(&mut self, batch: &Batch) -> Result<bool, Error> {
        let meta = loop {
            match self.place.meta().await {
                Ok(meta) => break meta,
                Err(error) => {
                    let failure = Failure::unknown(error.to_string());
                    self.elected.told.trouble(By::Writer, Some(self.place.error(&failure)));
                    tokio::time::sleep(pause(4)).await;
                }
            }
        };
        self.learn(batch, &meta)
    }

    fn learn(&mut self, batch: &Batch, meta: &Meta) -> Result<bool, Error> {
        let deposed = || Error::Deposed(self.place.name.clone());
        let next = meta.next.ok_or_else(deposed)?;
        if !meta.is_led_by(self.elected.term) {
            // A seal ends this one's leading itself.
            let epoch = batch.epoch.unwrap_or(self.epoch);
            if batch.seal.is_none() || meta.sealed != Some(epoch) {
                return Err(deposed());
            }
            self.advance(next, epoch);
            return Ok(true);
        }
        if meta.head_modified == self.head {
            return Ok(false);
        }
        if next < self.next || next > self.sent.next() {
            // Nobody but this leader can have written it.
            return Err(Error::Unknown {
                place: self.place.name.clone(),
                error: std::sync::Arc::new(std::io::Error::other(
                    "somebody else has written to it",
                )),
            });
        }
        self.head = meta.head_modified;
        let is_all = batch.records.last().is_none_or(|last| last.index < next)
            && batch.epoch.is_none_or(|epoch| epoch <= meta.epoch)
            && batch.seal.is_none();
        self.advance(next, meta.epoch);
        Ok(is_all)
    }
}
