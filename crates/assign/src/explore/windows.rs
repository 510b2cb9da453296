//! Windows, explored: workers with a number of operations each.

use std::collections::BTreeSet;

use super::{Memory, Model, World};
use crate::machine::{Do, Machine};
use crate::windows::rules::Rules;
use crate::windows::{Layout, Seat, Sign};

/// How many operations each worker makes, and how large the ring is.
#[derive(Clone, Debug)]
pub struct WindowsScope {
    /// Operations of each worker.
    pub ops: Vec<u32>,
    /// Windows in the ring.
    pub ring: usize,
}

/// The workers of a scope.
pub struct WindowsModel<V> {
    layout: Layout,
    start: Vec<Busy<V>>,
}

/// A worker with its operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Busy<V> {
    seat: Seat<V>,
    left: u32,
    /// Lots handed out, as bits, before and since the last restart.
    kept: u64,
    /// Lots that may or may not have been handed out before a restart.
    doubted: u64,
    /// Something it was given twice.
    twice: Option<u64>,
}

impl<V: Rules> Busy<V> {
    fn collect(&mut self) {
        for lot in self.seat.won().drain(..) {
            if self.kept >> lot & 1 == 1 {
                self.twice = Some(lot);
            }
            self.kept |= 1 << lot;
        }
        for lot in self.seat.doubts().drain(..) {
            self.doubted |= 1 << lot;
        }
    }
}

impl<V: Rules> Machine for Busy<V> {
    fn step(&mut self, read: u64) -> Do {
        let access = self.seat.step(read);
        if access != Do::Done {
            return access;
        }
        self.collect();
        if self.left == 0 {
            return Do::Done;
        }
        self.left -= 1;
        self.seat.acquire();
        self.seat.step(0)
    }
}

impl<V: Rules> WindowsModel<V> {
    /// The model of a scope.
    ///
    /// # Panics
    /// If the scope is too large for a word of lots.
    pub fn new(scope: &WindowsScope) -> Self {
        let layout = Layout::new(scope.ops.len(), scope.ring, 1).expect("a small scope");
        let entries: u32 = scope.ops.iter().sum::<u32>() * 2;
        assert!(entries as usize * scope.ops.len() <= 64, "at most 64 lots");
        let busy = |(me, left): (usize, &u32)| Busy {
            seat: Seat::new(layout, me),
            left: *left,
            kept: 0,
            doubted: 0,
            twice: None,
        };
        Self { layout, start: scope.ops.iter().enumerate().map(busy).collect() }
    }

    /// Lets everybody but `stopped` learn all there is, and counts the lots that nobody has:
    /// of windows that all their entrants have left behind.
    fn unassigned(&self, world: &World<Busy<V>>, stopped: Option<usize>) -> Result<u32, String> {
        let n = self.layout.workers();
        let mut memory = world.memory.clone();
        let mut workers: Vec<_> = world.processes.iter().map(|p| p.process.clone()).collect();
        for (who, p) in world.processes.iter().enumerate() {
            p.buffer.iter().for_each(|(slot, value)| memory.put(who, *slot, *value));
        }
        for (who, worker) in workers.iter_mut().enumerate() {
            if Some(who) != stopped {
                worker.seat.poll();
                memory.drive(who, &mut worker.seat);
            }
            worker.collect();
        }
        disjoint(workers.iter())?;
        let sign = |who| Sign(memory.get(who, Layout::SIGN));
        let last: BTreeSet<u64> = (0..n).map(|who| workers[who].seat.last()).collect();
        let newest = last.last().copied().unwrap_or(0);
        let mut had = workers.iter().fold(0, |had, worker| had | worker.kept | worker.doubted);
        for (who, to) in (0..n).flat_map(|who| stopped.map(|to| (who, to))) {
            let window = memory.get(who, self.layout.gift(to));
            had |= if window == 0 { 0 } else { 1 << self.layout.lot(window, who) };
        }
        let mut missing = 0;
        for window in (1..=newest).filter(|window| !last.contains(window)) {
            let lots = (0..n).map(|seat| self.layout.lot(window, seat));
            let lost = lots.filter(|lot| had >> lot & 1 == 0).count() as u32;
            let pinned = stopped.is_some_and(|who| sign(who).window() == window);
            let theirs = stopped.is_some_and(|who| workers[who].seat.holds(window));
            if lost > 0 && !pinned && !theirs {
                return Err(format!("{lost} lots of window {window} are lost"));
            }
            // What the stopped worker holds of windows it entered is assigned, to it.
            missing += if theirs { 0 } else { lost };
        }
        Ok(missing)
    }
}

/// Whether no lot was handed out twice.
fn disjoint<'a, V: 'a>(workers: impl Iterator<Item = &'a Busy<V>>) -> Result<(), String> {
    let mut had = 0;
    for worker in workers {
        let twice = had & worker.kept;
        let lot = (twice != 0).then(|| twice.trailing_zeros().into());
        if let Some(lot) = worker.twice.or(lot) {
            return Err(format!("lot {lot} was handed out twice"));
        }
        had |= worker.kept;
    }
    Ok(())
}

impl<V: Rules> Model for WindowsModel<V> {
    type Process = Busy<V>;

    fn slots(&self) -> usize {
        self.layout.slots()
    }

    fn start(&self) -> Vec<Busy<V>> {
        self.start.clone()
    }

    /// Nothing handed out twice, ever; once all but one worker are done, the lots that are
    /// unassigned because of that one.
    fn check(&self, world: &World<Busy<V>>) -> Result<u32, String> {
        disjoint(world.processes.iter().map(|p| &p.process))?;
        let mut busy = (0..world.processes.len()).filter(|who| !world.processes[*who].done());
        let stopped = busy.next();
        if busy.next().is_some() {
            return Ok(0);
        }
        self.unassigned(world, stopped)
    }

    fn restart(&self, who: usize, process: &Busy<V>, memory: &Memory) -> Busy<V> {
        let own = &mut |slot| memory.get(who, slot);
        Busy { seat: Seat::resume(self.layout, who, own), ..process.clone() }
    }
}
