//! `holdall deal retire`: hands on what a dead worker leaves.
//!
//! Only one process may act under a number. The operator says that the old one is gone; this one
//! takes its place for a moment: it settles its registers, so that it holds nobody up, notes what
//! is known to be its own, and says in its journal who gets what it leaves. That is all: nothing
//! else is written under the number again, and the heirs [help themselves](super::journals).

use std::path::PathBuf;
use std::process::ExitCode;

use super::claim::{self, Claim};
use super::desk::Desk;
use super::journal::{Journal, Known, Line};
use super::journals::Journals;
use super::outcome::LEFT;
use super::store::Store;
use crate::{print, usage};

/// Hand the unfinished items of a worker that is dead to the others
///
/// You are the failure detector: retire a worker only if you KNOW that it is dead and will not
/// come back. If it still runs, items may be run twice. Its items go to the other workers in turn,
/// who run them when nothing else is left; start those again that have stopped. Items it had
/// started are not handed on, because they may be done, unless --retry-started; items that failed
/// are not, unless --retry-failed (both also later, for a worker that is retired already).
///
/// Exit status: 0, or 75 if all who were to get the items have been retired at the same moment:
/// then name another one with --to.
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
    /// Hand on items as well that were run and failed
    #[arg(long)]
    retry_failed: bool,
    /// A process elsewhere had this number: you know that it is gone
    #[arg(long)]
    take_over: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = Store::find(&args.store)?;
    store.check_begun(args.worker)?;
    let journals = Journals::read(&store.path)?;
    let was_retired = journals.of(args.worker).is_some_and(Known::retired);
    let heirless = journals.heirless().contains(&args.worker);
    if was_retired && !heirless && !args.retry_started && !args.retry_failed {
        return Err(usage(format!("worker {} is retired already", args.worker)));
    }
    let heirs = heirs(&store, &journals, args)?;
    let claim = Claim::make(&store.path, args.worker, args.take_over)?;
    let mut journal = if was_retired {
        Journal::open(&store.path, args.worker, store.terms.sync)?
    } else {
        Desk::open(&store, args.worker)?.journal
    };
    if !was_retired || heirless {
        journal.write(&Line::Retired(heirs.clone()))?;
    }
    retry(&mut journal, &heirs, args)?;
    drop(claim);
    // Those who were to get the items may have been retired at the same moment; of two that are,
    // at least one sees that here.
    let journals = Journals::read(&store.path)?;
    tell(&store, &journals, &journal, args.worker, &heirs)?;
    if journals.heirless().contains(&args.worker) {
        print("but all of these are retired as well: start another worker, and name it with --to")?;
        return Ok(ExitCode::from(LEFT));
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands on what is to be run again.
fn retry(journal: &mut Journal, heirs: &[usize], args: &Args) -> anyhow::Result<()> {
    let mut again = Vec::new();
    if args.retry_started {
        again.extend(journal.known.undecided());
    }
    if args.retry_failed {
        again.extend(journal.known.failed());
    }
    for item in again {
        let to = heirs[item as usize % heirs.len()];
        journal.write(&Line::Give(item..item + 1, to))?;
    }
    Ok(())
}

/// Says what goes where, and what is left to do.
fn tell(
    store: &Store,
    journals: &Journals,
    journal: &Journal,
    worker: usize,
    heirs: &[usize],
) -> anyhow::Result<()> {
    let given: u64 = journal.known.given.values().map(|given| given.count_before(u64::MAX)).sum();
    let items = journals.estate(worker).count_before(journals.count()) + given;
    print(&format!("worker {worker} is retired: {items} items go to {}", list(heirs)))?;
    let undecided: Vec<_> = journal.known.undecided().collect();
    if !undecided.is_empty() {
        print(&format!("started and perhaps done, not handed on: {}", list(&undecided)))?;
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

fn heirs(store: &Store, journals: &Journals, args: &Args) -> anyhow::Result<Vec<usize>> {
    let retired = |worker| journals.of(worker).is_some_and(Known::retired);
    for heir in &args.to {
        if !store.has_seat(*heir) {
            store.check_begun(*heir)?;
        }
        if *heir == args.worker {
            return Err(usage(format!("--to {heir}: that is the one to retire")));
        }
        if retired(*heir) {
            return Err(usage(format!("--to {heir}: worker {heir} is retired itself")));
        }
    }
    if !args.to.is_empty() {
        return Ok(args.to.clone());
    }
    let begun = journals.all().map(|(worker, _)| worker);
    let heirs: Vec<_> = begun.filter(|heir| *heir != args.worker && !retired(*heir)).collect();
    if heirs.is_empty() {
        return Err(usage("nobody is left to hand the items to: start another worker first"));
    }
    Ok(heirs)
}
