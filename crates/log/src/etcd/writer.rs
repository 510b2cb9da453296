//! Appends to a log in etcd: one transaction after the other, each with the records that came meanwhile, and for a moment waits for as
//! many as the one before had; while one takes long, the next is sent, too.
//!
//! A transaction compares the revision at which the key of the leader was made, so that nobody else
//! has led since, and what the head says, so that it is carried out at most once, and after all
//! before it, however often and late it arrives: of what one leader makes the head say nothing
//! comes again, as numbers and epochs only grow. So the next one can be sent before the one before
//! it is answered. If it overtakes that, it is not carried out, and is sent again.
//!
//! What was not answered is looked up: if the head is as it was, nothing has been carried out so
//! far, and the next transaction makes sure that nothing will be; else the head tells how far it has
//! come, as nobody but this leader can have written it. Whatever arrives still later either misses,
//! or goes on where the head is, with the records that come there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdall_etcd::messages::{Compare, Delete, Operation, Put, Transacted, Transaction};
use holdall_etcd::{Failure, Kind};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::batch;
use super::kv::Kv;
use super::layout::{Head, Leader, Meta, Ready, Sealed, write_epoch};
use super::lead::{Elected, Place, pause};
use super::queue::{Heir, Queue, passed};
use super::told::By;
use crate::{Error, Index, Memory, Record};

/// How much is put into one batch, unless a single record has more: etcd takes requests of a
/// megabyte and a half.
const BATCH_MAX: usize = 1 << 20;
/// How many transactions are under way at a time, at most.
const UNDER_WAY: usize = 2;
/// After what time the next one is sent although the one before is not answered. Of two that are under way each takes longer,
/// since etcd writes one after the other, and all that waits is one transaction if it waits a little longer.
const PATIENCE: Duration = Duration::from_millis(5);

/// One transaction.
#[derive(Clone)]
struct Batch {
    /// What the head says before it, to the letter.
    before: Bytes,
    /// What it says then.
    after: Head,
    records: Vec<Record>,
    /// Whether numbers of a higher epoch may be in use.
    raises_epoch: bool,
    /// That it is the last one, and who is to lead then.
    seal: Option<Heir>,
}

/// A batch that is under way.
struct Flight {
    batch: Batch,
    sent: Instant,
    answer: Answer,
}

/// What will be answered, asked for by a task of its own: whoever does not wait for it any more
/// drops it, and does not know what becomes of it.
struct Answer(JoinHandle<Result<Transacted, Failure>>);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What became of a batch.
enum Became {
    /// It is committed, or some of what was sent.
    Written,
    /// And it was the last one.
    Sealed,
    /// It is to be sent again, as everything that was sent after it.
    Missed,
}

/// Where the writer is.
pub(super) struct Writer<'a, K> {
    place: &'a Place<K>,
    elected: &'a Elected,
    queue: &'a Queue,
    /// What the head says, as far as is known, to the letter.
    said: Bytes,
    /// The same, understood.
    head: Head,
    /// The number of the next record if all that was ever sent is carried out.
    furthest: Index,
    /// What is under way, in order: each goes on where the one before ends.
    flights: VecDeque<Flight>,
    /// Whether it still says that memory was lost.
    says_lost: bool,
    /// How many records the transaction before had.
    expected: usize,
    /// What the head says before the furthest seal that was sent, and neither answered nor waited for: it may be carried out yet,
    /// unless the head says more by now.
    seal_follows: Option<Head>,
}

impl<'a, K: Kv> Writer<'a, K> {
    pub(super) fn new(place: &'a Place<K>, elected: &'a Elected, queue: &'a Queue) -> Self {
        let head = Head { next: elected.meta.next.unwrap_or(Index(1)), epoch: elected.epoch };
        Self {
            place,
            elected,
            queue,
            said: elected.meta.head.clone(),
            head,
            furthest: head.next,
            flights: VecDeque::new(),
            expected: 0,
            seal_follows: None,
            says_lost: matches!(elected.memory, Memory::Lost(_)),
        }
    }

    /// Writes until the log is sealed, or does not count any more.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let mut missed = 0;
        loop {
            self.send();
            let room = self.room();
            let Some(first) = self.flights.front_mut() else {
                tokio::select! {
                    () = self.queue.wake.notified() => {}
                    () = passed(room) => {}
                }
                continue;
            };
            let answer = tokio::select! {
                biased;
                answer = &mut first.answer.0 => answer,
                () = self.queue.something_after(room) => continue,
            };
            let unheard = |_| Err(Failure::unknown("whoever asked has ended"));
            match self.heard(answer.unwrap_or_else(unheard)).await? {
                Became::Sealed => return Ok(()),
                Became::Written => {
                    self.elected.told.trouble(By::Writer, None);
                    self.elected.told.trouble(By::Looks, None); // There was room.
                    missed = 0;
                }
                Became::Missed => {
                    // One that has overtaken another is sent again at once.
                    if missed > 0 {
                        sleep(pause(missed)).await;
                    }
                    missed += 1;
                }
            }
        }
    }

    /// From when on one more may be under way, if nothing is answered before.
    fn room(&self) -> Option<Instant> {
        let Some(last) = self.flights.back() else {
            return self.queue.due(self.head, self.expected);
        };
        let has_room = self.flights.len() < UNDER_WAY && last.batch.seal.is_none();
        // Somebody waits for the end of the log.
        let patience = if self.queue.is_ending() { Duration::ZERO } else { PATIENCE };
        has_room.then_some(last.sent + patience)
    }

    /// Sends what there is to send.
    fn send(&mut self) {
        while self.room().is_some_and(|from| from <= Instant::now())
            && let Some(batch) = self.next_batch()
        {
            let Head { next, epoch } = batch.after;
            self.expected = batch.records.len();
            self.furthest = self.furthest.max(next);
            if !self.place.options.rules.tells_after_commit {
                self.elected.told.committed(self.furthest.before(), epoch);
            }
            if batch.seal.is_some() && self.place.options.rules.resigns_first {
                self.elected.told.resign();
            }
            let (kv, transaction) = (Arc::clone(&self.place.kv), self.transaction(&batch));
            let answer = Answer(tokio::spawn(async move { kv.transact(transaction).await }));
            self.flights.push_back(Flight { batch, sent: Instant::now(), answer });
        }
    }

    /// What comes after all that is under way.
    fn next_batch(&self) -> Option<Batch> {
        let last = self.flights.back().map(|flight| flight.batch.after);
        let (from, before) = match last {
            Some(after) => (after, self.says(after)),
            None => (self.head, self.said.clone()),
        };
        let mut waiting = self.queue.lock();
        let under_way = (from.next.0 - self.head.next.0) as usize;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in waiting.records.iter().skip(under_way) {
            bytes += record.payload.len() + batch::FRAME;
            if !records.is_empty() && bytes > BATCH_MAX {
                break;
            }
            records.push(record.clone());
        }
        let is_all = under_way + records.len() == waiting.records.len();
        if is_all {
            waiting.since = None;
        }
        let next = records.last().map_or(from.next, |record: &Record| record.index.next());
        let after = Head { next, epoch: from.epoch.max(waiting.epoch) };
        let raises_epoch = after.epoch > from.epoch;
        let seal = waiting.seal.clone().filter(|_| is_all);
        let is_something = !records.is_empty() || raises_epoch || seal.is_some();
        is_something.then_some(Batch { before, after, records, raises_epoch, seal })
    }

    /// What the head is made to say.
    fn says(&self, head: Head) -> Bytes {
        match self.place.options.rules.head_says_epoch {
            true => head.write(),
            false => format!("next {}", head.next.0).into(),
        }
    }

    fn transaction(&self, batch: &Batch) -> Transaction {
        let Batch { before, after, records, raises_epoch, seal } = batch;
        let keys = &self.place.keys;
        let mut compare = self.place.is_leader(self.elected.term);
        if self.place.options.rules.compares_head {
            compare.push(Compare::has_value(keys.meta("head"), before.clone()));
        }
        let put = |key, value| Operation::from(Put { key, value, lease: 0 });
        let delete = |key| Operation::from(Delete { key, end: Vec::new() });
        let mut success = vec![put(keys.meta("head"), self.says(*after))];
        if let Some(first) = records.first() {
            let value = batch::write(self.head.epoch, records.iter());
            success.push(put(keys.batch(first.index), value));
            if self.says_lost {
                success.push(delete(keys.meta("lost")));
            }
        }
        let is_handed_over = matches!(seal, Some(Heir::Ready(_)));
        if *raises_epoch && !is_handed_over {
            success.push(put(keys.meta("epoch"), write_epoch(after.epoch)));
        }
        if seal.is_some() {
            let sealed = Sealed { epoch: after.epoch, term: self.elected.term };
            success.push(put(keys.meta("sealed"), sealed.write()));
        }
        match seal {
            Some(Heir::Ready(ready)) => {
                compare.push(Compare::was_modified(keys.ready(), ready.said));
                success.extend([delete(keys.called()), delete(keys.ready())]);
                success.extend(self.make_leader(ready, after.epoch));
            }
            Some(Heir::Named(heir)) => {
                success.push(delete(keys.leader()));
                success.push(put(keys.meta("heir"), heir.clone().into()));
            }
            Some(Heir::Anybody) => success.push(delete(keys.leader())),
            None => {}
        }
        Transaction { compare, success, failure: Vec::new() }
    }

    /// What makes another host leader, which is ready: its key takes the place of this one's.
    fn make_leader(&self, ready: &Ready, epoch: u32) -> [Operation; 2] {
        let keys = &self.place.keys;
        let raised = u32::from(self.place.options.rules.raises_epoch_of_heir);
        let epoch = epoch.saturating_add(raised); // It was looked whether there is one.
        let (host, address) = (ready.called.host.clone(), ready.address.clone());
        let leader = Leader { host, address, epoch, life: self.elected.cell.life, term: 0 };
        let put = |key, value, lease| Operation::from(Put { key, value, lease });
        [
            put(keys.meta("epoch"), write_epoch(epoch), 0),
            put(keys.leader(), leader.write(), ready.lease),
        ]
    }

    /// The first that is under way was answered, or not.
    async fn heard(&mut self, answer: Result<Transacted, Failure>) -> Result<Became, Error> {
        let failure = match answer {
            Ok(answer) if answer.succeeded => {
                let Some(Flight { batch, .. }) = self.flights.pop_front() else {
                    return Ok(Became::Missed);
                };
                let said = self.says(batch.after);
                self.advance(batch.after, said);
                return Ok(if batch.seal.is_some() { Became::Sealed } else { Became::Written });
            }
            Ok(_) => None,
            Err(failure) => Some(failure),
        };
        // What follows it has missed, too, or will: if it arrives late, it is right all the same.
        let flights = std::mem::take(&mut self.flights);
        let is_unknown = failure.as_ref().is_some_and(|failure| failure.kind == Kind::Unknown);
        self.seal_follows = self.seal_follows.max(self.dropped_seal(&flights, is_unknown));
        let Some(failure) = failure else { return self.look().await };
        self.elected.told.trouble(By::Writer, Some(self.place.error(&failure)));
        match failure.kind {
            Kind::Unknown if !self.place.options.rules.reads_back => {
                self.drop_unread(flights.front()).await;
                Ok(Became::Written)
            }
            // etcd carries out what leaves no room, and says that there is none; from then on nothing. Nor is it later.
            Kind::Full => {
                let became = self.look().await?;
                let is_withdrawn = matches!(became, Became::Missed) && !self.may_be_sealed();
                if is_withdrawn && self.queue.is_ending() {
                    // Whoever looks says when there is.
                    self.elected.told.trouble(By::Looks, Some(self.place.error(&failure)));
                    self.withdraw_seal();
                    self.pass_trouble();
                }
                Ok(became)
            }
            // Only that of the host that is to lead next is named in what is written.
            Kind::Unknown | Kind::LeaseOver => self.look().await,
            Kind::Refused | Kind::Compacted | Kind::Wrong => Ok(Became::Missed),
        }
    }

    /// What the head says before the seal among those that are not waited for any more, if there is one; of the first of them it
    /// may be known what became of it.
    fn dropped_seal(&self, flights: &VecDeque<Flight>, is_unknown: bool) -> Option<Head> {
        match flights.iter().position(|flight| flight.batch.seal.is_some())? {
            0 => is_unknown.then_some(self.head),
            at => Some(flights[at - 1].batch.after),
        }
    }

    /// This one goes on.
    fn withdraw_seal(&self) {
        self.queue.withdraw_seal();
        self.elected.told.go_on();
    }

    /// What was wrong does not matter any more, if nothing is left to write.
    fn pass_trouble(&self) {
        if self.queue.due(self.head, 0).is_none() {
            self.elected.told.trouble(By::Writer, None);
        }
    }

    /// Whether a seal may be carried out yet.
    fn may_be_sealed(&self) -> bool {
        self.seal_follows.is_some_and(|head| head >= self.head)
    }

    /// The log is committed up to here, and the head says so.
    fn advance(&mut self, head: Head, said: Bytes) {
        let mut waiting = self.queue.lock();
        while let Some(record) = waiting.records.pop_front_if(|record| record.index < head.next) {
            waiting.bytes -= record.payload.len();
        }
        drop(waiting);
        self.says_lost &= head.next == self.head.next;
        (self.head, self.said) = (head, said);
        self.elected.told.committed(head.next.before(), head.epoch);
    }

    /// Without the rule that looks: what was not answered is taken for failed.
    async fn drop_unread(&mut self, first: Option<&Flight>) {
        let Some(Flight { batch, .. }) = first else { return };
        self.queue.lock().records.drain(..batch.records.len());
        self.head.next = batch.after.next;
        if let Ok(meta) = self.place.meta().await {
            self.said = meta.head;
        }
    }

    /// Looks what is committed.
    async fn look(&mut self) -> Result<Became, Error> {
        let meta = loop {
            match self.place.meta().await {
                Ok(meta) => break meta,
                Err(error) => {
                    let failure = Failure::unknown(error.to_string());
                    self.elected.told.trouble(By::Writer, Some(self.place.error(&failure)));
                    sleep(pause(4)).await;
                }
            }
        };
        self.learn(meta)
    }

    fn learn(&mut self, meta: Meta) -> Result<Became, Error> {
        let deposed = || Error::Deposed(self.place.name.clone());
        let head = Head { next: meta.next.ok_or_else(deposed)?, epoch: meta.epoch };
        if !meta.is_led_by(self.elected.term) {
            // A seal ends this one's leading itself; whoever leads by now may have written more.
            let own = meta.sealed.filter(|sealed| sealed.term == self.elected.term);
            let sealed = own.ok_or_else(deposed)?;
            let next = head.next.min(self.furthest);
            self.advance(Head { next, epoch: sealed.epoch }, meta.head);
            return Ok(Became::Sealed);
        }
        // What was sent to hand over compares what that one has said, which it never says again.
        if self.queue.has_lost_heir(meta.ready.as_ref()) {
            self.seal_follows = None;
            self.withdraw_seal();
        }
        if meta.head == self.said {
            self.pass_trouble();
            return Ok(Became::Missed);
        }
        if head.next < self.head.next || head.next > self.furthest {
            // Nobody but this leader can have written it.
            return Err(Error::Unknown {
                place: self.place.name.clone(),
                error: Arc::new(std::io::Error::other("somebody else has written to it")),
            });
        }
        self.advance(head, meta.head);
        Ok(Became::Written)
    }
}
