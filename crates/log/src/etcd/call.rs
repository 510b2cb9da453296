//! Calling the host that is to lead next, and hearing that it is ready.

use holdall_etcd::Failure;
use holdall_etcd::messages::{Compare, Delete, Operation, Put, Range, Transaction};
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
            match self.say(elected, Vec::new(), put.clone().into()).await {
                Ok(true) => {
                    elected.told.trouble(By::Call, None);
                    self.listen_to(elected, &called).await;
                    elected.told.ready(None);
                }
                // It leads no more.
                Ok(false) => return,
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
        let mut tries = 0;
        while self.delete_called(elected).await.is_err() {
            sleep(pause(tries)).await;
            tries += 1;
        }
    }

    /// Deletes what is there, and nothing that is written later, should this arrive late.
    async fn delete_called(&self, elected: &Elected) -> Result<(), Failure> {
        let key = self.keys.called();
        let range = Range { key: key.clone(), ..Range::default() };
        let Some(found) = self.kv.range(range).await?.found.pop() else { return Ok(()) };
        let is_same = Compare::was_modified(key.clone(), found.modified);
        let delete = Delete { key, end: Vec::new() };
        self.say(elected, vec![is_same], delete.into()).await.map(drop)
    }

    /// Writes something as the leader, if it is that, and something else is so; whether it was.
    async fn say(
        &self,
        elected: &Elected,
        mut compare: Vec<Compare>,
        what: Operation,
    ) -> Result<bool, Failure> {
        compare.extend(self.is_leader(elected.term));
        let transaction = Transaction { compare, success: vec![what], failure: Vec::new() };
        Ok(self.kv.transact(transaction).await?.succeeded)
    }

    /// Hears whether it is ready, until that cannot be known.
    async fn listen_to(&self, elected: &Elected, called: &Called) {
        let key = self.keys.ready();
        let is_its = |ready: &Ready| ready.called == *called;
        // It says so once, and may have.
        let range = Range { key: key.clone(), ..Range::default() };
        let Ok(now) = self.kv.range(range).await else { return };
        let revision = now.header.as_ref().map_or(0, |header| header.revision);
        elected.told.ready(now.found.first().and_then(Ready::read).filter(is_its));
        let Ok(mut events) = self.kv.watch((key, Vec::new()), revision + 1).await else { return };
        while let Ok(events) = events.next().await {
            let Some(last) = events.last() else { continue };
            let ready = last.found.as_ref().filter(|_| !last.is_deletion()).and_then(Ready::read);
            elected.told.ready(ready.filter(is_its));
        }
    }
}
