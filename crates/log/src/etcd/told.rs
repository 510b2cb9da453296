//! What is told of a log in etcd: its progress, put together from what its parts find out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::layout::Ready;
use crate::{Error, Index, Progress, Watch};

/// Until when whoever leads no longer leads.
const RESIGNED: u64 = 0;

/// Who finds something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Who appends.
    Writer,
    /// Who renews the lease.
    Tenure,
    /// Who asks etcd how it is.
    Looks,
    /// Who calls the host that is to lead next.
    Call,
}

/// Tells how far a log has come, and what is wrong.
pub(super) struct Told {
    progress: watch::Sender<Progress>,
    /// What each of them finds wrong, and passes.
    troubles: Mutex<[Option<Error>; 4]>,
    /// Until when this one leads, by its lease alone.
    lease: AtomicU64,
    /// The host that was called, and is ready.
    ready: Mutex<Option<Ready>>,
}

impl Told {
    pub(super) fn new(progress: Progress) -> Self {
        let lease = AtomicU64::new(progress.leads_until.unwrap_or(RESIGNED));
        let (troubles, ready) = (Mutex::default(), Mutex::default());
        Self { progress: watch::Sender::new(progress), troubles, lease, ready }
    }

    pub(super) fn watch(&self) -> Watch {
        Watch::new(self.progress.subscribe())
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Everything up to here is committed, and numbers of this epoch may be told.
    pub(super) fn committed(&self, upto: Index, epoch: u32) {
        self.progress.send_if_modified(|progress| {
            if progress.has_ended() {
                return false;
            }
            let before = (progress.may_leave, progress.epoch);
            progress.may_leave = progress.may_leave.max(upto);
            progress.synced = progress.may_leave;
            progress.epoch = progress.epoch.max(epoch);
            before != (progress.may_leave, progress.epoch)
        });
    }

    /// Nobody else leads before then; unless this one is about to resign, or has ended.
    pub(super) fn leads_until(&self, until: u64) {
        self.lease.store(until, Ordering::Relaxed);
        self.progress.send_if_modified(|progress| {
            let leads = progress.leads_until != Some(RESIGNED);
            if leads {
                progress.leads_until = Some(until);
            }
            leads
        });
    }

    /// From now on somebody else may lead, at any moment.
    pub(super) fn resign(&self) {
        self.progress.send_modify(|progress| progress.leads_until = Some(RESIGNED));
    }

    /// If this one has resigned, it has not after all: it leads for as long as its lease says.
    pub(super) fn go_on(&self) {
        let until = self.lease.load(Ordering::Relaxed);
        self.progress.send_modify(|progress| {
            if !progress.has_ended() && progress.leads_until == Some(RESIGNED) {
                progress.leads_until = Some(until);
            }
        });
    }

    /// The host that was called is ready, or none is.
    pub(super) fn ready(&self, ready: Option<Ready>) {
        let host = ready.as_ref().map(|ready| ready.called.host.clone());
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = ready;
        self.progress.send_if_modified(|progress| {
            let is_news = progress.heir != host;
            progress.heir = host;
            is_news
        });
    }

    /// What the host that was called has said, if it is ready.
    pub(super) fn who_is_ready(&self) -> Option<Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Something is wrong, or not any more.
    pub(super) fn trouble(&self, by: By, trouble: Option<Error>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let was = troubles.iter().any(Option::is_some);
        troubles[by as usize] = trouble;
        let told = troubles.iter().flatten().next().cloned();
        if !was && told.is_none() {
            return;
        }
        self.progress.send_modify(|progress| {
            if !progress.has_ended() {
                let since = progress.troubled_since.unwrap_or_else(Instant::now);
                progress.troubled_since = told.is_some().then_some(since);
                progress.trouble = told;
            }
        });
    }

    /// The log is at its end; the first reason is the one that is told.
    pub(super) fn end(&self, error: Error) {
        self.progress.send_modify(|progress| {
            if !progress.has_ended() {
                progress.trouble = Some(error);
            }
            progress.leads_until = Some(RESIGNED);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever has resigned and goes on knows for how long it leads; whoever has ended leads no more.
    #[test]
    fn a_log_that_has_ended_is_not_said_to_go_on() {
        let told = Told::new(Progress::new(Index(0), 1));
        told.leads_until(70);
        told.resign();
        told.leads_until(90);
        assert_eq!(told.progress().leads_until, Some(RESIGNED), "it may be handed over");
        told.go_on();
        assert_eq!(told.progress().leads_until, Some(90));
        told.resign();
        told.end(Error::Closed("a cell".into()));
        told.go_on();
        assert_eq!(told.progress().leads_until, Some(RESIGNED));
    }

    #[test]
    fn since_when_something_is_wrong_counts_from_the_first_of_it() {
        let told = Told::new(Progress::new(Index(0), 1));
        let since = || told.progress().troubled_since;
        let full = || Some(Error::Full("a cell".into()));
        assert_eq!(since(), None);
        told.trouble(By::Writer, full());
        let first = since();
        assert!(first.is_some());
        told.trouble(By::Looks, full());
        told.trouble(By::Writer, None);
        assert_eq!(since(), first, "there was no moment without");
        told.trouble(By::Looks, None);
        assert_eq!(since(), None);
        told.trouble(By::Tenure, full());
        assert!(since() > first);
    }
}
