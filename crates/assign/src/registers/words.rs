//! Registers that are words of memory: written and read, never exchanged.
//!
//! # Orderings
//! - Puts are `Release`, gets are `Acquire`: who sees a put sees all that its writer put before.
//!   `SeqCst` stores would do as well, but x86 makes an exchange of them.
//! - The fence is `fence(SeqCst)`: the only thing that keeps a later get from passing an earlier
//!   put. All algorithms here rest on that pattern ("I put, fence, and look for you; you put,
//!   fence, and look for me; one of us sees the other"), which release and acquire do not give.
//! - Nothing is to be done to publish: memory outlives the thread, and the page cache the process.

use std::convert::Infallible;

use super::Registers;
use crate::sync::{AtomicU64, Ordering, fence};

/// Where the words are: implement this for memory that is mapped in another way.
///
/// ```
/// use std::sync::atomic::AtomicU64;
/// use holdall_assign::registers::{Registers, WordRegisters, Words};
///
/// struct Board<'a>(&'a [[AtomicU64; 8]; 2]);
/// impl Words for Board<'_> {
///     fn word(&self, owner: usize, slot: usize) -> &AtomicU64 {
///         &self.0[owner][slot]
///     }
/// }
///
/// let shared = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
/// WordRegisters::new(Board(&shared), 1).put(7, 3)?;
/// assert_eq!(WordRegisters::new(Board(&shared), 0).get(1, 7), Ok(3));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub trait Words {
    /// The word of a register.
    fn word(&self, owner: usize, slot: usize) -> &AtomicU64;
}

/// A worker's handle to words of memory: of [`Atomics`](super::Atomics), or of a
/// [`Mapped`](super::Mapped) file.
///
/// ```
/// use holdall_assign::registers::{Atomics, Memory, Registers, WordRegisters};
///
/// let memory = Atomics::new(2, 1);
/// let mut one: WordRegisters<Atomics> = memory.handle(1)?;
/// one.put(0, 5)?;
/// one.fence()?;
/// assert_eq!(memory.handle(0)?.get(1, 0), Ok(5));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct WordRegisters<W> {
    words: W,
    worker: usize,
}

impl<W: Words> WordRegisters<W> {
    /// The handle of a worker. There must be only one at a time that writes. [`Words`] has an
    /// example.
    pub fn new(words: W, worker: usize) -> Self {
        Self { words, worker }
    }
}

impl<W: Words> Registers for WordRegisters<W> {
    type Error = Infallible;

    #[inline]
    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, Infallible> {
        Ok(self.words.word(owner, slot).load(Ordering::Acquire))
    }

    #[inline]
    fn put(&mut self, slot: usize, value: u64) -> Result<(), Infallible> {
        self.words.word(self.worker, slot).store(value, Ordering::Release);
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
