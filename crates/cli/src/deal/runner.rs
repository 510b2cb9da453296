//! Commands at work: as many at once as allowed, each for as long as allowed.
//!
//! Each command is a process group of its own, without input: a signal to the worker (also Ctrl-C)
//! does not reach it, and what it started is ended with it when its time is up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a command may go on after it was asked to end.
const GRACE: Duration = Duration::from_secs(5);
/// The exit status of a command whose time was up, as timeout(1) has it.
pub(super) const TIMED_OUT: i32 = 124;

/// What happens to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The command of an item ended, with this status.
    Ended(u64, i32),
    /// The worker is told to stop.
    Stop,
    /// Nothing for a while.
    Nothing,
}

enum Told {
    Ended(u64),
    Stop,
}

struct Job {
    child: Child,
    /// When it is asked to end, and, once it was, when it is ended.
    deadline: Option<Instant>,
    timed_out: bool,
}

pub(super) struct Runner {
    command: Vec<OsString>,
    at_once: usize,
    timeout: Option<Duration>,
    jobs: BTreeMap<u64, Job>,
    tell: Sender<Told>,
    told: Receiver<Told>,
}

impl Runner {
    pub(super) fn new(
        command: Vec<OsString>,
        at_once: usize,
        timeout: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let (tell, told) = mpsc::channel();
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let stop = tell.clone();
        thread::spawn(move || {
            // Ends when nobody listens any more.
            signals.forever().try_for_each(|_| stop.send(Told::Stop))
        });
        Ok(Self { command, at_once, timeout, jobs: BTreeMap::new(), tell, told })
    }

    pub(super) fn has_room(&self) -> bool {
        self.jobs.len() < self.at_once
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// What runs.
    pub(super) fn items(&self) -> impl Iterator<Item = u64> {
        self.jobs.keys().copied()
    }

    /// The program, for messages.
    pub(super) fn program(&self) -> String {
        self.command.first().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Starts the command for an item.
    pub(super) fn start(&mut self, item: u64, name: &[u8], worker: usize) -> io::Result<()> {
        let mut args: Vec<_> = self.command.iter().map(|arg| fill_in(arg, name)).collect();
        if !self.command.iter().any(|arg| has_place(arg.as_bytes())) {
            args.push(OsString::from_vec(name.to_vec()));
        }
        let child = Command::new(&args[0])
            .args(&args[1..])
            .env("HOLDALL_ITEM", OsString::from_vec(name.to_vec()))
            .env("HOLDALL_WORKER", worker.to_string())
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()?;
        let (pid, tell) = (Pid::from_child(&child), self.tell.clone());
        thread::spawn(move || {
            // Its remains stay until the job is taken off the list: until then its process id is
            // nobody else's, and can be signalled.
            let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), how) {}
            tell.send(Told::Ended(item))
        });
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        self.jobs.insert(item, Job { child, deadline, timed_out: false });
        Ok(())
    }

    /// Waits for something to happen, for so long at most.
    pub(super) fn wait(&mut self, at_most: Duration) -> io::Result<Event> {
        let now = Instant::now();
        let until = self.jobs.values().filter_map(|job| job.deadline).min();
        let at_most = until.map_or(at_most, |at| at_most.min(at.saturating_duration_since(now)));
        match self.told.recv_timeout(at_most) {
            Ok(Told::Ended(item)) => {
                let Some(mut job) = self.jobs.remove(&item) else { return Ok(Event::Nothing) };
                let status = job.child.wait()?;
                let timed_out = job.timed_out;
                Ok(Event::Ended(item, if timed_out { TIMED_OUT } else { shell_status(status) }))
            }
            Ok(Told::Stop) => Ok(Event::Stop),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.end_overdue();
                Ok(Event::Nothing)
            }
        }
    }

    fn end_overdue(&mut self) {
        let now = Instant::now();
        for job in self.jobs.values_mut().filter(|job| job.deadline.is_some_and(|at| at <= now)) {
            let signal = if job.timed_out { Signal::KILL } else { Signal::TERM };
            job.deadline = (!job.timed_out).then(|| now + GRACE);
            job.timed_out = true;
            end(job, signal);
        }
    }

    /// Asks all commands to end.
    pub(super) fn end_all(&mut self) {
        for job in self.jobs.values_mut() {
            job.deadline = Some(Instant::now() + GRACE);
            job.timed_out = true;
            end(job, Signal::TERM);
        }
    }
}

/// It may have ended just now; its remains can be signalled all the same.
fn end(job: &Job, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(&job.child), signal);
}

fn has_place(arg: &[u8]) -> bool {
    arg.windows(2).any(|pair| pair == b"{}")
}

/// The argument with the item in each place of {}.
fn fill_in(arg: &OsString, name: &[u8]) -> OsString {
    let (mut rest, mut filled) = (arg.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(name);
        rest = &rest[at + 2..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// As sh says it: 128+n if a signal ended the command.
fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let fill = |arg: &str| fill_in(&arg.into(), b"\xff{}");
        assert_eq!(fill("a{}b{}").as_bytes(), b"a\xff{}b\xff{}", "what is filled in stays");
        assert_eq!(fill("{").as_bytes(), b"{");
    }
}
