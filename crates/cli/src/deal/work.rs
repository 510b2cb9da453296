//! A worker at work: takes items, runs the command, goes on where it was killed.

use std::collections::{BTreeSet, VecDeque};
use std::mem::take;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use holdall_assign::Worker;
use holdall_assign::registers::{DirRegisters, Memory, Registers};

use super::Work;
use super::claim::{self, Claim, State};
use super::estate::Estate;
use super::items::Items;
use super::journal::{self, Journal};
use super::live::Now;
use super::report::{Event, Reporter};
use super::store::{Store, Terms, check_fresh, tell};
use crate::usage;

/// `EX_TEMPFAIL` of sysexits.h: items are left that somebody else holds.
const LEFT: u8 = 75;

/// Who holds up which items.
pub(super) type Delays = Vec<(usize, Range<u64>)>;

/// The part of some items that is before the end.
pub(super) fn clip(items: Range<u64>, store: &Store) -> Option<Range<u64>> {
    let items = items.start..items.end.min(store.terms.count);
    (items.start < items.end).then_some(items)
}

/// Who holds up items that may be a worker's: because it may have entered their window, or because
/// it may give its own away.
pub(super) fn delays<R: Registers>(worker: &Worker<R>, store: &Store) -> anyhow::Result<Delays> {
    let (mut delays, expects) = (worker.delayed(), worker.expects());
    if !expects.is_empty() {
        let mut positions = store.positions()?;
        positions.retain(|at| at.entering && expects.contains(&at.worker));
        delays.extend(positions.into_iter().map(|at| (at.worker, at.items)));
    }
    let clipped = delays.into_iter().filter_map(|(by, items)| Some((by, clip(items, store)?)));
    Ok(clipped.collect())
}

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
    // Before anything is written: what it leaves must stay as it is.
    if journal::read(&store.path, id)?.retired() {
        return Err(usage(format!("worker {id} is retired: its items went to others")));
    }
    let mut dealer = Dealer {
        desk: Desk::open(&store, id, args.sync)?,
        items,
        command: args.command,
        todo: VecDeque::new(),
        tally: Tally::default(),
        reporter: Reporter::new(id, args.json, &store),
        delays: Vec::new(),
        patience: Duration::from_secs(args.patience),
    };
    dealer.resume(args.retry_started)?;
    let done = dealer.run();
    drop(claim);
    done
}

/// A worker's registers and journal.
pub(super) struct Desk {
    pub(super) store: Store,
    pub(super) id: usize,
    pub(super) worker: Worker<DirRegisters>,
    pub(super) journal: Journal,
    /// Items noted and not yet queued.
    fresh: Vec<Range<u64>>,
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
        let mut desk = Self { store: store.clone(), id, worker, journal, fresh: Vec::new() };
        let mut won = Vec::new();
        desk.worker.stock(&mut won);
        desk.note(won)?;
        Ok(desk)
    }

    /// Takes items.
    fn acquire(&mut self) -> anyhow::Result<()> {
        let mut won = Vec::new();
        self.worker.acquire(&mut won).map_err(tell)?;
        self.note(won)
    }

    /// Learns of items won earlier.
    fn learn(&mut self) -> anyhow::Result<()> {
        let mut won = Vec::new();
        self.worker.learn(&mut won).map_err(tell)?;
        self.note(won)
    }

    /// Notes items in the journal, those beyond the end and those noted before left out.
    ///
    /// Among them those that were won when the worker was killed, if they are not noted: the
    /// journal is written before anything is started, so they cannot have been.
    fn note(&mut self, mut won: Vec<Range<u64>>) -> anyhow::Result<()> {
        self.worker.doubtful(&mut won);
        for range in won {
            if let Some(range) = clip(range, &self.store)
                && !self.journal.known.taken.contains(&range.start)
            {
                self.take(range)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, items: Range<u64>) -> anyhow::Result<()> {
        self.journal.take(&items)?;
        self.fresh.push(items);
        Ok(())
    }

    /// Takes what retired workers leave to this one; says who holds up that more is known.
    fn inherit(&mut self) -> anyhow::Result<Delays> {
        let estate = Estate::read(&self.store)?;
        let (found, delays) = estate.found_for(self.id, &self.store)?;
        for item in estate.left_to(self.id).into_iter().chain(found) {
            self.take(item..item + 1)?;
        }
        Ok(delays)
    }

    /// Whether this worker's own last window lies beyond the end.
    fn past_the_end(&self) -> bool {
        self.worker.entered().is_some_and(|items| items.start >= self.store.terms.count)
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
    tally: Tally,
    /// Who holds up items that may be this worker's, as of the last look.
    delays: Delays,
    reporter: Reporter,
    patience: Duration,
}

impl Dealer {
    /// What an earlier life left: items that may be done, and items never started.
    fn resume(&mut self, retry_started: bool) -> anyhow::Result<()> {
        let undecided: Vec<_> = self.desk.journal.known.undecided().collect();
        for item in undecided {
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
        self.desk.fresh = self.desk.journal.known.waiting().map(|item| item..item + 1).collect();
        self.queue()
    }

    /// Queues what is new.
    fn queue(&mut self) -> anyhow::Result<()> {
        for Range { start, end } in take(&mut self.desk.fresh) {
            self.reporter.event(Event::Taken { start, end })?;
            self.todo.extend(start..end);
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<ExitCode> {
        // Since when the same items have been held up by the same.
        let mut waiting: Option<(Instant, Delays)> = None;
        loop {
            while let Some(item) = self.todo.pop_front() {
                self.run_item(item)?;
                waiting = None;
            }
            self.look()?;
            self.queue()?;
            if !self.todo.is_empty() || !self.desk.past_the_end() {
                continue;
            }
            if self.delays.is_empty() {
                return self.finish();
            }
            let since = match &waiting {
                Some((since, before)) if *before == self.delays => *since,
                _ => self.delayed()?,
            };
            if self.hopeless(since)? {
                return self.finish();
            }
            waiting = Some((since, self.delays.clone()));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Takes items, or, once all have been dealt, learns what else is this worker's.
    fn look(&mut self) -> anyhow::Result<()> {
        if !self.desk.past_the_end() {
            self.desk.acquire()?;
        }
        self.delays = Vec::new();
        if self.desk.past_the_end() {
            self.desk.learn()?;
            self.delays = self.desk.inherit()?;
        }
        let own = delays(&self.desk.worker, &self.desk.store)?;
        let new: Vec<_> = own.into_iter().filter(|delay| !self.delays.contains(delay)).collect();
        self.delays.extend(new);
        self.show(None);
        Ok(())
    }

    fn delayed(&self) -> anyhow::Result<Instant> {
        for (by, items) in &self.delays {
            let (by, start, end) = (*by, items.start, items.end);
            self.reporter.event(Event::Delayed { by, start, end })?;
        }
        Ok(Instant::now())
    }

    fn show(&self, item: Option<String>) {
        let (run, waiting, delays) = (self.tally.run, self.todo.len(), self.delays.clone());
        self.reporter.show(Now { run, waiting, item, delays });
    }

    /// Whether all who delay are gone, or may be and had time enough.
    fn hopeless(&self, since: Instant) -> anyhow::Result<bool> {
        for (by, _) in &self.delays {
            match claim::holder(&self.desk.store.path, *by)? {
                Some((_, State::Alive)) => return Ok(false),
                Some(_) if since.elapsed() < self.patience => return Ok(false),
                _ => {}
            }
        }
        // A dead one may be started again at once: do not leave in the same breath.
        Ok(since.elapsed() >= self.patience.min(Duration::from_secs(1)))
    }

    fn run_item(&mut self, item: u64) -> anyhow::Result<()> {
        let name = self.items.name(item);
        self.show(Some(name.clone()));
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

    fn finish(&self) -> anyhow::Result<ExitCode> {
        let Tally { run, failed, skipped } = self.tally;
        let left = self.delays.iter().map(|(_, items)| items.end - items.start).sum();
        self.reporter.event(Event::Done { run, failed, skipped, left })?;
        let store = &self.desk.store;
        if let Some((first, _)) = self.delays.first() {
            let by: BTreeSet<_> = self.delays.iter().map(|(by, _)| by).collect();
            let by: Vec<_> = by.iter().map(ToString::to_string).collect();
            self.reporter.say(&format!(
                "up to {left} items are held up by worker {}, which is not running: start it \
                 again, or, if it is gone for good, `holdall deal retire --store {} --worker \
                 {first}`, then run this worker again",
                by.join(", "),
                store.path.display(),
            ));
        }
        let done = journal::Tally::new(&store.path, store.terms.workers).done();
        self.reporter.say(&format!(
            "{run} run, {failed} failed, {skipped} skipped; in all {done} of {} done",
            store.terms.count
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
