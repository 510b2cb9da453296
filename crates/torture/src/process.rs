//! Processes that are known by descriptors, so that no signal ever reaches a stranger with a number used again.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

use holdall_wire::speaks_of_a_grant;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A program to be started. The torturer may hold something itself: what it starts is not told of that, or the judge
/// would take it for what was granted here.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os().filter(|(name, _)| speaks_of_a_grant(name)) {
        command.env_remove(variable);
    }
    command
}

/// A process that lives, or did when this was made.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
}

impl Process {
    /// The process with this number.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Sends a signal. Whether it was there to be sent one.
    pub fn signal(&self, signal: Signal) -> bool {
        pidfd_send_signal(&self.fd, signal).is_ok()
    }

    /// Stops it.
    pub fn pause(&self) -> bool {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> bool {
        self.signal(Signal::CONT)
    }

    /// Kills it.
    pub fn kill(&self) -> bool {
        self.signal(Signal::KILL)
    }
}
