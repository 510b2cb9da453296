//! Algorithms as step machines: one access to shared memory a step.
//!
//! Every read-write algorithm of this crate is written once, as a [`Machine`]: a value that is
//! told what its last read returned and answers with its next access. Two things drive it:
//! [`drive`], which performs the accesses on real [`Registers`], and [`crate::explore`], which
//! performs them on a copy of a small memory in every possible order. So what is explored is the
//! code that runs, access by access: there is no second description that could drift from it.

use crate::registers::Registers;

/// The next access of a machine.
/// [`Machine`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing more to do.
    Done,
    /// Make all earlier writes visible to everybody before any later read.
    Fence,
    /// Read a register of `owner`; the next step is told its value.
    Get {
        /// The worker whose register it is.
        owner: usize,
        /// Which of its registers.
        slot: usize,
    },
    /// Make all earlier writes survive the end of this worker.
    Publish,
    /// Write one of the own registers.
    Put {
        /// Which of the own registers.
        slot: usize,
        /// What to write.
        value: u64,
    },
}

/// An algorithm of one worker, access by access.
///
/// ```
/// use holdall_assign::machine::{Access, Machine, drive};
/// use holdall_assign::registers::{Atomics, Memory, Registers};
///
/// /// Copies the first register of worker 1 to its own first.
/// struct Copy(u8);
/// impl Machine for Copy {
///     fn step(&mut self, read: u64) -> Access {
///         self.0 += 1;
///         match self.0 {
///             1 => Access::Get { owner: 1, slot: 0 },
///             2 => Access::Put { slot: 0, value: read },
///             _ => Access::Done,
///         }
///     }
/// }
///
/// let memory = Atomics::new(2, 1);
/// memory.handle(1)?.put(0, 42)?;
/// drive(&mut Copy(0), &mut memory.handle(0)?)?;
/// assert_eq!(memory.handle(1)?.get(0, 0), Ok(42));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub trait Machine {
    /// Says the next access. `read` is what the last one returned, if it was a [`Access::Get`].
    fn step(&mut self, read: u64) -> Access;
}

/// Runs a machine to its end on real registers: [`Machine`] has an example.
///
/// # Errors
/// The first error of the registers. The machine is then in the middle of an operation.
#[inline]
pub fn drive<M: Machine, R: Registers>(machine: &mut M, regs: &mut R) -> Result<(), R::Error> {
    let mut read = 0;
    loop {
        match machine.step(read) {
            Access::Done => return Ok(()),
            Access::Fence => regs.fence()?,
            Access::Get { owner, slot } => read = regs.get(owner, slot)?,
            Access::Publish => regs.publish()?,
            Access::Put { slot, value } => regs.put(slot, value)?,
        }
    }
}
