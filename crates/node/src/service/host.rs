//! The cell and its log: what happens is logged, and what follows from it leaves when the log says so.
//!
//! # Invariants
//! - Nothing that rests on a record leaves before the log says that it may; answers to questions rest
//!   on the last record there is.
//! - What must outlive the machine (reservations, changes of the pools) leaves when it is synced, and
//!   holds up nobody but its own client.
//! - No number of an epoch leaves before that epoch is kept.
//! - A step that is in no record is the last one: nothing follows it, and nothing leaves any more.

use std::collections::VecDeque;
use std::time::Instant;

use holdall_cell::facts::Fact;
use holdall_cell::replay::{LOGIC, Recorded, Room, Unreadable};
use holdall_cell::session::ConnNo;
use holdall_cell::{Cell, Defect, Input, Out};
use holdall_log::{Class, Entry, Error, Index, Log, Opened, Progress, SnapshotJob, Watch};
use holdall_wire::event::What;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::boottime;
use crate::hosted::lasting;

mod leaving;
#[cfg(test)]
pub(super) mod tests;

use self::leaving::Lane;
pub(super) use self::leaving::Leaving;

/// Room for so many events stays when all have left.
const EVENTS: usize = 1024;

/// When a snapshot is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotEvery {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// What may come after a snapshot that another host is to go on from soon.
const LONG: SnapshotEvery = SnapshotEvery { records: 4096, bytes: 4 << 20 };

impl Default for SnapshotEvery {
    fn default() -> Self {
        Self { records: 50_000, bytes: 8 << 20 }
    }
}

/// Why it cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// An invariant.
    #[error("an invariant is broken: {0}")]
    Cell(#[from] Defect),
    /// The log.
    #[error("{0}")]
    Log(#[from] Error),
    /// What cannot be put into a record.
    #[error("{0}")]
    Record(#[from] Unreadable),
}

/// Whether nobody else can lead the log by now. Not all that leaves rests on a record of its own: that a beat was heard does not.
fn leads(progress: &Progress) -> bool {
    progress.leads_until.is_none_or(|until| boottime() < until)
}

struct Held {
    what: Leaving,
    index: Index,
    /// Whether that is to be synced, and not only written.
    sync: bool,
    epoch: u32,
}

/// A cell with its log.
pub(super) struct Host {
    cell: Cell,
    /// None when it is closed.
    log: Option<Box<dyn Log>>,
    watch: Watch,
    /// The last record.
    last: Index,
    /// It was handed over; what it wrote last may still be under way to nobody's harm.
    closed: Option<Box<dyn Log>>,
    /// All of it is in the log, and another host goes on.
    is_sealed: bool,
    /// The host that was called to lead next, and by how many.
    called: Option<(Box<str>, u32)>,
    /// The cell is ahead of its log.
    is_broken: bool,
    /// What leaves when it is written, and what when it is synced, or comes after that.
    written: VecDeque<Held>,
    synced: VecDeque<Held>,
    /// What has happened and is not told yet, and when by the wall.
    events: VecDeque<(u64, What)>,
    /// How much of the latter goes to whom: what else they are told comes after it.
    behind: FxHashMap<Lane, usize>,
    /// Whether everything was handed over.
    is_flushed: bool,
    /// The epoch that the log was told of.
    raised: u32,
    every: SnapshotEvery,
    /// What has come since the last snapshot.
    records: u64,
    bytes: u64,
    /// Where records are written.
    room: Room,
}

impl Host {
    /// What was opened, and the cell that it has led to.
    pub(super) fn new(
        cell: Cell,
        log: Box<dyn Log>,
        opened: &Opened,
        every: SnapshotEvery,
    ) -> Self {
        let watch = log.watch();
        Self {
            cell,
            last: watch.may_leave(),
            is_broken: false,
            watch,
            log: Some(log),
            closed: None,
            is_sealed: false,
            called: None,
            written: VecDeque::new(),
            synced: VecDeque::new(),
            events: VecDeque::new(),
            behind: FxHashMap::default(),
            is_flushed: true,
            raised: opened.epoch,
            every,
            records: opened.records.len() as u64,
            bytes: opened.records.iter().map(|record| record.payload.len() as u64).sum(),
            room: Room::default(),
        }
    }

    /// From now on its log behaves as a test wants it to.
    #[cfg(test)]
    pub(super) fn trouble_log(&mut self) -> tests::Trouble {
        let trouble = tests::Trouble::default();
        let log = self.log.take().expect("a log");
        self.log = Some(Box::new(tests::Troubled { log, trouble: trouble.clone() }));
        trouble
    }

    /// From now on its log has no room, as far as it is told.
    #[cfg(test)]
    pub(super) fn stand_still(&mut self) {
        self.watch = tests::no_room();
    }

    /// How much waits to leave.
    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        self.written.len() + self.synced.len()
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The log, as long as it has everything that the cell has done.
    fn log(&mut self) -> Result<&mut Box<dyn Log>, Error> {
        let log = self.log.as_mut().filter(|_| !self.is_broken);
        log.ok_or_else(|| Error::Closed("the cell".into()))
    }

    /// The last record.
    pub(super) fn last(&self) -> Index {
        self.last
    }

    /// Tells how far the log has come.
    pub(super) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Whether there is room for something new.
    ///
    /// # Errors
    /// If there is none, or the log is at its end.
    pub(super) fn admit(&mut self, input: &Input) -> Result<(), Error> {
        let Some(bytes) = self.cell.admits(input) else { return Ok(()) };
        let owed = self.cell.owed();
        let log = self.log()?;
        log.keep_room(owed);
        log.admit(bytes)
    }

    /// Takes an input, and logs what came of it.
    ///
    /// # Errors
    /// If it breaks an invariant or cannot be logged: nothing may follow then.
    pub(super) fn step(&mut self, at: u64, input: Input) -> Result<Out, Broken> {
        let room = std::mem::take(&mut self.room);
        let writing = Recorded::begin_in(room, at, &input)?;
        self.log()?;
        let out = self.cell.step(at, input)?;
        if out.is_new {
            let (class, logic, sync) = (Class::Must, LOGIC, out.sync);
            let (mut records, mut bytes) = (0, 0);
            let log = self.log()?;
            let written = writing.end(&out.facts)?;
            let appended = written.append(|payload| {
                (records, bytes) = (records + 1, bytes + payload.len() as u64);
                log.append(Entry { class, logic, payload, sync })
            });
            self.room = written.into_room();
            self.is_broken = appended.is_err();
            self.last = appended?;
            self.records += records;
            self.bytes += bytes;
            self.is_flushed = false;
            let is_over = |fact: &Fact| matches!(fact, Fact::Ended { .. } | Fact::SessionOver(_));
            if out.facts.iter().any(is_over) {
                let owed = self.cell.owed();
                self.log()?.keep_room(owed);
            }
        } else {
            self.room = writing.into_room();
        }
        let epoch = self.cell.epoch();
        if epoch > self.raised {
            self.log()?.raise_epoch(epoch)?;
            self.raised = epoch;
        }
        Ok(out)
    }

    /// Calls the host that is to lead next; whoever does calls it off if it is not to.
    pub(super) fn call(&mut self, heir: &str) {
        let by = self.called.take().filter(|(called, _)| **called == *heir).map_or(0, |(_, by)| by);
        self.called = Some((heir.into(), by + 1));
        self.tell_called();
    }

    /// It need not come for one of those who have called it.
    pub(super) fn call_off(&mut self) {
        let called = self.called.take().map(|(called, by)| (called, by - 1));
        self.called = called.filter(|(_, by)| *by > 0);
        self.tell_called();
    }

    /// It need not come.
    pub(super) fn call_nobody(&mut self) {
        self.called = None;
        self.tell_called();
    }

    fn tell_called(&mut self) {
        let called = self.called.clone();
        if let Ok(log) = self.log() {
            log.call(called.as_ref().map(|(called, _)| &**called));
        }
    }

    /// The host that was called.
    pub(super) fn called(&self) -> Option<&str> {
        self.called.as_ref().map(|(called, _)| &**called)
    }

    /// Takes back what a step led to, once that is used up.
    pub(super) fn reuse(&mut self, out: Out) {
        self.cell.reuse(out);
    }

    /// Something leaves when the log says so.
    pub(super) fn hold(&mut self, what: Leaving, sync: bool) {
        let lane = what.lane();
        let waits = lane.is_some_and(|lane| self.behind.contains_key(&lane));
        let held = Held { what, index: self.last, sync, epoch: self.cell.epoch() };
        if !sync && !waits {
            return self.written.push_back(held);
        }
        if let Some(lane) = lane {
            *self.behind.entry(lane).or_default() += 1;
        }
        self.synced.push_back(held);
    }

    /// What has happened by the last record leaves when the log says so.
    pub(super) fn hold_events(&mut self, events: &mut Vec<(u64, What)>) {
        let count = events.len();
        self.events.extend(events.drain(..));
        self.hold(Leaving::Events(self.last, count), false);
    }

    /// The next event, of those that were told to leave.
    pub(super) fn next_event(&mut self) -> Option<(u64, What)> {
        let next = self.events.pop_front();
        if self.events.is_empty() {
            self.events.shrink_to(EVENTS);
        }
        next
    }

    /// Hands over what was appended.
    ///
    /// # Errors
    /// [`Error::Full`] passes: it is tried again with the next one.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if !self.is_flushed {
            self.log()?.flush()?;
            self.is_flushed = true;
        }
        Ok(())
    }

    /// Looks whether the log is still where another agent would find it.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        self.log()?.flush()
    }

    /// Puts what may leave by now into `due`.
    pub(super) fn due(&mut self, due: &mut Vec<Leaving>) {
        if self.is_idle() || self.is_broken {
            return;
        }
        let progress = self.watch.progress();
        if progress.has_ended() || !leads(&progress) {
            return;
        }
        let may = |held: &mut Held| {
            let upto = if held.sync { progress.synced } else { progress.may_leave };
            held.index <= upto && held.epoch <= progress.epoch
        };
        while let Some(held) = self.written.pop_front_if(may) {
            due.push(held.what);
        }
        while let Some(held) = self.synced.pop_front_if(may) {
            if let Some(lane) = held.what.lane()
                && let Some(count) = self.behind.get_mut(&lane)
            {
                *count -= 1;
                if *count == 0 {
                    self.behind.remove(&lane);
                }
            }
            due.push(held.what);
        }
    }

    /// Whether the log has a record, and all that rests on it has left.
    pub(super) fn has_left(&self, upto: Index) -> bool {
        let waits = |queue: &VecDeque<Held>| queue.front().is_some_and(|held| held.index <= upto);
        upto <= self.watch.may_leave() && !waits(&self.written) && !waits(&self.synced)
    }

    /// Whether the cell counts, and nobody else can lead the log by now.
    pub(super) fn leads(&self) -> bool {
        let progress = self.watch.progress();
        !self.is_broken && !progress.has_ended() && leads(&progress)
    }

    /// Up to which record all events have left.
    pub(super) fn told_upto(&self) -> u64 {
        let may_leave = self.watch.may_leave().0;
        self.written.front().map_or(may_leave, |held| may_leave.min(held.index.0.saturating_sub(1)))
    }

    /// Whether nothing waits to leave.
    pub(super) fn is_idle(&self) -> bool {
        self.written.is_empty() && self.synced.is_empty()
    }

    /// The connections to which something waits to leave.
    pub(super) fn awaited(&self) -> FxHashSet<ConnNo> {
        let all = self.written.iter().chain(&self.synced);
        all.filter_map(|held| held.what.conn()).collect()
    }

    /// How much waits to leave when it is written.
    pub(super) fn held(&self) -> usize {
        self.written.len()
    }

    /// Why nothing leaves at the moment, if that passes; and since when, if that is known.
    pub(super) fn trouble(&self) -> Option<(String, Option<Instant>)> {
        let progress = self.watch.progress();
        let trouble = progress.trouble.as_ref().map(ToString::to_string);
        let unknown = || "it is not known whether another host leads by now".to_owned();
        let why = trouble.or_else(|| (!leads(&progress)).then(unknown))?;
        Some((why, progress.troubled_since))
    }

    /// The same for people.
    pub(super) fn held_up(&self) -> Option<String> {
        let (why, since) = self.trouble()?;
        Some(format!("{why}{}", since.map(|since| lasting(since.elapsed())).unwrap_or_default()))
    }

    /// What is wrong with the log, if it cannot go on.
    pub(super) fn ended(&self) -> Option<Error> {
        self.watch.progress().trouble.filter(|trouble| !trouble.passes())
    }

    /// Begins a snapshot, if there is enough for one.
    pub(super) fn snapshot_if_due(&mut self) -> Option<Box<dyn SnapshotJob>> {
        if self.records < self.every.records && self.bytes < self.every.bytes {
            return None;
        }
        self.begin_snapshot().ok()
    }

    /// Whether so much has come since the last snapshot that another host would take long to go on from it.
    pub(super) fn is_long(&self) -> bool {
        self.records > LONG.records || self.bytes > LONG.bytes
    }

    /// Begins a snapshot, unless one is being made.
    ///
    /// # Errors
    /// If there is no room, or the log is at its end.
    pub(super) fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error> {
        let begun = self.log()?.begin_snapshot();
        if !matches!(begun, Err(Error::Snapshotting(_))) {
            // If it fails, it is tried again after as much more.
            (self.records, self.bytes) = (0, 0);
        }
        begun
    }

    /// Syncs everything, and marks that this was the end on purpose.
    ///
    /// # Errors
    /// If it cannot. What may have left is kept all the same.
    pub(super) fn seal(&mut self) -> Result<(), Error> {
        self.log()?;
        self.log.take().map_or(Ok(()), Log::seal)
    }

    /// Hands over to the host that was called and is ready: what was appended is written with that.
    ///
    /// # Errors
    /// [`Error::NotReady`] and [`Error::Full`]: then all goes on as before. Otherwise this is the end all the same; what may have
    /// left is kept.
    pub(super) fn hand_over(&mut self, heir: &str) -> Result<(), Error> {
        self.end_with(|log| {
            log.flush()?;
            log.hand_over(heir)
        })
    }

    /// The same, and nobody is to lead next.
    ///
    /// # Errors
    /// The same.
    pub(super) fn retire(&mut self) -> Result<(), Error> {
        self.end_with(|log| log.retire())
    }

    fn end_with(
        &mut self,
        end: impl FnOnce(&mut Box<dyn Log>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let done = end(self.log()?);
        if !matches!(done, Err(Error::Full(_) | Error::NotReady { .. })) {
            self.is_sealed = done.is_ok();
            self.closed = self.log.take();
        }
        done
    }

    /// Whether it was handed over, or nobody is to lead next.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// What waits to leave when all is in the log for good, and another host goes on from there.
    pub(super) fn rest(&mut self) -> Vec<Leaving> {
        if !self.is_sealed {
            return Vec::new();
        }
        self.behind.clear();
        self.written.drain(..).chain(self.synced.drain(..)).map(|held| held.what).collect()
    }
}
