//! `holdall deal retire`: hands on what a dead worker leaves.
//!
//! Only one process may act under a number. The operator says that the old one is gone; this one
//! takes its place, settles its registers, learns what is its own, and leaves what was never
//! started to the others: a line for each item in the retired worker's journal, which the heir
//! reads. Nothing is given to two.

use std::path::PathBuf;
use std::process::ExitCode;

use super::claim::Claim;
use super::journal;
use super::store::{Store, workers};
use super::work::{Desk, LEFT};
use crate::{print, usage};

/// Hand the unfinished items of a worker that is dead to the others
///
/// You are the failure detector: retire a worker only if you KNOW that it is dead and will not
/// come back. If it still runs, items may be run twice. Its items go to the other workers in turn;
/// start those again if they have stopped. Items it had started are not handed on, because they
/// may be done, unless --retry-started. What it may yet own of the last windows it entered can
/// only be known after the others have gone beyond them: run this again when they have finished.
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
    let mut desk = Desk::open(&store, args.worker, false)?;
    if !desk.journal.known.retired {
        desk.journal.retire()?;
    }
    leave(&mut desk)?;
    let mut items: Vec<u64> = desk.journal.known.waiting().collect();
    let undecided: Vec<u64> = desk.journal.known.undecided().collect();
    if args.retry_started {
        items.extend(&undecided);
    }
    for (item, heir) in items.iter().zip(heirs.iter().cycle()) {
        desk.journal.will(*item, *heir)?;
    }
    drop(claim);
    let names: Vec<_> = heirs.iter().map(ToString::to_string).collect();
    let to = names.join(", ");
    print(&format!("worker {} is retired: {} items go to {to}", args.worker, items.len()))?;
    if !args.retry_started && !undecided.is_empty() {
        let list: Vec<_> = undecided.iter().map(ToString::to_string).collect();
        print(&format!("started and perhaps done, not handed on: {}", list.join(", ")))?;
    }
    let end = store.terms.count;
    let open = desk.worker.open().into_iter().filter(|items| items.start < end).count();
    if open > 0 {
        print(&format!(
            "items of {open} windows may yet turn out to be its own: run this again when the \
             others have finished"
        ))?;
        return Ok(ExitCode::from(LEFT));
    }
    Ok(ExitCode::SUCCESS)
}

/// Enters where the others are, if they are ahead, and so leaves its own windows behind. Not if
/// it leads: it would take items for nothing.
fn leave(desk: &mut Desk) -> anyhow::Result<()> {
    let assigner = holdall_assign::Assigner::over(desk.store.layout, desk.store.dir(false));
    let positions = assigner.positions().map_err(super::store::tell)?;
    let newest = positions.iter().filter(|at| !at.entering && at.worker != desk.id);
    let newest = newest.map(|at| at.items.start).max();
    let ahead = newest.is_some() && newest > desk.worker.entered().map(|items| items.start);
    if ahead && !desk.past_the_end() {
        desk.acquire()?;
    }
    desk.learn()?;
    Ok(())
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
        if !journal::read(&store.path, heir)?.retired {
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

/// How far all are together.
pub(super) struct Overview {
    pub(super) done: usize,
}

pub(super) fn overview(store: &Store) -> anyhow::Result<Overview> {
    let mut done = 0;
    for worker in workers(&store.path)? {
        done += journal::read(&store.path, worker)?.ended.len();
    }
    Ok(Overview { done })
}
