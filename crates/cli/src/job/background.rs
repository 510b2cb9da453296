//! Runners in the background: started when a job is submitted, and when one is found that nobody runs.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_holders::{SigSet, set_mask};
use holdall_jobs::{Machine, Record};

use super::runner::{self, Watcher, now};
use super::store::{self, Store};
use super::{WRONG_STATE, environment, journal};
use crate::failure::Failure;
use crate::reach::block_on;

/// How long jobs are kept that have ended, unless HOLDALL_JOBS_KEEP says otherwise.
const KEEP: Duration = Duration::from_secs(30 * 86_400);
/// What the directory of a job is called while it is removed.
const REMOVED: &str = ".removed-";

/// How often it is looked whether somebody still runs a job.
const REVIVE: Duration = Duration::from_secs(2);
/// How many runners may end without having done anything before a job is given up.
const RUNNERS: u32 = 3;
/// A job cannot be run, although it may.
const CANNOT_RUN: u8 = 70;

/// Starts a runner, which waits a while and goes if there is one. Its environment is that of whoever has
/// submitted the job, whoever it is that goes on with it.
pub(super) fn start_runner(store: &Store) -> anyhow::Result<()> {
    outside_of_grants()?;
    let log = OpenOptions::new().create(true).append(true).open(store.runner_log())?;
    let variables = environment::kept(&store.dir.join("environ"));
    let variables = variables.with_context(|| format!("{} is damaged", store.id()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["job", "runner"]).arg(&store.dir);
    command.env_clear().envs(variables).current_dir("/");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    set_mask(&mut command, SigSet::empty());
    command.spawn().context("cannot start a runner")?;
    Ok(())
}

/// Refuses to start a runner where it would not last: inside a grant it would end with that, or keep it.
pub(super) fn outside_of_grants() -> anyhow::Result<()> {
    if !is_inside_a_grant() {
        return Ok(());
    }
    let text = "a job in the background would be part of the grant that this runs under, and end with it; \
                run it here with `holdall job run`, or start it outside";
    Err(Failure(WRONG_STATE, text.into()).into())
}

fn is_inside_a_grant() -> bool {
    std::env::var_os("HOLDALL_GRANT").is_some_and(|grant| !grant.is_empty())
}

/// Runs a job that was submitted.
pub(super) fn run_alone(dir: &Path) -> anyhow::Result<ExitCode> {
    // The terminal that it was started from may go.
    rustix::process::setsid().context("cannot leave the terminal")?;
    let store = Store::at(dir.to_owned());
    if let Some(lock) = store.lock()? {
        block_on(runner::run(store, lock, &mut Nobody))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does not look on.
struct Nobody;

impl Watcher for Nobody {
    fn noted(&mut self, _: &Machine, _: &Record, _: u64) {}
}

/// Goes on with jobs whose runners were lost; and tells all jobs. One that cannot be gone on with is said,
/// and disturbs nobody.
pub(super) fn revive() -> anyhow::Result<Vec<Store>> {
    let all = store::all()?;
    for store in all.iter().filter(|store| store.over().is_none()) {
        if let Err(error) = revive_one(store) {
            crate::say(format!("{}: {error:#}", store.id()));
        }
    }
    Ok(all)
}

/// Goes on with a job if nobody does; tells whether that was so. Inside a grant that is left to others.
pub(super) fn revive_one(store: &Store) -> anyhow::Result<bool> {
    let is_lost = !is_inside_a_grant() && store.over().is_none() && store.runner()?.is_none();
    if is_lost {
        start_runner(store)?;
    }
    Ok(is_lost)
}

/// Goes on with a job as long as somebody looks on, unless no runner gets anywhere.
#[derive(Default)]
pub(super) struct Reviver {
    looked: Option<Instant>,
    /// How many runners have ended in a row without having noted anything.
    lost: u32,
    /// How much was noted.
    length: u64,
}

impl Reviver {
    /// May be called as often as one likes.
    ///
    /// # Errors
    /// If the job cannot be run.
    pub(super) fn look(&mut self, store: &Store) -> anyhow::Result<()> {
        if self.looked.is_some_and(|at| at.elapsed() < REVIVE) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let length = journal::length(store);
        let goes_on = !revive_one(store)?;
        self.lost = if goes_on || length != self.length { 0 } else { self.lost + 1 };
        self.length = length;
        if self.lost <= RUNNERS {
            return Ok(());
        }
        let log = std::fs::read_to_string(store.runner_log()).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it says nothing").to_owned();
        let last = last.strip_prefix("holdall: ").unwrap_or(&last);
        let text = format!("the runner of {} ends again and again: {last}", store.id());
        Err(Failure(CANNOT_RUN, text).into())
    }
}

/// Removes jobs that have ended long ago.
pub(super) fn clean() -> anyhow::Result<()> {
    let keep = match std::env::var("HOLDALL_JOBS_KEEP") {
        Ok(text) if !text.is_empty() => holdall_wire::span(&text)
            .map_err(|bad| crate::usage(format!("HOLDALL_JOBS_KEEP: {bad}")))?,
        _ => KEEP,
    };
    let oldest = now().saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    let root = store::root()?;
    for store in store::all()?.iter().filter(|s| s.over().is_some_and(|over| over.at < oldest)) {
        // Another may be doing the same.
        let _ = std::fs::rename(&store.dir, root.join(format!("{REMOVED}{}", store.id())));
    }
    for entry in std::fs::read_dir(&root)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(REMOVED) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
