//! `holdall deal`: shares a list of work among processes that have nothing in common but a
//! directory. No server, no lock, no agreement: see `docs/assignment.md`.

mod bench;
mod claim;
mod estate;
mod items;
mod journal;
mod live;
mod probe;
mod report;
mod retire;
mod status;
mod store;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// Share items among N workers that have only a directory in common: no server, no lock
///
/// Each worker runs CMD once for each of its items, {} standing for the item (at the end, if there
/// is no {}). Start the N workers anywhere the directory is; one that is killed goes on when
/// started again under the same number. Every item is started at most once: an item that was
/// started and not recorded as finished when its worker was killed may or may not have been done,
/// so it is reported and skipped, unless --retry-started.
///
/// Exit status: 0 if all items of this worker were run and CMD succeeded, 1 if CMD failed for
/// some, 75 if items are left that a worker which is not running holds, 64 on bad input.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  holdall deal --store /tmp/d --worker 0 --of 3 --count 100 -- ./job.sh {}
  holdall deal --store /tmp/d --worker 1 --of 3 --items list.txt --batch 10 -- gzip {}
  holdall deal status --store /tmp/d
  holdall deal retire --store /tmp/d --worker 2"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    work: Work,
}

#[derive(clap::Args)]
struct Work {
    /// The directory shared by all workers; made if it is not there
    #[arg(long, value_name = "DIR", required = true)]
    store: Option<PathBuf>,
    /// Which worker this is, from 0
    #[arg(long, value_name = "I", required = true)]
    worker: Option<usize>,
    /// How many workers there are; the same for all
    #[arg(long, value_name = "N", required = true)]
    of: Option<usize>,
    /// A file with one item a line; the same for all
    #[arg(long, value_name = "FILE", conflicts_with = "count", required_unless_present = "count")]
    items: Option<PathBuf>,
    /// The items are the numbers 0 to M-1
    #[arg(long, value_name = "M")]
    count: Option<u64>,
    /// How many items to take at a time; the same for all
    #[arg(long, value_name = "B", default_value_t = 1)]
    batch: u64,
    /// Run items again that were started and not recorded as finished
    #[arg(long)]
    retry_started: bool,
    /// Use a network file system: you know that its reads are fresh (see `holdall deal probe`)
    #[arg(long)]
    store_is_fresh: bool,
    /// Sync every write: the store survives a power failure
    #[arg(long)]
    sync: bool,
    /// Go on under this number although a process elsewhere had it: you know that it is gone
    #[arg(long)]
    take_over: bool,
    /// Give up after so many seconds on items held up by a worker that may be dead
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    patience: u64,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Args),
    Probe(probe::Args),
    Retire(retire::Args),
    Status(status::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        None => work::run(args.work),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Probe(args)) => probe::run(&args),
        Some(Command::Retire(args)) => retire::run(&args),
        Some(Command::Status(args)) => status::run(&args),
    }
}
