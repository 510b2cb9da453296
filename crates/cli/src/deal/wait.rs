//! `holdall deal wait`: until all items are done.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use super::journals::Journals;
use super::outcome::Outcome;
use super::store::Store;
use crate::print;

/// How often the journals are looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// Wait until all items are done, or nobody is left who would do them
///
/// Exit status: 0 if all items were run and succeeded, 1 if all were run and some failed, 75 if
/// items are left that nobody is running for, 70 if an item is in two journals.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The directory shared by all workers
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Give up after so many seconds in which no worker ran and nothing happened
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    patience: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (store, patience) = (Store::find(&args.store)?, Duration::from_secs(args.patience));
    let (mut journals, mut since) = (Journals::read(&store.path)?, Instant::now());
    loop {
        journals.check()?;
        let outcome = Outcome::of(&store, &journals)?;
        if outcome.complete() || since.elapsed() >= patience {
            for remedy in outcome.remedies(&store) {
                print(&remedy)?;
            }
            let Outcome { done, count, failed, undecided, .. } = &outcome;
            print(&format!(
                "{done} of {count} done, {} of them failed, {} undecided",
                failed.len(),
                undecided.len()
            ))?;
            return Ok(outcome.exit());
        }
        thread::sleep(PAUSE);
        if journals.refresh()? || outcome.anybody {
            since = Instant::now();
        }
    }
}
