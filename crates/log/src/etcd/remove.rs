//! Deletes a cell for good.

use holdall_etcd::messages::{Compare, Delete, Transaction};
use holdall_etcd::{Failure, Kind};

use super::kv::Kv;
use super::lead::{Place, pause};
use crate::{Identity, OpenError};

/// How often it is tried while it is not known what came of it.
const TRIES: u32 = 8;

/// Which election of a cell was the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Election(i64);

impl<K: Kv> Place<K> {
    /// Which election was the last one.
    pub(super) async fn last_election(&self) -> Result<Election, OpenError> {
        Ok(Election(self.meta().await?.epoch_modified))
    }

    /// Deletes all keys of a cell in one transaction, if it is this one: while nobody leads it, and nobody was elected since
    /// that election; or whoever leads it. A leader whose key is gone can append nothing any more, and no host makes the
    /// cell anew.
    pub(super) async fn remove(
        &self,
        cell: Identity,
        since: Option<Election>,
    ) -> Result<(), OpenError> {
        for tries in 0..TRIES {
            let meta = self.meta().await?;
            if meta.cell.is_none() && meta.epoch_modified == 0 {
                return Ok(()); // What may be there is half a copy, which is no cell.
            }
            if meta.cell.is_some_and(|there| there.identity != cell) {
                return Err(self.wrong_key(&self.keys.meta("cell"), "is of another cell"));
            }
            // One that arrives late meets nothing that was made since.
            let mut compare = vec![
                Compare::was_modified(self.keys.meta("cell"), meta.cell_modified),
                Compare::was_modified(self.keys.meta("epoch"), meta.epoch_modified),
            ];
            if let Some(Election(election)) = since {
                if let Some(leader) = &meta.leader {
                    let who = format!("{} (led by {})", self.name, leader.host);
                    return Err(OpenError::InUse(who.into()));
                }
                if meta.epoch_modified != election {
                    return Err(self.led_since());
                }
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

    /// Something may have been granted since it was looked whether it may be removed.
    fn led_since(&self) -> OpenError {
        let what =
            "another host has led it meanwhile, and may have granted something; say it again";
        OpenError::Io { path: self.name.clone().into(), error: std::io::Error::other(what) }
    }
}
