//! Processes without a cgroup: a leader, what it started, and its process group.
//!
//! What this does not see: a process that left the group (`setsid`) and whose parents have ended,
//! if the wrapper that would have inherited it was killed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use holdall_wire::holder::ProcessId;
use rustix::io::Errno;
use rustix::process::{Signal, kill_process_group, test_kill_process, test_kill_process_group};

use crate::passing::Peer;
use crate::process::{Process, Stat, number, stopped};
use crate::raw;

/// How often it is looked for more of what a command has left behind.
const LOOKS: usize = 8;

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
    /// Members of a group that is known by its number alone: they may be somebody else's, and so
    /// are waited for and never signalled.
    perhaps: RefCell<Vec<Rc<Process>>>,
    /// The client that started the leader, if it knows no sessions: it stops what it has started when
    /// it loses its agent, so a later agent waits for its end.
    wrapper: Option<ProcessId>,
    /// The client, in the eyes of a later agent.
    former: Option<Rc<Process>>,
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
    /// The child of a peer, which the peer has named. The kernel vouches for the peer; whatever is
    /// not its child is none of its business to name.
    ///
    /// # Errors
    /// If it is no child of the peer, or cannot be told.
    pub fn child(named: u32, peer: &Peer) -> Result<Self, NotAHolder> {
        if peer.pid == 0 {
            return Err(NotAHolder::OutOfSight);
        }
        let pid = peer.here(named)?;
        let process = Process::open(pid)?.ok_or(NotAHolder::Ended)?;
        let stat = Stat::read(pid);
        // Both live after we have looked, so the numbers were theirs.
        if process.ended() {
            return Err(NotAHolder::Ended);
        }
        let stat = stat?;
        if stat.parent != peer.pid || pid_of(peer.handle.as_fd())? != peer.pid {
            return Err(NotAHolder::Stranger(pid, peer.pid));
        }
        let group = stat.group == pid;
        let leader = Leader { id: process.id(), process: Some(Rc::new(process)), group };
        let (others, perhaps) = (RefCell::default(), RefCell::default());
        Ok(Self { leader: Some(leader), others, perhaps, wrapper: None, former: None })
    }

    /// A family of a former time.
    ///
    /// # Errors
    /// If it cannot be told what is left of it.
    pub fn again(
        leader: Option<(ProcessId, bool)>,
        others: &[ProcessId],
        wrapper: Option<ProcessId>,
    ) -> io::Result<Self> {
        let again = |id: &ProcessId| Ok(Process::again(*id)?.map(Rc::new));
        let others = others.iter().map(again).collect::<io::Result<Vec<_>>>()?;
        let leader = match leader {
            Some((id, group)) => Some(Leader { id, process: again(&id)?, group }),
            None => None,
        };
        let former = match wrapper {
            Some(id) => Process::open_any(id.pid)?.filter(|process| process.id() == id),
            None => None,
        };
        let others = RefCell::new(others.into_iter().flatten().collect());
        let (perhaps, former) = (RefCell::default(), former.map(Rc::new));
        Ok(Self { leader, others, perhaps, wrapper, former })
    }

    /// Whether its client was killed: a command never outlives one that ended in order.
    pub fn abandoned(&self) -> bool {
        let runs = |process: &Process| !process.ended();
        let alone = self.wrapper.is_some() && !self.former.as_deref().is_some_and(runs);
        alone && self.leading().is_some_and(runs)
    }

    /// The client that started it.
    pub fn wrapper(&self) -> Option<ProcessId> {
        self.wrapper
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

    /// Takes in everything that a peer has started since the leader, and that still runs.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn take_in(&self, peer: &Peer) -> io::Result<()> {
        // Whoever forks and ends while we look may be missed once.
        let since = self.leader.as_ref().map(|leader| leader.id);
        for _ in 0..LOOKS {
            let found = started_since(peer.pid, since)?;
            if pid_of(peer.handle.as_fd())? != peer.pid {
                return Err(NotAHolder::Ended.into()); // These are another's.
            }
            if self.add(found) == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("new ones start all the time"))
    }

    /// Adds processes, and says how many of them are new.
    fn add(&self, found: Vec<Process>) -> usize {
        let mut others = self.others.borrow_mut();
        others.retain(|process| !process.ended());
        let before = others.len();
        let known: BTreeSet<_> = others.iter().map(|process| process.id()).collect();
        let new = found.into_iter().filter(|process| !known.contains(&process.id()));
        others.extend(new.map(Rc::new));
        others.len() - before
    }

    /// Everything that is waited for.
    fn all(&self) -> Vec<Rc<Process>> {
        let leader = self.leader.as_ref().and_then(|leader| leader.process.clone());
        let (others, perhaps) = (self.others.borrow(), self.perhaps.borrow());
        let known = others.iter().chain(perhaps.iter()).cloned();
        leader.into_iter().chain(self.former.clone()).chain(known).collect()
    }

    /// The processes of it that run, as far as they are known.
    pub fn pids(&self) -> Vec<u32> {
        let all = self.all().into_iter().filter(|process| !process.ended());
        let mut pids: Vec<_> = all.map(|process| process.id().pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The processes of it that we have no right to signal.
    pub fn beyond_us(&self) -> Vec<u32> {
        let denied = |pid: &u32| {
            number(*pid).is_some_and(|number| test_kill_process(number) == Err(Errno::PERM))
        };
        self.pids().into_iter().filter(denied).collect()
    }

    /// The processes that may be of its group and may be somebody else's: they are waited for and
    /// never signalled.
    pub fn unsure(&self) -> Vec<u32> {
        if self.leading().is_some() {
            return Vec::new();
        }
        let found = self.rest_of_group().unwrap_or_default();
        found.iter().map(|process| process.id().pid).collect()
    }

    /// The client that started it, in the eyes of a later agent, if that is stopped: it ends nothing.
    pub fn stopped_client(&self) -> Option<u32> {
        let former = self.former.as_ref().filter(|process| !process.ended())?;
        Some(former.id().pid).filter(|pid| stopped(*pid))
    }

    /// Waits until nothing of it runs any more that is certainly its own.
    pub async fn until_own_ended(&self) {
        let leader = self.leader.as_ref().and_then(|leader| leader.process.clone());
        let others = self.others.borrow().clone();
        for process in leader.into_iter().chain(self.former.clone()).chain(others) {
            process.until_ended().await;
        }
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
            for _ in 0..LOOKS {
                let found = seen_descendants(leader.id.pid, &[]);
                let new = if exists(process) { self.add(found) } else { 0 };
                if new == 0 || signal != Signal::KILL {
                    break;
                }
                // Whoever is stopped starts nothing while we look for more.
                process.signal(Signal::STOP);
                self.others.borrow().iter().for_each(|process| process.signal(Signal::STOP));
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
            for process in self.all() {
                process.until_ended().await;
            }
            match self.rest_of_group() {
                Ok(rest) if rest.is_empty() => return,
                // What a pidfd vouches for is ours.
                Ok(rest) if self.leading().is_some() => drop(self.add(rest)),
                Ok(rest) => *self.perhaps.borrow_mut() = rest.into_iter().map(Rc::new).collect(),
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// What runs of the group, besides what is known.
    fn rest_of_group(&self) -> io::Result<Vec<Process>> {
        let Some(leader) = self.leader.as_ref().filter(|leader| leader.group) else {
            return Ok(Vec::new());
        };
        if group_is_empty(leader) || number_is_anothers(leader)? {
            return Ok(Vec::new());
        }
        // Something has that number. Perhaps only zombies that nobody reaps.
        let table = table(Hidden::Refused)?;
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

/// Whether a leader's number is somebody else's by now: no number is given to a new process while
/// there is a group of that number.
fn number_is_anothers(leader: &Leader) -> io::Result<bool> {
    let now = Process::open(leader.id.pid)?;
    Ok(now.is_some_and(|process| process.id() != leader.id))
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

impl Peer {
    /// What tells the process from all others.
    ///
    /// # Errors
    /// If it has ended, or cannot be seen from here.
    pub fn process(&self) -> Result<ProcessId, NotAHolder> {
        if self.pid == 0 {
            return Err(NotAHolder::OutOfSight);
        }
        let start = Stat::read(self.pid);
        // It lives after we have looked, so the number was its own.
        if pid_of(self.handle.as_fd())? != self.pid {
            return Err(NotAHolder::Ended);
        }
        Ok(ProcessId { pid: self.pid, start: start?.start })
    }

    /// Our number of a child that the peer has named by its own: it may live in a pid namespace
    /// below ours.
    fn here(&self, named: u32) -> Result<u32, NotAHolder> {
        let own = Stat::read(named).is_ok_and(|stat| stat.parent == self.pid);
        if own && inner_number(named)? == named {
            return Ok(named);
        }
        let children = children_of(&format!("/proc/{}", self.pid))?;
        let inner = |pid: &u32| inner_number(*pid).is_ok_and(|inner| inner == named);
        children.into_iter().find(inner).ok_or(NotAHolder::Stranger(named, self.pid))
    }
}

/// The number of a process in the innermost pid namespace in which it lives.
fn inner_number(pid: u32) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = line.and_then(|line| line.split_ascii_whitespace().last());
    last.map_or(Ok(pid), |last| last.parse().map_err(io::Error::other))
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
    opened(below(ancestor, table(Hidden::Refused)?).into_iter())
}

/// As [`descendants`], without the children that are older than a process and what these have started:
/// a program that becomes another keeps its children.
fn started_since(ancestor: u32, since: Option<ProcessId>) -> io::Result<Vec<Process>> {
    let mut table = table(Hidden::Refused)?;
    table.retain(|(pid, stat)| {
        let id = ProcessId { pid: *pid, start: stat.start };
        stat.parent != ancestor || !since.is_some_and(|since| is_older(id, since))
    });
    opened(below(ancestor, table).into_iter())
}

/// Whether a process started before another. Those of one tick are told apart by their numbers, which
/// grow; only after the largest do they begin anew.
fn is_older(one: ProcessId, other: ProcessId) -> bool {
    const NEAR: u32 = 1 << 14;
    let numbered_before = one.pid < other.pid && other.pid - one.pid < NEAR;
    one.start < other.start || one.start == other.start && numbered_before
}

/// As [`descendants`], but only those that can be seen: to signal them, not to count on it.
/// Those in `without`, and what these have started, are left out.
pub fn seen_descendants(ancestor: u32, without: &[u32]) -> Vec<Process> {
    let mut table = table(Hidden::Ignored).unwrap_or_default();
    table.retain(|(pid, _)| !without.contains(pid));
    let found = below(ancestor, table);
    found.into_iter().filter_map(|id| Process::again(id).ok().flatten()).collect()
}

/// The children of this process, by number: those that run, and zombies.
///
/// # Errors
/// If the kernel does not tell.
pub fn children() -> io::Result<Vec<u32>> {
    children_of("/proc/self")
}

fn children_of(process: &str) -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("{process}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("children"))?;
        all.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(all)
}

fn below(ancestor: u32, table: Vec<(u32, Stat)>) -> Vec<ProcessId> {
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
    found
}

fn opened(ids: impl Iterator<Item = ProcessId>) -> io::Result<Vec<Process>> {
    let found = ids.map(Process::again).collect::<io::Result<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// What to do about processes that the kernel may hide from us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    /// If there may be any, that is an error, not an answer.
    Refused,
    /// Whatever can be seen is enough.
    Ignored,
}

fn table(hidden: Hidden) -> io::Result<Vec<(u32, Stat)>> {
    if hidden == Hidden::Refused {
        Stat::read(1)?; // With `hidepid` only root sees it.
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match Stat::read(pid) {
            Ok(stat) => all.push((pid, stat)),
            Err(error) if gone(&error) || hidden == Hidden::Ignored => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_a_tick_numbers_tell_who_came_first() {
        let id = |pid, start| ProcessId { pid, start };
        assert!(is_older(id(900, 1), id(7, 2)) && !is_older(id(7, 2), id(900, 1)));
        assert!(is_older(id(7, 5), id(9, 5)) && !is_older(id(9, 5), id(7, 5)));
        assert!(!is_older(id(7, 5), id(7, 5)));
        assert!(!is_older(id(301, 5), id(32_767, 5)), "the numbers have begun anew");
    }
}
