//! Theorem 3.2: allocation has consensus power 2.
//!
//! At least: two processors that can allocate can agree. Each posts its proposal and allocates;
//! who gets item 1 has its own way, the other one takes over what was posted, which must be there.
//! At most: test-and-set, and with it Fig. 1, can be made from consensus of two, by a tournament.

use super::allocation::{Allocation, Walk};
use super::growth::Growth;
use crate::sync::{AtomicU64, Ordering};

/// One processor's way to a decision of two, one access a step: of shared memory there are the two
/// proposals and the row of test-and-set objects of an allocation.
///
/// ```
/// use holdall_assign::paper::{Growth, Propose};
///
/// let growth = Growth::least(2);
/// let mut alone = Propose::new(7);
/// assert_eq!(alone.post(), Some(7));
/// assert_eq!(alone.object(), Some(0));
/// alone.told(true, &growth);
/// assert_eq!((alone.decided(0), alone.object()), (Some(7), None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Propose {
    proposal: u64,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Propose,
    Allocate(Walk),
    /// Whether item 1 is among the items allocated.
    Allocated(bool),
}

impl Propose {
    /// A processor with a proposal.
    /// [`Propose`] has an example.
    pub fn new(proposal: u64) -> Self {
        Self { proposal, stage: Stage::Propose }
    }

    /// The proposal to be posted, the first time. [`Propose`] has an example.
    pub fn post(&mut self) -> Option<u64> {
        if self.stage != Stage::Propose {
            return None;
        }
        self.stage = Stage::Allocate(Walk::default());
        Some(self.proposal)
    }

    /// The test-and-set object to try next. [`Propose`] has an example.
    pub fn object(&self) -> Option<usize> {
        match &self.stage {
            Stage::Allocate(walk) => Some(walk.object()),
            Stage::Propose | Stage::Allocated(_) => None,
        }
    }

    /// Whether the object was won. [`Propose`] has an example.
    pub fn told(&mut self, won: bool, growth: &Growth) {
        if let Stage::Allocate(walk) = &mut self.stage
            && let Some(items) = walk.told(won, growth)
        {
            self.stage = Stage::Allocated(items.contains(&1));
        }
    }

    /// The decision, once the items are allocated; `other` is what the other one has posted.
    /// [`Propose`] has an example.
    pub fn decided(&self, other: u64) -> Option<u64> {
        match self.stage {
            Stage::Allocated(first) => Some(if first { self.proposal } else { other }),
            Stage::Propose | Stage::Allocate(_) => None,
        }
    }
}

/// Consensus of two threads from allocation.
///
/// ```
/// use holdall_assign::paper::Consensus;
///
/// let consensus = Consensus::new();
/// let decided = std::thread::scope(|scope| {
///     let threads = [0, 1].map(|who| {
///         let consensus = &consensus;
///         scope.spawn(move || consensus.decide(who, 10 + who as u64))
///     });
///     threads.map(|thread| thread.join().expect("no panic"))
/// });
/// assert_eq!(decided[0], decided[1]);
/// assert!(decided[0] == 10 || decided[0] == 11);
/// ```
#[derive(Debug)]
pub struct Consensus {
    proposals: [AtomicU64; 2],
    allocation: Allocation,
}

impl Default for Consensus {
    fn default() -> Self {
        Self::new()
    }
}

impl Consensus {
    /// Nothing is decided yet.
    /// [`Consensus`] has an example.
    pub fn new() -> Self {
        let proposals = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { proposals, allocation: Allocation::new(Growth::least(2)) }
    }

    /// What is decided, given the proposal of processor `who` (0 or 1), which calls once.
    /// [`Consensus`] has an example.
    pub fn decide(&self, who: usize, proposal: u64) -> u64 {
        // Posted before the test-and-set, whose loser acquires what its winner released.
        self.proposals[who].store(proposal, Ordering::Release);
        match self.allocation.allocate() {
            Some(items) if items.contains(&1) => proposal,
            _ => self.proposals[1 - who].load(Ordering::Acquire),
        }
    }
}

/// A processor's way through a tournament of consensus objects for two, from its leaf to the
/// root: who wins the root has won the test-and-set. Objects are numbered as in a heap, the root
/// is 1; each is accessed by one processor from its left and one from its right.
///
/// ```
/// use holdall_assign::paper::Tournament;
///
/// let mut alone = Tournament::new(2, 4);
/// assert_eq!(alone.object(), 3);
/// assert_eq!(alone.told(true), None);
/// assert_eq!(alone.object(), 1);
/// assert_eq!(alone.told(true), Some(true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tournament {
    /// The object just won, or the leaf.
    at: usize,
}

impl Tournament {
    /// The way of a processor among `processors`, a power of two.
    /// [`Tournament`] has an example.
    pub fn new(processor: usize, processors: usize) -> Self {
        Self { at: processors.next_power_of_two() + processor }
    }

    /// The object to propose oneself to next.
    /// [`Tournament`] has an example.
    pub fn object(&self) -> usize {
        self.at / 2
    }

    /// The proposal to it: the side it comes from. [`Tournament`] has an example.
    pub fn side(&self) -> bool {
        self.at % 2 == 1
    }

    /// Whether the test-and-set was won, if that is known now that the object's decision was for
    /// or against this processor. [`Tournament`] has an example.
    pub fn told(&mut self, won: bool) -> Option<bool> {
        self.at /= 2;
        (!won || self.at == 1).then_some(won)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_come_decides() {
        for first in [0, 1] {
            let consensus = Consensus::default();
            let decided = (consensus.decide(first, 5), consensus.decide(1 - first, 6));
            assert_eq!(decided, (5, 5), "{first} came first");
        }
    }
}
