//! `holdall job cancel`, `retry`, `resume` and `wait`: what is done to a job that there is.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdall_jobs::{Input, TaskIndex};

use super::background::{Reviver, outside_of_grants, revive_one, start_runner};
use super::store::{Over, Store};
use super::talk::{self, FromRunner, ToRunner};
use super::view::{State, View};
use super::{WRONG_STATE, named, runner};
use crate::failure::{Failure, UNAVAILABLE};
use crate::reach::block_on;

/// How often it is looked whether a job has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How long a runner may take to hear us.
const HEARD: Duration = Duration::from_secs(10);

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

    fn has_ended(&self) -> anyhow::Error {
        let what = self
            .task
            .as_ref()
            .map_or_else(|| self.job.clone(), |task| format!("{task} of {}", self.job));
        wrong_state(format!("{what} has ended already"))
    }
}

fn wrong_state(text: String) -> anyhow::Error {
    Failure(WRONG_STATE, text).into()
}

pub(super) fn cancel(args: &OfTask) -> anyhow::Result<ExitCode> {
    let (store, task) = args.found()?;
    let begun = Instant::now();
    while begun.elapsed() < HEARD {
        if store.over().is_some() || has_ended(&store, task)? {
            return Err(args.has_ended());
        }
        if block_on(tell_runner(&store, task))? {
            return Ok(ExitCode::SUCCESS);
        }
        // Without a runner nothing runs, and what follows is noted here.
        if store.runner()?.is_none()
            && let Some(changes) = runner::change(&store, Input::Cancel(task))?
        {
            revive_one(&store)?;
            return if changes { Ok(ExitCode::SUCCESS) } else { Err(args.has_ended()) };
        }
        std::thread::sleep(LOOK);
    }
    Err(Failure(UNAVAILABLE, format!("the runner of {} does not answer", args.job)).into())
}

fn has_ended(store: &Store, task: Option<TaskIndex>) -> anyhow::Result<bool> {
    let Some(task) = task else { return Ok(false) };
    let state = View::of(store)?.tasks[task.0].state;
    Ok(!matches!(state, State::Waiting | State::Running))
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
    outside_of_grants()?;
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
pub(super) fn wait(args: &OfJob) -> anyhow::Result<ExitCode> {
    let (store, mut reviver) = (Store::of(&args.job)?, Reviver::default());
    loop {
        if let Some(over) = store.over() {
            return Ok(status(&over));
        }
        reviver.look(&store)?;
        std::thread::sleep(LOOK);
    }
}

/// The exit status of a job.
pub(super) fn status(over: &Over) -> ExitCode {
    match over {
        Over { cancelled: true, .. } => ExitCode::from(130),
        Over { succeeded, .. } => ExitCode::from(u8::from(!succeeded)),
    }
}
