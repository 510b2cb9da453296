//! The process that runs under a grant and runs the tasks of it, as its job's runner tells it to.
//!
//! It is the command of a `holdall run --leftovers kill`, so whatever it starts is gone before anybody
//! else gets what is held. When the runner is gone, or when it is told to end itself, it ends
//! everything and goes. A task that needs nothing has a holder without a grant.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use holdall_holders::{SigSet, Signals, set_mask};
use holdall_jobs::{Cause, RequestIndex, TaskIndex};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper,
    test_kill_process_group, wait,
};
use tokio::time::Instant;

use super::mark::{End, Mark};
use super::talk::{self, FromRunner, Order, Outgoing, ToRunner};
use crate::reach::block_on;

/// How often it is looked whether anything of a process group is left.
const LOOK: Duration = Duration::from_millis(20);
/// How long a task's end by a signal is not told: what has killed it may be about to kill us, as the
/// grant was lost.
const DOUBT: Duration = Duration::from_millis(200);
/// The exit status of a holder that nobody wants any more.
const NOT_WANTED: u8 = 75;

/// Hold for a job, as its runner says. Not for people
#[derive(clap::Args)]
pub(super) struct Args {
    dir: std::path::PathBuf,
    life: String,
    request: usize,
    ask: u32,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(hold(args))
}

async fn hold(args: &Args) -> anyhow::Result<ExitCode> {
    // Whatever loses its parent becomes our child, and is waited for: what nobody waits for stays in
    // its group.
    set_child_subreaper(Some(getpid()))?;
    let mut signals = Signals::new(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM])?;
    // The runner may have gone while this waited.
    let Ok((mut incoming, mut outgoing)) = talk::connect(&args.dir).await else {
        return Ok(ExitCode::from(NOT_WANTED));
    };
    let holding = ToRunner::Holding {
        life: args.life.clone(),
        request: RequestIndex(args.request),
        ask: args.ask,
        variables: granted(),
    };
    outgoing.send(&holding).await?;
    let mut tasks = Tasks { running: BTreeMap::new(), mask: signals.mask_before() };
    loop {
        tokio::select! {
            biased;
            caught = signals.next() => match caught?.signal {
                Signal::CHILD => tasks.reap(),
                _ => break,
            },
            told = incoming.next() => match told {
                Some(FromRunner::Start(order)) => tasks.start(&order),
                Some(FromRunner::Stop { task, kill }) => tasks.stop(task, kill),
                Some(FromRunner::Noted) => {}
                None => break,
            },
            () = tokio::time::sleep(LOOK), if tasks.any_ended() => {}
        }
        if tasks.tell_ends(&mut outgoing).await.is_err() {
            break;
        }
    }
    tasks.end_all().await;
    Ok(ExitCode::SUCCESS)
}

/// The variables that say what is held.
fn granted() -> BTreeMap<String, String> {
    let says = |key: &str| key.starts_with("HOLDALL_UNITS_") || key.starts_with("HOLDALL_FENCE_");
    std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| says(key))
        .collect()
}

/// A task that has been started.
#[derive(Debug)]
struct Running {
    attempt: u32,
    /// Its process group, as long as anything is in it.
    group: Option<Pid>,
    /// How its first process has ended, and when that may be told.
    ended: Option<(Option<Cause>, Instant)>,
    mark: Option<Mark>,
    /// Whether it was told to end.
    stopped: bool,
}

/// The tasks that run.
#[derive(Debug)]
struct Tasks {
    running: BTreeMap<TaskIndex, Running>,
    /// The signals that tasks find blocked: not those that are blocked here.
    mask: SigSet,
}

impl Tasks {
    fn start(&mut self, order: &Order) {
        let (attempt, now) = (order.attempt, Instant::now());
        let running = match spawn(order, self.mask) {
            Ok((group, mark)) => {
                let (group, mark) = (Some(group), Some(mark));
                Running { attempt, group, mark, ended: None, stopped: false }
            }
            Err(error) => {
                let cause = Some(Cause::NotStarted(format!("{error:#}")));
                let ended = Some((cause, now));
                Running { attempt, ended, group: None, mark: None, stopped: false }
            }
        };
        self.running.insert(order.task, running);
    }

    fn stop(&mut self, task: TaskIndex, kill: bool) {
        let Some(running) = self.running.get_mut(&task) else { return };
        running.stopped = true;
        running.signal(if kill { Signal::KILL } else { Signal::TERM });
        // Those that are stopped hear it, too.
        running.signal(Signal::CONT);
    }

    /// Notes which first processes have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let own = |running: &&mut Running| running.group == Some(pid);
            let Some(running) = self.running.values_mut().find(own) else { continue };
            let status = ExitStatus::from_raw(status.as_raw());
            let doubt = status.signal().is_some() && !running.stopped;
            let told_at = Instant::now() + if doubt { DOUBT } else { Duration::ZERO };
            running.ended = Some((cause(status), told_at));
        }
    }

    /// Looks of which groups nothing is left: their numbers may be others' from now on.
    fn look(&mut self) {
        for running in self.running.values_mut().filter(|running| running.ended.is_some()) {
            running.group = running.group.filter(|group| test_kill_process_group(*group).is_ok());
        }
    }

    /// Whether a task has ended that was not told of.
    fn any_ended(&self) -> bool {
        self.running.values().any(|running| running.ended.is_some())
    }

    /// Tells of those of which nothing is left: first in their marks, so that it is known even if
    /// neither we nor the runner live on.
    async fn tell_ends(&mut self, outgoing: &mut Outgoing) -> std::io::Result<()> {
        self.look();
        let now = Instant::now();
        let is_over = |running: &mut Running| {
            running.group.is_none() && running.ended.as_ref().is_some_and(|(_, at)| *at <= now)
        };
        for (task, running) in self.running.extract_if(.., |_, running| is_over(running)) {
            let cause = running.ended.and_then(|(cause, _)| cause);
            let end = End { cause };
            if let Some(mark) = running.mark {
                // Without it the end is still told, if the runner lives.
                let _ = mark.note(&end);
            }
            let attempt = running.attempt;
            outgoing.send(&ToRunner::Ended { task, attempt, cause: end.cause }).await?;
        }
        Ok(())
    }

    /// Ends everything. What is ended here is not noted: it did not end by itself.
    async fn end_all(&mut self) {
        while !self.running.is_empty() {
            self.running.values().for_each(|running| running.signal(Signal::KILL));
            self.reap();
            self.look();
            self.running.retain(|_, running| running.group.is_some());
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Running {
    /// Signals everything in its process group. The kernel gives its number to nobody else while the
    /// leader has not been waited for, or any member is left.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, signal);
        }
    }
}

fn spawn(order: &Order, mask: SigSet) -> anyhow::Result<(Pid, Mark)> {
    let mark = Mark::set(&order.mark);
    let mark = mark.with_context(|| format!("cannot make {}", order.mark.display()))?;
    let log = OpenOptions::new().create(true).append(true).open(&order.log);
    let log = log.with_context(|| format!("cannot write {}", order.log.display()))?;
    // A job that is retried begins to count anew.
    log.set_len(0)?;
    let (program, arguments) = order.words.split_first().context("there is no command")?;
    let mut command = Command::new(program);
    for name in &order.hidden {
        command.env_remove(name);
    }
    command.args(arguments).current_dir(&order.dir).envs(&order.env).process_group(0);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    set_mask(&mut command, mask);
    let child = mark.inherited(|| command.spawn())?;
    let child =
        child.with_context(|| format!("cannot run {program} in {}", order.dir.display()))?;
    Ok((Pid::from_child(&child), mark))
}

fn cause(status: ExitStatus) -> Option<Cause> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(Cause::Exit(code)),
        (None, Some(signal)) => Some(Cause::Signal(signal)),
        (None, None) => Some(Cause::Unknown),
    }
}
