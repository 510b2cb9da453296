//! Fig. 1: allocation from test-and-set.
//!
//! With k participants exactly the first f(k) items are allocated, and each participant leaves
//! knowing all of its own. That has consensus power 2, so plain registers cannot do it.

use std::ops::RangeInclusive;

use super::growth::Growth;
use crate::sync::{AtomicBool, Ordering};

/// A row of test-and-set objects.
///
/// ```
/// use holdall_assign::paper::{Allocation, Growth};
///
/// let allocation = Allocation::new(Growth::new([0, 1, 4, 9])?);
/// assert_eq!(allocation.allocate(), Some(1..=1));
/// assert_eq!(allocation.allocate(), Some(2..=4));
/// assert_eq!(allocation.allocate(), Some(5..=9));
/// assert_eq!(allocation.allocate(), None);
/// # Ok::<(), holdall_assign::paper::BadGrowth>(())
/// ```
#[derive(Debug)]
pub struct Allocation {
    growth: Growth,
    taken: Vec<AtomicBool>,
}

impl Allocation {
    /// For as many processors as f is defined for, f strictly increasing.
    ///
    /// ```
    /// use holdall_assign::paper::{Allocation, Growth};
    ///
    /// let allocation = Allocation::new(Growth::least(3));
    /// assert_eq!(allocation.allocate(), Some(1..=1));
    /// ```
    pub fn new(growth: Growth) -> Self {
        let taken = (0..growth.processors()).map(|_| AtomicBool::new(false)).collect();
        Self { growth, taken }
    }

    /// The items of the first object won; `None` if more processors came than f is defined for.
    /// [`Allocation`] has an example.
    pub fn allocate(&self) -> Option<RangeInclusive<u64>> {
        let mut walk = Walk::default();
        while walk.object < self.taken.len() {
            // Acquire and release: who loses knows that the winner was there. Nothing else is
            // passed on.
            let won = !self.taken[walk.object].swap(true, Ordering::AcqRel);
            if let Some(items) = walk.told(won, &self.growth) {
                return Some(items);
            }
        }
        None
    }
}

/// A processor's way along the row, one test-and-set a step.
///
/// ```
/// use holdall_assign::paper::{Growth, Walk};
///
/// let growth = Growth::new([0, 1, 4])?;
/// let mut walk = Walk::default();
/// assert_eq!((walk.object(), walk.told(false, &growth)), (0, None));
/// assert_eq!((walk.object(), walk.told(true, &growth)), (1, Some(2..=4)));
/// # Ok::<(), holdall_assign::paper::BadGrowth>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Walk {
    object: usize,
}

impl Walk {
    /// The object to try next, from 0.
    /// [`Walk`] has an example.
    pub fn object(&self) -> usize {
        self.object
    }

    /// The items, if the object was won; otherwise goes on to the next.
    /// [`Walk`] has an example.
    pub fn told(&mut self, won: bool, growth: &Growth) -> Option<RangeInclusive<u64>> {
        self.object += 1;
        won.then(|| growth.at(self.object - 1) + 1..=growth.at(self.object))
    }
}
