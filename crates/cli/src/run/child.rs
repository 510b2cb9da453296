//! The child: started, but held back until the agent knows it; watched; stopped.
//!
//! Between fork and exec nothing of ours may run in the child (that takes `unsafe`). So the child
//! is first this same program, which waits for a byte on a pipe and then becomes the command. If
//! we are killed before, the pipe ends, and the child ends without having become anything.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use holdall_client::Grant;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::terminal;
use super::waiting::Signals;

/// The first argument of the program that becomes the command.
const BECOME: &str = "__become";

/// How the use of a grant ended.
pub(super) enum Ended {
    /// The command ended, with this exit status.
    Code(u8),
    /// The grant was lost, and the command was stopped.
    Lost,
}

/// A command in a process group of its own.
pub(super) struct Child {
    pid: Pid,
    gate: Option<File>,
    /// Locked as long as this process or the child lives.
    _holders: File,
    /// Whether the child has the terminal.
    foreground: bool,
}

/// If this is the program that becomes the command, does so; returns only if that fails.
pub(crate) fn become_child() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != BECOME {
        return None;
    }
    let gate = args.next()?.to_str()?.parse::<i32>().ok()?;
    let program = args.next()?;
    let opened = File::open(format!("/proc/self/fd/{gate}"));
    // The command shall not have it.
    let _ = nix::unistd::close(gate);
    let mut byte = [0];
    if opened.and_then(|mut gate| gate.read_exact(&mut byte)).is_err() {
        return Some(ExitCode::FAILURE); // Whoever started us is gone.
    }
    let error = Command::new(&program).args(args).exec();
    crate::say(format!("cannot run {}: {error}", program.display()));
    let found = error.kind() != std::io::ErrorKind::NotFound;
    Some(ExitCode::from(if found { 126 } else { 127 }))
}

impl Child {
    /// Starts a child that has the lock of holders and waits to become the command.
    pub(super) fn prepare(
        command: &[OsString],
        variables: Vec<(String, String)>,
        holders: &str,
    ) -> anyhow::Result<Self> {
        let holders_file = File::open(holders).with_context(|| format!("cannot open {holders}"))?;
        flock(&holders_file, FlockOperation::LockShared)
            .with_context(|| format!("cannot lock {holders}"))?;
        fcntl_setfd(&holders_file, FdFlags::empty())?;
        let (waits, gate): (OwnedFd, OwnedFd) = rustix::pipe::pipe()?;
        fcntl_setfd(&gate, FdFlags::CLOEXEC)?;
        let child = Command::new("/proc/self/exe")
            .arg(BECOME)
            .arg(waits.as_raw_fd().to_string())
            .args(command)
            .envs(variables)
            .process_group(0)
            .spawn()
            .context("cannot start a process")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("the child has no process id")?;
        fcntl_setfd(&holders_file, FdFlags::CLOEXEC)?;
        Ok(Self { pid, gate: Some(gate.into()), _holders: holders_file, foreground: false })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Lets it become the command, in the foreground if that is ours.
    pub(super) fn go(&mut self) {
        self.hand_over();
        if let Some(mut gate) = self.gate.take() {
            // If somebody has killed it already, its exit status will tell.
            let _ = gate.write_all(b"g");
        }
    }

    fn hand_over(&mut self) {
        if terminal::is_ours() {
            terminal::give_to(self.pid);
            self.foreground = true;
        }
    }

    fn take_back(&mut self) {
        if self.foreground {
            terminal::take_back();
            self.foreground = false;
        }
    }

    fn send(&self, signal: Signal) {
        // If it is gone, we shall hear of it.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Waits for its end; passes signals on; stops it if the grant is lost.
    pub(super) async fn supervise(
        &mut self,
        grant: &mut Grant,
        signals: &mut Signals,
        grace: Duration,
    ) -> anyhow::Result<Ended> {
        let mut changed = signal(SignalKind::child())?;
        let mut resumed = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let mut lost = false;
        let kill = tokio::time::sleep(Duration::MAX);
        tokio::pin!(kill);
        loop {
            if let Some(code) = self.look()? {
                self.take_back();
                if lost {
                    self.send(Signal::KILL);
                    return Ok(Ended::Lost);
                }
                return Ok(Ended::Code(code));
            }
            tokio::select! {
                _ = changed.recv() => {}
                _ = resumed.recv() => {
                    self.hand_over();
                    self.send(Signal::CONT);
                }
                signal = signals.next() => self.send(signal),
                () = grant.lost(), if !lost => {
                    lost = true;
                    crate::say("the grant was lost; stopping the command");
                    self.send(Signal::TERM);
                    self.send(Signal::CONT);
                    kill.as_mut().reset(tokio::time::Instant::now() + grace);
                }
                () = &mut kill, if lost => self.send(Signal::KILL),
            }
        }
    }

    /// The exit status, if it has ended. If it was stopped from the terminal, so are we.
    fn look(&mut self) -> anyhow::Result<Option<u8>> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let Some((_, status)) = waitpid(Some(self.pid), options)? else { return Ok(None) };
        if status.stopped() {
            self.stop_with_it()?;
        }
        Ok(code(status))
    }

    fn stop_with_it(&mut self) -> anyhow::Result<()> {
        if !self.foreground {
            return Ok(()); // Somebody stopped it on purpose; it still holds, and so do we.
        }
        self.take_back();
        // The shell sees its job stopped, and continues us with SIGCONT.
        kill_process(getpid(), Signal::STOP)?;
        Ok(())
    }
}

fn code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    Some(code as u8)
}
