//! How much tasks need at most at the same time.
//!
//! Tasks that come one after another never run together, so what is wanted is the heaviest set of
//! tasks of which none comes after another: an antichain. By Dilworth's theorem, with each task
//! counted as often as it weighs, it weighs as much as all tasks less the largest matching between
//! what comes before and what comes after.

/// The weight of the heaviest antichain. `behind` has for each place all those that come after it,
/// directly or not.
pub(crate) fn heaviest_antichain(weights: &[u32], behind: &[Vec<usize>]) -> u32 {
    let total: u32 = weights.iter().sum();
    let mut flow = Flow {
        left: weights.to_vec(),
        right: weights.to_vec(),
        behind,
        matched: vec![vec![0; weights.len()]; weights.len()],
    };
    let mut matched = 0;
    for start in 0..weights.len() {
        while flow.left[start] > 0 {
            let mut seen = vec![false; weights.len()];
            let pushed = flow.push(start, flow.left[start], &mut seen);
            if pushed == 0 {
                break;
            }
            flow.left[start] -= pushed;
            matched += pushed;
        }
    }
    total - matched
}

struct Flow<'a> {
    /// What is not yet matched of each place as one that comes before another.
    left: Vec<u32>,
    /// The same as one that comes after another.
    right: Vec<u32>,
    behind: &'a [Vec<usize>],
    /// How much of one is matched with another behind it.
    matched: Vec<Vec<u32>>,
}

impl Flow<'_> {
    /// Matches up to so much more of a place, along an augmenting path.
    fn push(&mut self, from: usize, most: u32, seen: &mut [bool]) -> u32 {
        for to in self.behind[from].clone() {
            if std::mem::replace(&mut seen[to], true) {
                continue;
            }
            let mut pushed = most.min(self.right[to]);
            if pushed > 0 {
                self.right[to] -= pushed;
            } else {
                // Whoever is matched with it may be matched with another.
                for other in 0..self.left.len() {
                    let back = self.matched[other][to].min(most);
                    if back > 0 && other != from {
                        pushed = self.push(other, back, seen);
                        self.matched[other][to] -= pushed;
                    }
                    if pushed > 0 {
                        break;
                    }
                }
            }
            if pushed > 0 {
                self.matched[from][to] += pushed;
                return pushed;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All antichains, one by one.
    fn by_hand(weights: &[u32], behind: &[Vec<usize>]) -> u32 {
        let n = weights.len();
        let is_antichain = |set: u32| {
            let has = |i: usize| set >> i & 1 == 1;
            (0..n).all(|i| !has(i) || behind[i].iter().all(|j| !has(*j)))
        };
        let weight = |set: u32| (0..n).filter(|i| set >> i & 1 == 1).map(|i| weights[i]).sum();
        (0..1 << n).filter(|set| is_antichain(*set)).map(weight).max().unwrap_or(0)
    }

    #[test]
    fn a_chain_needs_as_much_as_its_heaviest_and_strangers_need_all() {
        assert_eq!(heaviest_antichain(&[2, 5, 1], &[vec![1, 2], vec![2], vec![]]), 5);
        assert_eq!(heaviest_antichain(&[2, 5, 1], &[vec![], vec![], vec![]]), 8);
    }

    proptest! {
        #[test]
        fn it_is_the_heaviest_of_all(
            weights in prop::collection::vec(0_u32..5, 1..9),
            edges in prop::collection::vec((0_usize..9, 0_usize..9), 0..14),
        ) {
            let n = weights.len();
            let mut reach = vec![vec![false; n]; n];
            for (a, b) in edges.into_iter().filter(|(a, b)| a < b && *b < n) {
                reach[a][b] = true;
            }
            for k in 0..n {
                for i in 0..n {
                    for j in 0..n {
                        reach[i][j] |= reach[i][k] && reach[k][j];
                    }
                }
            }
            let behind: Vec<Vec<usize>> =
                reach.iter().map(|row| (0..n).filter(|j| row[*j]).collect()).collect();
            prop_assert_eq!(heaviest_antichain(&weights, &behind), by_hand(&weights, &behind));
        }
    }
}
