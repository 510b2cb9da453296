//! The command under its grant: started, signalled, waited for, stopped.
//!
//! With a terminal it stays in our process group, as under `flock`: it reads the terminal whenever
//! we may, and Ctrl-C and Ctrl-Z reach it without us. Without one it has a group of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use holdall_client::{Client, Error, Grant};
use holdall_holders::{
    Caught, Cgroup, Child, Command, Ended, Process, Start, children, descendants, seen_descendants,
};
use holdall_wire::Fault;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, getpid, set_child_subreaper};
use tokio::time::Instant;

use super::waiting::{self, Signals};
use crate::failure::{Failure, LOST, UNAVAILABLE};
use crate::show;

/// How the use of a grant ended.
pub(super) enum Use {
    /// The command ended.
    Over(Ended),
    /// The grant was lost, and the command was stopped.
    Lost,
    /// Its time was over, and the command was stopped.
    OverLimit,
}

/// How long before its end a command's time limit is told, at most.
const NOTICE: Duration = Duration::from_secs(60);

/// A command that runs.
pub(super) struct Running {
    child: Child,
    cgroup: Option<Cgroup>,
    /// The children that we had before: those of a program that became us.
    before: Vec<u32>,
    /// How the command ended, if it has.
    ended: Option<Ended>,
}

impl Running {
    /// Starts a command: in the cgroup of its grant, if we may, and else where we are, when the
    /// agent knows it.
    pub(super) async fn start(
        words: &[std::ffi::OsString],
        variables: Vec<(String, String)>,
        client: &Client,
        grant: &Grant,
        signals: &mut Signals,
    ) -> anyhow::Result<Self> {
        let own_group = !has_terminal();
        let before = children().unwrap_or_default();
        let mut command = Command {
            words: words.to_vec(),
            variables,
            mask: signals.mask_before(),
            own_group,
            dies_with_us: true,
        };
        if let Some(place) = grant.place()
            && let Ok(dir) = Cgroup::enter(Path::new(&place.path), place.inode)
            && let Ok(child) = command.start(Start::In(&dir))
        {
            let cgroup = Some(Cgroup::at(dir, place.inode));
            return Ok(Self { child, cgroup, before, ended: None });
        }
        // If we are killed, the agent looks for what the command has started, and can do so only
        // by way of the command.
        command.dies_with_us = false;
        // Whatever loses its parent becomes our child.
        set_child_subreaper(Some(getpid()))?;
        let mut child = command.start(Start::Gated).context("cannot start a process")?;
        let known = async {
            grant.child(child.pid()).await.map_err(|error| match error {
                Error::Fault(why @ (Fault::Wrong(_) | Fault::Failed(_))) => {
                    let text = format!("the agent cannot look after the command: {why}");
                    Failure(UNAVAILABLE, text).into()
                }
                error => {
                    let text = format!("the grant was lost before the command started: {error}");
                    Failure(LOST, text).into()
                }
            })
        };
        waiting::answered(client, signals, known).await?;
        child.let_go();
        Ok(Self { child, cgroup: None, before, ended: None })
    }

    /// Waits for its end; passes signals on; stops all of it if the grant is lost, or at its deadline, which
    /// is told before.
    pub(super) async fn supervise(
        &mut self,
        grant: &mut Grant,
        signals: &mut Signals,
        grace: Duration,
        deadline: Option<Instant>,
    ) -> anyhow::Result<Use> {
        let (mut lost, mut over) = (false, false);
        let mut notice = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            deadline - NOTICE.min(left / 10)
        });
        // While we waited for something else, its end may have been told already.
        if self.ended.is_none() {
            self.ended = self.child.reap()?;
            if let Some(ended) = self.ended {
                return Ok(Use::Over(ended));
            }
        }
        let kill = tokio::time::sleep(Duration::MAX);
        tokio::pin!(kill);
        loop {
            let stopped = lost || over;
            let outcome = || if lost { Use::Lost } else { Use::OverLimit };
            if stopped && self.ended.is_some() && self.cgroup.is_none() && !self.has_left() {
                return Ok(outcome());
            }
            tokio::select! {
                caught = signals.any() => {
                    self.take_note(caught?)?;
                    if let Some(ended) = self.ended.filter(|_| !stopped) {
                        return Ok(Use::Over(ended));
                    }
                }
                () = grant.lost(), if !lost => {
                    lost = true;
                    crate::say("the grant was lost; stopping the command");
                    if !stopped {
                        self.stop();
                        kill.as_mut().reset(Instant::now() + grace);
                    }
                }
                () = at(notice), if !stopped => {
                    notice = None;
                    let left = deadline.map(|deadline| deadline - Instant::now());
                    let left = show::soon(left.unwrap_or_default());
                    super::mention(format!("the command is stopped in {left}, at its time limit"));
                }
                () = at(deadline), if !stopped => {
                    over = true;
                    crate::say("the time limit is over; stopping the command");
                    self.stop();
                    kill.as_mut().reset(Instant::now() + grace);
                }
                () = &mut kill, if stopped => {
                    self.signal_all(Signal::KILL);
                    kill.as_mut().reset(Instant::now() + grace);
                }
                () = emptied(self.cgroup.as_ref()), if stopped && self.ended.is_some() => {
                    return Ok(outcome());
                }
            }
        }
    }

    /// Asks all of it to end, also what is stopped.
    fn stop(&self) {
        self.signal_all(Signal::TERM);
        self.signal_all(Signal::CONT);
    }

    /// Waits until something of what the command has left behind has ended; passes signals on.
    pub(super) async fn next_end(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        loop {
            let caught = signals.any().await?;
            self.take_note(caught)?;
            if caught.signal == Signal::CHILD {
                return Ok(());
            }
            self.signal_all(caught.signal);
        }
    }

    /// A child has ended, or a signal has come for the command.
    fn take_note(&mut self, caught: Caught) -> anyhow::Result<()> {
        if caught.signal == Signal::CHILD {
            self.ended = self.ended.or(self.child.reap()?);
        } else if self.ended.is_none() && (self.child.own_group() || !caught.from_kernel) {
            self.pass_on(caught.signal);
        }
        Ok(())
    }

    /// Whether the command has left something behind that only we know of. Whatever loses its
    /// parent becomes our child, so our children tell; where there is a cgroup, that tells others.
    pub(super) fn has_left(&self) -> bool {
        if self.cgroup.is_some() {
            return false;
        }
        let pids = |all: Vec<Process>| all.iter().map(|process| process.id().pid).collect();
        let left = children().or_else(|_| descendants(std::process::id()).map(pids));
        let others = self.others();
        left.map_or(true, |left: Vec<u32>| left.iter().any(|pid| !others.contains(pid)))
    }

    /// Our children that are not the command's: those that we had before, and agents that we have started,
    /// perhaps since.
    fn others(&self) -> Vec<u32> {
        [self.before.clone(), crate::reach::started()].concat()
    }

    /// Waits until nothing is left in the cgroup of the command, if it has one.
    pub(super) async fn until_empty(&self) {
        if let Some(cgroup) = &self.cgroup {
            emptied(Some(cgroup)).await;
        }
    }

    /// Passes a signal on. One that asks to end is heard even by those that are stopped.
    fn pass_on(&self, signal: Signal) {
        let ends = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal);
        let signals = [Some(signal), ends.then_some(Signal::CONT)];
        for signal in signals.into_iter().flatten() {
            if self.child.own_group() || !ends {
                self.child.signal(signal);
            } else {
                self.signal_all(signal);
            }
        }
    }

    /// Sends a signal to the command and everything that it has started.
    fn signal_all(&self, signal: Signal) {
        match &self.cgroup {
            Some(cgroup) if signal == Signal::KILL && cgroup.kill().is_ok() => {}
            Some(cgroup) => cgroup.signal(signal),
            None => {
                let all = seen_descendants(std::process::id(), &self.others());
                all.iter().for_each(|process| process.signal(signal));
                if self.ended.is_none() && all.iter().all(|p| p.id().pid != self.child.pid()) {
                    self.child.signal(signal); // Whatever can be seen, we know this one.
                }
            }
        }
    }
}

/// Waits until nothing lives in a cgroup. One that cannot be looked at is looked at again.
async fn emptied(cgroup: Option<&Cgroup>) {
    let Some(cgroup) = cgroup else { return std::future::pending().await };
    while cgroup.until_empty().await.is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether this process has a terminal that can stop it.
fn has_terminal() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}
