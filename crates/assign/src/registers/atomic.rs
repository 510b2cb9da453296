//! Registers for threads: words in the memory of one process.

use std::convert::Infallible;
use std::sync::Arc;

use super::Memory;
use super::words::{WordRegisters, Words};
use crate::sync::AtomicU64;

/// Registers a pair of cache lines holds.
const LINE: usize = 16;

/// Two cache lines: adjacent ones are fetched together, so workers must not share a pair.
#[repr(align(128))]
#[derive(Debug)]
struct Line([AtomicU64; LINE]);

/// Single-writer registers in the memory of one process.
///
/// ```
/// use holdall_assign::registers::{Atomics, Memory};
///
/// let memory = Atomics::new(4, 100);
/// assert_eq!((memory.workers(), memory.slots()), (4, 100));
/// ```
#[derive(Clone, Debug)]
pub struct Atomics {
    lines: Arc<[Line]>,
    workers: usize,
    slots: usize,
    /// Lines of one worker.
    stride: usize,
}

impl Atomics {
    /// Registers for `workers` workers, `slots` each, all 0.
    ///
    /// ```
    /// let memory = holdall_assign::registers::Atomics::new(4, 100);
    /// ```
    pub fn new(workers: usize, slots: usize) -> Self {
        let stride = slots.div_ceil(LINE);
        let zero = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { lines: (0..workers * stride).map(zero).collect(), workers, slots, stride }
    }
}

impl Words for Atomics {
    #[inline]
    fn word(&self, owner: usize, slot: usize) -> &AtomicU64 {
        &self.lines[owner * self.stride + slot / LINE].0[slot % LINE]
    }
}

impl Memory for Atomics {
    type Handle = WordRegisters<Self>;
    type Error = Infallible;

    fn workers(&self) -> usize {
        self.workers
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn handle(&self, worker: usize) -> Result<Self::Handle, Infallible> {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        Ok(WordRegisters::new(self.clone(), worker))
    }
}
