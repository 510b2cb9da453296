//! The assigner: the shared memory, and who works on it.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use super::layout::{BadLayout, Layout, Sign};
use super::rules::{Rules, Sound};
use super::worker::Worker;
use crate::registers::{Atomics, Memory, Registers};

/// Shares the items 0, 1, 2, ... among n workers: each item goes to one of them, never to two.
///
/// ```
/// use holdall_assign::Assigner;
///
/// let assigner = Assigner::builder(2).threads()?;
/// let mut all: Vec<u64> = std::thread::scope(|scope| {
///     let work = |id| {
///         let mut worker = assigner.worker(id).expect("each id is used once");
///         move || (0..1000).map(|_| worker.next()).collect::<Vec<_>>()
///     };
///     let threads = [scope.spawn(work(0)), scope.spawn(work(1))];
///     threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
/// });
/// all.sort_unstable();
/// all.dedup();
/// assert_eq!(all.len(), 2000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Assigner<M = Atomics> {
    memory: M,
    layout: Layout,
    /// Ids in use. Only making and dropping workers looks at it.
    used: Arc<Mutex<Vec<bool>>>,
}

/// Sizes of an [`Assigner`].
///
/// ```
/// let builder = holdall_assign::Assigner::builder(4).batch(10).ring(64);
/// assert_eq!(builder.layout()?.batch(), 10);
/// # Ok::<(), holdall_assign::windows::BadLayout>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    workers: usize,
    ring: usize,
    batch: u64,
}

impl Builder {
    /// How many items are taken at a time; 1 if not said.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(4).batch(100).threads()?;
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    #[must_use]
    pub fn batch(self, batch: u64) -> Self {
        Self { batch, ..self }
    }

    /// How many windows each worker remembers before it has to look who needs them: a power of
    /// two, 256 if not said.
    ///
    /// ```
    /// use holdall_assign::Assigner;
    ///
    /// assert_eq!(Assigner::builder(4).ring(64).layout()?.ring(), 64);
    /// assert!(Assigner::builder(4).ring(60).layout().is_err());
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    #[must_use]
    pub fn ring(self, ring: usize) -> Self {
        Self { ring, ..self }
    }

    /// The sizes.
    ///
    /// ```
    /// assert_eq!(holdall_assign::Assigner::builder(4).layout()?.workers(), 4);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    ///
    /// # Errors
    /// If one is out of range.
    pub fn layout(self) -> Result<Layout, BadLayout> {
        Layout::new(self.workers, self.ring, self.batch)
    }

    /// An assigner for threads of this process.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(1).threads()?;
    /// assert_eq!(assigner.worker(0)?.next(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a size is out of range.
    pub fn threads(self) -> Result<Assigner, BadLayout> {
        let layout = self.layout()?;
        Ok(Assigner::over(layout, Atomics::new(layout.workers(), layout.slots())))
    }
}

impl Assigner {
    /// Sizes for an assigner of `workers` workers.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(4).ring(64).threads()?;
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn builder(workers: usize) -> Builder {
        Builder { workers, ring: 256, batch: 1 }
    }
}

impl<M: Memory> Assigner<M> {
    /// An assigner on a memory of any kind.
    ///
    /// ```
    /// use holdall_assign::{Assigner, registers::Atomics};
    ///
    /// let layout = Assigner::builder(2).layout()?;
    /// let assigner = Assigner::over(layout, Atomics::new(layout.workers(), layout.slots()));
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    ///
    /// # Panics
    /// If the memory is too small for the layout.
    pub fn over(layout: Layout, memory: M) -> Self {
        assert!(memory.workers() >= layout.workers(), "too few workers in this memory");
        assert!(memory.slots() >= layout.slots(), "too few registers in this memory");
        Self { memory, layout, used: Arc::new(Mutex::new(vec![false; layout.workers()])) }
    }

    /// The worker with this id, going on from its registers.
    ///
    /// ```
    /// use holdall_assign::windows::WorkerError;
    ///
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// let mut worker = assigner.worker(1)?;
    /// assert_eq!(worker.next(), 1);
    /// assert!(matches!(assigner.worker(1), Err(WorkerError::InUse { id: 1 })));
    /// drop(worker);
    /// assert_eq!(assigner.worker(1)?.next(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such id, it is in use, or its registers fail.
    pub fn worker(&self, id: usize) -> Result<Worker<M::Handle>, WorkerError<M::Error>> {
        self.worker_with::<Sound>(id)
    }

    /// The same with other rules, for tests.
    ///
    /// ```
    /// use holdall_assign::windows::rules::Impatient;
    ///
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// assert_eq!(assigner.worker_with::<Impatient>(0)?.next(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`worker`](Self::worker).
    pub fn worker_with<V: Rules>(
        &self,
        id: usize,
    ) -> Result<Worker<M::Handle, V>, WorkerError<M::Error>> {
        if id >= self.layout.workers() {
            return Err(WorkerError::NoSuch { id, workers: self.layout.workers() });
        }
        let taken = Seats::take(&self.used, id).ok_or(WorkerError::InUse { id })?;
        let regs = self.memory.handle(id).map_err(WorkerError::Registers)?;
        let worker = Worker::resume(self.layout, id, regs).map_err(WorkerError::Registers)?;
        Ok(worker.keep(taken))
    }

    /// Who is in the middle of taking, and so may delay items of that window.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// assert_eq!(assigner.pinned(), Ok(vec![]));
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    ///
    /// # Errors
    /// If the registers fail.
    pub fn pinned(&self) -> Result<Vec<Pin>, M::Error> {
        let positions = self.positions()?;
        let pins = positions.into_iter().filter(|at| at.entering);
        Ok(pins.map(|at| Pin { worker: at.worker, items: at.items }).collect())
    }

    /// Where every worker is that has begun.
    ///
    /// ```
    /// use holdall_assign::windows::Position;
    ///
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// assigner.worker(1)?.next();
    /// let at = Position { worker: 1, items: 0..2, entering: false };
    /// assert_eq!(assigner.positions()?, [at]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the registers fail.
    pub fn positions(&self) -> Result<Vec<Position>, M::Error> {
        let mut positions = Vec::new();
        for worker in 0..self.layout.workers() {
            let word = self.memory.handle(worker)?.get(worker, Layout::SIGN)?;
            let sign = Sign(word);
            if sign.window() > 0 {
                let items = self.layout.window_items(sign.window());
                positions.push(Position { worker, items, entering: !sign.entered() });
            }
        }
        Ok(positions)
    }

    /// Its sizes.
    ///
    /// ```
    /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
    /// assert_eq!(assigner.layout().workers(), 2);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

/// Where a worker is.
/// [`Assigner::positions`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The worker.
    pub worker: usize,
    /// The items of the window it entered last, or is entering.
    pub items: Range<u64>,
    /// Whether it is in the middle of taking.
    pub entering: bool,
}

/// A worker in the middle of taking.
///
/// While it stays there, items of this window that nobody has taken remain unassigned: at most all
/// but one batch of them. Nobody waits for it.
///
/// ```
/// use holdall_assign::machine::{Access, Machine};
/// use holdall_assign::registers::{Atomics, Memory, Registers};
/// use holdall_assign::windows::Seat;
/// use holdall_assign::{Assigner, Pin};
///
/// let layout = Assigner::builder(3).layout()?;
/// let memory = Atomics::new(3, layout.slots());
/// // Worker 2 stops right after its first access: it has shown which window it wants.
/// let mut seat: Seat = Seat::new(layout, 2);
/// seat.acquire();
/// let Access::Put { slot, value } = seat.step(0) else { panic!("it puts its intent") };
/// memory.handle(2)?.put(slot, value)?;
/// let assigner = Assigner::over(layout, memory);
/// assert_eq!(assigner.pinned()?, [Pin { worker: 2, items: 0..3 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The worker.
    pub worker: usize,
    /// The items of the window it wants.
    pub items: Range<u64>,
}

/// Why there is no such worker.
/// [`Assigner::worker`] has an example.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WorkerError<E = Infallible> {
    /// A worker with this id exists.
    #[error("worker {id} exists: drop it first")]
    InUse {
        /// The id.
        id: usize,
    },
    /// An id beyond the last.
    #[error("worker {id}: the workers are 0 to {}", .workers - 1)]
    NoSuch {
        /// The id.
        id: usize,
        /// How many there are.
        workers: usize,
    },
    /// The memory failed.
    #[error("the registers cannot be used: {0:?}")]
    Registers(E),
}

/// The id of a worker, in use until dropped.
#[derive(Debug)]
pub(super) struct Seats {
    used: Arc<Mutex<Vec<bool>>>,
    id: usize,
}

impl Seats {
    fn take(used: &Arc<Mutex<Vec<bool>>>, id: usize) -> Option<Self> {
        let mut ids = used.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::replace(&mut ids[id], true);
        (!taken).then(|| Self { used: Arc::clone(used), id })
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)[self.id] = false;
    }
}
