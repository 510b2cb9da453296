//! Deletes a cell for good.

use holdall_etcd::messages::{Compare, Delete, Transaction};
use holdall_etcd::{Failure, Kind};

use super::kv::Kv;
use super::lead::{Place, pause};
use crate::{Identity, OpenError};

/// How often it is tried while it is not known what came of it.
const TRIES: u32 = 8;

impl<K: Kv> Place<K> {
    /// Deletes all keys of a cell in one transaction, if it is this one: while nobody leads it, or whoever does. A leader
    /// whose key is gone can append nothing any more, and no host makes the cell anew.
    pub(super) async fn remove(&self, cell: Identity, is_forced: bool) -> Result<(), OpenError> {
        for tries in 0..TRIES {
            let meta = self.meta().await?;
            if meta.cell.is_some_and(|there| there.identity != cell) {
                return Err(self.wrong_key(&self.keys.meta("cell"), "is of another cell"));
            }
            if let (Some(leader), false) = (&meta.leader, is_forced) {
                let who = format!("{} (led by {})", self.name, leader.host);
                return Err(OpenError::InUse(who.into()));
            }
            // One that arrives late meets no other cell.
            let mut compare =
                vec![Compare::was_modified(self.keys.meta("cell"), meta.cell_modified)];
            if !is_forced {
                compare.push(Compare::was_created(self.keys.leader(), 0));
            }
            let (key, end) = self.keys.all();
            let success = vec![Delete { key, end }.into()];
            let transaction = Transaction { compare, success, failure: Vec::new() };
            match self.kv.transact(transaction).await {
                Ok(done) if done.succeeded => return Ok(()),
                Err(failure) if failure.kind != Kind::Unknown => {
                    return Err(self.open_error(failure));
                }
                _ => tokio::time::sleep(pause(tries)).await,
            }
        }
        Err(self.open_error(Failure::unknown("it is not known whether the keys were deleted")))
    }
}
