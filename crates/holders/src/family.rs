//! Processes without a cgroup: a leader, what it started, and its process group.
//!
//! What this does not see: a process that left the group (`setsid`) and whose parents have ended,
//! if the wrapper that would have inherited it was killed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process_group, test_kill_process_group};

use crate::passing::Peer;
use crate::process::{Process, ProcessId, Stat, number};
use crate::raw;

/// Why somebody's child is not taken for one.
#[derive(Debug, thiserror::Error)]
pub enum NotAHolder {
    /// The descriptor is none of a process that can be seen.
    #[error(
        "the child cannot be seen from here; an agent in another container than its clients \
         needs their process ids: run both in one pid namespace"
    )]
    OutOfSight,
    /// It has ended.
    #[error("the child has ended already")]
    Ended,
    /// Somebody else started it.
    #[error("process {0} is no child of {1}")]
    Stranger(u32, u32),
    /// It cannot be told.
    #[error("the child cannot be looked at: {0}")]
    Unknown(#[from] io::Error),
}

/// A leader and what belongs to it.
#[derive(Debug)]
pub struct Family {
    leader: Option<Leader>,
    others: RefCell<Vec<Rc<Process>>>,
}

#[derive(Debug)]
struct Leader {
    id: ProcessId,
    /// None if it had ended when we came to know it.
    process: Option<Rc<Process>>,
    /// Whether it leads a group of its own.
    group: bool,
}

impl Family {
    /// The child of a peer, known by a pidfd that the peer has sent. The kernel vouches for the
    /// peer; whatever is not its child is none of its business to name.
    ///
    /// # Errors
    /// If it is no child of the peer, or cannot be told.
    pub fn child(handle: &OwnedFd, peer: &Peer) -> Result<Self, NotAHolder> {
        let pid = pid_of(handle.as_fd())?;
        if number(pid).is_none() || number(peer.pid).is_none() {
            return Err(NotAHolder::OutOfSight);
        }
        let process = Process::open(pid)?.ok_or(NotAHolder::Ended)?;
        let stat = Stat::read(pid);
        // Both live after we have looked, so the numbers were theirs.
        if process.ended() || pid_of(handle.as_fd())? != pid {
            return Err(NotAHolder::Ended);
        }
        let stat = stat?;
        if stat.parent != peer.pid || pid_of(peer.handle.as_fd())? != peer.pid {
            return Err(NotAHolder::Stranger(pid, peer.pid));
        }
        let group = stat.group == pid;
        let leader = Leader { id: process.id(), process: Some(Rc::new(process)), group };
        Ok(Self { leader: Some(leader), others: RefCell::default() })
    }

    /// A family of a former time.
    ///
    /// # Errors
    /// If it cannot be told what is left of it.
    pub fn again(leader: Option<(ProcessId, bool)>, others: &[ProcessId]) -> io::Result<Self> {
        let again = |id: &ProcessId| Ok(Process::again(*id)?.map(Rc::new));
        let others = others.iter().map(again).collect::<io::Result<Vec<_>>>()?;
        let leader = match leader {
            Some((id, group)) => Some(Leader { id, process: again(&id)?, group }),
            None => None,
        };
        Ok(Self { leader, others: RefCell::new(others.into_iter().flatten().collect()) })
    }

    /// Its leader, and whether that leads a group.
    pub fn leader(&self) -> Option<(ProcessId, bool)> {
        self.leader.as_ref().map(|leader| (leader.id, leader.group))
    }

    /// Its leader, while we know it.
    pub fn leading(&self) -> Option<&Process> {
        self.leader.as_ref()?.process.as_deref()
    }

    /// The rest of it, as far as it is known.
    pub fn others(&self) -> Vec<ProcessId> {
        self.others.borrow().iter().map(|process| process.id()).collect()
    }

    /// Takes in everything that a peer has started and that still runs.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn take_in(&self, peer: &Peer) -> io::Result<()> {
        let found = descendants(peer.pid)?;
        if pid_of(peer.handle.as_fd())? != peer.pid {
            return Ok(()); // It is gone, and these are another's.
        }
        self.add(found);
        Ok(())
    }

    fn add(&self, found: Vec<Process>) {
        let mut others = self.others.borrow_mut();
        others.retain(|process| !process.ended());
        let known: BTreeSet<_> = others.iter().map(|process| process.id()).collect();
        let new = found.into_iter().filter(|process| !known.contains(&process.id()));
        others.extend(new.map(Rc::new));
    }

    /// The processes of it that run, as far as they are known.
    pub fn pids(&self) -> Vec<u32> {
        let leader = self.leader.as_ref().and_then(|leader| leader.process.clone());
        let others = self.others.borrow();
        let all = leader.iter().chain(others.iter()).filter(|process| !process.ended());
        let mut pids: Vec<_> = all.map(|process| process.id().pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Whether nothing of it runs; if in doubt, something does.
    pub fn ended(&self) -> bool {
        self.pids().is_empty() && self.rest_of_group().is_ok_and(|rest| rest.is_empty())
    }

    /// Sends a signal to all of it.
    pub fn signal(&self, signal: Signal) {
        if let Some(leader) = &self.leader
            && let Some(process) = &leader.process
        {
            if let Ok(found) = descendants(leader.id.pid)
                && exists(process)
            {
                self.add(found);
            }
            if leader.group {
                signal_group(process, signal);
            }
            process.signal(signal);
        }
        for process in self.others.borrow().iter() {
            process.signal(signal);
        }
    }

    /// Waits until nothing of it runs any more.
    pub async fn until_ended(&self) {
        loop {
            let leader = self.leader.as_ref().and_then(|leader| leader.process.clone());
            let all: Vec<_> = leader.into_iter().chain(self.others.borrow().clone()).collect();
            for process in all {
                process.until_ended().await;
            }
            match self.rest_of_group() {
                Ok(rest) if rest.is_empty() => return,
                Ok(rest) => self.add(rest),
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// What runs of the group, besides what is known.
    fn rest_of_group(&self) -> io::Result<Vec<Process>> {
        let Some(leader) = self.leader.as_ref().filter(|leader| leader.group) else {
            return Ok(Vec::new());
        };
        if group_is_empty(leader) {
            return Ok(Vec::new());
        }
        // Something has that number. Perhaps only zombies that nobody reaps.
        let table = table()?;
        let members = table.iter().filter(|(_, stat)| stat.group == leader.id.pid);
        let later = members.filter(|(_, stat)| stat.start >= leader.id.start);
        opened(later.map(|(pid, stat)| ProcessId { pid: *pid, start: stat.start }))
    }
}

/// Whether a process has not been waited for, so that its number is its own.
fn exists(process: &Process) -> bool {
    pid_of(process.handle()).is_ok_and(|pid| pid == process.id().pid)
}

fn group_is_empty(leader: &Leader) -> bool {
    let gone = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
    let told = leader.process.as_ref().map(|process| raw::signal_group(process.handle(), None));
    match told {
        Some(Ok(())) => false,
        Some(Err(error)) if gone(&error) => true,
        // An older kernel, or one that we know from before: by its number. If it is another's by
        // now, we wait for that.
        _ => number(leader.id.pid)
            .is_none_or(|number| test_kill_process_group(number) == Err(Errno::SRCH)),
    }
}

fn signal_group(leader: &Process, signal: Signal) {
    let told = raw::signal_group(leader.handle(), Some(signal));
    let too_old = told.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
    if too_old
        && exists(leader)
        && let Some(number) = number(leader.id().pid)
    {
        // Whoever is gone needs none.
        let _ = kill_process_group(number, signal);
    }
}

/// The process of a pidfd, by its number; if it has been waited for, or is none, there is none.
fn pid_of(handle: BorrowedFd<'_>) -> Result<u32, NotAHolder> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
    match pid {
        Some(-1) => Err(NotAHolder::Ended),
        Some(pid) => u32::try_from(pid).map_err(|_| NotAHolder::OutOfSight),
        None => Err(NotAHolder::OutOfSight),
    }
}

impl From<NotAHolder> for io::Error {
    fn from(error: NotAHolder) -> Self {
        Self::other(error)
    }
}

/// Everything that a process has started, directly or not, and that runs. We are never among it,
/// even if it has started us: nobody waits for whoever waits.
///
/// # Errors
/// If it cannot be told.
pub fn descendants(ancestor: u32) -> io::Result<Vec<Process>> {
    let table = table()?;
    let mut children: BTreeMap<u32, Vec<ProcessId>> = BTreeMap::new();
    for (pid, stat) in table {
        if pid == std::process::id() {
            continue;
        }
        let id = ProcessId { pid, start: stat.start };
        children.entry(stat.parent).or_default().push(id);
    }
    let mut found: Vec<ProcessId> = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while let Some(id) = found.get(next) {
        found.extend(children.remove(&id.pid).unwrap_or_default());
        next += 1;
    }
    opened(found.into_iter())
}

fn opened(ids: impl Iterator<Item = ProcessId>) -> io::Result<Vec<Process>> {
    let found = ids.map(Process::again).collect::<io::Result<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// All processes there are. If some may be hidden, that is an error, not an answer.
fn table() -> io::Result<Vec<(u32, Stat)>> {
    Stat::read(1)?;
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match Stat::read(pid) {
            Ok(stat) => all.push((pid, stat)),
            Err(error) if gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
