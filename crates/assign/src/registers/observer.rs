//! A handle that only looks.

use std::collections::BTreeMap;

use super::Registers;

/// A worker's registers without writing any: its puts stay in this handle.
///
/// Whoever drives a [`Worker`](crate::Worker) over it learns what that worker would learn, and
/// nobody notices. That is how the items of a worker that is gone are found out: no look of
/// anybody depends on what a worker that takes nothing writes.
///
/// ```
/// use holdall_assign::registers::{Memory, Observer};
/// use holdall_assign::{Assigner, Worker, registers::Atomics};
///
/// let layout = Assigner::builder(2).layout()?;
/// let memory = Atomics::new(2, layout.slots());
/// let assigner = Assigner::over(layout, memory.clone());
/// let (mut gone, mut other) = (assigner.worker(0)?, assigner.worker(1)?);
/// assert_eq!(gone.next(), 0);
/// drop(gone);
/// assert_eq!([other.next(), other.next()], [1, 3]);
///
/// let ghost = Observer::new(memory.handle(0)?, 0);
/// let mut ghost: Worker<_> = Worker::resume(layout, 0, ghost)?;
/// let mut had = Vec::new();
/// ghost.doubtful(&mut had);
/// assert_eq!(had, [0..1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Observer<R> {
    inner: R,
    worker: usize,
    /// What was put, by slot.
    own: BTreeMap<usize, u64>,
}

impl<R: Registers> Observer<R> {
    /// Looks on in the place of `worker`, whose handle `inner` is.
    /// [`Observer`] has an example.
    pub fn new(inner: R, worker: usize) -> Self {
        Self { inner, worker, own: BTreeMap::new() }
    }
}

impl<R: Registers> Registers for Observer<R> {
    type Error = R::Error;

    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, R::Error> {
        match self.own.get(&slot) {
            Some(value) if owner == self.worker => Ok(*value),
            _ => self.inner.get(owner, slot),
        }
    }

    fn put(&mut self, slot: usize, value: u64) -> Result<(), R::Error> {
        self.own.insert(slot, value);
        Ok(())
    }

    fn fence(&mut self) -> Result<(), R::Error> {
        self.inner.fence()
    }

    fn publish(&mut self) -> Result<(), R::Error> {
        Ok(())
    }
}
