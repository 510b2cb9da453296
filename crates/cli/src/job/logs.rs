//! `holdall job logs`: what the tasks of a job have written.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::background::Reviver;
use super::named;
use super::store::Store;
use super::view::{State, View};

/// How often it is looked whether there is more.
const LOOK: Duration = Duration::from_millis(300);

/// What the tasks of a job have written, in their last attempts
#[derive(clap::Args)]
pub(super) struct Args {
    job: String,
    task: Option<String>,
    /// Go on as long as the job, or the task, does
    #[arg(short, long)]
    follow: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = Store::of(&args.job)?;
    let plan = store.plan()?;
    let task = args.task.as_deref().map(|name| named(&plan, name)).transpose()?;
    let mut reviver = Reviver::default();
    let mut printed = Printed { with_names: task.is_none(), ..Printed::default() };
    loop {
        // First whether it goes on: what is written before its end is told, too.
        let view = View::of(&store)?;
        let wanted =
            view.tasks.iter().enumerate().filter(|(at, _)| task.is_none_or(|t| t.0 == *at));
        let mut goes_on = view.state == "running" || view.state == "interrupted";
        for (_, line) in wanted {
            goes_on &= task.is_none() || matches!(line.state, State::Waiting | State::Running);
            if let Some(log) = &line.log
                && !printed.print(&line.task, log)?
            {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !args.follow || !goes_on {
            return Ok(ExitCode::SUCCESS);
        }
        reviver.look(&store)?;
        std::thread::sleep(LOOK);
    }
}

/// How much of each log is printed.
#[derive(Default)]
struct Printed {
    with_names: bool,
    /// Whose came last.
    last: String,
    lengths: BTreeMap<PathBuf, u64>,
}

impl Printed {
    /// Prints what is new in a log, and tells whether anybody reads on. One that is not there yet is
    /// empty.
    fn print(&mut self, task: &str, log: &PathBuf) -> anyhow::Result<bool> {
        let from = self.lengths.get(log).copied().unwrap_or(0);
        let Ok(mut file) = std::fs::File::open(log) else { return Ok(true) };
        if file.metadata()?.len() == from {
            return Ok(true);
        }
        if self.with_names && self.last != task {
            self.last = task.into();
            if !holdall_commands::print_to_reader(&format!("== {}", crate::show::clean(task)))? {
                return Ok(false);
            }
        }
        file.seek(SeekFrom::Start(from))?;
        let mut out = std::io::stdout().lock();
        let copied = match std::io::copy(&mut file, &mut out).and_then(|n| out.flush().map(|()| n))
        {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
            copied => copied?,
        };
        self.lengths.insert(log.clone(), from + copied);
        Ok(true)
    }
}
