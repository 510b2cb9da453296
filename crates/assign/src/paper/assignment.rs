//! Figures 2 and 3 for programs: participants that enter and announce.

use std::convert::Infallible;

use thiserror::Error;

use super::announce::{Announce, Framed};
use super::enter::Enter;
use super::growth::{BadGrowth, Growth};
use super::ids::Ids;
use crate::machine::drive;
use crate::registers::{Atomics, Memory, Registers, WordRegisters, sure};

/// An assignment of items 1, 2, ... to processors: with k operations, the first f(k).
///
/// ```
/// use holdall_assign::paper::Assignment;
///
/// let assignment = Assignment::single_use(3);
/// let mut p = assignment.participant(0)?;
/// assert_eq!(p.enter(), Ok(1));
/// assert_eq!(p.announce(), [(1, 0)]);
/// let mut q = assignment.participant(1)?;
/// assert_eq!(q.enter(), Ok(3));
/// // Two came: items 1 to 3 are assigned, and 2 turns out to be p's.
/// assert_eq!(q.announce(), [(1, 0), (2, 0), (3, 1)]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct Assignment<M = Atomics> {
    ids: Ids,
    growth: Growth,
    memory: M,
}

impl Assignment {
    /// Fig. 2: one operation each, f(k) = 2k-1.
    ///
    /// ```
    /// let assignment = holdall_assign::paper::Assignment::single_use(2);
    /// assert_eq!(assignment.participant(1)?.enter(), Ok(1));
    /// # Ok::<(), std::convert::Infallible>(())
    /// ```
    pub fn single_use(processors: usize) -> Self {
        Self::long_lived(processors, 1)
    }

    /// Fig. 3: `operations` operations each, f(k) = 2k-1.
    ///
    /// ```
    /// let assignment = holdall_assign::paper::Assignment::long_lived(2, 3);
    /// let mut p = assignment.participant(0)?;
    /// let items: Vec<_> = (0..3).map(|_| p.enter()).collect();
    /// assert_eq!(items, [Ok(1), Ok(3), Ok(5)]);
    /// assert_eq!(p.announce().len(), 5);
    /// assert!(p.enter().is_err());
    /// # Ok::<(), std::convert::Infallible>(())
    /// ```
    ///
    /// # Panics
    /// If there are more than 32 processors or 64 operations in all.
    pub fn long_lived(processors: usize, operations: usize) -> Self {
        Self::over(Atomics::new(processors, Self::slots(processors, operations)), operations)
    }

    /// How many registers each processor needs.
    /// [`Assignment::over`] has an example.
    ///
    /// # Panics
    /// As [`long_lived`](Self::long_lived).
    pub fn slots(processors: usize, operations: usize) -> usize {
        Ids::new(processors, operations).slots()
    }
}

impl<M: Memory> Assignment<M> {
    /// Fig. 3 over a memory that is there: `operations` operations of each of its workers.
    ///
    /// ```
    /// use holdall_assign::paper::Assignment;
    /// use holdall_assign::registers::{Dir, Durability};
    ///
    /// let store = tempfile::tempdir()?;
    /// let slots = Assignment::slots(2, 3);
    /// let dir = || Dir::new(store.path(), 2, slots, [0; 4], Durability::Process);
    /// assert_eq!(Assignment::over(dir(), 3).participant(0)?.try_enter()?, 1);
    /// // In another process:
    /// assert_eq!(Assignment::over(dir(), 3).participant(1)?.try_enter()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If it has too few registers, or there are more than 32 processors or 64 operations in all.
    pub fn over(memory: M, operations: usize) -> Self {
        let ids = Ids::new(memory.workers(), operations);
        assert!(memory.slots() >= ids.slots(), "{} registers are needed", ids.slots());
        Self { ids, growth: Growth::least(ids.all()), memory }
    }

    /// The same with another f.
    ///
    /// ```
    /// use holdall_assign::paper::{Assignment, Growth};
    ///
    /// let f = Growth::new([0, 2, 4])?;
    /// let assignment = Assignment::single_use(2).with_growth(f)?;
    /// let mut p = assignment.participant(0)?;
    /// assert_eq!(p.enter(), Ok(2));
    /// assert_eq!(p.announce(), [(1, 0), (2, 0)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If f is not good for assignment.
    ///
    /// # Panics
    /// If f is not defined for as many operations as there are.
    pub fn with_growth(self, growth: Growth) -> Result<Self, BadGrowth> {
        assert!(growth.processors() >= self.ids.all(), "f is defined for too few operations");
        Ok(Self { growth: growth.assignable()?, ..self })
    }

    /// A processor's part. Each must be used once only.
    ///
    /// ```
    /// let assignment = holdall_assign::paper::Assignment::single_use(2);
    /// let (mut p, mut q) = (assignment.participant(0)?, assignment.participant(1)?);
    /// assert_ne!(p.enter(), q.enter());
    /// # Ok::<(), std::convert::Infallible>(())
    /// ```
    ///
    /// # Errors
    /// If the memory cannot be opened.
    pub fn participant(&self, processor: usize) -> Result<Participant<M::Handle>, M::Error> {
        Ok(Participant {
            ids: self.ids,
            growth: self.growth.clone(),
            regs: self.memory.handle(processor)?,
            processor,
            operation: 0,
            entered: None,
        })
    }
}

/// A processor's part in an [`Assignment`].
///
/// ```
/// use holdall_assign::paper::{Assignment, Participant};
///
/// let mut participant: Participant = Assignment::single_use(2).participant(0)?;
/// assert_eq!(participant.announce(), []);
/// assert_eq!(participant.enter(), Ok(1));
/// assert_eq!(participant.announce(), [(1, 0)]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct Participant<R = WordRegisters<Atomics>> {
    ids: Ids,
    growth: Growth,
    regs: R,
    processor: usize,
    operation: usize,
    /// The last operation: its identity and where it got.
    entered: Option<(usize, Enter)>,
}

/// Why there is no item.
///
/// ```
/// use holdall_assign::paper::{Assignment, EnterError};
///
/// let mut p = Assignment::single_use(2).participant(0)?;
/// assert!(p.enter().is_ok());
/// assert_eq!(p.enter(), Err(EnterError::Exhausted { processor: 0 }));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EnterError<E = Infallible> {
    /// All operations of this processor are used up.
    #[error("processor {processor} has made all its operations")]
    Exhausted {
        /// The processor.
        processor: usize,
    },
    /// The memory failed.
    #[error("the registers cannot be used: {0:?}")]
    Registers(E),
}

impl<R: Registers> Participant<R> {
    /// The first item of another operation. Never waits. [`Assignment::over`] has an example.
    ///
    /// # Errors
    /// If all operations are used up, or the registers fail.
    pub fn try_enter(&mut self) -> Result<u64, EnterError<R::Error>> {
        if self.operation * self.ids.processors() >= self.ids.all() {
            return Err(EnterError::Exhausted { processor: self.processor });
        }
        let me = self.ids.id(self.processor, self.operation);
        let mut enter = Enter::new(self.ids, &self.growth, me);
        drive(&mut enter, &mut self.regs).map_err(EnterError::Registers)?;
        self.regs.publish().map_err(EnterError::Registers)?;
        self.operation += 1;
        let item = enter.item().expect("an operation ends with an item");
        self.entered = Some((me, enter));
        Ok(item)
    }

    /// What is certain by now: items and the processors they belong to. Empty before the first
    /// operation. May be called again, to learn more.
    /// [`Participant`] has an example.
    ///
    /// # Errors
    /// If the registers fail.
    pub fn try_announce(&mut self) -> Result<Vec<(u64, usize)>, R::Error> {
        let Some((me, enter)) = &self.entered else {
            return Ok(Vec::new());
        };
        // Whoever posted its item before sees, or is seen by, this one.
        self.regs.fence()?;
        let mut announce = Announce::<Framed>::new(enter, self.ids, &self.growth, *me);
        drive(&mut announce, &mut self.regs)?;
        Ok(announce.said().iter().map(|(item, id)| (*item, self.ids.owner(*id))).collect())
    }
}

impl<R: Registers<Error = Infallible>> Participant<R> {
    /// The first item of another operation. Never waits. [`Participant`] has an example.
    ///
    /// # Errors
    /// If all operations are used up.
    pub fn enter(&mut self) -> Result<u64, EnterError> {
        self.try_enter()
    }

    /// What is certain by now: items and the processors they belong to. Empty before the first
    /// operation. May be called again, to learn more.
    /// [`Participant`] has an example.
    pub fn announce(&mut self) -> Vec<(u64, usize)> {
        sure(self.try_announce())
    }
}
