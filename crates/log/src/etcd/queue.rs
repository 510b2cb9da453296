//! What is to be written to a log in etcd, and how it is to end: put there by its owner, taken by the writer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::layout::{Head, Ready};
use crate::Record;

/// How long what has come waits for as much as the transaction before had. What that lets go on comes back in a while, one after the
/// other; sent as it comes, most of it would be in a second transaction, and each costs etcd more than what is in it.
const TOGETHER: Duration = Duration::from_millis(1);

/// It is this time or later; never, if there is none.
pub(super) async fn passed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What is to be written.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<Waiting>,
    pub(super) wake: Notify,
    /// The end of the log is to be sent at once.
    ending: Notify,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) records: VecDeque<Record>,
    pub(super) bytes: usize,
    /// The epoch that was asked for last.
    pub(super) epoch: u32,
    /// That nothing more will come, and who is to lead then.
    pub(super) seal: Option<Heir>,
    /// When the first of what was not sent yet has come.
    pub(super) since: Option<Instant>,
}

impl Waiting {
    /// Since when something waits: from now on, if nothing did.
    fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }
}

impl Queue {
    /// From when on what waits is sent, after this head; none if nothing waits. It is sent at once if it is as much as is expected.
    pub(super) fn due(&self, head: Head, expected: usize) -> Option<Instant> {
        let mut waiting = self.lock();
        let is_ending = waiting.seal.is_some();
        if waiting.records.is_empty() && waiting.epoch <= head.epoch && !is_ending {
            return None;
        }
        let since = waiting.since();
        let is_enough = waiting.records.len() >= expected || is_ending;
        Some(if is_enough { since } else { since + TOGETHER })
    }

    /// Something has come, and it is this time or later; never, if there is none. Or the log is to end.
    pub(super) async fn something_after(&self, at: Option<Instant>) {
        tokio::select! {
            () = passed(at) => self.wake.notified().await,
            () = self.ending.notified() => {}
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, records: impl Iterator<Item = Record>) {
        let mut waiting = self.lock();
        for record in records {
            waiting.bytes += record.payload.len();
            waiting.records.push_back(record);
        }
        waiting.since();
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
        waiting.since();
        drop(waiting);
        self.wake.notify_one();
    }

    /// More will come after all.
    pub(super) fn withdraw_seal(&self) {
        self.lock().seal = None;
    }

    /// Whether this is to be the end of the log.
    pub(super) fn is_ending(&self) -> bool {
        self.lock().seal.is_some()
    }

    /// When all of this is written, this one leads no longer; unless there is no room for that, or the heir is not ready any more.
    pub(super) fn seal(&self, heir: Heir) {
        let mut waiting = self.lock();
        waiting.seal = Some(heir);
        waiting.since();
        drop(waiting);
        self.wake.notify_one();
        self.ending.notify_one();
    }

    /// Whether the host that it is to be handed over to is not ready any more.
    pub(super) fn has_lost_heir(&self, ready: Option<&Ready>) -> bool {
        matches!(&self.lock().seal, Some(Heir::Ready(heir)) if Some(heir) != ready)
    }
}

/// The host that is to lead next.
#[derive(Clone, Debug)]
pub(super) enum Heir {
    /// Any of them.
    Anybody,
    /// This one, for which the others wait a while.
    Named(String),
    /// This one, which is ready, leads from then on.
    Ready(Ready),
}
