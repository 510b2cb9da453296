//! f: how many items there are for k participants.

use std::sync::Arc;

use thiserror::Error;

/// f(0), f(1), ..., f(n): with k participants, the items 1 to f(k) are shared out.
///
/// ```
/// let squares = holdall_assign::paper::Growth::new([0, 1, 4, 9])?;
/// assert_eq!((squares.at(2), squares.processors()), (4, 3));
/// # Ok::<(), holdall_assign::paper::BadGrowth>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Growth(Arc<[u64]>);

/// Why a function will not do.
/// [`Growth::assignable`] has an example.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadGrowth {
    /// f(0) must be 0, and f strictly increasing.
    #[error("f({0}) does not grow: f must start with f(0) = 0 and increase strictly")]
    Flat(usize),
    /// A group of processors would find too few items.
    #[error("f({k}) - f({j}) is below 2*{}-1: {} processors together need that many", .k - .j, .k - .j)]
    Narrow {
        /// Participants after the group.
        k: usize,
        /// Participants before it.
        j: usize,
    },
    /// The quotas would leave items over.
    #[error("f({}) - f({k}) is below f(1): the quotas would leave items unassigned", .k + 1)]
    Slow {
        /// The place.
        k: usize,
    },
}

impl Growth {
    /// f by its values, f(0) first. Good for allocation.
    ///
    /// ```
    /// use holdall_assign::paper::Growth;
    ///
    /// assert!(Growth::new([0, 1, 4, 9]).is_ok());
    /// assert!(Growth::new([0, 1, 1]).is_err());
    /// ```
    ///
    /// # Errors
    /// If f(0) is not 0 or f does not increase strictly.
    pub fn new(values: impl Into<Arc<[u64]>>) -> Result<Self, BadGrowth> {
        let values = values.into();
        if values.first() != Some(&0) {
            return Err(BadGrowth::Flat(0));
        }
        match values.windows(2).position(|pair| pair[0] >= pair[1]) {
            Some(k) => Err(BadGrowth::Flat(k + 1)),
            None => Ok(Self(values)),
        }
    }

    /// 2k-1, the least for which plain registers suffice.
    ///
    /// ```
    /// let least = holdall_assign::paper::Growth::least(3);
    /// assert_eq!([0, 1, 2, 3].map(|k| least.at(k)), [0, 1, 3, 5]);
    /// ```
    pub fn least(processors: usize) -> Self {
        Self((0..=processors as u64).map(|k| (2 * k).saturating_sub(1)).collect())
    }

    /// The same f, if it is good for assignment: every group of processors that come together has
    /// items enough, and the quotas leave none over.
    ///
    /// The paper's condition lacks the case j = 0 and the second half (errata D4).
    ///
    /// ```
    /// use holdall_assign::paper::{BadGrowth, Growth};
    ///
    /// assert!(Growth::new([0, 2, 4, 6])?.assignable().is_ok());
    /// // A first group of two needs three items.
    /// assert_eq!(Growth::new([0, 1, 2, 4])?.assignable(), Err(BadGrowth::Narrow { k: 2, j: 0 }));
    /// // The first quota is larger than the later ones.
    /// assert_eq!(Growth::new([0, 5, 6, 8])?.assignable(), Err(BadGrowth::Slow { k: 1 }));
    /// # Ok::<(), BadGrowth>(())
    /// ```
    ///
    /// # Errors
    /// Where it is not.
    pub fn assignable(self) -> Result<Self, BadGrowth> {
        for k in 1..=self.processors() {
            for j in 0..k {
                if self.at(k) - self.at(j) < 2 * (k - j) as u64 - 1 {
                    return Err(BadGrowth::Narrow { k, j });
                }
            }
        }
        // 2k-1 has f(1) = 1, which every step exceeds.
        let slow = (1..self.processors()).find(|k| self.at(k + 1) - self.at(*k) < self.at(1));
        slow.map_or(Ok(self), |k| Err(BadGrowth::Slow { k }))
    }

    /// f(k).
    /// [`Growth`] has an example.
    pub fn at(&self, k: usize) -> u64 {
        self.0[k]
    }

    /// For how many processors it is defined.
    /// [`Growth`] has an example.
    pub fn processors(&self) -> usize {
        self.0.len() - 1
    }

    /// The rank of the processor that gets the free item in this position among all free ones.
    ///
    /// Rank j has a quota of f(j+1) - f(j) - 1, so the ranks up to j end at f(j+1) - f(1) - j; the
    /// last rank takes all that remain.
    pub(super) fn rank(&self, position: u64) -> usize {
        let ends = |j: &usize| position <= self.at(j + 1) - self.at(1) - *j as u64;
        (1..self.processors()).find(ends).unwrap_or_else(|| self.processors())
    }
}
