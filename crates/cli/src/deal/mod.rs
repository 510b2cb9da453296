//! `holdall deal`: shares a list of work among processes that have nothing in common but a
//! directory. No server, no lock, no agreement: see `docs/assignment.md`.

mod bench;
mod claim;
mod desk;
mod items;
mod journal;
mod journals;
mod live;
mod outcome;
mod probe;
mod ranges;
mod report;
mod retire;
mod runner;
mod status;
mod store;
mod wait;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// Share items among workers that have only a directory in common: no server, no lock
///
/// Each worker runs CMD once for each of its items, {} standing for the item (at the end, if there
/// is no {}). Start the workers anywhere the directory is; one that is killed goes on when started
/// again under the same number. Every item is started at most once: an item that was started and
/// not recorded as finished when its worker was killed may or may not have been done, so it is
/// reported and skipped, unless --retry-started. A worker that has nothing left to do gets items
/// from those who have. SIGTERM or Ctrl-C lets the running commands finish; again, it ends them.
///
/// Exit status, of this worker in all its lives: 0 if its items were run and CMD succeeded, 1 if
/// CMD failed for some, 75 if items are left (skipped, waiting for this worker, held by one that
/// is not running), 126 or 127 if CMD cannot be run, 70 if an item is in two journals, 64 on bad
/// input. `holdall deal wait` tells of all workers together.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  holdall deal --store /tmp/d --worker 0 --of 3 --count 100 -- ./job.sh {}
  holdall deal --store /tmp/d --worker 1 --of 3 --items list.txt --batch 10 -- gzip {}
  holdall deal wait --store /tmp/d
  holdall deal status --store /tmp/d --list failed
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
    /// How many workers there are, at most 64 at the beginning; later ones may say more
    #[arg(long, value_name = "N", required = true)]
    of: Option<usize>,
    /// A file with one item a line; the same for all, and more may be appended
    #[arg(long, value_name = "FILE", conflicts_with = "count", required_unless_present = "count")]
    items: Option<PathBuf>,
    /// The items in the file end with a NUL, not with a line end
    #[arg(short = '0', long, requires = "items")]
    null: bool,
    /// Wait for items to be appended, until stopped by a signal
    #[arg(long, requires = "items")]
    follow: bool,
    /// The items are the numbers 0 to M-1; may grow
    #[arg(long, value_name = "M")]
    count: Option<u64>,
    /// How many items to take at a time; the same for all
    #[arg(long, value_name = "B", default_value_t = 1)]
    batch: u64,
    /// How many commands to run at a time
    #[arg(short, long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// End a command after so many seconds: the item has failed, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    timeout: Option<u64>,
    /// Run items again that were started and not recorded as finished
    #[arg(long)]
    retry_started: bool,
    /// Run items of this worker again that failed
    #[arg(long)]
    retry_failed: bool,
    /// Use a network file system: you know that its reads are fresh (see `holdall deal probe`)
    #[arg(long)]
    store_is_fresh: bool,
    /// Sync every write: the store survives a power failure; the same for all
    #[arg(long)]
    sync: bool,
    /// Go on under this number although a process elsewhere had it: you know that it is gone
    #[arg(long)]
    take_over: bool,
    /// Give up after so many seconds on items held up by a worker that may be dead, and on being
    /// given items
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(..1 << 32))]
    patience: u64,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Args),
    Probe(probe::Args),
    Retire(retire::Args),
    Status(status::Args),
    Wait(wait::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        None => work::run(args.work),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Probe(args)) => probe::run(&args),
        Some(Command::Retire(args)) => retire::run(&args),
        Some(Command::Status(args)) => status::run(&args),
        Some(Command::Wait(args)) => wait::run(&args),
    }
}
