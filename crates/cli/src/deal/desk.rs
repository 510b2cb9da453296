//! A worker's registers and journal: what is its own, from the first look to the last.

use std::ops::Range;

use holdall_assign::Worker;
use holdall_assign::registers::{DirRegisters, Memory, Registers};

use super::items::{Extent, Items};
use super::journal::{Journal, Line};
use super::journals::Journals;
use super::ranges::Ranges;
use super::store::{Store, tell};
use crate::usage;

/// Who holds up which items.
pub(super) type Delays = Vec<(usize, Range<u64>)>;

/// Who holds up items that may be a worker's: because it may have entered their window, or because
/// it may give its own away.
pub(super) fn delays<R: Registers>(
    worker: &Worker<R>,
    store: &Store,
    count: u64,
) -> anyhow::Result<Delays> {
    let (mut delays, expects) = (worker.delayed(), worker.expects());
    if !expects.is_empty() {
        let mut positions = store.positions()?;
        positions.retain(|at| at.entering && expects.contains(&at.worker));
        delays.extend(positions.into_iter().map(|at| (at.worker, at.items)));
    }
    delays.iter_mut().for_each(|(_, items)| items.end = items.end.min(count));
    delays.retain(|(_, items)| !items.is_empty());
    Ok(delays)
}

pub(super) struct Desk {
    pub(super) store: Store,
    pub(super) id: usize,
    /// Its place in the windows; those who came beyond the number of places have none.
    seat: Option<Worker<DirRegisters>>,
    pub(super) journal: Journal,
    pub(super) journals: Journals,
    /// Items noted and not yet told of.
    pub(super) fresh: Vec<Range<u64>>,
}

impl Desk {
    /// Only for who has claimed the number.
    pub(super) fn open(store: &Store, id: usize) -> anyhow::Result<Self> {
        let dir = store.dir();
        if store.has_seat(id) {
            dir.sweep(id).map_err(tell)?;
            dir.declare(id).map_err(tell)?;
        }
        // Of two that begin a store on different terms, at least one sees the other's file.
        store.agree()?;
        let mut journal = Journal::open(&store.path, id, store.terms.sync)?;
        journal.write(&Line::Begin)?;
        let seat = if store.has_seat(id) {
            let regs = dir.handle(id).map_err(tell)?;
            Some(Worker::resume(store.layout, id, regs).map_err(tell)?)
        } else {
            None
        };
        let journals = Journals::read(&store.path)?;
        let (store, fresh) = (store.clone(), Vec::new());
        let mut desk = Self { store, id, seat, journal, journals, fresh };
        desk.note(Worker::stock)?;
        Ok(desk)
    }

    /// Whether our items are what the others deal, as far as both know; says how many we know of.
    pub(super) fn agree(&mut self, items: &Items) -> anyhow::Result<()> {
        let ours = items.extent();
        self.agrees(items)?;
        if self.journal.known.items != Some(ours) {
            self.journal.write(&Line::Items(ours))?;
            // Of two that begin with different items, at least one sees what the other said.
            self.journals.refresh()?;
            self.agrees(items)?;
        }
        Ok(())
    }

    fn agrees(&self, items: &Items) -> anyhow::Result<()> {
        let path = self.store.path.display();
        for (worker, theirs) in self.journals.all().filter_map(|(w, known)| Some((w, known.items?)))
        {
            let Extent { count, .. } = theirs;
            if count > items.count() {
                return Err(usage(format!(
                    "--store {path} deals {count} items already, here are only {}: use the list \
                     as it is now, or another store",
                    items.count()
                )));
            }
            if !items.begin_with(theirs) {
                return Err(usage(format!(
                    "--store {path} deals other items (worker {worker}): use the same list, or \
                     another store"
                )));
            }
        }
        Ok(())
    }

    /// Takes items.
    pub(super) fn acquire(&mut self) -> anyhow::Result<()> {
        self.look(Worker::acquire)
    }

    /// Learns of items won earlier.
    pub(super) fn learn(&mut self) -> anyhow::Result<()> {
        self.look(Worker::learn)
    }

    fn look(
        &mut self,
        how: impl Fn(
            &mut Worker<DirRegisters>,
            &mut Vec<Range<u64>>,
        ) -> Result<(), holdall_assign::registers::DirError>,
    ) -> anyhow::Result<()> {
        let mut failed = None;
        self.note(|seat, won| failed = how(seat, won).err())?;
        failed.map_or(Ok(()), |error| Err(tell(error)))
    }

    /// Notes in the journal what a look wins, what was noted before left out.
    ///
    /// Among it what was won when the worker was killed, if it is not noted: the journal is
    /// written before anything is started, so it cannot have been.
    fn note(
        &mut self,
        look: impl FnOnce(&mut Worker<DirRegisters>, &mut Vec<Range<u64>>),
    ) -> anyhow::Result<()> {
        let Some(seat) = &mut self.seat else { return Ok(()) };
        let mut won = Vec::new();
        look(seat, &mut won);
        seat.doubtful(&mut won);
        let mut new = Ranges::default();
        for items in won.iter().filter(|items| !self.journal.known.taken.contains(items.start)) {
            new.insert(items);
        }
        new.iter().try_for_each(|items| self.keep(&Line::Take(items.clone()), items))
    }

    fn keep(&mut self, line: &Line, items: Range<u64>) -> anyhow::Result<()> {
        self.journal.write(line)?;
        self.fresh.push(items);
        Ok(())
    }

    /// Takes what others gave, and what retired ones leave to this one; says who holds up that
    /// more is known.
    pub(super) fn inherit(&mut self, count: u64) -> anyhow::Result<Delays> {
        self.journals.refresh()?;
        self.journals.check()?;
        let (found, delays) = self.journals.found_for(self.id, &self.store, count)?;
        let left = self.journals.left_to(self.id);
        for (items, from) in left {
            self.keep(&Line::Receive(items.clone(), from), items)?;
        }
        for items in found.iter() {
            self.keep(&Line::Take(items.clone()), items)?;
        }
        if !self.fresh.is_empty() {
            self.journals.refresh()?;
        }
        Ok(delays)
    }

    /// Who holds up items that may be this worker's.
    pub(super) fn delays(&self, count: u64) -> anyhow::Result<Delays> {
        self.seat.as_ref().map_or(Ok(Vec::new()), |seat| delays(seat, &self.store, count))
    }

    /// Whether this worker's own last window lies beyond the end.
    pub(super) fn past_the_end(&self, count: u64) -> bool {
        let Some(seat) = &self.seat else { return true };
        seat.entered().is_some_and(|items| items.start >= count)
    }
}
