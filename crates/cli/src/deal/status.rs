//! `holdall deal status`: where each worker is, what is held up and by whom.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::claim::{self, State};
use super::items::Items;
use super::journals::Journals;
use super::outcome::Outcome;
use super::store::{Kind, Store};
use crate::print;

/// Show each worker's position, what is held up and by whom
///
/// Exit status: 0, or 70 if an item is in two journals. With --check also 1 if all items were run
/// and some failed, 75 if not all were run to their end.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The directory shared by all workers
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Print one JSON object
    #[arg(long, conflicts_with = "list")]
    json: bool,
    /// Say by the exit status whether all items are done
    #[arg(long)]
    check: bool,
    /// Print the numbers of items instead, one a line
    #[arg(long, value_name = "WHICH", value_enum)]
    list: Option<Which>,
    /// With --list: the file of the items, to print them instead of their numbers
    #[arg(long, value_name = "FILE", requires = "list")]
    items: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// Those that were run and failed
    Failed,
    /// Those that were started, and nobody knows whether they were done
    Undecided,
    /// Those that were never started
    Missing,
}

const NOT_BEGUN: &str = "not begun";

#[derive(Serialize)]
struct Status {
    schema: u32,
    workers: usize,
    batch: u64,
    items: u64,
    done: u64,
    failed: usize,
    undecided: usize,
    running: usize,
    at: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    worker: usize,
    state: &'static str,
    pid: Option<u32>,
    /// Its items: waiting to be started, running, done, failed, and started by a process that is
    /// gone and not recorded as finished.
    waiting: u64,
    running: usize,
    done: usize,
    failed: usize,
    undecided: usize,
    /// It is in the middle of taking: unassigned items from here to there wait for it.
    pins: Option<(u64, u64)>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = Store::find(&args.store)?;
    let journals = Journals::read(&store.path)?;
    let outcome = Outcome::of(&store, &journals)?;
    if let Some(which) = args.list {
        list(args, &store, which, &outcome)?;
    } else {
        let status = look(&store, &journals, &outcome)?;
        if args.json {
            print(&serde_json::to_string(&status)?)?;
        } else {
            table(&status)?;
            outcome.remedies(&store).iter().try_for_each(|remedy| print(remedy))?;
        }
    }
    journals.check()?;
    Ok(if args.check { outcome.exit() } else { ExitCode::SUCCESS })
}

fn list(args: &Args, store: &Store, which: Which, outcome: &Outcome) -> anyhow::Result<()> {
    let nul = store.terms.kind == Kind::NulEnded;
    let names = match &args.items {
        Some(path) => Items::list(path.clone(), nul, false)?,
        None => Items::Numbers(outcome.count),
    };
    let missing = outcome.missing();
    let items: Box<dyn Iterator<Item = u64>> = match which {
        Which::Failed => Box::new(outcome.failed.iter().copied()),
        Which::Undecided => Box::new(outcome.undecided.iter().copied()),
        Which::Missing => Box::new(missing.iter().flatten()),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let end = [if nul && args.items.is_some() { 0 } else { b'\n' }];
    let mut written = Ok(());
    for item in items {
        written = out.write_all(&names.name(item)).and_then(|()| out.write_all(&end));
        if written.is_err() {
            break;
        }
    }
    match written.and_then(|()| out.flush()) {
        // Whoever reads may stop reading.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(holdall_commands::cannot_write("the result", error))
        }
        _ => Ok(()),
    }
}

fn table(status: &Status) -> anyhow::Result<()> {
    let mut table = Table::new();
    let header =
        ["worker", "state", "waiting", "running", "done", "failed", "undecided", "holds up"];
    table.load_style(presets::NOTHING).set_header(header);
    for row in status.at.iter().filter(|row| row.state != NOT_BEGUN) {
        let pid = row.pid.map_or(String::new(), |pid| format!(" ({pid})"));
        table.add_row([
            row.worker.to_string(),
            format!("{}{pid}", row.state),
            row.waiting.to_string(),
            row.running.to_string(),
            row.done.to_string(),
            row.failed.to_string(),
            row.undecided.to_string(),
            row.pins.map_or_else(|| "-".into(), |(start, end)| format!("{start} to {}", end - 1)),
        ]);
    }
    let Status { items, done, failed, undecided, .. } = status;
    print(&format!(
        "{table}\n{done} of {items} done, {failed} of them failed, {undecided} undecided"
    ))
}

fn look(store: &Store, journals: &Journals, outcome: &Outcome) -> anyhow::Result<Status> {
    let (positions, count) = (store.positions()?, outcome.count);
    let others = journals.all().map(|(worker, _)| worker).filter(|w| !store.has_seat(*w));
    let mut at = Vec::new();
    for worker in (0..store.terms.workers).chain(others) {
        let known = journals.of(worker).cloned().unwrap_or_default();
        let position = positions.iter().find(|at| at.worker == worker);
        let holder = claim::holder(&store.path, worker)?;
        let works = holder.is_some() && !known.retired();
        let pins = position.filter(|at| at.entering && at.items.start < count);
        let running = if works { known.running.len() } else { 0 };
        at.push(Row {
            worker,
            state: match &holder {
                _ if known.retired() => "retired",
                Some((_, State::Alive)) => "running",
                Some(_) => "elsewhere",
                None if position.is_none() && journals.of(worker).is_none() => NOT_BEGUN,
                None => "stopped",
            },
            pid: holder.map(|(process, _)| process.pid),
            waiting: if known.retired() { 0 } else { known.waiting.count_before(count) },
            running,
            done: known.ended.len(),
            failed: known.failed().count(),
            undecided: known.undecided().count() - running,
            pins: pins.map(|at| (at.items.start, at.items.end.min(count))),
        });
    }
    Ok(Status {
        schema: 2,
        workers: store.terms.workers,
        batch: store.terms.batch,
        items: count,
        done: outcome.done,
        failed: outcome.failed.len(),
        undecided: outcome.undecided.len(),
        running: outcome.running.len(),
        at,
    })
}
