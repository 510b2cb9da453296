//! Starting a command under a grant.
//!
//! With a cgroup, the command begins its life inside it. Without one, it is held back at a gate
//! until the agent knows it: if this process is killed before, the gate ends, and the child ends
//! without having become anything.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::sys::signal::SigSet;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, setpgid, wait, waitpid,
};

use crate::raw::{self, Plan};

/// A command, and how it is started.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Variables besides those of this process.
    pub variables: Vec<(String, String)>,
    /// The signals that it finds blocked.
    pub mask: SigSet,
    /// Whether it leads a process group of its own.
    pub own_group: bool,
    /// Whether it is killed when this process ends.
    pub dies_with_us: bool,
    /// Whether this thread may stand still until a command in a cgroup is the program that it is to be: then the child is no
    /// copy of us, which is cheaper. A file system that does not answer keeps us from everything else that long.
    pub stands_still: bool,
}

/// Where a command starts.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// In this cgroup, at once.
    In(&'a OwnedFd),
    /// Where we are, when it is let go.
    Gated,
}

/// A child that is a command, or waits to become one.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    handle: OwnedFd,
    own_group: bool,
    gate: Option<File>,
}

impl Command {
    /// Starts it.
    ///
    /// # Errors
    /// If no process can be started, or not there; a command that cannot be run is not an error
    /// here, but tells so itself, and ends with 126 or 127.
    pub fn start(&self, start: Start<'_>) -> io::Result<Child> {
        let Some(name) = self.words.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
        };
        let pipe = match start {
            Start::In(_) => None,
            Start::Gated => Some(pipe_with(PipeFlags::CLOEXEC)?),
        };
        let plan = Plan {
            programs: programs(name)?,
            args: self.words.iter().map(|word| text(word)).collect::<io::Result<_>>()?,
            env: self.environment()?,
            mask: self.mask,
            own_group: self.own_group,
            dies_with_parent: self.dies_with_us,
            stands_still: self.stands_still,
            gate: pipe.as_ref().map(|(waits, opens)| (waits.as_raw_fd(), opens.as_raw_fd())),
            complaints: complaints(name),
        };
        let cgroup = match start {
            Start::In(cgroup) => Some(cgroup.as_fd()),
            Start::Gated => None,
        };
        let (pid, handle) = raw::start(&plan, cgroup)?;
        if self.own_group {
            // The child does so, too; whoever is first, it is done when we go on. It fails if
            // the child is the command already.
            let _ = setpgid(Some(pid), Some(pid));
        }
        let gate = pipe.map(|(_, opens)| opens.into());
        Ok(Child { pid, handle, own_group: self.own_group, gate })
    }

    /// The variables of this process, with ours in place of those of the same name.
    fn environment(&self) -> io::Result<Vec<CString>> {
        let ours = |name: &OsStr| self.variables.iter().any(|(own, _)| name == own.as_str());
        let inherited = std::env::vars_os().filter(|(name, _)| !ours(name));
        let added = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        inherited
            .chain(added)
            .map(|(mut entry, value): (OsString, OsString)| {
                entry.push("=");
                entry.push(value);
                text(&entry)
            })
            .collect()
    }
}

fn text(word: &OsStr) -> io::Result<CString> {
    Ok(CString::new(word.as_bytes())?)
}

/// The paths at which a shell would look for a program.
fn programs(name: &OsStr) -> io::Result<Vec<CString>> {
    if name.as_bytes().contains(&b'/') || name.is_empty() {
        return Ok(vec![text(name)?]);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates = std::env::split_paths(&path).map(|dir| {
        let dir = if dir.as_os_str().is_empty() { ".".into() } else { dir };
        Ok(CString::new(dir.join(name).into_os_string().into_vec())?)
    });
    candidates.collect()
}

/// What the child says if the command cannot be run. It cannot look the words up any more.
fn complaints(name: &OsStr) -> Vec<(i32, Vec<u8>)> {
    let complaint = |why: &str| {
        let mut text = b"holdall: cannot run ".to_vec();
        text.extend(name.as_bytes());
        text.extend(format!(": {why}\n").as_bytes());
        text
    };
    let known = [libc::ENOENT, libc::EACCES, libc::E2BIG, libc::ENOMEM, libc::ETXTBSY, libc::ELOOP];
    let known = known.map(|number| {
        let told = io::Error::from_raw_os_error(number).to_string();
        (number, complaint(&told))
    });
    known.into_iter().chain([(0, complaint("the kernel does not execute it"))]).collect()
}

impl Child {
    /// Its number. While it has not been waited for, nobody else has it.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Its pidfd.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whether it leads a process group.
    pub fn own_group(&self) -> bool {
        self.own_group
    }

    /// Lets it become the command.
    pub fn let_go(&mut self) {
        if let Some(mut gate) = self.gate.take() {
            // If somebody has killed it already, its exit status will tell.
            let _ = gate.write_all(b"g");
        }
    }

    /// Sends a signal to it and to its group, if that is its own. It must not have been waited
    /// for: the number could be another's.
    pub fn signal(&self, signal: Signal) {
        // If it is gone, we shall hear of it.
        let _ = if self.own_group {
            kill_process_group(self.pid, signal)
        } else {
            kill_process(self.pid, signal)
        };
    }

    /// Kills it and waits for its end.
    pub fn end(&mut self) {
        self.signal(Signal::KILL);
        // There is nobody else who could have waited for it.
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }

    /// Waits for whatever has ended, of all our children: how this one ended, if it is among that.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn reap(&self) -> io::Result<Option<Ended>> {
        let mut ended = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    ended = match status.terminating_signal() {
                        Some(signal) => Some(Ended::Signal(signal)),
                        None => status.exit_status().map(Ended::Code),
                    };
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(ended),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// The exit status as a shell has it.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => (128 + signal) as u8,
        }
    }
}
