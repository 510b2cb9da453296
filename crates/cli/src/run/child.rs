//! The command under its grant: started, signalled, waited for, stopped.
//!
//! With a terminal it stays in our process group, as under `flock`: it reads the terminal whenever
//! we may, and Ctrl-C and Ctrl-Z reach it without us. Without one it has a group of its own.

use std::ffi::OsString;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use holdall_client::{Client, Error, Grant, News};
use holdall_holders::{
    Caught, Cgroup, Child, Command, Ended, Process, Start, boottime, children, descendants,
    seen_descendants, until_boottime,
};
use holdall_wire::{Fault, Leftovers};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, getpid, set_child_subreaper};
use tokio::time::Instant;

use super::leash::Leash;
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
    /// What it was lent for was about to be over, and the command was stopped.
    Lapsed,
}

/// Why a command is being stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Lost,
    OverLimit,
    Lapsed,
    /// It has ended, and what it has left behind shall end, too.
    Leftovers,
}

/// What is to be done when a command has ended.
enum After {
    /// Nothing.
    Over(Ended),
    /// It has not, or what it has left behind is waited for.
    Wait,
    /// What it has left behind is to be ended.
    Kill,
}

/// How long before its end a command's time limit is told, at most.
const NOTICE: Duration = Duration::from_secs(60);

/// A command that runs.
pub(super) struct Running {
    child: Child,
    cgroup: Option<Cgroup>,
    /// The children that we had before, where there is no cgroup: those of a program that became us.
    before: Vec<u32>,
    /// How the command ended, if it has.
    ended: Option<Ended>,
    /// What becomes of what it leaves behind, if that is for us to do: the agent does not see it.
    leftovers: Option<Leftovers>,
    /// Whether it was said that it is waited for what was left behind.
    told: bool,
    leash: Leash,
}

impl Running {
    /// Starts a command whose agent is on another machine. What becomes of it is for us alone to watch: if we are
    /// killed, it is, too.
    pub(super) fn start_alone(
        words: &[OsString],
        variables: Vec<(String, String)>,
        leftovers: Leftovers,
        grant: &mut Grant,
        mut leash: Leash,
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        let before = children().unwrap_or_default();
        set_child_subreaper(Some(getpid()))?;
        let command = command(words, variables, signals);
        let mut child = command.start(Start::Gated).context("cannot start a process")?;
        check_time(grant, &mut leash)?;
        child.let_go();
        Ok(Self::of(child, None, before, Some(leftovers), leash))
    }

    fn of(
        child: Child,
        cgroup: Option<Cgroup>,
        before: Vec<u32>,
        leftovers: Option<Leftovers>,
        leash: Leash,
    ) -> Self {
        Self { child, cgroup, before, ended: None, leftovers, told: false, leash }
    }

    /// Starts a command: in the cgroup of its grant, if we may, and else where we are, when the
    /// agent knows it.
    pub(super) async fn start(
        words: &[OsString],
        variables: Vec<(String, String)>,
        leftovers: Leftovers,
        client: &Client,
        grant: &mut Grant,
        mut leash: Leash,
        signals: &mut Signals,
    ) -> anyhow::Result<Self> {
        let mut command = command(words, variables, signals);
        // What is lent is to be given back in time, also if the agent is away then: what is left behind is ours to watch.
        let leftovers = grant.deadline().map(|_| leftovers);
        // Of what is lent nobody but we may stop the use in time: then nothing keeps us from it.
        command.stands_still = grant.deadline().is_none();
        check_time(grant, &mut leash)?;
        if let Some(place) = grant.place()
            && let Ok(dir) = Cgroup::enter(Path::new(&place.path), place.inode)
            && let Ok(child) = command.start(Start::In(&dir))
        {
            let cgroup = Some(Cgroup::at(dir, place.inode));
            return Ok(Self::of(child, cgroup, Vec::new(), leftovers, leash));
        }
        let before = children().unwrap_or_default();
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
        waiting::answered(client, signals, pin!(known)).await?;
        check_time(grant, &mut leash)?;
        child.let_go();
        Ok(Self::of(child, None, before, leftovers, leash))
    }

    /// Waits for its end; passes signals on; stops all of it if the grant is lost, before what it is lent for is
    /// over, or at its time limit, which is told before.
    pub(super) async fn supervise(
        &mut self,
        grant: &mut Grant,
        signals: &mut Signals,
        grace: Duration,
        limit: Option<Instant>,
    ) -> anyhow::Result<Use> {
        let mut stopped = None;
        let mut notice = limit.map(|limit| {
            let left = limit.saturating_duration_since(Instant::now());
            limit - NOTICE.min(left / 10)
        });
        self.leash.set(grant.deadline(), boottime);
        let kill = tokio::time::sleep(Duration::MAX);
        tokio::pin!(kill);
        // While we waited for something else, its end may have been told already.
        if self.ended.is_none() {
            self.ended = self.child.reap()?;
            match self.after_end() {
                After::Over(ended) => return Ok(Use::Over(ended)),
                After::Wait => {}
                After::Kill => {
                    stopped = Some(Stopped::Leftovers);
                    self.stop();
                    kill.as_mut().reset(Instant::now() + grace);
                }
            }
        }
        loop {
            let running = stopped.is_none();
            let is_lost = stopped == Some(Stopped::Lost);
            if let Some(why) = stopped
                && self.ended.is_some()
                && self.cgroup.is_none()
                && !self.has_left()
            {
                return Ok(self.outcome(why));
            }
            let why = tokio::select! {
                caught = signals.any() => {
                    let caught = caught?;
                    self.take_note(caught)?;
                    match self.after_end() {
                        _ if !running => continue,
                        After::Over(ended) => return Ok(Use::Over(ended)),
                        After::Kill => Stopped::Leftovers,
                        After::Wait if caught.signal == Signal::CHILD => continue,
                        After::Wait => {
                            if self.ended.is_some() {
                                self.signal_all(caught.signal);
                            }
                            continue;
                        }
                    }
                }
                news = grant.news(), if !is_lost => match news {
                    News::Lost => {
                        let why = grant.why_lost().map(|why| format!(": {}", show::clean(why)));
                        let why = why.unwrap_or_default();
                        crate::say(format!("the grant was lost; stopping the command{why}"));
                        Stopped::Lost
                    }
                    News::Deadline => {
                        self.leash.set(grant.deadline(), boottime);
                        continue;
                    }
                },
                () = at(notice), if running => {
                    notice = None;
                    let left = limit.map(|limit| limit - Instant::now());
                    let left = show::soon(left.unwrap_or_default());
                    super::mention(format!("the command is stopped in {left}, at its time limit"));
                    continue;
                }
                () = at(limit), if running => {
                    crate::say("the time limit is over; stopping the command");
                    Stopped::OverLimit
                }
                () = at_boottime(self.leash.stop_at()), if running => {
                    let left = show::soon(self.leash.left(boottime()));
                    let of = silent(grant);
                    crate::say(format!(
                        "nothing was heard of {of}, and what it has lent is to be given back in {left}; stopping the \
                         command"
                    ));
                    Stopped::Lapsed
                }
                () = at_boottime(self.leash.kill_at()), if !running => {
                    self.signal_all(Signal::KILL);
                    self.leash = Leash::default(); // What comes now is killed after the usual grace.
                    continue;
                }
                () = &mut kill, if !running => {
                    self.signal_all(Signal::KILL);
                    kill.as_mut().reset(Instant::now() + grace);
                    continue;
                }
                () = emptied(self.cgroup.as_ref()), if self.ended.is_some() => {
                    return Ok(match (stopped, self.ended) {
                        (None, Some(ended)) => Use::Over(ended),
                        (why, _) => why.map_or(Use::Lost, |why| self.outcome(why)),
                    });
                }
            };
            stopped = Some(why);
            if running {
                self.stop();
                kill.as_mut().reset(Instant::now() + grace);
            }
        }
    }

    /// Whether its time is over, as far as was heard, and it was not lost before: an agent that has killed it in time need not be there any
    /// more.
    pub(super) fn is_late(&mut self, grant: &mut Grant) -> bool {
        while let Some(news) = grant.heard() {
            match news {
                // Whoever asks the grant again hears that again.
                News::Lost => return false,
                News::Deadline => self.leash.set(grant.deadline(), boottime),
            }
        }
        !self.leash.has_time(boottime)
    }

    fn outcome(&self, why: Stopped) -> Use {
        match (why, self.ended) {
            (Stopped::Leftovers, Some(ended)) => Use::Over(ended),
            (Stopped::OverLimit, _) => Use::OverLimit,
            (Stopped::Lapsed, _) => Use::Lapsed,
            (Stopped::Lost | Stopped::Leftovers, _) => Use::Lost,
        }
    }

    /// What is to be done now that something may have ended.
    fn after_end(&mut self) -> After {
        let Some(ended) = self.ended else { return After::Wait };
        match self.leftovers {
            Some(Leftovers::Wait) if self.leaves_something() => {
                if !std::mem::replace(&mut self.told, true) {
                    super::mention(
                        "everything is held until what the command has left behind has ended, too \
                         (--leftovers tells what else can be done)",
                    );
                }
                After::Wait
            }
            Some(Leftovers::Kill) if self.leaves_something() => After::Kill,
            _ => After::Over(ended),
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
        self.cgroup.is_none() && self.left().is_none_or(|left| !left.is_empty())
    }

    /// Whether anything of the command is left, in its cgroup or without one.
    fn leaves_something(&self) -> bool {
        self.has_left() || self.cgroup.as_ref().is_some_and(|it| it.populated().unwrap_or(true))
    }

    /// What the command has left behind, where there is no cgroup; none if that cannot be found out.
    pub(super) fn left(&self) -> Option<Vec<u32>> {
        let pids = |all: Vec<Process>| all.iter().map(|process| process.id().pid).collect();
        let left = children().or_else(|_| descendants(std::process::id()).map(pids));
        let others = self.others();
        let mut left: Vec<u32> = left.ok()?;
        left.retain(|pid| !others.contains(pid));
        Some(left)
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

/// Takes note of what was heard of a grant meanwhile. Nothing is started that would have to be stopped at once.
fn check_time(grant: &mut Grant, leash: &mut Leash) -> anyhow::Result<()> {
    let over = || Failure(LOST, "the grant was lost before the command started".into());
    while let Some(news) = grant.heard() {
        match news {
            News::Lost => return Err(over().into()),
            News::Deadline => leash.set(grant.deadline(), boottime),
        }
    }
    if leash.has_time(boottime) { Ok(()) } else { Err(over().into()) }
}

fn command(words: &[OsString], variables: Vec<(String, String)>, signals: &Signals) -> Command {
    Command {
        words: words.to_vec(),
        variables,
        mask: signals.mask_before(),
        own_group: !has_terminal(),
        dies_with_us: true,
        stands_still: false,
    }
}

/// Of whom nothing was heard when what is lent is nearly over: the agent, or the cells that guard it.
fn silent(grant: &Grant) -> String {
    let cells: Vec<_> = grant.lenders().into_iter().map(|cell| format!("'{cell}'")).collect();
    match &cells[..] {
        [] => "the agent".into(),
        [cell] => format!("the cell {cell}"),
        cells => format!("one of the cells {}", cells.join(", ")),
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

async fn at_boottime(millis: Option<i64>) {
    match millis {
        Some(millis) => until_boottime(millis).await,
        None => std::future::pending().await,
    }
}

/// Whether this process has a terminal that can stop it.
fn has_terminal() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}
