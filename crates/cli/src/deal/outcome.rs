//! How far the items of a store are, and what that is as an exit status.

use std::process::ExitCode;

use super::claim;
use super::journal::Known;
use super::journals::Journals;
use super::ranges::Ranges;
use super::store::Store;
use crate::failure::Failure;

/// A command failed for some items.
pub(super) const FAILED: u8 = 1;
/// `EX_SOFTWARE` of sysexits.h: items may have been run twice.
const ALARM: u8 = 70;
/// `EX_TEMPFAIL`: items are left that nobody who runs will do.
pub(super) const LEFT: u8 = 75;

/// What should be impossible was seen.
pub(super) fn alarm(what: &str) -> anyhow::Error {
    let why = "stop all workers: either the reads of this store are not fresh (`holdall deal probe \
               --help`) or two processes work under one number, and items may be run twice";
    Failure(ALARM, format!("ALARM: {what}; {why}")).into()
}

/// Every item of a store, by what is known of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) count: u64,
    pub(super) done: u64,
    pub(super) failed: Vec<u64>,
    pub(super) running: Vec<u64>,
    /// Started and not recorded as finished, by a process that is gone.
    pub(super) undecided: Vec<u64>,
    /// Items that wait for a worker that is not running, by worker.
    pub(super) stranded: Vec<(usize, u64)>,
    /// Workers that have begun and are not running, and items that may be theirs without any
    /// journal saying so.
    pub(super) stopped: Vec<usize>,
    pub(super) undealt: u64,
    /// Retired workers whose items fall to nobody.
    pub(super) heirless: Vec<usize>,
    /// Whether any worker is running, or may be.
    pub(super) anybody: bool,
    /// Items of which anything was recorded: done, running or undecided.
    recorded: Ranges,
}

impl Outcome {
    pub(super) fn of(store: &Store, journals: &Journals) -> anyhow::Result<Self> {
        let count = journals.count();
        let (heirless, undealt) = (journals.heirless(), journals.undealt());
        let mut outcome = Self { count, heirless, undealt, ..Self::default() };
        let runs = |worker| anyhow::Ok(claim::holder(&store.path, worker)?.is_some());
        for (worker, known) in journals.all() {
            let works = runs(worker)? && !known.retired();
            outcome.anybody |= works;
            outcome.add(known, works);
            if works || known.retired() {
                continue;
            }
            outcome.stopped.push(worker);
            let gifts = journals.gifts_to(worker);
            let gifts: u64 = gifts.iter().map(|(items, _)| items.end - items.start).sum();
            let waiting = known.waiting.count_before(count) + gifts;
            if waiting > 0 {
                outcome.stranded.push((worker, waiting));
            }
        }
        for (worker, _) in journals.all().filter(|(_, known)| known.retired()) {
            for item in journals.estate(worker).before(count).flatten() {
                match journals.heir(worker, Some(item)) {
                    Some(heir) if !runs(heir)? => outcome.strand(heir),
                    _ => {}
                }
            }
        }
        outcome.undecided.sort_unstable();
        outcome.failed.sort_unstable();
        Ok(outcome)
    }

    fn add(&mut self, known: &Known, works: bool) {
        self.done += known.ended.len() as u64;
        self.failed.extend(known.failed());
        self.undecided.extend(&known.interrupted);
        if works { &mut self.running } else { &mut self.undecided }.extend(&known.running);
        let recorded = known.ended.keys().copied().chain(known.undecided());
        recorded.for_each(|item| self.recorded.insert(&(item..item + 1)));
    }

    fn strand(&mut self, worker: usize) {
        match self.stranded.iter_mut().find(|(other, _)| *other == worker) {
            Some((_, items)) => *items += 1,
            None => self.stranded.push((worker, 1)),
        }
    }

    /// Items that were never started.
    pub(super) fn missing(&self) -> Ranges {
        let mut missing = Ranges::default();
        missing.insert(&(0..self.count));
        self.recorded.iter().for_each(|items| missing.remove(&items));
        missing
    }

    /// Items that workers which are not running may have, although no journal says so.
    pub(super) fn unclaimed(&self) -> u64 {
        if self.stopped.is_empty() { 0 } else { self.undealt }
    }

    /// Whether every item was run to its end.
    pub(super) fn complete(&self) -> bool {
        self.done == self.count
    }

    pub(super) fn status(&self) -> u8 {
        match (self.complete(), self.failed.is_empty()) {
            (false, _) => LEFT,
            (true, false) => FAILED,
            (true, true) => 0,
        }
    }

    pub(super) fn exit(&self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// What is to be done about items that nobody who runs will do, a line each.
    pub(super) fn remedies(&self, store: &Store) -> Vec<String> {
        let path = store.path.display();
        let mut told = Vec::new();
        for (worker, items) in &self.stranded {
            told.push(format!(
                "{items} items wait for worker {worker}, which is not running: start it again, \
                 or, if it is gone for good, `holdall deal retire --store {path} --worker {worker}`"
            ));
        }
        if self.unclaimed() > 0 {
            let stopped: Vec<_> = self.stopped.iter().map(ToString::to_string).collect();
            let (items, stopped) = (self.undealt, stopped.join(", "));
            told.push(format!(
                "up to {items} items more may be those of worker {stopped}, not running: start \
                 them again, or retire who is gone for good"
            ));
        }
        for worker in self.heirless.iter().filter(|_| !self.complete()) {
            told.push(format!(
                "worker {worker} is retired and so are all who were to get its items: `holdall \
                 deal retire --store {path} --worker {worker} --to J`, J being a worker that runs"
            ));
        }
        told
    }
}
