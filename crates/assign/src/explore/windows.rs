//! Windows, explored: workers with a number of operations each.

use super::{Memory, Model, Slotted, World};
use crate::machine::{Access, Machine};
use crate::windows::rules::Rules;
use crate::windows::{Layout, Seat};

/// How many operations each worker makes, and how large the ring is.
/// [`explore`](super::explore) has an example.
#[derive(Clone, Debug)]
pub struct WindowsScope {
    /// Operations of each worker.
    pub ops: Vec<u32>,
    /// Windows in the ring.
    pub ring: usize,
}

/// The workers of a scope.
/// [`explore`](super::explore) has an example.
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
    fn step(&mut self, read: u64) -> Access {
        let access = self.seat.step(read);
        if access != Access::Done {
            return access;
        }
        self.collect();
        if self.left == 0 {
            return Access::Done;
        }
        self.left -= 1;
        self.seat.acquire();
        self.seat.step(0)
    }
}

impl<V: Rules> WindowsModel<V> {
    /// The model of a scope: [`explore`](super::explore) has an example.
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

    /// Lets everybody but `stopped` learn all there is, and counts the lots that are nobody's, of
    /// windows that somebody has left behind: `stopped` holds them up. Once it has started again
    /// nothing may be missing.
    fn unassigned(
        &self,
        world: &World<'_, Busy<V>>,
        stopped: Option<usize>,
    ) -> Result<u32, String> {
        let mut memory = world.memory().clone();
        let mut workers = Vec::new();
        for (who, Slotted { process, buffer, .. }) in world.processes().enumerate() {
            buffer.iter().for_each(|(slot, value)| memory.put(who, *slot, *value));
            workers.push(process.clone());
        }
        learn(&mut workers, &mut memory, |who| Some(who) != stopped);
        let had = lots(&workers)?;
        let Some(who) = stopped else { return self.missing(&workers, had, true) };
        workers[who] = self.restart(who, &workers[who], &memory);
        memory.drive(who, &mut workers[who].seat);
        workers[who].collect();
        // What its registers say is its own is assigned, to it, although it does nothing about it.
        let missing = self.missing(&workers, had | lots(&workers)?, false)?;
        learn(&mut workers, &mut memory, |_| true);
        self.missing(&workers, lots(&workers)?, true)?;
        Ok(missing)
    }

    /// How many lots are missing of windows left behind.
    fn missing(&self, workers: &[Busy<V>], had: u64, must_be_none: bool) -> Result<u32, String> {
        let newest = workers.iter().map(|worker| worker.seat.last()).max().unwrap_or(0);
        let mut missing = 0;
        for window in 1..newest {
            let lots = (0..workers.len()).map(|seat| self.layout.lot(window, seat));
            let lost = lots.filter(|lot| had >> lot & 1 == 0).count() as u32;
            if lost > 0 && must_be_none {
                return Err(format!("{lost} lots of window {window} are lost"));
            }
            missing += lost;
        }
        Ok(missing)
    }
}

/// These workers learn what there is to learn.
fn learn<V: Rules>(workers: &mut [Busy<V>], memory: &mut Memory, these: impl Fn(usize) -> bool) {
    for (who, worker) in workers.iter_mut().enumerate().filter(|(who, _)| these(*who)) {
        worker.seat.poll();
        memory.drive(who, &mut worker.seat);
        worker.collect();
    }
}

/// All lots that were handed out, or may have been before a restart; none was to two.
fn lots<V>(workers: &[Busy<V>]) -> Result<u64, String> {
    disjoint(workers.iter())?;
    Ok(workers.iter().fold(0, |had, worker| had | worker.kept | worker.doubted))
}

/// Whether no lot was handed out twice, nor may have been before a restart.
fn disjoint<'a, V: 'a>(workers: impl Iterator<Item = &'a Busy<V>>) -> Result<(), String> {
    let mut had = 0;
    for worker in workers {
        let its = worker.kept | worker.doubted;
        let twice = had & its;
        let lot = (twice != 0).then(|| twice.trailing_zeros().into());
        if let Some(lot) = worker.twice.or(lot) {
            return Err(format!("lot {lot} was handed out twice"));
        }
        had |= its;
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
    fn check(&self, world: &World<'_, Busy<V>>) -> Result<u32, String> {
        disjoint(world.processes().map(|p| &p.process))?;
        let mut busy = world.processes().enumerate().filter(|(_, p)| !p.done());
        let stopped = busy.next().map(|(who, _)| who);
        if busy.next().is_some() {
            return Ok(0);
        }
        self.unassigned(world, stopped)
    }

    fn restart(&self, who: usize, process: &Busy<V>, memory: &Memory) -> Busy<V> {
        let own = &mut |slot| memory.get(who, slot);
        Busy { seat: Seat::resume(self.layout, who, own), ..process.clone() }
    }

    /// Nobody changes the registers of a worker that has ended.
    fn settled(&self, world: &World<'_, Busy<V>>, who: usize) -> bool {
        match world.process(who).next {
            Access::Get { owner, .. } => !world.acts(owner),
            _ => false,
        }
    }
}
