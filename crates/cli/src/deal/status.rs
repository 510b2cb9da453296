//! `holdall deal status`: where each worker is, what is held up and by whom.

use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde::Serialize;

use super::claim::{self, State};
use super::journal;
use super::store::Store;
use crate::print;

/// Show each worker's position, what is held up and by whom
#[derive(clap::Args)]
pub(super) struct Args {
    /// The directory shared by all workers
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Status {
    schema: u32,
    workers: usize,
    batch: u64,
    items: u64,
    done: usize,
    failed: usize,
    at: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    worker: usize,
    state: &'static str,
    pid: Option<u32>,
    /// Its items: all, done, started and not recorded as finished.
    taken: usize,
    done: usize,
    undecided: usize,
    /// It is in the middle of taking: unassigned items from here to there wait for it.
    pins: Option<(u64, u64)>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = Store::find(&args.store)?;
    let status = look(&store)?;
    if args.json {
        print(&serde_json::to_string(&status)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    let header = ["worker", "state", "items", "done", "undecided", "holds up"];
    table.load_style(presets::NOTHING).set_header(header);
    for row in &status.at {
        let pid = row.pid.map_or(String::new(), |pid| format!(" ({pid})"));
        table.add_row([
            row.worker.to_string(),
            format!("{}{pid}", row.state),
            row.taken.to_string(),
            row.done.to_string(),
            row.undecided.to_string(),
            row.pins.map_or_else(|| "-".into(), |(start, end)| format!("{start} to {}", end - 1)),
        ]);
    }
    let Status { items, done, failed, .. } = status;
    print(&format!("{table}\n{done} of {items} done, {failed} of them failed"))?;
    Ok(ExitCode::SUCCESS)
}

fn look(store: &Store) -> anyhow::Result<Status> {
    let positions = store.positions()?;
    let terms = store.terms;
    let (mut at, mut done, mut failed) = (Vec::new(), 0, 0);
    for worker in 0..terms.workers {
        let known = journal::read(&store.path, worker)?;
        done += known.ended.len();
        failed += known.ended.values().filter(|status| **status != 0).count();
        let position = positions.iter().find(|at| at.worker == worker);
        let holder = claim::holder(&store.path, worker)?;
        let pins = position.filter(|at| at.entering && at.items.start < terms.count);
        at.push(Row {
            worker,
            state: match &holder {
                _ if known.retired() => "retired",
                Some((_, State::Alive)) => "running",
                Some(_) => "elsewhere",
                None if position.is_none() && known.taken.is_empty() => "not begun",
                None => "stopped",
            },
            pid: holder.map(|(process, _)| process.pid),
            taken: known.taken.len() - known.estate().count(),
            done: known.ended.len(),
            undecided: known.skipped().count(),
            pins: pins.map(|at| (at.items.start, at.items.end.min(terms.count))),
        });
    }
    let (workers, batch, items) = (terms.workers, terms.batch, terms.count);
    Ok(Status { schema: 1, workers, batch, items, done, failed, at })
}
