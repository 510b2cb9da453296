//! A worker at work: takes items, runs the command, shares with the idle, goes on where it was
//! killed.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::mem::take;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::Work;
use super::claim::{self, Claim, State};
use super::desk::{Delays, Desk};
use super::items::Items;
use super::journal::{self, Line};
use super::live::Now;
use super::outcome::{FAILED, LEFT, Outcome};
use super::ranges::Ranges;
use super::report::{self, Reporter};
use super::runner::{Event, Runner, TIMED_OUT};
use super::store::{Kind, Store, Terms, check_fresh};
use crate::usage;

/// How often a worker looks whether others have nothing to do, or whether there is more for it.
const TICK: Duration = Duration::from_millis(50);
/// The largest number of a worker.
const NUMBER_MAX: usize = 9999;

pub(super) fn run(args: Work) -> anyhow::Result<ExitCode> {
    let (Some(path), Some(id), Some(of)) = (args.store, args.worker, args.of) else {
        return Err(usage("--store, --worker and --of are needed"));
    };
    let kind = match (&args.items, args.null) {
        (None, _) => Kind::Numbers,
        (Some(_), false) => Kind::Lines,
        (Some(_), true) => Kind::NulEnded,
    };
    let items = match args.items {
        Some(list) => Items::list(list, args.null, args.follow)?,
        None => Items::Numbers(args.count.unwrap_or(0)),
    };
    check_fresh(&path, args.store_is_fresh)?;
    if id >= of || id > NUMBER_MAX {
        let last = of.clamp(1, NUMBER_MAX + 1) - 1;
        return Err(usage(format!("--worker {id}: with --of {of} they are 0 to {last}")));
    }
    let store =
        Store::make(&path, Terms { workers: of, batch: args.batch, kind, sync: args.sync })?;
    let claim = Claim::make(&store.path, id, args.take_over)?;
    // Before anything is written: what it leaves must stay as it is.
    if journal::read(&store.path, id)?.retired() {
        return Err(usage(format!("worker {id} is retired: its items went to others")));
    }
    let timeout = args.timeout.map(Duration::from_secs);
    let mut dealer = Dealer {
        desk: Desk::open(&store, id)?,
        items,
        runner: Runner::new(args.command, args.jobs.into(), timeout)?,
        again: VecDeque::new(),
        stop: None,
        delays: Vec::new(),
        waiting: None,
        idle: None,
        shared: Instant::now(),
        run: 0,
        reporter: Reporter::new(id, args.json, &store),
        patience: Duration::from_secs(args.patience),
        follow: args.follow,
    };
    dealer.desk.agree(&dealer.items)?;
    dealer.resume(args.retry_started, args.retry_failed)?;
    let done = dealer.run();
    drop(claim);
    done
}

/// Why a worker starts nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It was told to.
    Told,
    /// It was told so twice: what runs is ended, and whether it was done is not known.
    AtOnce,
    /// The command cannot be run, with this exit status.
    Command(u8),
}

struct Dealer {
    desk: Desk,
    items: Items,
    runner: Runner,
    /// Items to be run again.
    again: VecDeque<u64>,
    stop: Option<Stop>,
    /// Who holds up items that may be this worker's, as of the last look.
    delays: Delays,
    /// Since when the same items have been held up by the same.
    waiting: Option<(Instant, Delays)>,
    /// Since when there has been nothing to do.
    idle: Option<Instant>,
    /// When it last looked for others that have nothing to do.
    shared: Instant,
    run: u64,
    reporter: Reporter,
    patience: Duration,
    follow: bool,
}

impl Dealer {
    /// What an earlier life left: items that may be done, and items that failed.
    fn resume(&mut self, retry_started: bool, retry_failed: bool) -> anyhow::Result<()> {
        let known = &self.desk.journal.known;
        if retry_failed {
            self.again.extend(known.failed());
        }
        if retry_started {
            self.again.extend(&known.interrupted);
            return Ok(());
        }
        for item in known.interrupted.clone() {
            self.reporter.event(report::Event::Skipped { item })?;
            let name = self.name(item);
            self.reporter.say(&format!(
                "item {item} ({name}) was started before and may be done: skipped \
                 (--retry-started runs it again)"
            ));
        }
        let waiting = known.waiting.before(self.items.count());
        let events = waiting.map(|Range { start, end }| report::Event::Taken { start, end });
        events.collect::<Vec<_>>().into_iter().try_for_each(|event| self.reporter.event(event))
    }

    fn name(&self, item: u64) -> String {
        String::from_utf8_lossy(&self.items.name(item)).into_owned()
    }

    fn run(&mut self) -> anyhow::Result<ExitCode> {
        loop {
            while self.stop.is_none()
                && self.runner.has_room()
                && let Some(item) = self.next()
            {
                self.start(item)?;
            }
            if self.stop.is_some() {
                if self.runner.is_empty() {
                    return self.finish();
                }
            } else if self.runner.has_room() {
                if self.look()? {
                    continue;
                }
                if self.runner.is_empty() && self.over()? {
                    return self.finish();
                }
            } else {
                self.share()?;
            }
            self.show();
            let event = self.runner.wait(TICK)?;
            self.handle(event)?;
        }
    }

    fn handle(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Ended(item, status) => self.ended(item, status),
            Event::Stop if self.stop.is_none() => {
                self.stop = Some(Stop::Told);
                let running: Vec<_> = self.runner.items().map(|item| self.name(item)).collect();
                if !running.is_empty() {
                    let running = running.join(", ");
                    self.reporter.say(&format!("stops after {running} (again: at once)"));
                }
                Ok(())
            }
            Event::Stop => {
                self.stop = Some(Stop::AtOnce);
                self.runner.end_all();
                Ok(())
            }
            Event::Nothing => Ok(()),
        }
    }

    /// The next item to run.
    fn next(&mut self) -> Option<u64> {
        self.again.pop_front().or_else(|| {
            let mut waiting = self.desk.journal.known.waiting.before(self.items.count());
            waiting.next().map(|items| items.start)
        })
    }

    fn start(&mut self, item: u64) -> anyhow::Result<()> {
        (self.waiting, self.idle) = (None, None);
        self.desk.journal.write(&Line::Start(item))?;
        let Err(error) = self.runner.start(item, &self.items.name(item), self.desk.id) else {
            return self.reporter.event(report::Event::Started { item });
        };
        // As a shell says it.
        let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        self.desk.journal.write(&Line::Back(item))?;
        self.stop = Some(Stop::Command(status as u8));
        self.reporter.say(&format!("cannot run {}: {error}; stops", self.runner.program()));
        Ok(())
    }

    fn ended(&mut self, item: u64, status: i32) -> anyhow::Result<()> {
        if self.stop == Some(Stop::AtOnce) {
            return Ok(());
        }
        self.desk.journal.write(&Line::End(item, status))?;
        self.run += 1;
        if status != 0 {
            let name = self.name(item);
            let why = if status == TIMED_OUT { " (124: its time was up)" } else { "" };
            self.reporter.say(&format!("item {item} ({name}) failed: status {status}{why}"));
        }
        if let 126 | 127 = status {
            let program = self.runner.program();
            self.reporter.say(&format!(
                "status {status} says that a command could not be run by {program}; stops \
                 (--retry-failed runs the item again)"
            ));
            self.stop = self.stop.or(Some(Stop::Command(status as u8)));
        }
        self.reporter.event(report::Event::Finished { item, status })
    }

    /// Takes items, or, once all have been dealt, learns what else is this worker's. Says whether
    /// there may be something to run.
    fn look(&mut self) -> anyhow::Result<bool> {
        if !self.desk.past_the_end(self.items.count()) {
            self.desk.acquire()?;
        }
        self.delays = Vec::new();
        let over = self.desk.past_the_end(self.items.count());
        if over {
            self.desk.learn()?;
            self.delays = self.desk.inherit(self.items.count())?;
            self.grow()?;
        }
        let own = self.desk.delays(self.items.count())?;
        let new: Vec<_> = own.into_iter().filter(|delay| !self.delays.contains(delay)).collect();
        self.delays.extend(new);
        for Range { start, end } in take(&mut self.desk.fresh) {
            let end = end.min(self.items.count());
            if start < end {
                self.reporter.event(report::Event::Taken { start, end })?;
            }
        }
        let more = !self.desk.past_the_end(self.items.count());
        let waiting = self.desk.journal.known.waiting.before(self.items.count()).next().is_some();
        Ok(more || waiting)
    }

    /// Items may have been appended.
    fn grow(&mut self) -> anyhow::Result<()> {
        let (before, others) = (self.items.count(), self.desk.journals.count());
        self.items.others_have(others);
        if self.follow || others > before {
            self.items.grow()?;
        }
        if self.items.count() > before { self.desk.agree(&self.items) } else { Ok(()) }
    }

    /// Nothing runs and nothing is there to run: whether that is all.
    fn over(&mut self) -> anyhow::Result<bool> {
        if !self.delays.is_empty() {
            let since = match &self.waiting {
                Some((since, before)) if *before == self.delays => *since,
                _ => self.delayed()?,
            };
            self.waiting = Some((since, self.delays.clone()));
            return self.hopeless(since);
        }
        if self.idle.is_none() && self.others_have_work()? {
            self.idle = Some(Instant::now());
            self.desk.journal.write(&Line::Idle)?;
            self.reporter.event(report::Event::Idle {})?;
        }
        if self.follow {
            return Ok(false);
        }
        let waits = self.idle.is_some_and(|since| since.elapsed() < self.patience);
        Ok(!(waits && self.others_have_work()?))
    }

    /// Whether others that run have items that they have not started and might give away.
    fn others_have_work(&self) -> anyhow::Result<bool> {
        let (me, count) = (self.desk.id, self.items.count());
        let undealt = self.desk.journals.undealt() > 0;
        for (worker, known) in self.desk.journals.all() {
            // What no journal has may be that one's, and it has not looked yet.
            let has = undealt || known.waiting.count_before(count) > 0;
            if has
                && worker != me
                && !known.retired()
                && claim::holder(&self.desk.store.path, worker)?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives of what waits to those who have nothing to do.
    fn share(&mut self) -> anyhow::Result<()> {
        if self.shared.elapsed() < TICK {
            return Ok(());
        }
        self.shared = Instant::now();
        self.desk.journals.refresh()?;
        self.desk.journals.check()?;
        let idle = self.idle_ones()?;
        if idle.is_empty() {
            return Ok(());
        }
        let count = self.items.count();
        if self.desk.journals.undealt() > 0 {
            self.desk.learn()?;
        }
        let waits = self.desk.journal.known.waiting.count_before(count);
        // Last ones first: they would wait longest. As many stay as each of the others gets.
        let known = &self.desk.journal.known;
        let waiting = known.waiting.before(count).collect::<Vec<_>>();
        let mut last_first = waiting.into_iter().flatten().rev();
        let each = waits.div_ceil(idle.len() as u64 + 1);
        let mut gifts = Vec::new();
        for to in idle {
            let mut gift = Ranges::default();
            let may = last_first.by_ref().filter(|item| known.may_give(*item));
            may.take(each as usize).for_each(|item| gift.insert(&(item..item + 1)));
            gifts.extend(gift.iter().map(|items| (items, to)));
        }
        for (items, to) in gifts {
            let Range { start, end } = items;
            self.desk.journal.write(&Line::Give(items, to))?;
            self.reporter.event(report::Event::Given { start, end, to })?;
        }
        Ok(())
    }

    /// Those who run and would take something, and have not been given anything yet.
    fn idle_ones(&self) -> anyhow::Result<Vec<usize>> {
        let (journals, me) = (&self.desk.journals, self.desk.id);
        let mut idle = Vec::new();
        for (worker, known) in journals.all().filter(|(worker, _)| *worker != me) {
            if known.idle
                && !known.retired()
                && journals.gifts_to(worker).is_empty()
                && claim::holder(&self.desk.store.path, worker)?.is_some()
            {
                idle.push(worker);
            }
        }
        Ok(idle)
    }

    /// Says who is waited for.
    fn delayed(&self) -> anyhow::Result<Instant> {
        for (by, items) in &self.delays {
            let (by, Range { start, end }) = (*by, items.clone());
            self.reporter.event(report::Event::Delayed { by, start, end })?;
            let state = match claim::holder(&self.desk.store.path, by)? {
                Some((process, State::Alive)) => format!("process {}", process.pid),
                Some((process, _)) => format!("process {} elsewhere", process.pid),
                None => "not running".into(),
            };
            self.reporter.say(&format!(
                "waits for worker {by} ({state}), which may have items {start} to {}",
                end - 1
            ));
        }
        Ok(Instant::now())
    }

    fn show(&self) {
        let count = self.items.count();
        let waiting = self.desk.journal.known.waiting.count_before(count);
        let items = self.runner.items().map(|item| self.name(item)).collect();
        self.reporter.show(Now { run: self.run, waiting, items, delays: self.delays.clone() });
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

    /// Everything counts: what failed or was skipped now or earlier, and what is left.
    fn finish(&mut self) -> anyhow::Result<ExitCode> {
        self.desk.journals.refresh()?;
        self.desk.journals.check()?;
        let (store, known) = (&self.desk.store, &self.desk.journal.known);
        let all = Outcome::of(store, &self.desk.journals)?;
        let (failed, skipped) = (known.failed().count() as u64, known.undecided().count() as u64);
        let held: u64 = self.delays.iter().map(|(_, items)| items.end - items.start).sum();
        let own = known.waiting.count_before(self.items.count());
        let others = all.stranded.iter().filter(|(worker, _)| *worker != self.desk.id);
        let stranded: u64 = others.map(|(_, items)| items).sum();
        let left = held + own + stranded + all.unclaimed();
        let run = self.run;
        self.reporter.event(report::Event::Done { run, failed, skipped, left })?;
        if !self.delays.is_empty() {
            let by: BTreeSet<_> = self.delays.iter().map(|(by, _)| by.to_string()).collect();
            let by = by.into_iter().collect::<Vec<_>>().join(", ");
            self.reporter.say(&format!(
                "up to {held} items are held up by worker {by}: start it again, or, if it is gone \
                 for good, `holdall deal retire --store {} --worker ...`, then run this worker again",
                store.path.display(),
            ));
        }
        all.remedies(store).iter().for_each(|remedy| self.reporter.say(remedy));
        self.reporter.say(&format!(
            "{run} run, {failed} failed, {skipped} skipped; in all {} of {} done",
            all.done, all.count
        ));
        let orphaned = !all.heirless.is_empty() && !all.complete();
        Ok(ExitCode::from(match self.stop {
            Some(Stop::Command(status)) => status,
            _ if left > 0 || skipped > 0 || orphaned => LEFT,
            _ if failed > 0 => FAILED,
            _ => 0,
        }))
    }
}
