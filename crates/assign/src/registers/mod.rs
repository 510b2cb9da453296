//! Shared memory as single-writer registers.
//!
//! A memory is an array of 64-bit registers for each worker; only the owner writes them, everybody
//! reads them, and all are 0 at first. Nothing stronger is assumed: no compare-and-swap, no
//! fetch-and-add, no lock.
//!
//! # What a memory must give
//! - **Freshness.** After a worker's [`Registers::fence`], all its earlier puts are seen by every
//!   get that starts later, wherever it is made; and of two workers that each put, fence and get
//!   what the other put, at least one sees the other's. A store that may serve an old version
//!   (a replica, a cache, an eventually consistent store) breaks this and hands items out twice.
//! - **Order.** Puts of one worker become visible in the order made, one by one or several at once.
//! - **Survival.** After [`Registers::publish`], the puts survive the end of the worker.
//!
//! | memory | who shares it | fence | publish |
//! |---|---|---|---|
//! | [`Atomics`] | threads | a sequentially consistent fence | nothing |
//! | [`Mapped`] | processes of one machine | the same | nothing: the page cache outlives a process |
//! | [`Dir`] | processes, or machines on a file system with fresh reads | writes the file, by rename | the same |

mod atomic;
mod dir;
#[cfg(not(any(loom, shuttle)))]
mod mapped;
mod observer;
mod words;

use std::convert::Infallible;
use std::fmt;

pub use self::atomic::Atomics;
pub use self::dir::{Dir, DirError, DirRegisters, Durability};
#[cfg(not(any(loom, shuttle)))]
pub use self::mapped::{Mapped, MappedError};
pub use self::observer::Observer;
pub use self::words::{WordRegisters, Words};

/// One worker's handle to the shared memory.
///
/// ```
/// use holdall_assign::registers::{Atomics, Memory, Registers};
///
/// let memory = Atomics::new(2, 4);
/// let (mut a, mut b) = (memory.handle(0)?, memory.handle(1)?);
/// a.put(3, 7)?;
/// a.fence()?;
/// assert_eq!(b.get(0, 3)?, 7);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub trait Registers {
    /// What may go wrong.
    type Error: fmt::Debug;

    /// Reads a register of any worker.
    ///
    /// # Errors
    /// If the memory cannot be read.
    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, Self::Error>;

    /// Writes one of the own registers; others may see it only after the next fence.
    ///
    /// # Errors
    /// If the memory cannot be written.
    fn put(&mut self, slot: usize, value: u64) -> Result<(), Self::Error>;

    /// Makes all earlier puts visible before any later get.
    ///
    /// # Errors
    /// If the memory cannot be written.
    fn fence(&mut self) -> Result<(), Self::Error>;

    /// Makes all earlier puts survive this worker.
    ///
    /// # Errors
    /// If the memory cannot be written.
    fn publish(&mut self) -> Result<(), Self::Error>;
}

/// A memory that gives each worker its handle.
///
/// ```
/// use holdall_assign::registers::{Atomics, Memory, Registers};
///
/// fn first<M: Memory>(memory: &M) -> Result<u64, M::Error> {
///     memory.handle(0)?.get(0, 0)
/// }
/// assert_eq!(first(&Atomics::new(1, 1)), Ok(0));
/// ```
pub trait Memory {
    /// The handle of one worker.
    type Handle: Registers<Error = Self::Error>;
    /// What may go wrong.
    type Error: fmt::Debug;

    /// How many workers it has registers for.
    fn workers(&self) -> usize;

    /// How many registers each has.
    fn slots(&self) -> usize;

    /// The handle of a worker. There must be only one at a time that writes.
    ///
    /// # Errors
    /// If the memory cannot be opened.
    fn handle(&self, worker: usize) -> Result<Self::Handle, Self::Error>;
}

/// Takes the error out of a result that has none.
pub(crate) fn sure<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
