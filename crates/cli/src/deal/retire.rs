//! `holdall deal retire`: hands on what a dead worker leaves.
//!
//! Only one process may act under a number. The operator says that the old one is gone; this one
//! takes its place for a moment: it settles its registers, so that it holds nobody up, notes what
//! is known to be its own, and says in its journal who gets what it leaves. That is all: nothing
//! is written under the number again, and the heirs [help themselves](super::estate).

use std::path::PathBuf;
use std::process::ExitCode;

use super::claim::{self, Claim};
use super::journal::{self, Journal, Known};
use super::store::{Store, workers};
use super::work::Desk;
use crate::{print, usage};

/// Hand the unfinished items of a worker that is dead to the others
///
/// You are the failure detector: retire a worker only if you KNOW that it is dead and will not
/// come back. If it still runs, items may be run twice. Its items go to the other workers in turn,
/// who run them when nothing else is left; start those again that have stopped. Items it had
/// started are not handed on, because they may be done, unless --retry-started (also later, for a
/// worker that is retired already).
#[derive(clap::Args)]
pub(super) struct Args {
    /// The directory shared by all workers
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The worker that is dead
    #[arg(long, value_name = "I")]
    worker: usize,
    /// The workers that get its items [default: all others that have begun and are not retired]
    #[arg(long, value_name = "J,...", value_delimiter = ',')]
    to: Vec<usize>,
    /// Hand on items as well that were started and not recorded as finished
    #[arg(long)]
    retry_started: bool,
    /// A process elsewhere had this number: you know that it is gone
    #[arg(long)]
    take_over: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = Store::find(&args.store)?;
    store.check_worker(args.worker)?;
    let heirs = heirs(&store, args)?;
    let claim = Claim::make(&store.path, args.worker, args.take_over)?;
    let mut journal = if journal::read(&store.path, args.worker)?.retired() {
        if !args.retry_started {
            return Err(usage(format!("worker {} is retired already", args.worker)));
        }
        Journal::open(&store.path, args.worker, false)?
    } else {
        let mut journal = Desk::open(&store, args.worker, false)?.journal;
        journal.retire(&heirs)?;
        journal
    };
    if args.retry_started && journal.known.skipped().next().is_some() {
        journal.retry(&heirs)?;
    }
    drop(claim);
    tell(&store, args.worker, &journal.known, &heirs)?;
    Ok(ExitCode::SUCCESS)
}

/// Says what goes where, and what is left to do.
fn tell(store: &Store, worker: usize, known: &Known, heirs: &[usize]) -> anyhow::Result<()> {
    let items = known.estate().count();
    print(&format!("worker {worker} is retired: {items} items go to {}", list(heirs)))?;
    let skipped: Vec<_> = known.skipped().collect();
    if !skipped.is_empty() {
        print(&format!("started and perhaps done, not handed on: {}", list(&skipped)))?;
    }
    let mut stopped = Vec::new();
    for heir in heirs {
        if claim::holder(&store.path, *heir)?.is_none() {
            stopped.push(*heir);
        }
    }
    if !stopped.is_empty() {
        print(&format!("not running, start again: {}", list(&stopped)))?;
    }
    Ok(())
}

fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn heirs(store: &Store, args: &Args) -> anyhow::Result<Vec<usize>> {
    let mut heirs = args.to.clone();
    if heirs.is_empty() {
        heirs = workers(&store.path)?;
        heirs.retain(|heir| *heir != args.worker);
    }
    let mut left = Vec::new();
    for heir in heirs {
        store.check_worker(heir)?;
        if heir == args.worker {
            return Err(usage(format!("--to {heir}: that is the one to retire")));
        }
        if !journal::read(&store.path, heir)?.retired() {
            left.push(heir);
        } else if args.to.contains(&heir) {
            return Err(usage(format!("--to {heir}: worker {heir} is retired itself")));
        }
    }
    if left.is_empty() {
        return Err(usage("nobody is left to hand the items to: start another worker first"));
    }
    Ok(left)
}
