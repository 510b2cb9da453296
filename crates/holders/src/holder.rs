//! Everything that holds one grant.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use holdall_wire::holder::Record;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::cgroup::{Cgroup, Cgroups};
use crate::family::Family;
use crate::process::own_namespaces;

/// How often it is looked at what cannot be told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How many processes of a cgroup are told.
const PIDS_MAX: usize = 1000;

/// What runs under a grant.
#[derive(Debug)]
pub enum Holder {
    /// All that is in a cgroup.
    Cgroup(Cgroup),
    /// Processes that are known one by one.
    Family(Family),
    /// A program that is known by the lock it keeps on a file, and the name of that file.
    Client(String, File),
    /// What cannot be told now; it is there until that can be told again, or somebody says that
    /// it is not.
    Unknown(Record, Option<Cgroups>),
}

impl Holder {
    /// As it is kept on disk.
    pub fn record(&self) -> Record {
        let boot = boot().to_owned();
        match self {
            Self::Cgroup(cgroup) => {
                Record { boot, cgroup: Some(cgroup.id().clone()), ..Record::default() }
            }
            Self::Family(family) => Record {
                boot,
                cgroup: None,
                leader: family.leader(),
                others: family.others(),
                wrapper: family.wrapper(),
                namespaces: own_namespaces(),
                lock: None,
            },
            Self::Client(lock, _) => Record::of_client(&boot, lock),
            Self::Unknown(record, _) => record.clone(),
        }
    }

    /// What is left of a holder of a former time; none if it is gone.
    pub fn again(record: &Record, cgroups: Option<&Cgroups>) -> Option<Self> {
        match Self::find(record, cgroups)? {
            unknown @ Self::Unknown(..) => Some(unknown),
            holder => (!holder.ended()).then_some(holder),
        }
    }

    /// A holder of a former time, also if nothing of it runs: its cgroup may be one in which nothing
    /// has started yet.
    pub fn find(record: &Record, cgroups: Option<&Cgroups>) -> Option<Self> {
        if record.is_before(boot()) {
            return None;
        }
        let unknown = || Self::Unknown(record.clone(), cgroups.cloned());
        Some(match (&record.cgroup, cgroups) {
            (Some(id), Some(cgroups)) => match cgroups.again(id) {
                Ok(cgroup) => Self::Cgroup(cgroup?),
                Err(_) => unknown(),
            },
            (Some(_), None) => unknown(),
            (None, _) if record.namespaces != own_namespaces() => unknown(),
            (None, _) => match Family::again(record.leader, &record.others, record.wrapper) {
                Ok(family) => Self::Family(family),
                Err(_) => unknown(),
            },
        })
    }

    /// What an unknown one is known to be by now; none if it is gone.
    async fn found_again(record: &Record, cgroups: Option<&Cgroups>) -> Option<Self> {
        loop {
            match Self::again(record, cgroups) {
                Some(Self::Unknown(..)) => tokio::time::sleep(LOOK_AGAIN).await,
                found => return found,
            }
        }
    }

    /// Whether nothing of it runs; if in doubt, something does. A cgroup is removed then.
    pub fn ended(&self) -> bool {
        match self {
            Self::Cgroup(cgroup) => cgroup.remove(),
            Self::Family(family) => family.ended(),
            Self::Client(_, file) => is_free(file),
            Self::Unknown(record, cgroups) => Self::again(record, cgroups.as_ref()).is_none(),
        }
    }

    /// The processes that run, as far as they are known; of very many, some.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Self::Cgroup(cgroup) => cgroup.pids(PIDS_MAX).unwrap_or_default(),
            Self::Family(family) => family.pids(),
            Self::Client(..) | Self::Unknown(..) => Vec::new(),
        }
    }

    /// Asks all of it to end, whether it is stopped or not.
    pub fn ask_to_end(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            match self {
                Self::Cgroup(cgroup) => cgroup.signal(signal),
                Self::Family(family) => family.signal(signal),
                Self::Client(..) | Self::Unknown(..) => {}
            }
        }
    }

    /// Kills all of it, and waits until nothing of it runs any more.
    pub async fn kill(&self) {
        match self {
            Self::Cgroup(cgroup) => {
                while cgroup.kill().is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                    // Too many files are open. It will have to be tried again.
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
            Self::Family(family) => family.signal(Signal::KILL),
            Self::Client(..) => {} // It may be of any use to somebody, and has lost only a grant.
            Self::Unknown(record, cgroups) => {
                if let Some(found) = Self::found_again(record, cgroups.as_ref()).await {
                    Box::pin(found.kill()).await;
                }
                return;
            }
        }
        self.until_ended().await;
    }

    /// Waits until nothing of it runs any more.
    pub async fn until_ended(&self) {
        match self {
            Self::Cgroup(cgroup) => cgroup.until_removed().await,
            Self::Family(family) => family.until_ended().await,
            Self::Client(_, file) => {
                let mut pause = Duration::from_millis(5);
                while !is_free(file) {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LOOK_AGAIN);
                }
            }
            Self::Unknown(record, cgroups) => {
                if let Some(found) = Self::found_again(record, cgroups.as_ref()).await {
                    Box::pin(found.until_ended()).await;
                }
            }
        }
    }

    /// Asks all of it to end, and kills what has not ended after some time.
    pub async fn end(&self, grace: Duration) {
        self.ask_to_end();
        if tokio::time::timeout(grace, self.until_ended()).await.is_err() {
            self.kill().await;
        }
    }
}

/// Whether nobody has a lock on a file.
fn is_free(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && flock(file, FlockOperation::Unlock).is_ok()
}

/// What tells this boot of the machine from all others.
pub fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.unwrap_or_default().trim().to_owned()
    })
}
