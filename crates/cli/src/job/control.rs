//! `holdall job cancel`, `retry`, `resume` and `wait`: what is done to a job that there is.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdall_jobs::{Input, TaskIndex};

use super::background::{revive_one, start_runner};
use super::store::{Over, Store};
use super::talk::{self, FromRunner, ToRunner};
use super::{WRONG_STATE, journal, named, runner};
use crate::failure::{Failure, UNAVAILABLE};
use crate::reach::block_on;

/// How often it is looked whether a job has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked whether somebody still runs it.
const REVIVE: Duration = Duration::from_secs(2);
/// How many runners may end without having done anything before a job is given up.
const RUNNERS: u32 = 3;
/// How long a runner may take to hear us.
const HEARD: Duration = Duration::from_secs(10);
/// A job cannot be run, although it may.
const CANNOT_RUN: u8 = 70;

#[derive(clap::Args)]
pub(super) struct OfJob {
    job: String,
}

#[derive(clap::Args)]
pub(super) struct OfTask {
    job: String,
    task: Option<String>,
}

impl OfTask {
    fn found(&self) -> anyhow::Result<(Store, Option<TaskIndex>)> {
        let store = Store::of(&self.job)?;
        let task = self.task.as_deref().map(|name| named(&store.plan()?, name)).transpose()?;
        Ok((store, task))
    }
}

fn wrong_state(text: String) -> anyhow::Error {
    Failure(WRONG_STATE, text).into()
}

pub(super) fn cancel(args: &OfTask) -> anyhow::Result<ExitCode> {
    let (store, task) = args.found()?;
    let begun = Instant::now();
    while begun.elapsed() < HEARD {
        if store.over().is_some() {
            return Err(wrong_state(format!("{} has ended already", args.job)));
        }
        if block_on(tell_runner(&store, task))? {
            return Ok(ExitCode::SUCCESS);
        }
        // Without a runner nothing runs, and what follows is noted here.
        if store.runner()?.is_none() && runner::change(&store, Input::Cancel(task))?.is_some() {
            revive_one(&store)?;
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
    Err(Failure(UNAVAILABLE, format!("the runner of {} does not answer", args.job)).into())
}

/// Tells the runner of a job, if there is one, that something is not wanted any more, and whether it
/// has noted that.
async fn tell_runner(store: &Store, task: Option<TaskIndex>) -> anyhow::Result<bool> {
    let told = async {
        let (mut incoming, mut outgoing) = talk::connect(&store.dir).await.ok()?;
        outgoing.send(&ToRunner::Cancel { task }).await.ok()?;
        incoming.next::<FromRunner>().await
    };
    let told = tokio::time::timeout(HEARD, told).await.ok().flatten();
    Ok(matches!(told, Some(FromRunner::Noted)))
}

pub(super) fn retry(args: &OfTask) -> anyhow::Result<ExitCode> {
    let (store, task) = args.found()?;
    if store.over().is_none() {
        let text = format!("{} has not ended; wait for it, or cancel it first", args.job);
        return Err(wrong_state(text));
    }
    match runner::change(&store, Input::Retry(task))? {
        Some(true) => {}
        Some(false) => {
            return Err(wrong_state(format!("all tasks of {} have succeeded", args.job)));
        }
        None => return Err(wrong_state(format!("{} is being run", args.job))),
    }
    store.reopen()?;
    start_runner(&store)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn resume(args: &OfJob) -> anyhow::Result<ExitCode> {
    let store = Store::of(&args.job)?;
    if store.over().is_some() {
        return Err(wrong_state(format!("{} has ended already", args.job)));
    }
    // If one is there, or has just been killed and is on its way out, the new one waits a while, and
    // goes on or goes.
    start_runner(&store)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until a job has ended. Whoever waits goes on with it if its runner is lost.
pub(super) fn wait(store: &Store) -> anyhow::Result<ExitCode> {
    let (mut looked, mut lost, mut length) = (None::<Instant>, 0, 0);
    loop {
        if let Some(over) = store.over() {
            return Ok(status(&over));
        }
        if looked.is_none_or(|at| at.elapsed() > REVIVE) {
            looked = Some(Instant::now());
            let noted = journal::length(store);
            lost = if noted == length { lost } else { 0 };
            length = noted;
            lost += u32::from(revive_one(store)?);
        }
        if lost > RUNNERS {
            let log = std::fs::read_to_string(store.runner_log()).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it says nothing").to_owned();
            let last = last.strip_prefix("holdall: ").unwrap_or(&last);
            let text = format!("the runner of {} ends again and again: {last}", store.id());
            return Err(Failure(CANNOT_RUN, text).into());
        }
        std::thread::sleep(LOOK);
    }
}

pub(super) fn wait_for(args: &OfJob) -> anyhow::Result<ExitCode> {
    wait(&Store::of(&args.job)?)
}

/// The exit status of a job.
pub(super) fn status(over: &Over) -> ExitCode {
    match over {
        Over { cancelled: true, .. } => ExitCode::from(130),
        Over { succeeded, .. } => ExitCode::from(u8::from(!succeeded)),
    }
}
