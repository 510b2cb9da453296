//! How far a log has come.

use std::time::Instant;

use tokio::sync::watch;

use crate::{Error, Index};

/// How far a log has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What rests on records up to here may leave: effects, and answers to questions.
    pub may_leave: Index,
    /// Records up to here survive the machine.
    pub synced: Index,
    /// Numbers up to this epoch may be told.
    pub epoch: u32,
    /// Where a log is led for a time: nobody else leads before this, in milliseconds since the
    /// start of the machine (CLOCK_BOOTTIME). What rests on no record of its own (that a lease is
    /// renewed, an answer to a question) may leave before then, and not later. None where nobody
    /// else can lead as long as the log is open.
    pub leads_until: Option<u64>,
    /// The host that was called to lead next ([`crate::Log::call`]), if it is ready.
    pub heir: Option<String>,
    /// What is wrong. Unless it passes ([`Error::passes`]) the log is at its end.
    pub trouble: Option<Error>,
    /// Since when something is wrong, without a break, if that is known.
    pub troubled_since: Option<Instant>,
}

impl Progress {
    /// A log with so many records, all of them kept for good, and nothing wrong.
    pub(crate) fn new(last: Index, epoch: u32) -> Self {
        Self {
            may_leave: last,
            synced: last,
            epoch,
            leads_until: None,
            heir: None,
            trouble: None,
            troubled_since: None,
        }
    }

    /// Whether the log is at its end: nothing more may leave.
    pub fn has_ended(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| !trouble.passes())
    }
}

/// Tells how far a log has come, to anybody, at any time.
#[derive(Clone, Debug)]
pub struct Watch(watch::Receiver<Progress>);

impl Watch {
    pub(crate) fn new(receiver: watch::Receiver<Progress>) -> Self {
        Self(receiver)
    }

    /// How far it has come by now.
    pub fn progress(&self) -> Progress {
        self.0.borrow().clone()
    }

    /// Up to where effects may leave by now.
    pub fn may_leave(&self) -> Index {
        self.0.borrow().may_leave
    }

    /// Waits until what rests on a record may leave.
    ///
    /// # Errors
    /// What ended the log before.
    pub async fn reached(&mut self, index: Index) -> Result<(), Error> {
        self.until(|progress| progress.may_leave >= index).await
    }

    /// Waits until a record survives the machine.
    ///
    /// # Errors
    /// What ended the log before.
    pub async fn synced(&mut self, index: Index) -> Result<(), Error> {
        self.until(|progress| progress.synced >= index).await
    }

    /// Waits until numbers of an epoch may be told.
    ///
    /// # Errors
    /// What ended the log before.
    pub async fn raised(&mut self, epoch: u32) -> Result<(), Error> {
        self.until(|progress| progress.epoch >= epoch).await
    }

    /// Waits until something is new.
    ///
    /// # Errors
    /// If the log is closed.
    pub async fn changed(&mut self) -> Result<(), Error> {
        self.0.changed().await.map_err(|_| self.closed())
    }

    async fn until(&mut self, come: impl Fn(&Progress) -> bool) -> Result<(), Error> {
        let seen = self.0.wait_for(|progress| come(progress) || progress.has_ended()).await;
        let has_come = seen.is_ok_and(|progress| come(&progress));
        if has_come { Ok(()) } else { Err(self.closed()) }
    }

    fn closed(&self) -> Error {
        let trouble = self.0.borrow().trouble.clone();
        trouble.unwrap_or_else(|| Error::Closed("a cell".into()))
    }
}
