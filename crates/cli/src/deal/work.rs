//! A worker at work: takes items, runs the command, goes on where it was killed.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use holdall_assign::registers::{DirRegisters, Memory};
use holdall_assign::windows::Worker;

use super::claim::{self, Claim, State};
use super::items::Items;
use super::journal::{self, Journal};
use super::report::{Event, Reporter};
use super::store::{Store, Terms, check_fresh, tell};
use super::{Work, retire};
use crate::usage;

/// `EX_TEMPFAIL` of sysexits.h: items are left that somebody else holds.
pub(super) const LEFT: u8 = 75;

/// Who holds up which items.
type Delays = Vec<(usize, Range<u64>)>;

pub(super) fn run(args: Work) -> anyhow::Result<ExitCode> {
    let (Some(path), Some(id), Some(of)) = (args.store, args.worker, args.of) else {
        return Err(usage("--store, --worker and --of are needed"));
    };
    let items = Items::of(args.items.as_deref(), args.count)?;
    let (count, fingerprint) = (items.count(), items.fingerprint());
    check_fresh(&path, args.store_is_fresh)?;
    if id >= of {
        return Err(usage(format!(
            "--worker {id}: with --of {of} they are 0 to {}",
            of.max(1) - 1
        )));
    }
    let terms = Terms { workers: of, batch: args.batch, count, fingerprint };
    let store = Store::make(&path, terms)?;
    let claim = Claim::make(&store.path, id, args.take_over)?;
    let mut dealer = Dealer {
        desk: Desk::open(&store, id, args.sync)?,
        items,
        command: args.command,
        todo: VecDeque::new(),
        seen: BTreeSet::new(),
        tally: Tally::default(),
        reporter: Reporter::new(id, args.json),
        patience: Duration::from_secs(args.patience),
    };
    if dealer.desk.journal.known.retired {
        return Err(usage(format!("worker {id} is retired: its items went to others")));
    }
    dealer.resume(args.retry_started)?;
    let done = dealer.run();
    dealer.reporter.end();
    drop(claim);
    done
}

/// A worker's registers and journal.
pub(super) struct Desk {
    pub(super) store: Store,
    pub(super) id: usize,
    pub(super) worker: Worker<DirRegisters>,
    pub(super) journal: Journal,
}

impl Desk {
    pub(super) fn open(store: &Store, id: usize, sync: bool) -> anyhow::Result<Self> {
        let dir = store.dir(sync);
        dir.declare(id).map_err(tell)?;
        // Of two that begin a store on different terms, at least one sees the other's file.
        store.agree()?;
        let journal = Journal::open(&store.path, id, sync)?;
        let regs = dir.handle(id).map_err(tell)?;
        let worker = Worker::resume(store.layout, id, regs).map_err(tell)?;
        let mut desk = Self { store: store.clone(), id, worker, journal };
        // What was won and not noted when the worker was killed: the journal is written before
        // anything is started, so it cannot have been.
        let mut won = Vec::new();
        desk.worker.doubtful(&mut won);
        desk.note(won)?;
        desk.learn()?;
        Ok(desk)
    }

    /// Takes items, unless all have been dealt; says which are new.
    pub(super) fn acquire(&mut self) -> anyhow::Result<Vec<Range<u64>>> {
        let mut won = Vec::new();
        self.worker.acquire(&mut won).map_err(tell)?;
        self.note(won)
    }

    /// Learns of items won earlier.
    pub(super) fn learn(&mut self) -> anyhow::Result<Vec<Range<u64>>> {
        let mut won = Vec::new();
        self.worker.learn(&mut won).map_err(tell)?;
        self.note(won)
    }

    /// Notes items in the journal, those beyond the end and those noted before left out.
    fn note(&mut self, won: Vec<Range<u64>>) -> anyhow::Result<Vec<Range<u64>>> {
        let count = self.store.terms.count;
        let mut new = Vec::new();
        for range in won {
            let range = range.start..range.end.min(count);
            if range.start < range.end && !self.journal.known.taken.contains(&range.start) {
                self.journal.take(&range)?;
                new.push(range);
            }
        }
        Ok(new)
    }

    /// Whether this worker's own last window lies beyond the end.
    pub(super) fn past_the_end(&self) -> bool {
        self.worker.entered().is_some_and(|items| items.start >= self.store.terms.count)
    }

    /// Who holds up items that may be this worker's.
    pub(super) fn delays(&self) -> Delays {
        let count = self.store.terms.count;
        let mut delays = self.worker.delayed();
        delays.retain(|(_, items)| items.start < count);
        delays.iter_mut().for_each(|(_, items)| items.end = items.end.min(count));
        delays
    }
}

#[derive(Default)]
struct Tally {
    run: u64,
    failed: u64,
    skipped: u64,
}

struct Dealer {
    desk: Desk,
    items: Items,
    command: Vec<String>,
    todo: VecDeque<u64>,
    /// Items already queued, run or skipped in this life.
    seen: BTreeSet<u64>,
    tally: Tally,
    reporter: Reporter,
    patience: Duration,
}

impl Dealer {
    /// What an earlier life left: items never started, and items that may be done.
    fn resume(&mut self, retry_started: bool) -> anyhow::Result<()> {
        let undecided: Vec<_> = self.desk.journal.known.undecided().collect();
        for item in undecided {
            self.seen.insert(item);
            if retry_started {
                self.todo.push_back(item);
                continue;
            }
            self.tally.skipped += 1;
            self.reporter.event(Event::Skipped { item })?;
            let name = self.items.name(item);
            self.reporter.say(&format!(
                "item {item} ({name}) was started before and may be done: skipped \
                 (--retry-started runs it again)"
            ));
        }
        self.queue()
    }

    /// Queues every item of the journal that was never started.
    fn queue(&mut self) -> anyhow::Result<()> {
        let waiting: Vec<_> = self.desk.journal.known.waiting().collect();
        for item in waiting {
            if self.seen.insert(item) {
                self.todo.push_back(item);
                self.reporter.event(Event::Taken { start: item, end: item + 1 })?;
            }
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<ExitCode> {
        let mut waiting: Option<(Instant, Delays)> = None;
        loop {
            while let Some(item) = self.todo.pop_front() {
                self.run_item(item)?;
                waiting = None;
            }
            if self.desk.past_the_end() {
                self.desk.learn()?;
                self.inherit()?;
            } else {
                self.desk.acquire()?;
            }
            self.queue()?;
            if !self.todo.is_empty() || !self.desk.past_the_end() {
                continue;
            }
            let delays = self.desk.delays();
            if delays.is_empty() {
                return self.finish(0);
            }
            let since = match &waiting {
                Some((since, before)) if *before == delays => *since,
                _ => self.delayed(&delays)?,
            };
            if self.hopeless(&delays, since)? {
                let left: u64 = delays.iter().map(|(_, items)| items.end - items.start).sum();
                return self.finish(left);
            }
            waiting = Some((since, delays));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn delayed(&self, delays: &[(usize, Range<u64>)]) -> anyhow::Result<Instant> {
        for (by, items) in delays {
            let (start, end) = (items.start, items.end);
            self.reporter.event(Event::Delayed { by: *by, start, end })?;
            let last = end - 1;
            self.reporter.show(format!("items {start} to {last} are delayed by worker {by}"));
        }
        Ok(Instant::now())
    }

    /// Whether all who delay are gone, or may be and had time enough.
    fn hopeless(&self, delays: &[(usize, Range<u64>)], since: Instant) -> anyhow::Result<bool> {
        for (by, _) in delays {
            match claim::holder(&self.desk.store.path, *by)? {
                Some((_, State::Alive)) => return Ok(false),
                Some(_) if since.elapsed() < self.patience => return Ok(false),
                _ => {}
            }
        }
        // A dead one may be started again at once: do not leave in the same breath.
        Ok(since.elapsed() >= self.patience.min(Duration::from_secs(1)))
    }

    /// Takes what retired workers left to this one.
    fn inherit(&mut self) -> anyhow::Result<()> {
        for from in (0..self.desk.store.terms.workers).filter(|from| *from != self.desk.id) {
            let willed = journal::read(&self.desk.store.path, from)?.willed;
            for (item, _) in willed.iter().filter(|(_, heir)| **heir == self.desk.id) {
                if !self.desk.journal.known.taken.contains(item) {
                    self.desk.journal.take(&(*item..item + 1))?;
                }
            }
        }
        Ok(())
    }

    fn run_item(&mut self, item: u64) -> anyhow::Result<()> {
        let name = self.items.name(item);
        self.reporter.show(format!(
            "{} run, {} waiting, now {name}",
            self.tally.run,
            self.todo.len()
        ));
        let mut args: Vec<_> = self.command.iter().map(|arg| arg.replace("{}", &name)).collect();
        if !self.command.iter().any(|arg| arg.contains("{}")) {
            args.push(name.clone());
        }
        self.desk.journal.start(item)?;
        self.reporter.event(Event::Started { item })?;
        let ended = Command::new(&args[0])
            .args(&args[1..])
            .env("HOLDALL_ITEM", &name)
            .env("HOLDALL_WORKER", self.desk.id.to_string())
            .status();
        let status = match ended {
            Ok(status) => shell_status(status),
            Err(error) => {
                self.reporter.say(&format!("{}: {error}", args[0]));
                if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
            }
        };
        self.desk.journal.end(item, status)?;
        self.tally.run += 1;
        self.tally.failed += u64::from(status != 0);
        if status != 0 {
            self.reporter.say(&format!("item {item} ({name}) failed: status {status}"));
        }
        self.reporter.event(Event::Finished { item, status })
    }

    fn finish(&self, left: u64) -> anyhow::Result<ExitCode> {
        let Tally { run, failed, skipped } = self.tally;
        self.reporter.event(Event::Done { run, failed, skipped, left })?;
        let mut by: Vec<_> = self.desk.delays().iter().map(|(by, _)| by.to_string()).collect();
        by.dedup();
        if left > 0 {
            let store = self.desk.store.path.display();
            self.reporter.say(&format!(
                "up to {left} items are held up by worker {}, which is not running: start it \
                 again, or, if it is gone for good, `holdall deal retire --store {store} --worker {}`, \
                 then run this worker again",
                by.join(", "),
                by[0]
            ));
        }
        let state = retire::overview(&self.desk.store)?;
        self.reporter.say(&format!(
            "{run} run, {failed} failed, {skipped} skipped; in all {} of {} done",
            state.done, self.desk.store.terms.count
        ));
        Ok(ExitCode::from(match (left, failed) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => LEFT,
        }))
    }
}

/// As sh says it: 128+n if a signal ended the command.
fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
