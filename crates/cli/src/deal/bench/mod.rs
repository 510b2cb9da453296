//! `holdall deal bench`: assignment from plain registers beside other ways to share work, in one
//! run.

mod bakery;
mod latency;
mod suspend;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::{print, usage};

/// Measure assignment from plain registers beside other ways to share work
#[derive(clap::Args)]
pub(super) struct Args {
    /// What to measure
    #[arg(value_enum, default_value = "throughput")]
    what: What,
    /// With how many workers
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4,8,16")]
    workers: Vec<usize>,
    /// How long each measurement takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..3_600_000))]
    millis: u64,
    /// Measurements of each, of which the median is told
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Where to measure directories [default: the one for temporary files]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print one JSON object for each line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Items a second, beside fetch_add, queues, a lock and test-and-set
    Throughput,
    /// What the others obtain while one is suspended at each point of its operation
    Suspend,
    /// Items a second over a directory
    Directory,
    /// Items a second over a directory, with 2 ms added to every reading and writing of a file,
    /// beside a compare-and-swap counter that takes as long
    Latency,
}

/// What is added to every call of a slow store.
const CALL: Duration = Duration::from_millis(2);

/// A measured line.
#[derive(Serialize)]
struct Row {
    schema: u32,
    workers: usize,
    what: String,
    /// Column and value.
    values: Vec<(&'static str, String)>,
}

impl Row {
    fn new(workers: usize, what: impl Into<String>, values: Vec<(&'static str, String)>) -> Self {
        Self { schema: 1, workers, what: what.into(), values }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.workers.iter().any(|n| !(1..=64).contains(n)) {
        return Err(usage("--workers: 1 to 64 each, and at least one round"));
    }
    if matches!(args.what, What::Suspend) && args.workers.contains(&1) {
        return Err(usage("--workers 1: if the only worker is suspended, there are no others"));
    }
    let store = args.store.clone().unwrap_or_else(std::env::temp_dir);
    let directory = |workers, call| latency::measure(workers, args.millis, call, &store);
    let mut rows = Vec::new();
    for workers in args.workers.iter().copied() {
        rows.extend(match args.what {
            What::Throughput => throughput::measure(workers, args.millis, args.rounds),
            What::Suspend => suspend::measure(workers, args.millis),
            What::Directory => directory(workers, Duration::ZERO)?,
            What::Latency => directory(workers, CALL)?,
        });
    }
    if args.json {
        for row in &rows {
            print(&serde_json::to_string(row)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(first) = rows.first() {
        let names = first.values.iter().map(|(name, _)| *name);
        table.set_header(["workers", "what"].into_iter().chain(names));
    }
    for row in &rows {
        let values = row.values.iter().map(|(_, value)| value.clone());
        table.add_row([row.workers.to_string(), row.what.clone()].into_iter().chain(values));
    }
    print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}
