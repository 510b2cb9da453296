//! `holdall job`: work made of tasks, each run when everything it needs is granted.
//!
//! A job is a [directory](store). A [`runner`] goes through it, in the foreground or in the
//! [`background`]; a [`holder`] runs the tasks of one grant for it.

mod background;
mod check;
mod control;
mod environment;
mod holder;
mod journal;
mod junit;
mod live;
mod logs;
mod mark;
mod runner;
mod store;
mod svg;
mod talk;
mod tree;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use holdall_jobs::{Limits, Plan, TaskIndex};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use self::background::{clean, revive, start_runner};
use self::check::Pools;
use self::control::{OfJob, OfTask, status};
use self::live::{Lines, Tree};
use self::runner::{Watcher, now};
use self::store::{About, Lock, Store};
use self::view::{State, View};
use crate::failure::Failure;
use crate::reach::{Reach, block_on};
use crate::{cannot_write, print, show};

/// There is no such task, or the job is not in the state for that.
const WRONG_STATE: u8 = 65;

/// Work made of tasks, each run when everything it needs is granted
///
/// A file names the tasks, what each needs and what it comes after. A task starts when all of that
/// has ended as wanted and everything it needs is granted at once. docs/jobs.md has the whole of it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Do,
}

#[derive(clap::Subcommand)]
enum Do {
    /// Run a job here, like make; the exit status is 1 if a task failed
    Run(RunArgs),
    /// Run a job in the background; prints its id
    Submit(NewArgs),
    /// Say what a file means, and whether it can be granted
    Check(CheckArgs),
    /// All jobs
    List(ListArgs),
    /// The tasks of a job: how far they are, how long they waited and ran
    Show(ShowArgs),
    Logs(logs::Args),
    /// End a job, or one task of it
    Cancel(OfTask),
    /// Run again what did not succeed, or one task and what comes after it
    Retry(OfTask),
    /// Wait until a job has ended; the exit status is as that of run
    Wait(OfJob),
    /// Go on with a job whose runner was lost
    Resume(OfJob),
    #[command(hide = true)]
    Runner {
        dir: PathBuf,
    },
    /// Ask as a child of a runner, and end with it
    #[command(hide = true)]
    Ask {
        runner: i32,
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    #[command(hide = true)]
    Holder(holder::Args),
}

#[derive(clap::Args)]
struct NewArgs {
    /// The job
    file: PathBuf,
    /// How many requests wait at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().ahead)]
    ahead: usize,
    /// How many tasks, or groups of them, wait or run at a time
    #[arg(short, long, value_name = "N", default_value_t = Limits::default().jobs)]
    jobs: usize,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args)]
struct RunArgs {
    #[command(flatten)]
    new: NewArgs,
    /// Write a summary that CI systems read to FILE, as JUnit makes it
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

#[derive(clap::Args)]
struct CheckArgs {
    /// The job
    file: PathBuf,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Print a JSON object for each job
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ShowArgs {
    job: String,
    #[command(flatten)]
    form: Form,
}

/// How a job is told, if not as a tree.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Form {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a summary that CI systems read, as JUnit makes it
    #[arg(long)]
    junit: bool,
    /// Print a picture: what had each unit when
    #[arg(long)]
    svg: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Do::Run(args) => run_here(args),
        Do::Submit(new) => submit(new),
        Do::Check(args) => check(args),
        Do::List(args) => list(args),
        Do::Show(args) => show_job(args),
        Do::Logs(args) => revive().and_then(|_| logs::run(args)),
        Do::Cancel(args) => control::cancel(args).and_then(and_revive),
        Do::Retry(args) => control::retry(args).and_then(and_revive),
        Do::Wait(args) => revive().and_then(|_| control::wait(args)),
        Do::Resume(args) => control::resume(args).and_then(and_revive),
        Do::Runner { dir } => background::run_alone(dir),
        Do::Ask { runner, words } => ask(*runner, words),
        Do::Holder(args) => holder::run(args),
    }
}

/// Any command goes on with jobs whose runners were lost: one that is about a job itself when that is
/// done.
fn and_revive(code: ExitCode) -> anyhow::Result<ExitCode> {
    revive().map(|_| code)
}

/// Waits for a request and holds it, as long as the runner lives that has started this.
fn ask(runner: i32, words: &[OsString]) -> anyhow::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have gone before.
    if getppid() != Pid::from_raw(runner) {
        return Ok(ExitCode::from(crate::failure::NOT_NOW));
    }
    let words = std::iter::once(OsString::from("holdall")).chain(words.iter().cloned());
    let crate::RunCommand::Run(args) =
        crate::RunAlone::try_parse_from(words).map_err(crate::usage)?.command;
    crate::run::run(&args)
}

/// Reads a file, looks whether it can be granted, and makes a job of it.
fn create(new: &NewArgs) -> anyhow::Result<(Store, Lock)> {
    if new.ahead == 0 || new.jobs == 0 {
        return Err(crate::usage("--ahead and --jobs are at least 1"));
    }
    new.reach.place()?; // Its tasks are looked after by the agent of this machine.
    let (plan, text) = check::read(&new.file)?;
    block_on(Pools::of(&plan, &new.reach))?.check(&plan)?;
    clean()?;
    revive()?;
    let agent = new.reach.socket.as_ref().map(std::path::absolute).transpose()?;
    let about = About {
        name: plan.name.clone(),
        dir: std::env::current_dir()?,
        submitted: now(),
        agent,
        ahead: new.ahead,
        jobs: new.jobs,
        umask: environment::umask(),
    };
    Store::create(&plan.name, &about, &text)
}

fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let (plan, _) = check::read(&args.file)?;
    let pools = block_on(Pools::of(&plan, &args.reach))?;
    for line in check::told(&plan, &pools).lines() {
        print(&show::clean(line))?;
    }
    pools.check(&plan)?;
    Ok(ExitCode::SUCCESS)
}

fn run_here(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let (store, lock) = create(&args.new)?;
    crate::say(format!("this is {}", store.id()));
    let mut watcher: Box<dyn Watcher> = match Tree::on_terminal() {
        Some(tree) => Box::new(tree),
        None => Box::new(Lines::default()),
    };
    let over = block_on(runner::run(store.clone(), lock, watcher.as_mut()))?;
    let view = View::of(&store)?;
    print(&tree::tree(&view))?;
    args.junit.as_deref().map_or(Ok(()), |path| write_junit(&view, path))?;
    Ok(status(&over))
}

fn write_junit(view: &View, path: &Path) -> anyhow::Result<()> {
    let written = std::fs::write(path, junit::junit(view) + "\n");
    written.map_err(|error| cannot_write(path.display(), error))
}

fn submit(new: &NewArgs) -> anyhow::Result<ExitCode> {
    background::outside_of_grants()?;
    // The runner goes on when we let go of the lock.
    let (store, _lock) = create(new)?;
    start_runner(&store)?;
    print(&store.id())?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    for store in revive()? {
        let id = store.id();
        let view = match View::of(&store) {
            Ok(view) => view,
            Err(error) => {
                crate::say(format!("{id}: {error:#}"));
                continue;
            }
        };
        let text = if args.json {
            show::json(&view)?
        } else {
            let (done, failed) = (view.count(State::Succeeded), view.count(State::Failed));
            let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
            let (state, all) = (view.state, view.tasks.len());
            format!("{id}  {state}  {done} of {all} tasks succeeded{failed}")
        };
        print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show_job(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let store = Store::of(&args.job)?;
    revive()?;
    let view = View::of(&store)?;
    let text = match args.form {
        Form { json: true, .. } => show::json(&view)?,
        Form { junit: true, .. } => junit::junit(&view),
        Form { svg: true, .. } => svg::svg(&view),
        _ => tree::tree(&view),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A task of a job, by name.
fn named(plan: &Plan, name: &str) -> anyhow::Result<TaskIndex> {
    let found = plan.tasks.iter().position(|task| task.name == name);
    found.map(TaskIndex).ok_or_else(|| {
        let text = format!("the job has no task '{name}'; `holdall job show` tells them");
        Failure(WRONG_STATE, text).into()
    })
}
