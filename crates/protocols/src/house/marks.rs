//! Rounds in which there is no room.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Round, Span};

/// Rounds in which there is no room, from the first to the last of each stretch; in order, with other
/// rounds between them.
///
/// Where many wait, their rounds are dense, so stretches are few. A manager tells at most
/// [`Marks::TOLD`] of them: whoever then chooses a round that is taken is told so, and chooses again.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Marks(Vec<(Round, Round)>);

impl Marks {
    pub(super) const NONE: Self = Self(Vec::new());
    /// As many stretches as are told at once.
    pub const TOLD: usize = 64;

    /// The least round above a floor from which on so many are not marked.
    pub fn first_free(&self, floor: Round, span: Span) -> Round {
        let mut round = floor.next();
        for (first, last) in &self.0 {
            if *first <= span.last(round) && round <= *last {
                round = last.next();
            }
        }
        round
    }

    /// How many stretches there are.
    #[cfg(test)]
    pub(super) fn stretches(&self) -> usize {
        self.0.len()
    }

    /// Whether one of so many rounds is marked, from one on.
    pub(super) fn meet(&self, round: Round, span: Span) -> bool {
        self.0.iter().any(|(first, last)| *first <= span.last(round) && round <= *last)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// These as well, whoever told them.
    pub(super) fn add(&mut self, others: Self) {
        let mut all = core::mem::take(&mut self.0);
        all.extend(others.0.into_iter().filter(|(first, last)| first <= last));
        all.sort_unstable();
        for (first, last) in all {
            match self.0.last_mut() {
                Some((_, end)) if first <= end.next() => *end = last.max(*end),
                _ => self.0.push((first, last)),
            }
        }
    }

    /// Not more than are told at once: the first of those that matter to whoever chooses above a round.
    #[must_use]
    pub(super) fn told_above(mut self, round: Round) -> Self {
        if self.0.len() > Self::TOLD {
            self.0.retain(|(_, last)| *last > round);
            self.0.truncate(Self::TOLD);
        }
        self
    }
}

impl From<BTreeSet<Round>> for Marks {
    fn from(rounds: BTreeSet<Round>) -> Self {
        let mut marks = Self::default();
        marks.add(Self(rounds.into_iter().map(|round| (round, round)).collect()));
        marks
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(first, last)| *first..=*last)).finish()
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::Origin;

    use super::*;

    fn round(n: u64) -> Round {
        Round::first(Origin::default()).plus(n)
    }

    fn span(rounds: u8) -> Span {
        Span::try_from(rounds).expect("a span")
    }

    fn marks(rounds: &[u64]) -> Marks {
        rounds.iter().map(|n| round(*n)).collect::<BTreeSet<Round>>().into()
    }

    #[test]
    fn rounds_are_joined_to_stretches() {
        let mut some = marks(&[1, 2, 3, 7]);
        assert_eq!(some, Marks(alloc::vec![(round(1), round(3)), (round(7), round(7))]));
        for (floor, free) in [(0, 4), (1, 4), (3, 4), (4, 5), (6, 8), (9, 10)] {
            assert_eq!(some.first_free(round(floor), Span::ONE), round(free), "above {floor}");
        }
        for (floor, free) in [(0, 4), (4, 8), (3, 4), (5, 8), (7, 8)] {
            assert_eq!(some.first_free(round(floor), span(3)), round(free), "three above {floor}");
        }
        some.add(marks(&[4, 5, 6]));
        assert_eq!(some, marks(&[1, 2, 3, 4, 5, 6, 7]));
        let meet = |some: &Marks, n, of| some.meet(round(n), span(of));
        assert!(meet(&some, 6, 1) && !meet(&some, 8, 1) && meet(&some, 7, 9));
        assert!(meet(&marks(&[4]), 2, 3) && !meet(&marks(&[4]), 2, 2) && !meet(&marks(&[4]), 5, 2));
    }

    /// What strangers send is put in order.
    #[test]
    fn stretches_that_make_no_sense_are_mended() {
        let mut some = Marks::default();
        let (a, b, c) = ((round(9), round(3)), (round(5), round(8)), (round(2), round(6)));
        some.add(Marks(alloc::vec![a, b, c]));
        assert_eq!(some, Marks(alloc::vec![(round(2), round(8))]));
    }

    #[test]
    fn not_all_are_told_where_there_are_too_many() {
        let odd: Vec<u64> = (0..1000).map(|n| 2 * n + 1).collect();
        let told = marks(&odd).told_above(round(100));
        assert_eq!(told.0.len(), Marks::TOLD);
        assert_eq!(told.first_free(round(100), Span::ONE), round(102), "what comes next is told");
        assert_eq!(marks(&[1, 3]).told_above(round(9)), marks(&[1, 3]), "few are told as they are");
    }
}
