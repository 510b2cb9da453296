//! Leading: being elected, renewing the lease, and knowing when that is over.
//!
//! # Invariants
//! - A leader has a key that was written when it was elected, or made leader by the one before, and
//!   never since, and goes with its lease. Whatever it writes compares the revision at which that was.
//! - Its epoch is kept, in a key that stays, by the transaction that elects it.
//! - It counts its lease from when it asked for the renewal, less a tenth for clocks that differ. A
//!   renewal counts only if etcd's own leader was the same before and after it: one that was
//!   replaced without knowing it yet renews what its successor lets lapse.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use holdall_etcd::messages::{
    Compare, Delete, KeyValue, Operation, Put, Range, Ranged, Transaction,
};
use holdall_etcd::{Failure, Kind};

use super::heir::Audience;
use super::kv::{Events as _, Kv};
use super::layout::{CellValue, Head, Keys, Leader, Meta, Unreadable, write_epoch, write_lost};
use super::options::{Options, WhenLed};
use super::read::Read;
use super::told::{By, Told};
use crate::disk::random;
use crate::{Error, Identity, Index, Life, Lost, Memory, OpenError, Progress};

/// By how much epochs are ahead after a restore: there have been fewer elections since the backup.
pub const EPOCHS_AHEAD: u32 = 1 << 16;
/// How often a question is asked that is not answered, and how long in between at most.
const QUESTIONS: u32 = 8;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A store, a cell in it, and who wants to lead it.
pub(super) struct Place<K> {
    pub(super) kv: Arc<K>,
    pub(super) keys: Keys,
    pub(super) options: Options,
    /// What it is called where people read it.
    pub(super) name: String,
}

impl<K> Clone for Place<K> {
    fn clone(&self) -> Self {
        let Self { kv, keys, options, name } = self;
        Self {
            kv: Arc::clone(kv),
            keys: keys.clone(),
            options: options.clone(),
            name: name.clone(),
        }
    }
}

/// A leader.
pub(super) struct Elected {
    /// The revision at which its key was written.
    pub(super) term: i64,
    pub(super) lease: i64,
    pub(super) epoch: u32,
    /// As of the election, but for what that has changed.
    pub(super) meta: Meta,
    pub(super) cell: CellValue,
    pub(super) memory: Memory,
    pub(super) sealed: bool,
    /// What was told of it, and from when on.
    pub(super) told: Told,
    /// The revision up to which etcd may forget, next time.
    pub(super) swept: AtomicI64,
}

/// A little longer each time.
pub(super) fn pause(tries: u32) -> Duration {
    Duration::from_millis(20 << tries.min(10)).min(PAUSE_MAX)
}

impl<K: Kv> Place<K> {
    pub(super) fn new(kv: Arc<K>, options: Options, name: String) -> Self {
        Self { kv, keys: Keys::new(&options.cell), options, name }
    }

    /// What is said by a failure that passes.
    pub(super) fn error(&self, failure: &Failure) -> Error {
        match failure.kind {
            Kind::Full => Error::Full(self.name.clone()),
            _ => Error::Failed {
                place: self.name.clone(),
                error: Arc::new(std::io::Error::other(failure.what.clone())),
            },
        }
    }

    pub(super) fn open_error(&self, failure: Failure) -> OpenError {
        OpenError::Io { path: self.name.clone().into(), error: std::io::Error::other(failure) }
    }

    pub(super) fn wrong_key(&self, key: &[u8], what: &str) -> OpenError {
        let key = String::from_utf8_lossy(key).into_owned();
        OpenError::Key { place: self.name.clone(), key, what: what.into() }
    }

    /// Asks until there is an answer, or a reason why there is none.
    pub(super) async fn ask(&self, range: &Range) -> Result<Ranged, Failure> {
        let mut tries = 0;
        loop {
            match self.kv.range(range.clone()).await {
                Err(failure) if failure.kind == Kind::Unknown && tries < QUESTIONS => {
                    tokio::time::sleep(pause(tries)).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// What is said of the log now.
    pub(super) async fn meta(&self) -> Result<Meta, OpenError> {
        let ranged = self.ask(&self.keys.all_meta()).await;
        let mut ranged = ranged.map_err(|failure| self.open_error(failure))?;
        ranged.found.iter_mut().for_each(|key| self.as_known(key));
        Meta::read(&self.keys, &ranged).map_err(|wrong| self.unreadable(&wrong))
    }

    pub(super) fn unreadable(&self, wrong: &Unreadable) -> OpenError {
        self.wrong_key(wrong.0.as_bytes(), "is not of this format")
    }

    /// Without the rule, when a leader's key was made counts as when it was written.
    pub(super) fn as_known(&self, key: &mut KeyValue) {
        if !self.options.rules.knows_last_writing && key.key == self.keys.leader() {
            key.modified = key.created;
        }
    }

    /// Becomes leader; waits for that if it is to, and gets ready when it is called to lead next. With what it has read by then,
    /// if that is all.
    pub(super) async fn campaign(
        &self,
        ahead: Option<&Audience>,
    ) -> Result<(Elected, Option<Read>), OpenError> {
        let (mut has_waited, mut answered) = (false, 0);
        loop {
            let meta = self.meta().await?;
            let is_in_its_place =
                |leader: &&Leader| self.options.when_led == WhenLed::TakeOver(leader.term);
            if let Some(leader) = meta.leader.as_ref().filter(|leader| !is_in_its_place(leader)) {
                if self.options.when_led != WhenLed::StandBy {
                    let who = format!("{} (led by {})", self.name, leader.host);
                    return Err(OpenError::InUse(who.into()));
                }
                has_waited = false;
                let is_called = meta.heir_called().is_some_and(|it| it.host == self.options.host);
                if is_called && meta.called_modified != answered {
                    answered = meta.called_modified;
                    if let Some((elected, read)) = self.get_ready(meta, ahead).await? {
                        return Ok((elected, Some(read)));
                    }
                    continue;
                }
                self.stand_by(&meta).await;
                continue;
            }
            if meta.heir.as_ref().is_some_and(|heir| *heir != self.options.host) && !has_waited {
                // Somebody else is to lead. If it does not come, it is as good as gone.
                let comes = self.changed((self.keys.leader(), Vec::new()), meta.revision + 1);
                let comes = tokio::time::timeout(self.options.lease / 2, comes).await;
                if matches!(comes, Ok(Err(_))) {
                    tokio::time::sleep(self.options.lease / 2).await;
                }
                has_waited = !matches!(comes, Ok(Ok(())));
                continue;
            }
            if let Some(elected) = self.stand(meta).await? {
                return Ok((elected, None));
            }
        }
    }

    /// Waits until something happens to keys at a revision or later.
    pub(super) async fn changed(
        &self,
        keys: (Vec<u8>, Vec<u8>),
        revision: i64,
    ) -> Result<(), Failure> {
        self.kv.watch(keys, revision).await?.next().await.map(drop)
    }

    /// Waits until something happens to the leader's key, or those below it; or for a while, as a watch may tell late.
    pub(super) async fn stand_by(&self, meta: &Meta) {
        let changed = self.changed(self.keys.around_leader(), meta.revision + 1);
        match tokio::time::timeout(self.options.lease, changed).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(_)) => tokio::time::sleep(pause(3)).await,
        }
    }

    /// Stands for election while nobody leads, or takes over from whoever does. None: somebody else was faster, or it is not known.
    async fn stand(&self, meta: Meta) -> Result<Option<Elected>, OpenError> {
        let judged = self.judge(&meta)?;
        let sent = self.kv.now();
        // Who is killed after it has taken over keeps others from leading until whoever led before can tell nothing more.
        let leases = if meta.leader.is_some() { 3 } else { 1 };
        let lease = self.kv.grant_lease(self.options.seconds().saturating_mul(leases)).await;
        let lease = lease.map_err(|failure| self.open_error(failure))?;
        let until = until(sent, lease.seconds);
        let transaction = self.election(&meta, &judged, lease.id);
        let mut tries = 0;
        while self.kv.now() < until {
            let answer = self.kv.transact(transaction.clone()).await;
            match &answer {
                Err(failure) if failure.kind != Kind::Unknown => {
                    self.give_up(lease.id).await;
                    return Err(self.open_error(failure.clone()));
                }
                _ => {}
            }
            // Whatever was answered, or not: what is there counts.
            let Ok(now) = self.meta().await else { break };
            if now.leader_lease == lease.id
                && let Some(leader) = &now.leader
            {
                let term = leader.term;
                return Ok(Some(judged.elected(meta.is_sealed(), now, lease.id, term, until)));
            }
            if now.leader.is_some() || now.epoch_modified != meta.epoch_modified {
                break;
            }
            tokio::time::sleep(pause(tries)).await;
            tries += 1;
        }
        self.give_up(lease.id).await;
        Ok(None)
    }

    /// Ends a lease, and what goes with it; if that is not heard, it ends by itself.
    pub(super) async fn give_up(&self, lease: i64) {
        let _ = self.kv.revoke_lease(lease).await;
    }

    /// What a leader would begin with.
    pub(super) fn judge(&self, meta: &Meta) -> Result<Judged, OpenError> {
        let Options { seen, above, adopt, create, identity, .. } = &self.options;
        if let (Some(cell), Some(known)) = (meta.cell, identity)
            && cell.identity != *known
        {
            let what = format!("is of another cell, {}, and not of {known}", cell.identity);
            return Err(self.wrong_key(&self.keys.meta("cell"), &what));
        }
        let after = |epoch: u32, by: u32| {
            let next = epoch.max(*above).checked_add(by);
            next.ok_or_else(|| OpenError::Exhausted((&self.name).into()))
        };
        let ahead = || after(meta.epoch.max(seen.epoch), EPOCHS_AHEAD);
        let draw =
            || random().map_err(|error| OpenError::Io { path: self.name.clone().into(), error });
        let (drawn, life) = (Identity(draw()?), Life(draw()?));
        let anew = |identity, memory, epoch| Judged {
            cell: CellValue { identity, life, cluster: meta.cluster },
            epoch,
            memory,
            is_anew: true,
        };
        let (Some(cell), Some(next)) = (meta.cell, meta.next) else {
            let was_there =
                meta.cell.is_some() || meta.next.is_some() || meta.epoch > 0 || seen.epoch > 0;
            return match (was_there, adopt, create) {
                (true, false, _) => {
                    Err(self.wrong_key(&self.keys.meta("head"), "or `meta/cell` is missing"))
                }
                // Which cell that was nobody can know who has its log alone.
                (true, true, _) => match meta.cell {
                    Some(cell) => Ok(anew(cell.identity, Memory::Lost(Lost::Missing), ahead()?)),
                    None => Err(OpenError::NoCell(self.name.clone())),
                },
                (false, _, true) => Ok(anew(drawn, Memory::New, after(0, 1)?)),
                (false, _, false) => Err(OpenError::NoCell(self.name.clone())),
            };
        };
        let is_less = meta.revision < seen.revision || next.0 < seen.next;
        let is_restored = cell.cluster != meta.cluster
            || meta.epoch < seen.epoch
            || cell.life == seen.life && is_less;
        if is_restored {
            if !adopt {
                return Err(OpenError::Restored(self.name.clone()));
            }
            let judged = anew(cell.identity, Memory::Lost(Lost::Adopted), ahead()?);
            return Ok(Judged { is_anew: false, ..judged });
        }
        let epoch = after(meta.epoch, 1)?;
        let nothing_yet = next == Index(1) && meta.snapshot.is_none();
        let memory = match meta.lost {
            Some(lost) => Memory::Lost(lost),
            None if nothing_yet => Memory::New,
            None => Memory::Kept,
        };
        Ok(Judged { cell, epoch, memory, is_anew: false })
    }

    /// The transaction that makes a leader, if nobody has led since this was read, and whoever did then does.
    fn election(&self, meta: &Meta, judged: &Judged, lease: i64) -> Transaction {
        let Options { host, address, .. } = &self.options;
        let keys = &self.keys;
        let (epoch, life) = (judged.epoch, judged.cell.life);
        let leader = Leader { host: host.clone(), address: address.clone(), epoch, life, term: 0 };
        let put = |key, value| Operation::from(Put { key, value, lease: 0 });
        let delete = |key| Operation::from(Delete { key, end: Vec::new() });
        let mut success = vec![
            Put { key: keys.leader(), value: leader.write(), lease }.into(),
            put(keys.meta("epoch"), write_epoch(epoch)),
            delete(keys.meta("heir")),
            delete(keys.meta("sealed")),
        ];
        if meta.cell != Some(judged.cell) {
            success.push(put(keys.meta("cell"), judged.cell.write()));
        }
        if let Memory::Lost(lost) = judged.memory {
            success.push(put(keys.meta("lost"), write_lost(lost)));
        }
        if judged.is_anew {
            let range = |(key, end)| Operation::from(Delete { key, end });
            success.push(put(keys.meta("head"), Head { next: Index(1), epoch }.write()));
            success.push(delete(keys.meta("snapshot")));
            success.push(range(keys.batches()));
            success.push(range(keys.all_pieces()));
        }
        let is_as_before = match &meta.leader {
            Some(leader) => Compare::was_modified(keys.leader(), leader.term),
            None => Compare::was_created(keys.leader(), 0),
        };
        let compare = vec![
            is_as_before,
            Compare::was_modified(keys.meta("epoch"), meta.epoch_modified),
            Compare::was_modified(keys.meta("cell"), meta.cell_modified),
        ];
        Transaction { compare, success, failure: Vec::new() }
    }

    /// Renews the lease for ever; returns why it does not lead any more.
    pub(super) async fn keep_leading(&self, elected: &Elected) -> Error {
        let deposed = || Error::Deposed(self.name.clone());
        let third = self.options.lease / 3;
        // Whoever was handed over to has had its lease for a while.
        let until = elected.told.progress().leads_until.unwrap_or(0);
        let left = Duration::from_millis(until.saturating_sub(self.kv.now()));
        let mut wait = third.min(left / 3);
        loop {
            tokio::time::sleep(wait).await;
            match self.renew(elected).await {
                Ok(Some(until)) => {
                    elected.told.leads_until(until);
                    elected.told.trouble(By::Tenure, None);
                    wait = third;
                }
                Ok(None) => return deposed(),
                Err(failure) if failure.kind == Kind::LeaseOver => return deposed(),
                Err(failure) => {
                    let until = elected.told.progress().leads_until.unwrap_or(0);
                    if self.kv.now() >= until || failure.kind != Kind::Unknown {
                        elected.told.trouble(By::Tenure, Some(self.error(&failure)));
                    }
                    wait = third / 4;
                }
            }
        }
    }

    /// Sees to it for ever that the leader of etcd's own members is asked: others pass on what they are to carry out, which takes longer.
    /// That it has no room is told before anything is in vain.
    pub(super) async fn ask_leader(&self, elected: &Elected) {
        loop {
            let is_full = self.kv.seek_leader().await;
            elected.told.trouble(By::Looks, is_full.then(|| Error::Full(self.name.clone())));
            tokio::time::sleep(self.options.lease / 3).await;
        }
    }

    /// Renews the lease, and tells until when this one leads; none if it does not.
    async fn renew(&self, elected: &Elected) -> Result<Option<u64>, Failure> {
        let leader = Range { key: self.keys.leader(), ..Range::default() };
        let term = |ranged: &Ranged| ranged.header.as_ref().map_or(0, |header| header.term);
        let before = term(&self.kv.range(leader.clone()).await?);
        let sent = self.kv.now();
        let renewed = self.kv.renew_lease(elected.lease).await?;
        let counted = if self.options.rules.counts_from_sending { sent } else { self.kv.now() };
        let after = self.kv.range(leader).await?;
        // A backup has the key, too, and may lack what was told since.
        let is_other = after.header.as_ref().is_some_and(|it| it.cluster != elected.meta.cluster);
        if is_other || after.found.first().is_none_or(|key| self.term_of(key) != elected.term) {
            return Ok(None);
        }
        let by = renewed.header.as_ref().map_or(0, |header| header.term);
        if before != by || by != term(&after) {
            return Err(Failure::unknown("the members of etcd have elected another leader"));
        }
        Ok(Some(until(counted, renewed.seconds)))
    }

    /// That this one leads, for a transaction.
    pub(super) fn is_leader(&self, term: i64) -> Vec<Compare> {
        let rules = &self.options.rules;
        let compare = match rules.knows_last_writing {
            true => Compare::was_modified(self.keys.leader(), term),
            false => Compare::was_created(self.keys.leader(), term),
        };
        if rules.compares_leader { vec![compare] } else { Vec::new() }
    }

    /// The term of the leader whose key this is.
    fn term_of(&self, key: &KeyValue) -> i64 {
        if self.options.rules.knows_last_writing { key.modified } else { key.created }
    }
}

impl Elected {
    /// Up to where etcd may forget; the next time, up to here.
    pub(super) fn forgettable(&self, revision: i64) -> i64 {
        self.swept.swap(revision, Ordering::Relaxed)
    }
}

/// What a leader begins with.
pub(super) struct Judged {
    pub(super) cell: CellValue,
    pub(super) epoch: u32,
    pub(super) memory: Memory,
    /// Whether the log begins with nothing.
    pub(super) is_anew: bool,
}

impl Judged {
    /// A leader that begins with this, as of its election.
    pub(super) fn elected(
        &self,
        is_sealed: bool,
        now: Meta,
        lease: i64,
        term: i64,
        until: u64,
    ) -> Elected {
        let next = now.next.unwrap_or(Index(1));
        let mut progress = Progress::new(next.before(), self.epoch);
        progress.leads_until = Some(until);
        Elected {
            term,
            lease,
            epoch: self.epoch,
            cell: self.cell,
            memory: self.memory,
            sealed: is_sealed && self.memory == Memory::Kept,
            told: Told::new(progress),
            swept: AtomicI64::new(now.revision),
            meta: now,
        }
    }
}

/// Until when a lease counts that was asked for at a time, with clocks that differ by a tenth.
pub(super) fn until(sent: u64, seconds: i64) -> u64 {
    sent + u64::try_from(seconds).unwrap_or(0) * 900
}
