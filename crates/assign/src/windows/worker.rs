//! A worker: takes items, learns of more.

use std::convert::Infallible;
use std::ops::Range;

use super::assigner::Seats;
use super::layout::Layout;
use super::rules::{Rules, Sound};
use super::seat::Seat;
use crate::machine::drive;
use crate::registers::{Registers, sure};

/// One worker of an [`Assigner`](super::Assigner).
///
/// Not shared: one worker, one thread. Dropping it leaves its registers as they are; another
/// worker made under the same id goes on from there.
///
/// ```
/// let assigner = holdall_assign::Assigner::builder(2).threads()?;
/// let mut worker = assigner.worker(0)?;
/// assert_eq!(worker.next(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Worker<R, V = Sound> {
    regs: R,
    seat: Seat<V>,
    /// Items won and not handed out, first to last.
    stock: Vec<Range<u64>>,
    broken: bool,
    _id: Option<Seats>,
}

impl<R: Registers, V: Rules> Worker<R, V> {
    /// A worker on its registers, going on from what is in them.
    ///
    /// ```
    /// use holdall_assign::registers::{Atomics, Memory};
    /// use holdall_assign::{Worker, windows::Layout};
    ///
    /// let layout = Layout::new(2, 16, 1)?;
    /// let regs = Atomics::new(2, layout.slots()).handle(0)?;
    /// let mut worker: Worker<_> = Worker::resume(layout, 0, regs)?;
    /// assert_eq!(worker.next(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the registers cannot be read or written.
    pub fn resume(layout: Layout, id: usize, mut regs: R) -> Result<Self, R::Error> {
        let mut failed = None;
        let mut own = |slot| match regs.get(id, slot) {
            Ok(value) => value,
            Err(error) => {
                failed.get_or_insert(error);
                0
            }
        };
        let mut seat = Seat::resume(layout, id, &mut own);
        if let Some(error) = failed {
            return Err(error);
        }
        drive(&mut seat, &mut regs)?;
        let stock = seat.won().drain(..).map(|lot| layout.items(lot)).collect();
        Ok(Self { regs, seat, stock, broken: false, _id: None })
    }

    pub(super) fn keep(mut self, id: Seats) -> Self {
        self._id = Some(id);
        self
    }

    /// Takes items: appends to `out` at least one batch that nobody else has or will have, and
    /// all others learned meanwhile. Never waits for anybody.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).batch(10).threads()?;
    /// let (mut worker, mut out) = (assigner.worker(0)?, Vec::new());
    /// worker.acquire(&mut out)?;
    /// assert_eq!(out, [0..10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the registers fail. The worker is then of no use; make a new one under the same id.
    #[inline]
    pub fn acquire(&mut self, out: &mut Vec<Range<u64>>) -> Result<(), R::Error> {
        out.append(&mut self.stock);
        self.run(Seat::acquire, out)
    }

    /// Learns of more items of its own without taking new ones: appends them to `out`.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// let (mut first, mut other, mut out) = (assigner.worker(0)?, assigner.worker(1)?, Vec::new());
    /// first.acquire(&mut out)?;
    /// (0..3).for_each(|_| drop(other.next()));
    /// // The other has gone on: all is known of the first window, in which both were.
    /// first.learn(&mut out)?;
    /// assert_eq!(out, [0..1]);
    /// assert!(first.open().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn learn(&mut self, out: &mut Vec<Range<u64>>) -> Result<(), R::Error> {
        out.append(&mut self.stock);
        self.run(Seat::poll, out)
    }

    #[inline]
    fn run(
        &mut self,
        start: impl FnOnce(&mut Seat<V>),
        out: &mut Vec<Range<u64>>,
    ) -> Result<(), R::Error> {
        assert!(!self.broken, "its registers failed: make a new worker under the same id");
        start(&mut self.seat);
        self.broken = true;
        drive(&mut self.seat, &mut self.regs)?;
        self.broken = false;
        let layout = self.seat.layout;
        out.extend(self.seat.won().drain(..).map(|lot| layout.items(lot)));
        Ok(())
    }

    /// The next item: from the stock, or taken.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// assert_eq!(assigner.worker(0)?.try_next(), Ok(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[inline]
    pub fn try_next(&mut self) -> Result<u64, R::Error> {
        loop {
            if let Some(item) = self.known() {
                return Ok(item);
            }
            let mut stock = std::mem::take(&mut self.stock);
            let done = self.run(Seat::acquire, &mut stock);
            self.stock = stock;
            done?;
        }
    }

    /// An item that is known to be this worker's already, if there is one.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).batch(2).threads()?;
    /// let mut worker = assigner.worker(0)?;
    /// assert_eq!(worker.next(), 0);
    /// assert_eq!((worker.known(), worker.known()), (Some(1), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn known(&mut self) -> Option<u64> {
        let range = self.stock.last_mut()?;
        let item = range.start;
        range.start += 1;
        if range.start == range.end {
            self.stock.pop();
        }
        Some(item)
    }

    /// Moves all items that are known to be this worker's to `out`, without any access to memory.
    ///
    /// A worker made anew may know of some at once. Who keeps a journal, to go on after being
    /// killed, notes what is known before it calls [`acquire`](Self::acquire) or
    /// [`learn`](Self::learn) again: what was known before the last call is not told again.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).batch(3).threads()?;
    /// let (mut worker, mut out) = (assigner.worker(0)?, Vec::new());
    /// assert_eq!(worker.next(), 0);
    /// worker.stock(&mut out);
    /// assert_eq!(out, [1..3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stock(&mut self, out: &mut Vec<Range<u64>>) {
        out.append(&mut self.stock);
    }

    /// Items that a worker under the same id may or may not have handed out just before it
    /// stopped, and perhaps some it handed out earlier: appended to `out`. They are never handed
    /// out again here; only the caller can know whether they were used.
    ///
    /// Most are known at once; some only after a later call of [`acquire`](Self::acquire) or
    /// [`learn`](Self::learn), if somebody held them up.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// let had = assigner.worker(0)?.next();
    /// let (mut again, mut doubts) = (assigner.worker(0)?, Vec::new());
    /// again.doubtful(&mut doubts);
    /// assert_eq!(doubts, [had..had + 1]);
    /// assert_ne!(again.next(), had);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn doubtful(&mut self, out: &mut Vec<Range<u64>>) {
        let layout = self.seat.layout;
        out.extend(self.seat.doubts().drain(..).map(|lot| layout.items(lot)));
    }

    /// The items of the last window entered: what is taken next comes from later ones.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(3).threads()?;
    /// let mut worker = assigner.worker(0)?;
    /// assert_eq!(worker.entered(), None);
    /// worker.next();
    /// assert_eq!(worker.entered(), Some(0..3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn entered(&self) -> Option<Range<u64>> {
        (self.seat.last > 0).then(|| self.seat.layout.window_items(self.seat.last))
    }

    /// Windows entered of which not all items are known to be assigned: their items.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(3).threads()?;
    /// let mut worker = assigner.worker(0)?;
    /// worker.next();
    /// assert_eq!(worker.open(), [0..3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self) -> Vec<Range<u64>> {
        let open = self.seat.open.iter();
        open.map(|open| self.seat.layout.window_items(open.window)).collect()
    }

    /// Who held up which of this worker's open windows at its last look: worker and items.
    ///
    /// Windows that nobody has left behind yet are held up by nobody.
    ///
    /// ```
    /// use holdall_assign::Assigner;
    /// use holdall_assign::machine::{Access, Machine};
    /// use holdall_assign::registers::{Atomics, Memory, Registers};
    /// use holdall_assign::windows::Seat;
    ///
    /// let layout = Assigner::builder(2).layout()?;
    /// let memory = Atomics::new(2, layout.slots());
    /// // Worker 1 has shown that it wants the first window, and stops.
    /// let mut seat: Seat = Seat::new(layout, 1);
    /// seat.acquire();
    /// let Access::Put { slot, value } = seat.step(0) else { panic!("it puts its intent") };
    /// memory.handle(1)?.put(slot, value)?;
    /// let mut worker = Assigner::over(layout, memory).worker(0)?;
    /// let items = [worker.next(), worker.next(), worker.next()];
    /// assert_eq!(items, [0, 2, 4], "nobody waits for it");
    /// worker.poll();
    /// assert_eq!(worker.delayed(), [(1, 0..2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delayed(&self) -> Vec<(usize, Range<u64>)> {
        let mut delays = Vec::new();
        for open in &self.seat.open[..self.seat.left] {
            let items = self.seat.layout.window_items(open.window);
            let unknown = (0..self.seat.layout.workers()).filter(|q| open.unknown >> q & 1 == 1);
            delays.extend(unknown.map(|q| (q, items.clone())));
        }
        delays
    }

    /// Who may still give this worker a batch that it once asked for, as it is in the middle of
    /// taking: empty unless the worker was overtaken again and again.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// let mut worker = assigner.worker(0)?;
    /// worker.next();
    /// assert!(worker.expects().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expects(&self) -> Vec<usize> {
        (0..self.seat.layout.workers()).filter(|q| self.seat.watch >> q & 1 == 1).collect()
    }

    /// The sizes it works with.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(3).threads()?;
    /// assert_eq!(assigner.worker(0)?.layout(), assigner.layout());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layout(&self) -> Layout {
        self.seat.layout
    }

    /// Its registers.
    ///
    /// ```
    /// use holdall_assign::registers::Registers;
    ///
    /// let assigner = holdall_assign::Assigner::builder(3).threads()?;
    /// let mut worker = assigner.worker(0)?;
    /// worker.next();
    /// let record = worker.layout().record(1);
    /// assert_eq!(worker.registers().get(0, record), Ok(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn registers(&mut self) -> &mut R {
        &mut self.regs
    }
}

impl<R: Registers<Error = Infallible>, V: Rules> Worker<R, V> {
    /// The next item, which nobody else has or will have. Never waits.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(3).threads()?;
    /// let mut worker = assigner.worker(1)?;
    /// let (first, second) = (worker.next(), worker.next());
    /// assert_ne!(first, second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Not an `Iterator`: the stream has no end, and an `Option` would ask what `None` means.
    #[expect(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> u64 {
        sure(self.try_next())
    }

    /// Learns of more items of its own without taking new ones; says how many are known.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// let mut worker = assigner.worker(0)?;
    /// worker.next();
    /// worker.next();
    /// // The other worker never came: its item of the first window is ours.
    /// assert_eq!(worker.poll(), 1);
    /// assert_eq!(worker.known(), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&mut self) -> u64 {
        let mut stock = std::mem::take(&mut self.stock);
        sure(self.run(Seat::poll, &mut stock));
        self.stock = stock;
        self.stock.iter().map(|range| range.end - range.start).sum()
    }
}
