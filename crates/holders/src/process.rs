//! One process, known by a pidfd, which no other process ever becomes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use holdall_wire::holder::{Namespaces, ProcessId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;

use crate::raw;

/// Where numbers and times of processes mean what they mean to this one.
pub(crate) fn own_namespaces() -> Namespaces {
    let link = |name| std::fs::read_link(format!("/proc/self/ns/{name}"));
    let text = |name| link(name).map_or_else(|_| String::new(), |l| l.display().to_string());
    Namespaces { pid: text("pid"), time: text("time") }
}

/// A process.
#[derive(Debug)]
pub struct Process {
    handle: OwnedFd,
    id: ProcessId,
}

impl Process {
    /// The process that has a number now; none if there is no such process.
    ///
    /// # Errors
    /// If it cannot be told, which says nothing about the process.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        if number(pid).is_some() { Self::open_any(pid) } else { Ok(None) }
    }

    /// As [`Process::open`], for a client, which may also be the init of a container.
    pub(crate) fn open_any(pid: u32) -> io::Result<Option<Self>> {
        let number = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let Some(number) = number else { return Ok(None) };
        let handle = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = Stat::read(pid);
        if ended(&handle) {
            return Ok(None); // What was read may be another's.
        }
        let start = stat?.start;
        Ok(Some(Self { handle, id: ProcessId { pid, start } }))
    }

    /// The process of a former time, if it still runs; none if it is gone.
    ///
    /// # Errors
    /// If it cannot be told, which says nothing about the process.
    pub fn again(id: ProcessId) -> io::Result<Option<Self>> {
        Ok(Self::open(id.pid)?.filter(|process| process.id == id))
    }

    /// Its identity.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Its pidfd.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whether all of its threads have ended. A zombie has ended; a leader whose main thread has
    /// ended while others run has not.
    pub fn ended(&self) -> bool {
        ended(&self.handle)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // Whoever is gone needs none, and whoever may not be signalled is waited for.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// Waits until it has ended.
    pub async fn until_ended(&self) {
        while !self.ended() {
            match raw::watch(self.handle.as_fd(), Interest::READABLE) {
                Ok(watch) => drop(watch.readable().await),
                // Too many files are open. It will have to be looked at.
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// Whether a process of a former time has ended; if it cannot be told, it has not.
pub fn is_gone(id: ProcessId) -> bool {
    Process::open_any(id.pid).is_ok_and(|process| process.is_none_or(|process| process.id != id))
}

/// Waits until a process of a former time has ended; if it cannot be told, it has not.
pub async fn until_gone(id: ProcessId) {
    loop {
        match Process::open_any(id.pid) {
            Ok(Some(process)) if process.id == id => return process.until_ended().await,
            Ok(_) => return,
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// A process id as the kernel's calls take it: positive, and not that of init, which nobody may
/// name to us.
pub(crate) fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw)
}

/// Whether a pidfd says that its process has ended. If it does not say, it has not.
fn ended(handle: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

/// Whether a process is stopped.
pub fn stopped(pid: u32) -> bool {
    Stat::read(pid).is_ok_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// Some of what `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) start: u64,
}

impl Stat {
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be understood")))
    }

    /// The name of the program comes second, in parentheses, and may itself hold any of these.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            start: fields.nth(16)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_program_names_do_not_confuse() {
        let text = "12 (a) Z (b) S 7 12 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 1";
        let stat = Stat::parse(text).expect("readable");
        assert_eq!(stat, Stat { state: 'S', parent: 7, group: 12, start: 4711 });
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn nobody_names_init_or_everybody() {
        for pid in [0, 1, u32::MAX, 1 << 31] {
            assert!(number(pid).is_none(), "{pid}");
        }
    }

    #[test]
    fn a_number_that_came_back_is_somebody_else() {
        let me = Process::open(std::process::id()).expect("known").expect("alive");
        let earlier = ProcessId { start: me.id().start - 1, ..me.id() };
        assert!(Process::again(me.id()).expect("known").is_some());
        assert!(Process::again(earlier).expect("known").is_none());
    }
}
