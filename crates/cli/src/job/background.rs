//! Runners in the background: started when a job is submitted, and when one is found that nobody runs.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use holdall_jobs::{Machine, Record};

use super::environment;
use super::runner::{self, Watcher, now};
use super::store::{self, Store};
use crate::reach::block_on;

/// How long jobs are kept that have ended, unless HOLDALL_JOBS_KEEP says otherwise.
const KEEP: Duration = Duration::from_secs(30 * 86_400);
/// What the directory of a job is called while it is removed.
const REMOVED: &str = ".removed-";

/// Starts a runner, which goes at once if there is one. Its surroundings are those of whoever has
/// submitted the job, whoever it is that goes on with it.
pub(super) fn start_runner(store: &Store) -> anyhow::Result<()> {
    let log = OpenOptions::new().create(true).append(true).open(store.runner_log())?;
    let variables = environment::kept(&store.dir.join("environ"));
    let variables = variables.with_context(|| format!("{} is damaged", store.id()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["job", "runner"]).arg(&store.dir);
    command.env_clear().envs(variables).current_dir("/");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().context("cannot start a runner")?;
    Ok(())
}

/// Runs a job that was submitted.
pub(super) fn run_alone(dir: &Path) -> anyhow::Result<ExitCode> {
    // The terminal that it was started from may go.
    rustix::process::setsid().context("cannot leave the terminal")?;
    block_on(runner::run(Store::at(dir.to_owned()), &mut Nobody))?;
    Ok(ExitCode::SUCCESS)
}

/// Does not look on.
struct Nobody;

impl Watcher for Nobody {
    fn noted(&mut self, _: &Machine, _: &Record, _: u64) {}
}

/// Goes on with jobs whose runners were lost; and tells all jobs.
pub(super) fn revive() -> anyhow::Result<Vec<Store>> {
    let all = store::all()?;
    for store in all.iter().filter(|store| store.over().is_none()) {
        revive_one(store)?;
    }
    Ok(all)
}

/// Goes on with a job if nobody does; tells whether that was so.
pub(super) fn revive_one(store: &Store) -> anyhow::Result<bool> {
    let is_lost = store.over().is_none() && store.runner()?.is_none();
    if is_lost {
        start_runner(store)?;
    }
    Ok(is_lost)
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
