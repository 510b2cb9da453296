//! The processes that use a grant, as they are kept on disk: who they were is known after everything
//! that watched them has ended.

use serde::{Deserialize, Serialize};

/// What tells a process from all others of one boot of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number, which another process may have later.
    pub pid: u32,
    /// When it started, in ticks after the start of the machine.
    pub start: u64,
}

/// Where numbers and times of processes mean something: in other namespaces they are others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// That of numbers.
    pub pid: String,
    /// That of times.
    pub time: String,
}

/// What tells a cgroup from all others of one boot of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupId {
    /// Where it is, below the mount.
    pub path: String,
    /// Its inode, which no other cgroup ever has.
    pub inode: u64,
    /// The inode of what is mounted, below which the path is.
    pub root: u64,
}

/// A holder.
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
    /// The client that started the leader.
    pub wrapper: Option<ProcessId>,
    /// Where all these numbers mean something.
    pub namespaces: Namespaces,
    /// The file on which a program keeps a lock.
    pub lock: Option<String>,
}

impl Record {
    /// A program of a boot of the machine that keeps a lock on a file.
    pub fn of_client(boot: &str, lock: &str) -> Self {
        Self { boot: boot.to_owned(), lock: Some(lock.to_owned()), ..Self::default() }
    }

    /// What it is, in words.
    pub fn told(&self) -> String {
        let leader = self.leader.map(|(id, _)| id);
        let pids: Vec<_> = leader.iter().chain(&self.others).map(|id| id.pid.to_string()).collect();
        match &self.cgroup {
            Some(cgroup) => format!("the cgroup {}", cgroup.path),
            None => format!("processes {}, in the namespace where they started", pids.join(", ")),
        }
    }

    /// Whether it is of an earlier boot of the machine than this, and so certainly gone.
    pub fn is_before(&self, boot: &str) -> bool {
        // Where it cannot be read, numbers and start times have to do.
        ![&*self.boot, boot].contains(&"") && self.boot != boot
    }
}
