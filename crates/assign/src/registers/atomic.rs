//! Registers for threads: atomic words, written and read, never exchanged.
//!
//! # Orderings
//! - Puts are `Release`, gets are `Acquire`: who sees a put sees all that its writer put before.
//!   `SeqCst` stores would do as well, but x86 makes an exchange of them.
//! - The fence is `fence(SeqCst)`: the only thing that keeps a later get from passing an earlier
//!   put. All algorithms here rest on that pattern ("I put, fence, and look for you; you put,
//!   fence, and look for me; one of us sees the other"), which release and acquire do not give.

use std::convert::Infallible;
use std::sync::Arc;

use super::{Memory, Registers};
use crate::sync::{AtomicU64, Ordering, fence};

/// Registers a cache line pair holds.
const LINE: usize = 16;

/// Two cache lines: adjacent ones are fetched together, so workers must not share a pair.
#[repr(align(128))]
#[derive(Debug)]
struct Line([AtomicU64; LINE]);

/// Single-writer registers in the memory of one process.
#[derive(Clone, Debug)]
pub struct Atomics {
    lines: Arc<[Line]>,
    workers: usize,
    slots: usize,
}

impl Atomics {
    /// Registers for `workers` workers, `slots` each, all 0.
    ///
    /// ```
    /// let memory = holdall_assign::registers::Atomics::new(4, 100);
    /// ```
    pub fn new(workers: usize, slots: usize) -> Self {
        let zero = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { lines: (0..workers * slots.div_ceil(LINE)).map(zero).collect(), workers, slots }
    }
}

impl Memory for Atomics {
    type Handle = Atomic;
    type Error = Infallible;

    fn workers(&self) -> usize {
        self.workers
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn handle(&self, worker: usize) -> Result<Atomic, Infallible> {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        let stride = self.slots.div_ceil(LINE);
        Ok(Atomic { lines: Arc::clone(&self.lines), stride, own: worker * stride })
    }
}

/// A worker's handle to [`Atomics`].
#[derive(Debug)]
pub struct Atomic {
    lines: Arc<[Line]>,
    /// Lines of one worker.
    stride: usize,
    /// The first own line.
    own: usize,
}

impl Registers for Atomic {
    type Error = Infallible;

    #[inline]
    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, Infallible> {
        let line = &self.lines[owner * self.stride + slot / LINE];
        Ok(line.0[slot % LINE].load(Ordering::Acquire))
    }

    #[inline]
    fn put(&mut self, slot: usize, value: u64) -> Result<(), Infallible> {
        self.lines[self.own + slot / LINE].0[slot % LINE].store(value, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn fence(&mut self) -> Result<(), Infallible> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    #[inline]
    fn publish(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
