//! Calling the host that is to lead next, and hearing that it is ready.

use holdall_etcd::Failure;
use holdall_etcd::messages::{Delete, Event, Operation, Put, Transaction};
use tokio::sync::watch;
use tokio::time::sleep;

use super::kv::{Events as _, Kv};
use super::layout::{Called, Ready};
use super::lead::{Elected, Place, pause};
use super::told::By;

/// The host that is to lead next, if one is.
pub(super) type Wanted = Option<String>;

impl<K: Kv> Place<K> {
    /// Calls whoever is to lead next, for ever, and tells when it is ready, or is no more.
    pub(super) async fn call_heirs(&self, elected: &Elected, mut wanted: watch::Receiver<Wanted>) {
        let mut has_called = false;
        loop {
            let host = wanted.borrow_and_update().clone();
            let is_called = host.is_some();
            let calling = async {
                match host {
                    Some(host) => self.call(elected, host).await,
                    None if has_called => self.call_off(elected).await,
                    None => {}
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = calling => {}
                // Whoever wants somebody is there as long as this is.
                _ = wanted.changed() => {}
            }
            has_called |= is_called;
            elected.told.ready(None);
            elected.told.trouble(By::Call, None);
        }
    }

    /// Calls a host, and listens to it for as long as it is called.
    async fn call(&self, elected: &Elected, host: String) {
        let called = Called { host, term: elected.term };
        let put = Put { key: self.keys.called(), value: called.write(), lease: elected.lease };
        let mut tries = 0;
        loop {
            match self.say(elected, put.clone().into()).await {
                Ok(revision) => {
                    elected.told.trouble(By::Call, None);
                    self.listen_to(elected, &called, revision).await;
                    elected.told.ready(None);
                }
                Err(failure) => {
                    elected.told.trouble(By::Call, Some(self.error(&failure)));
                }
            }
            sleep(pause(tries)).await;
            tries += 1;
        }
    }

    /// The host that was called need not come.
    async fn call_off(&self, elected: &Elected) {
        let delete = Delete { key: self.keys.called(), end: Vec::new() };
        let mut tries = 0;
        while self.say(elected, delete.clone().into()).await.is_err() {
            sleep(pause(tries)).await;
            tries += 1;
        }
    }

    /// Writes something as the leader; when that was.
    async fn say(&self, elected: &Elected, what: Operation) -> Result<i64, Failure> {
        let (compare, success) = (self.is_leader(elected.term), vec![what]);
        let transaction = Transaction { compare, success, failure: Vec::new() };
        let answer = self.kv.transact(transaction).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Hears whether it is ready, until that cannot be known.
    async fn listen_to(&self, elected: &Elected, called: &Called, revision: i64) {
        let keys = (self.keys.ready(), Vec::new());
        let Ok(mut events) = self.kv.watch(keys, revision).await else { return };
        while let Ok(events) = events.next().await {
            let Some(last) = events.last() else { continue };
            let ready = |event: &Event| Ready::read(event.found.as_ref()?);
            let ready = ready(last).filter(|ready| !last.is_deletion() && ready.called == *called);
            elected.told.ready(ready);
        }
    }
}
