//! Figures 2 and 3 for programs: participants that enter and announce.

use thiserror::Error;

use super::announce::{Announce, Framed};
use super::enter::Enter;
use super::growth::{BadGrowth, Growth};
use super::ids::Ids;
use crate::machine::drive;
use crate::registers::{Atomics, Memory, WordRegisters, sure};

/// An assignment of items 1, 2, ... to processors: with k operations, the first f(k).
///
/// ```
/// use holdall_assign::paper::Assignment;
///
/// let assignment = Assignment::single_use(3);
/// let mut p = assignment.participant(0);
/// assert_eq!(p.enter(), Ok(1));
/// assert_eq!(p.announce(), [(1, 0)]);
/// let mut q = assignment.participant(1);
/// assert_eq!(q.enter(), Ok(3));
/// // Two came: items 1 to 3 are assigned, and 2 turns out to be p's.
/// assert_eq!(q.announce(), [(1, 0), (2, 0), (3, 1)]);
/// ```
#[derive(Debug)]
pub struct Assignment {
    ids: Ids,
    growth: Growth,
    memory: Atomics,
}

impl Assignment {
    /// Fig. 2: one operation each, f(k) = 2k-1.
    ///
    /// ```
    /// let assignment = holdall_assign::paper::Assignment::single_use(2);
    /// assert_eq!(assignment.participant(1).enter(), Ok(1));
    /// ```
    pub fn single_use(processors: usize) -> Self {
        Self::long_lived(processors, 1)
    }

    /// Fig. 3: `operations` operations each, f(k) = 2k-1.
    ///
    /// ```
    /// let assignment = holdall_assign::paper::Assignment::long_lived(2, 3);
    /// let mut p = assignment.participant(0);
    /// let items: Vec<_> = (0..3).map(|_| p.enter()).collect();
    /// assert_eq!(items, [Ok(1), Ok(3), Ok(5)]);
    /// assert_eq!(p.announce().len(), 5);
    /// assert!(p.enter().is_err());
    /// ```
    ///
    /// # Panics
    /// If there are more than 32 processors or 64 operations in all.
    pub fn long_lived(processors: usize, operations: usize) -> Self {
        let ids = Ids::new(processors, operations);
        let memory = Atomics::new(processors, ids.slots());
        Self { ids, growth: Growth::least(ids.all()), memory }
    }

    /// The same with another f.
    ///
    /// ```
    /// use holdall_assign::paper::{Assignment, Growth};
    ///
    /// let f = Growth::new([0, 2, 4])?;
    /// let assignment = Assignment::single_use(2).with_growth(f)?;
    /// let mut p = assignment.participant(0);
    /// assert_eq!(p.enter(), Ok(2));
    /// assert_eq!(p.announce(), [(1, 0), (2, 0)]);
    /// # Ok::<(), holdall_assign::paper::BadGrowth>(())
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
    /// let (mut p, mut q) = (assignment.participant(0), assignment.participant(1));
    /// assert_ne!(p.enter(), q.enter());
    /// ```
    pub fn participant(&self, processor: usize) -> Participant {
        Participant {
            ids: self.ids,
            growth: self.growth.clone(),
            regs: sure(self.memory.handle(processor)),
            processor,
            operation: 0,
            entered: None,
        }
    }
}

/// A processor's part in an [`Assignment`].
///
/// ```
/// let assignment = holdall_assign::paper::Assignment::single_use(2);
/// let mut participant: holdall_assign::paper::Participant = assignment.participant(0);
/// assert_eq!(participant.announce(), []);
/// assert_eq!(participant.enter(), Ok(1));
/// assert_eq!(participant.announce(), [(1, 0)]);
/// ```
#[derive(Debug)]
pub struct Participant {
    ids: Ids,
    growth: Growth,
    regs: WordRegisters<Atomics>,
    processor: usize,
    operation: usize,
    /// The last operation: its identity and where it got.
    entered: Option<(usize, Enter)>,
}

/// All operations of this processor are used up.
///
/// ```
/// use holdall_assign::paper::{Assignment, Exhausted};
///
/// let mut p = Assignment::single_use(2).participant(0);
/// assert!(p.enter().is_ok());
/// assert_eq!(p.enter(), Err(Exhausted { processor: 0 }));
/// ```
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("processor {processor} has made all its operations")]
pub struct Exhausted {
    /// The processor.
    pub processor: usize,
}

impl Participant {
    /// The first item of another operation. Never waits. [`Participant`] has an example.
    ///
    /// # Errors
    /// If all operations are used up.
    pub fn enter(&mut self) -> Result<u64, Exhausted> {
        if self.operation * self.ids.processors() >= self.ids.all() {
            return Err(Exhausted { processor: self.processor });
        }
        let me = self.ids.id(self.processor, self.operation);
        let mut enter = Enter::new(self.ids, &self.growth, me);
        sure(drive(&mut enter, &mut self.regs));
        self.operation += 1;
        let item = enter.item().expect("an operation ends with an item");
        self.entered = Some((me, enter));
        Ok(item)
    }

    /// What is certain by now: items and the processors they belong to. Empty before the first
    /// operation. May be called again, to learn more.
    /// [`Participant`] has an example.
    pub fn announce(&mut self) -> Vec<(u64, usize)> {
        let Some((me, enter)) = &self.entered else {
            return Vec::new();
        };
        let mut announce = Announce::<Framed>::new(enter, self.ids, &self.growth, *me);
        sure(drive(&mut announce, &mut self.regs));
        announce.said().iter().map(|(item, id)| (*item, self.ids.owner(*id))).collect()
    }
}
