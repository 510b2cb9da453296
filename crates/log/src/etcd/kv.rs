//! What is needed of a store: etcd, or a simulated one.

use std::future::Future;

use holdall_etcd::Failure;
use holdall_etcd::messages::{Event, LeaseGranted, Range, Ranged, Transacted, Transaction};

/// A replicated store of keys, as etcd is one.
///
/// Reads that name no revision see everything that was carried out before they were asked. A
/// transaction whose answer is missing may have been carried out, or be carried out later.
pub(super) trait Kv: Send + Sync + 'static {
    /// What happens to keys that are watched.
    type Events: Events;

    /// Asks for keys.
    fn range(&self, range: Range) -> impl Future<Output = Result<Ranged, Failure>> + Send;

    /// Carries out a transaction.
    fn transact(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Transacted, Failure>> + Send;

    /// Forgets how keys were before a revision.
    fn compact(&self, revision: i64) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Gets a lease.
    fn grant_lease(
        &self,
        seconds: i64,
    ) -> impl Future<Output = Result<LeaseGranted, Failure>> + Send;

    /// Renews a lease.
    fn renew_lease(&self, id: i64) -> impl Future<Output = Result<LeaseGranted, Failure>> + Send;

    /// Ends a lease.
    fn revoke_lease(&self, id: i64) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Watches the keys from the first to before the end, or one, from a revision on.
    fn watch(
        &self,
        keys: (Vec<u8>, Vec<u8>),
        revision: i64,
    ) -> impl Future<Output = Result<Self::Events, Failure>> + Send;

    /// Asks whoever carries things out without asking others first, from now on, if that can be known; and tells whether that one
    /// has no room.
    fn seek_leader(&self) -> impl Future<Output = bool> + Send;

    /// The time since the start of the machine, standing still included, in milliseconds.
    fn now(&self) -> u64;
}

/// What happens to keys that are watched, as long as this is there.
pub(super) trait Events: Send {
    /// What has happened next, in order and without a gap: all of one revision together.
    fn next(&mut self) -> impl Future<Output = Result<Vec<Event>, Failure>> + Send;
}

impl Events for holdall_etcd::Events {
    async fn next(&mut self) -> Result<Vec<Event>, Failure> {
        Self::next(self).await
    }
}

impl Kv for holdall_etcd::Client {
    type Events = holdall_etcd::Events;

    async fn range(&self, range: Range) -> Result<Ranged, Failure> {
        Self::range(self, range).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Transacted, Failure> {
        Self::transact(self, transaction).await
    }

    async fn compact(&self, revision: i64) -> Result<(), Failure> {
        Self::compact(self, revision).await
    }

    async fn grant_lease(&self, seconds: i64) -> Result<LeaseGranted, Failure> {
        Self::grant_lease(self, seconds).await
    }

    async fn renew_lease(&self, id: i64) -> Result<LeaseGranted, Failure> {
        Self::renew_lease(self, id).await
    }

    async fn revoke_lease(&self, id: i64) -> Result<(), Failure> {
        Self::revoke_lease(self, id).await
    }

    async fn watch(
        &self,
        keys: (Vec<u8>, Vec<u8>),
        revision: i64,
    ) -> Result<Self::Events, Failure> {
        Self::watch(self, keys, revision).await
    }

    async fn seek_leader(&self) -> bool {
        Self::seek_leader(self).await
    }

    fn now(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }
}
