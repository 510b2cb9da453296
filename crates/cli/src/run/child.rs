//! The command under its grant: started, signalled, waited for, stopped.
//!
//! With a terminal it stays in our process group, as under `flock`: it reads the terminal whenever
//! we may, and Ctrl-C and Ctrl-Z reach it without us. Without one it has a group of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use holdall_client::Grant;
use holdall_holders::{Cgroup, Child, Command, Ended, Process, Start, descendants};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, getpid, set_child_subreaper};

use super::waiting::{self, Signals};
use crate::failure::{Failure, LOST};

/// How the use of a grant ended.
pub(super) enum Use {
    /// The command ended; `left` says whether we still have children.
    Over { ended: Ended, left: bool },
    /// The grant was lost, and the command was stopped.
    Lost,
}

/// A command that runs.
pub(super) struct Running {
    child: Child,
    cgroup: Option<Cgroup>,
    /// The agent, which may be a child of ours and is no part of the command.
    agent: u32,
}

impl Running {
    /// Starts a command: in the cgroup of its grant, if we may, and else where we are, when the
    /// agent knows it.
    pub(super) async fn start(
        words: &[std::ffi::OsString],
        variables: Vec<(String, String)>,
        grant: &Grant,
        agent: u32,
        signals: &mut Signals,
    ) -> anyhow::Result<Self> {
        let own_group = !has_terminal();
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
            return Ok(Self { child, cgroup: Some(Cgroup::at(dir, place.inode)), agent });
        }
        // If we are killed, the agent looks for what the command has started. In our group it
        // can do so only by way of the command.
        command.dies_with_us = own_group;
        // Whatever loses its parent becomes our child.
        set_child_subreaper(Some(getpid()))?;
        let mut child = command.start(Start::Gated).context("cannot start a process")?;
        let known = async {
            let text = |error| format!("the grant was lost before the command started: {error}");
            let known = grant.child(child.handle()).await;
            known.map_err(|error| Failure(LOST, text(error)).into())
        };
        waiting::before(None, signals, known).await?;
        child.let_go();
        Ok(Self { child, cgroup: None, agent })
    }

    /// Waits for its end; passes signals on; stops all of it if the grant is lost.
    pub(super) async fn supervise(
        &mut self,
        grant: &mut Grant,
        signals: &mut Signals,
        grace: Duration,
    ) -> anyhow::Result<Use> {
        let (mut over, mut lost) = (None, false);
        let kill = tokio::time::sleep(Duration::MAX);
        tokio::pin!(kill);
        loop {
            tokio::select! {
                caught = signals.any() => {
                    let caught = caught?;
                    if caught.signal == Signal::CHILD {
                        let (ended, left) = self.child.reap()?;
                        over = over.or(ended);
                        match over {
                            Some(ended) if !lost => return Ok(Use::Over { ended, left }),
                            Some(_) if self.is_gone(left) => return Ok(Use::Lost),
                            _ => {}
                        }
                    } else if over.is_none() && (self.child.own_group() || !caught.from_kernel) {
                        self.pass_on(caught.signal);
                    }
                }
                () = grant.lost(), if !lost => {
                    lost = true;
                    crate::say("the grant was lost; stopping the command");
                    self.signal_all(Signal::TERM);
                    self.signal_all(Signal::CONT);
                    kill.as_mut().reset(tokio::time::Instant::now() + grace);
                }
                () = &mut kill, if lost => {
                    self.signal_all(Signal::KILL);
                    kill.as_mut().reset(tokio::time::Instant::now() + grace);
                }
                () = emptied(self.cgroup.as_ref()), if over.is_some() => return Ok(Use::Lost),
            }
        }
    }

    /// Whether nothing of the command is left, as far as our own children tell.
    fn is_gone(&self, left: bool) -> bool {
        self.cgroup.is_none() && (!left || self.others().is_empty())
    }

    /// What the command has started and that still runs, where there is no cgroup to tell.
    fn others(&self) -> Vec<Process> {
        let mut all = descendants(std::process::id()).unwrap_or_default();
        all.retain(|process| process.id().pid != self.agent);
        all
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
            None => self.others().iter().for_each(|process| process.signal(signal)),
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

/// Whether this process has a terminal that can stop it.
fn has_terminal() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}
