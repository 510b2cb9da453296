//! Everything that holds one grant.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, CgroupId, Cgroups};
use crate::family::Family;
use crate::process::ProcessId;

/// What runs under a grant.
#[derive(Debug)]
pub enum Holder {
    /// All that is in a cgroup.
    Cgroup(Cgroup),
    /// Processes that are known one by one.
    Family(Family),
    /// What cannot be told any more; it is there until somebody says that it is not.
    Unknown(Record),
}

/// A holder as it is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The boot of the machine; with it, everything ends.
    pub boot: String,
    /// The cgroup, if there is one.
    pub cgroup: Option<CgroupId>,
    /// The leader, and whether it leads a process group.
    pub leader: Option<(ProcessId, bool)>,
    /// Other processes.
    pub others: Vec<ProcessId>,
}

impl Holder {
    /// As it is kept on disk.
    pub fn record(&self) -> Record {
        let boot = boot().to_owned();
        match self {
            Self::Cgroup(cgroup) => {
                Record { boot, cgroup: Some(cgroup.id().clone()), ..Record::default() }
            }
            Self::Family(family) => {
                Record { boot, cgroup: None, leader: family.leader(), others: family.others() }
            }
            Self::Unknown(record) => record.clone(),
        }
    }

    /// What is left of a holder of a former time; none if it is gone.
    pub fn again(record: &Record, cgroups: Option<&Cgroups>) -> Option<Self> {
        if record.boot != boot() {
            return None;
        }
        let unknown = || Self::Unknown(record.clone());
        let holder = match (&record.cgroup, cgroups) {
            (Some(id), Some(cgroups)) => match cgroups.again(id) {
                Ok(cgroup) => Self::Cgroup(cgroup?),
                Err(_) => unknown(),
            },
            (Some(_), None) => unknown(),
            (None, _) => match Family::again(record.leader, &record.others) {
                Ok(family) => Self::Family(family),
                Err(_) => unknown(),
            },
        };
        (!holder.ended()).then_some(holder)
    }

    /// Whether nothing of it runs; if in doubt, something does. A cgroup is removed then.
    pub fn ended(&self) -> bool {
        match self {
            Self::Cgroup(cgroup) => cgroup.remove(),
            Self::Family(family) => family.ended(),
            Self::Unknown(_) => false,
        }
    }

    /// The processes that run, as far as they are known.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Self::Cgroup(cgroup) => cgroup.pids().unwrap_or_default(),
            Self::Family(family) => family.pids(),
            Self::Unknown(_) => Vec::new(),
        }
    }

    /// Asks all of it to end, whether it is stopped or not.
    pub fn ask_to_end(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            match self {
                Self::Cgroup(cgroup) => cgroup.signal(signal),
                Self::Family(family) => family.signal(signal),
                Self::Unknown(_) => {}
            }
        }
    }

    /// Kills all of it, and waits until nothing of it runs any more.
    pub async fn kill(&self) {
        match self {
            Self::Cgroup(cgroup) => {
                while cgroup.kill().is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                    // Too many files are open. It will have to be tried again.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Self::Family(family) => family.signal(Signal::KILL),
            Self::Unknown(_) => {}
        }
        self.until_ended().await;
    }

    /// Waits until nothing of it runs any more.
    pub async fn until_ended(&self) {
        match self {
            Self::Cgroup(cgroup) => cgroup.until_removed().await,
            Self::Family(family) => family.until_ended().await,
            Self::Unknown(_) => std::future::pending().await,
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

/// What tells this boot of the machine from all others.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.unwrap_or_default().trim().to_owned()
    })
}
