//! A store that behaves as etcd does, with its revisions and leases, and fails as it can: slow, deaf,
//! answering never although it has carried out what was asked, carrying it out late, or twice.
//!
//! Time is that of tokio, which stands still until everybody waits: a run is a function of its seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdall_etcd::messages::{
    Compare, Header, KeyValue, LeaseGranted, Operation, Operations, Outcome, Range, Ranged,
    Transacted, Transaction,
};
use holdall_etcd::{Failure, Kind};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::time::{Instant, sleep};

use super::super::kv::Kv;
use super::events::SimulatedEvents;

/// How long a client waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(700);

/// How often, of a thousand calls, something goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// It never arrives.
    pub(super) lost: u32,
    /// It is carried out, and not answered.
    pub(super) unanswered: u32,
    /// It is carried out long after its client has given up.
    pub(super) late: u32,
    /// It is carried out once more, later.
    pub(super) twice: u32,
    /// It takes its time.
    pub(super) slow: u32,
    /// The members elect another leader, and leases begin anew.
    pub(super) elections: u32,
    /// It is carried out although it is said that there is no room, as etcd does with what takes the last of it.
    pub(super) last: u32,
}

pub(super) struct Stored {
    pub(super) revision: i64,
    pub(super) compacted: i64,
    /// All that was ever written, the last last; none where it was deleted.
    pub(super) keys: BTreeMap<Vec<u8>, Vec<(i64, Option<KeyValue>)>>,
    leases: BTreeMap<i64, (Instant, u64)>,
    last_lease: i64,
    term: u64,
    cluster: u64,
    /// When a leader's key was made, by its revision.
    elections: BTreeMap<i64, Instant>,
    is_full: bool,
    /// How many keys one answer can have: of more nothing is heard.
    longest: usize,
    /// How many transactions were not carried out since something was not as they had it.
    missed: usize,
    pub(super) faults: Faults,
    pub(super) random: Pcg64Mcg,
}

/// A store; clones are clients of the same.
#[derive(Clone)]
pub(super) struct SimulatedStore {
    stored: Arc<Mutex<Stored>>,
    began: Instant,
    /// Until when this client stands still: it sends nothing, and hears nothing.
    still: Arc<Mutex<Instant>>,
}

impl SimulatedStore {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let stored = Stored {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            term: 1,
            cluster: 7,
            elections: BTreeMap::new(),
            is_full: false,
            longest: usize::MAX,
            missed: 0,
            faults,
            random: Pcg64Mcg::seed_from_u64(seed),
        };
        let (stored, began) = (Arc::new(Mutex::new(stored)), Instant::now());
        Self { stored, began, still: Arc::new(Mutex::new(began)) }
    }

    /// Another client of the same store.
    pub(super) fn client(&self) -> Self {
        Self { still: Arc::new(Mutex::new(self.began)), ..self.clone() }
    }

    /// This client stands still for a while.
    pub(super) fn stand_still(&self, length: Duration) {
        *self.still.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + length;
    }

    pub(super) async fn wait_while_still(&self) {
        let until = *self.still.lock().unwrap_or_else(PoisonError::into_inner);
        tokio::time::sleep_until(until).await;
    }

    /// When the leader was elected whose key was made at a revision.
    pub(super) fn elected_at(&self, term: i64) -> u64 {
        let at = self.lock().elections.get(&term).copied();
        at.expect("somebody was elected then").duration_since(self.began).as_millis() as u64
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Stored> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.expire();
        stored
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    pub(super) fn set_longest(&self, longest: usize) {
        self.lock().longest = longest;
    }

    /// It was put back from a backup, elsewhere.
    pub(super) fn restore(&self, from: &Self) {
        let (keys, revision) = {
            let from = from.lock();
            (from.keys.clone(), from.revision)
        };
        let mut stored = self.lock();
        (stored.keys, stored.revision) = (keys, revision);
        stored.cluster += 1;
        stored.leases.clear();
    }

    /// A copy of what there is.
    pub(super) fn backup(&self) -> Self {
        let copy = Self::new(0, Faults::default());
        copy.restore(self);
        copy
    }

    /// How many keys there are, and how many that once were are not forgotten.
    pub(super) fn counted(&self) -> (usize, usize) {
        let stored = self.lock();
        let there = stored.keys.values().filter(|all| all.last().is_some_and(|(_, k)| k.is_some()));
        (there.count(), stored.keys.values().map(Vec::len).sum())
    }

    /// How many transactions have missed.
    pub(super) fn missed(&self) -> usize {
        self.lock().missed
    }

    /// Ends a lease before its time, as an operator can.
    pub(super) fn end_lease_of(&self, key: &[u8]) {
        let mut stored = self.lock();
        if let Some(lease) = stored.get(key).map(|found| found.lease) {
            stored.end_lease(lease);
        }
    }

    /// One call: how it arrives, and whether its answer does.
    async fn call<T: Send + 'static>(
        &self,
        act: impl Fn(&mut Stored) -> Result<T, Failure> + Send + Sync + 'static,
    ) -> Result<T, Failure> {
        self.wait_while_still().await;
        let (fate, delay, back, later) = {
            let mut stored = self.lock();
            let faults = stored.faults;
            let random = &mut stored.random;
            let fate = random.random_range(0..1000);
            let is_slow = random.random_range(0..1000) < faults.slow;
            let delay = random.random_range(1..if is_slow { 600 } else { 6 });
            let back = random.random_range(1..if is_slow { 600 } else { 3 });
            let later = random.random_range(1..20_000);
            if random.random_range(0..1000) < faults.elections {
                stored.elect();
            }
            let [delay, back, later] = [delay, back, later].map(Duration::from_millis);
            (Fate::of(fate, faults), delay, back, later)
        };
        sleep(delay).await;
        let unanswered = Failure::unknown("no answer");
        let answer = match fate {
            Fate::Fine => act(&mut self.lock()),
            Fate::Twice => {
                let answer = act(&mut self.lock());
                // What is refused for want of room is nowhere any more.
                if !answer.as_ref().is_err_and(|failure| failure.kind == Kind::Full) {
                    self.act_later(later, act);
                }
                answer
            }
            Fate::Lost => {
                sleep(TIMEOUT).await;
                Err(unanswered)
            }
            Fate::Unanswered => {
                let _ = act(&mut self.lock());
                sleep(TIMEOUT).await;
                Err(unanswered)
            }
            Fate::Late => {
                self.act_later(later, act);
                sleep(TIMEOUT).await;
                Err(unanswered)
            }
        };
        sleep(back).await;
        self.wait_while_still().await;
        answer
    }

    fn act_later<T>(
        &self,
        later: Duration,
        act: impl Fn(&mut Stored) -> Result<T, Failure> + Send + Sync + 'static,
    ) {
        let this = self.clone();
        tokio::spawn(async move {
            sleep(later).await;
            drop(act(&mut this.lock()));
        });
    }
}

/// What becomes of a call.
enum Fate {
    Fine,
    Lost,
    Unanswered,
    Late,
    Twice,
}

impl Fate {
    fn of(drawn: u32, faults: Faults) -> Self {
        let Faults { lost, unanswered, late, twice, .. } = faults;
        match drawn {
            n if n < lost => Self::Lost,
            n if n < lost + unanswered => Self::Unanswered,
            n if n < lost + unanswered + late => Self::Late,
            n if n < lost + unanswered + late + twice => Self::Twice,
            _ => Self::Fine,
        }
    }
}

impl Stored {
    fn expire(&mut self) {
        let now = Instant::now();
        let over = self.leases.iter().filter(|(_, (until, _))| *until <= now);
        let over: Vec<i64> = over.map(|(id, _)| *id).collect();
        for lease in over {
            self.end_lease(lease);
        }
    }

    /// Another of the members leads them: leases count from now.
    fn elect(&mut self) {
        self.term += 1;
        let now = Instant::now();
        for (until, seconds) in self.leases.values_mut() {
            *until = now + Duration::from_secs(*seconds);
        }
    }

    fn end_lease(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let with: Vec<Vec<u8>> = self
            .keys
            .iter()
            .filter(|(_, all)| {
                all.last().is_some_and(|(_, key)| key.as_ref().is_some_and(|k| k.lease == lease))
            })
            .map(|(key, _)| key.clone())
            .collect();
        if with.is_empty() {
            return;
        }
        self.revision += 1;
        for key in with {
            self.write(&key, None);
        }
    }

    fn write(&mut self, key: &[u8], value: Option<KeyValue>) {
        let revision = self.revision;
        if key.ends_with(b"meta/leader") && value.is_some() {
            self.elections.insert(revision, Instant::now());
        }
        self.keys.entry(key.into()).or_default().push((revision, value));
    }

    fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keys.get(key)?.last()?.1.as_ref()
    }

    fn header(&self) -> Option<Header> {
        let Self { cluster, revision, term, .. } = *self;
        Some(Header { cluster, revision, term, ..Header::default() })
    }

    fn range(&self, range: &Range) -> Result<Ranged, Failure> {
        if range.revision != 0 && range.revision < self.compacted {
            return Err(Failure { kind: Kind::Compacted, what: "compacted".into() });
        }
        let at = if range.revision == 0 { self.revision } else { range.revision };
        let mut found: Vec<KeyValue> = self
            .keys
            .iter()
            .filter(|(key, _)| covers(&range.key, &range.end, key))
            .filter_map(|(_, all)| {
                all.iter().rev().find(|(revision, _)| *revision <= at)?.1.clone()
            })
            .collect();
        if range.order == 2 {
            found.reverse();
        }
        let limit = if range.limit == 0 { usize::MAX } else { range.limit as usize };
        let more = found.len() > limit;
        found.truncate(limit);
        if found.len() > self.longest {
            return Err(Failure::unknown("no answer"));
        }
        Ok(Ranged { header: self.header(), found, more })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.get(&compare.key);
        match (compare.created, compare.modified, &compare.value) {
            (Some(at), ..) => found.map_or(0, |key| key.created) == at,
            (_, Some(at), _) => found.map_or(0, |key| key.modified) == at,
            (.., Some(value)) => found.is_some_and(|key| key.value == value),
            _ => panic!("a comparison of nothing"),
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Result<Transacted, Failure> {
        let succeeded = transaction.compare.iter().all(|compare| self.holds(compare));
        self.missed += usize::from(!succeeded);
        let operations = if succeeded { &transaction.success } else { &transaction.failure };
        let is_put =
            |operation: &Operation| matches!(operation.operation, Some(Operations::Put(_)));
        let has_no_room = self.is_full && operations.iter().any(is_put);
        let full = Failure { kind: Kind::Full, what: "full".into() };
        if has_no_room && self.random.random_range(0..1000) >= self.faults.last {
            return Err(full);
        }
        let mut puts: Vec<&[u8]> = Vec::new();
        for operation in operations {
            if let Some(Operations::Put(put)) = &operation.operation {
                if put.lease != 0 && !self.leases.contains_key(&put.lease) {
                    return Err(Failure { kind: Kind::LeaseOver, what: "no lease".into() });
                }
                assert!(!puts.contains(&&put.key[..]), "etcd refuses a key that is put twice");
                assert!(put.value.len() < 1_500_000, "etcd refuses so long a request");
                puts.push(&put.key);
            }
        }
        let is_write = |operation: &Operation| {
            !matches!(operation.operation, Some(Operations::Range(_)) | None)
        };
        if operations.iter().any(is_write) {
            self.revision += 1;
        }
        let outcomes = operations.iter().map(|operation| self.operate(operation));
        let outcomes = outcomes.collect::<Result<_, _>>()?;
        match has_no_room {
            true => Err(full),
            false => Ok(Transacted { header: self.header(), succeeded, outcomes }),
        }
    }

    fn operate(&mut self, operation: &Operation) -> Result<Outcome, Failure> {
        match &operation.operation {
            Some(Operations::Range(range)) => {
                return Ok(Outcome { range: Some(self.range(range)?) });
            }
            Some(Operations::Put(put)) => {
                let created = self.get(&put.key).map_or(self.revision, |found| found.created);
                let key = KeyValue {
                    key: put.key.clone(),
                    created,
                    modified: self.revision,
                    value: put.value.clone(),
                    lease: put.lease,
                };
                self.write(&put.key, Some(key));
            }
            Some(Operations::Delete(delete)) => {
                let there = |(key, all): (&Vec<u8>, &Vec<(i64, Option<KeyValue>)>)| {
                    let is_there = all.last().is_some_and(|(_, key)| key.is_some());
                    (is_there && covers(&delete.key, &delete.end, key)).then(|| key.clone())
                };
                let gone: Vec<_> = self.keys.iter().filter_map(there).collect();
                for key in gone {
                    self.write(&key, None);
                }
            }
            None => {}
        }
        Ok(Outcome { range: None })
    }

    fn compact(&mut self, upto: i64) {
        self.compacted = self.compacted.max(upto);
        for all in self.keys.values_mut() {
            let last = all.iter().rposition(|(revision, _)| *revision <= upto).unwrap_or(0);
            all.drain(..last);
        }
        self.keys.retain(|_, all| {
            !all.last().is_some_and(|(revision, key)| key.is_none() && *revision <= upto)
        });
    }
}

pub(super) fn covers(first: &[u8], end: &[u8], key: &[u8]) -> bool {
    if end.is_empty() { key == first } else { first <= key && key < end }
}

impl Kv for SimulatedStore {
    type Events = SimulatedEvents;

    async fn range(&self, range: Range) -> Result<Ranged, Failure> {
        self.call(move |stored| stored.range(&range)).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Transacted, Failure> {
        self.call(move |stored| stored.transact(&transaction)).await
    }

    async fn compact(&self, revision: i64) -> Result<(), Failure> {
        self.call(move |stored| {
            stored.compact(revision);
            Ok(())
        })
        .await
    }

    async fn grant_lease(&self, seconds: i64) -> Result<LeaseGranted, Failure> {
        self.call(move |stored| {
            stored.last_lease += 1;
            let (id, length) = (stored.last_lease, seconds as u64);
            stored.leases.insert(id, (Instant::now() + Duration::from_secs(length), length));
            Ok(LeaseGranted { header: stored.header(), id, seconds })
        })
        .await
    }

    async fn renew_lease(&self, id: i64) -> Result<LeaseGranted, Failure> {
        self.call(move |stored| {
            let header = stored.header();
            let over = || Failure { kind: Kind::LeaseOver, what: "over".into() };
            let (until, seconds) = stored.leases.get_mut(&id).ok_or_else(over)?;
            *until = Instant::now() + Duration::from_secs(*seconds);
            Ok(LeaseGranted { header, id, seconds: *seconds as i64 })
        })
        .await
    }

    async fn revoke_lease(&self, id: i64) -> Result<(), Failure> {
        self.call(move |stored| {
            stored.end_lease(id);
            Ok(())
        })
        .await
    }

    async fn watch(
        &self,
        keys: (Vec<u8>, Vec<u8>),
        revision: i64,
    ) -> Result<Self::Events, Failure> {
        self.wait_while_still().await;
        Ok(SimulatedEvents::new(self.clone(), keys, revision))
    }

    async fn seek_leader(&self) -> bool {
        self.lock().is_full
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}
