//! Getting ready to lead next, while another one leads and has called for it.
//!
//! # Invariants
//! - Whoever is ready has read the log as of a revision, and hears of all that happens to it from there on, in order and
//!   without a gap. So it knows all of it when its key is written, and nobody but itself can append from then on.
//! - It has had its lease since before it said that it is ready, and counts it from when it asked for it.
//! - It leads when it hears that the leader's key is its own, with the lease that it has said, and not before.

use std::time::Duration;

use holdall_etcd::messages::{Event, KeyValue, Put, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::batch;
use super::kv::{Events as _, Kv};
use super::layout::{Called, Meta, Ready};
use super::lead::{Elected, Place, pause, until};
use super::read::Read;
use crate::{Index, Memory, OpenError, Record, Snapshot};

/// What a host that is called to lead next reads before it does, for whoever goes on from it.
#[derive(Debug)]
pub enum Ahead {
    /// The log as it is by now. Whoever takes it says when it is ready for more, and to lead.
    Begun {
        /// Where to begin.
        snapshot: Option<Snapshot>,
        /// What has happened since.
        records: Vec<Record>,
        /// If it is dropped, this host is not ready.
        ready: oneshot::Sender<()>,
    },
    /// It goes on.
    More(Vec<Record>),
    /// It does not lead next after all: what it reads when it does begins anew.
    Over,
}

/// Whoever hears of that.
pub(super) type Audience = mpsc::UnboundedSender<Ahead>;

/// A host that was called.
struct Heir<'a, K: Kv> {
    place: &'a Place<K>,
    called: Called,
    /// Its lease, from when it is ready on.
    lease: i64,
    /// Until when that counts.
    until: u64,
    /// The log, as far as it was heard of.
    read: Read,
    next: Index,
    events: K::Events,
}

/// What has become of it.
enum Became {
    /// It leads.
    Leader,
    /// The leader that has called it is none any more, or does not want it.
    Nothing,
    /// Neither.
    Waiting,
}

impl<K: Kv> Place<K> {
    /// Gets ready to lead, and waits until it does. None if that has come to nothing.
    pub(super) async fn get_ready(
        &self,
        meta: Meta,
        audience: Option<&Audience>,
    ) -> Result<Option<(Elected, Read)>, OpenError> {
        let judged = self.judge(&meta)?;
        let Some(called) = meta.heir_called().cloned() else { return Ok(None) };
        if judged.memory != Memory::Kept || meta.cell != Some(judged.cell) {
            return Ok(None);
        }
        self.kv.seek_leader().await;
        let became = self.wait_ready(called, audience).await;
        if !matches!(became, Ok(Some(_))) {
            audience.map(|audience| audience.send(Ahead::Over));
        }
        became
    }

    async fn wait_ready(
        &self,
        called: Called,
        audience: Option<&Audience>,
    ) -> Result<Option<(Elected, Read)>, OpenError> {
        let Some(mut heir) = self.prepare(called, audience).await? else { return Ok(None) };
        // From now on it counts how long that lasts.
        let sent = self.kv.now();
        let Ok(lease) = self.kv.grant_lease(self.options.seconds()).await else { return Ok(None) };
        (heir.lease, heir.until) = (lease.id, until(sent, lease.seconds));
        let left = Duration::from_millis(heir.until.saturating_sub(sent));
        let became = tokio::time::timeout(left, heir.wait_to_lead(audience)).await;
        let became = became.unwrap_or(Ok(None));
        if !matches!(became, Ok(Some(_))) {
            self.give_up(lease.id).await;
        }
        became
    }

    /// Reads what there is, and waits until whoever hears of it is ready to lead, for as long as it is called. None if that has come
    /// to nothing.
    async fn prepare(
        &self,
        called: Called,
        audience: Option<&Audience>,
    ) -> Result<Option<Heir<'_, K>>, OpenError> {
        let read = self.read().await?;
        let keys = self.keys.all_but_snapshots();
        let Ok(events) = self.kv.watch(keys, read.meta.revision + 1).await else { return Ok(None) };
        let next = read.meta.next.unwrap_or(Index(1));
        let mut heir = Heir { place: self, called, lease: 0, until: 0, read, next, events };
        let told = heir.begin(audience);
        let mut ready = std::pin::pin!(async {
            match told {
                Some(told) => told.await.is_ok(),
                None => true,
            }
        });
        loop {
            tokio::select! {
                is_ready = &mut ready => return Ok(is_ready.then_some(heir)),
                became = heir.hear(audience) => if !matches!(became?, Became::Waiting) { return Ok(None) },
                // A watch may tell late.
                () = tokio::time::sleep(self.options.lease) => if !self.is_called(&heir.called).await { return Ok(None) },
            }
        }
    }

    /// Whether it is called still, as far as is known.
    async fn is_called(&self, called: &Called) -> bool {
        self.meta().await.is_ok_and(|meta| meta.heir_called() == Some(called))
    }
}

impl<K: Kv> Heir<'_, K> {
    /// Tells whoever hears of it what there is; when that one is ready is to be waited for.
    fn begin(&self, audience: Option<&Audience>) -> Option<oneshot::Receiver<()>> {
        let (ready, told) = oneshot::channel();
        let (snapshot, records) = (self.read.snapshot.clone(), self.read.records.clone());
        // Whoever does not hear of it is never ready.
        let _ = audience?.send(Ahead::Begun { snapshot, records, ready });
        Some(told)
    }

    /// Says that it is ready, and waits until it leads. None if that has come to nothing.
    async fn wait_to_lead(
        mut self,
        audience: Option<&Audience>,
    ) -> Result<Option<(Elected, Read)>, OpenError> {
        self.say_ready().await;
        loop {
            match self.hear(audience).await? {
                Became::Waiting => {}
                Became::Nothing => return Ok(None),
                Became::Leader => return self.elected().map(Some),
            }
        }
    }

    /// Says that it is ready, unless the one that has called it leads no more.
    async fn say_ready(&self) {
        let Self { place, called, lease, .. } = self;
        let address = place.options.address.clone();
        let said = Ready { called: called.clone(), address, lease: *lease, said: 0 };
        let put = Put { key: place.keys.ready(), value: said.write(), lease: *lease };
        let compare = place.is_leader(called.term);
        let transaction = Transaction { compare, success: vec![put.into()], failure: Vec::new() };
        // If that is not heard it is not ready, and hears so.
        for tries in 0..3 {
            if place.kv.transact(transaction.clone()).await.is_ok() {
                return;
            }
            tokio::time::sleep(pause(tries)).await;
        }
    }

    /// Takes in what happens next.
    async fn hear(&mut self, audience: Option<&Audience>) -> Result<Became, OpenError> {
        let Ok(mut events) = self.events.next().await else { return Ok(Became::Nothing) };
        let begun = self.read.records.len();
        if !self.place.options.rules.heir_hears_the_end {
            self.miss_the_end(&mut events);
        }
        for event in events {
            self.take(event)?;
        }
        let meta = &self.read.meta;
        let is_leader = self.lease != 0 && meta.leader_lease == self.lease;
        let waits = meta.is_led_by(self.called.term) && meta.heir_called() == Some(&self.called);
        let more = self.read.records[begun..].to_vec();
        if let (Some(audience), false) = (audience, more.is_empty()) {
            let _ = audience.send(Ahead::More(more)); // It is not ready then, and so not told to lead.
        }
        Ok(match (is_leader, waits) {
            (true, _) => Became::Leader,
            (_, true) => Became::Waiting,
            _ => Became::Nothing,
        })
    }

    fn take(&mut self, mut event: Event) -> Result<(), OpenError> {
        let Self { place, read, next, .. } = self;
        if let Some(key) = &mut event.found {
            place.as_known(key);
        }
        read.meta.hear(&place.keys, &event).map_err(|wrong| place.unreadable(&wrong))?;
        let is_gone = event.is_deletion();
        let is_batch = |key: &KeyValue| !is_gone && place.keys.is_batch(&key.key);
        let Some(key) = event.found.filter(is_batch) else { return Ok(()) };
        let wrong = |what: &str| place.wrong_key(&key.key, what);
        for record in
            batch::read(key.value.clone()).ok_or_else(|| wrong("is no batch of records"))?
        {
            if record.index != *next {
                return Err(wrong(&format!("does not go on with record {}", next.0)));
            }
            *next = next.next();
            read.records.push(record);
        }
        Ok(())
    }

    /// Without the rule: what comes together with its election is passed over.
    fn miss_the_end(&self, events: &mut Vec<Event>) {
        let (leader, keys) = (self.place.keys.leader(), &self.place.keys);
        let found = |event: &Event| event.found.clone().unwrap_or_default();
        let is_its = |key: KeyValue| key.key == leader && key.lease == self.lease;
        if events.iter().any(|event| is_its(found(event))) {
            events.retain(|event| !keys.is_batch(&found(event).key));
        }
    }

    /// It leads, and knows all there is.
    fn elected(self) -> Result<(Elected, Read), OpenError> {
        let Self { place, lease, until, read, next, .. } = self;
        let head = place.keys.meta("head");
        if place.options.rules.heir_hears_the_end && read.meta.next != Some(next) {
            let what = format!("and what was heard, which ends before {}, differ", next.0);
            return Err(place.wrong_key(&head, &what));
        }
        let none = || place.wrong_key(&place.keys.leader(), "is missing");
        let leader = read.meta.leader.clone().ok_or_else(none)?;
        let mut judged = place.judge(&read.meta)?;
        judged.epoch = leader.epoch;
        let elected = judged.elected(true, read.meta.clone(), lease, leader.term, until);
        Ok((elected, read))
    }
}
