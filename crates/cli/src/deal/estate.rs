//! What retired workers leave, and who gets it.
//!
//! A retired worker's journal and registers stay as they are, for ever. Everybody can see in them
//! what it leaves: items of its journal that it never started, and items of windows it entered
//! that turn out to be its own once somebody has left those windows behind. The line that retires
//! it says who gets what. So the heirs help themselves, each writing its own journal only, and
//! whoever looks finds the same. An heir that retires leaves what it has not taken to its own
//! heirs.

use holdall_assign::registers::{Memory, Onlooker};
use holdall_assign::windows::Worker;

use super::journal::{self, Known};
use super::store::{Store, tell};
use super::work::{Delays, clip, delays};

/// All journals, as they are now.
pub(super) struct Estate {
    known: Vec<Known>,
}

impl Estate {
    pub(super) fn read(store: &Store) -> anyhow::Result<Self> {
        let known = (0..store.terms.workers).map(|worker| journal::read(&store.path, worker));
        Ok(Self { known: known.collect::<Result<_, _>>()? })
    }

    /// Who gets an item that was left to this worker: it, unless it is retired and has not taken
    /// it; then its first heir, and so on.
    fn heir(&self, item: Option<u64>, mut worker: usize) -> Option<usize> {
        for _ in &self.known {
            let Known { taken, heirs, .. } = self.known.get(worker)?;
            match heirs.first() {
                None => return Some(worker),
                // It is in that one's own estate.
                Some(_) if item.is_some_and(|item| taken.contains(&item)) => return None,
                Some(heir) => worker = *heir,
            }
        }
        None
    }

    /// Items that were left to this worker and that it has not taken.
    pub(super) fn left_to(&self, worker: usize) -> Vec<u64> {
        let left = self.known.iter().flat_map(Known::estate);
        let mine = |(item, heir): &(u64, usize)| {
            self.heir(Some(*item), *heir) == Some(worker)
                && !self.known[worker].taken.contains(item)
        };
        left.filter(mine).map(|(item, _)| item).collect()
    }

    /// Items that retired workers turn out to have had although no journal says so, and that fall
    /// to this worker; and who holds up that more is known.
    pub(super) fn found_for(
        &self,
        worker: usize,
        store: &Store,
    ) -> anyhow::Result<(Vec<u64>, Delays)> {
        let (mut items, mut held) = (Vec::new(), Vec::new());
        let retired = (0..self.known.len()).filter(|from| self.known[*from].retired());
        for from in retired.filter(|from| self.heir(None, *from) == Some(worker)) {
            let regs = Onlooker::new(store.dir(false).handle(from).map_err(tell)?, from);
            let mut ghost = Worker::<_>::resume(store.layout, from, regs).map_err(tell)?;
            let mut won = Vec::new();
            ghost.stock(&mut won);
            ghost.doubtful(&mut won);
            let won = won.into_iter().filter_map(|range| clip(range, store)).flatten();
            let new = |item: &u64| !self.known.iter().any(|known| known.taken.contains(item));
            items.extend(won.filter(new));
            held.extend(delays(&ghost, store)?);
        }
        items.sort_unstable();
        items.dedup();
        Ok((items, held))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn known(taken: impl Into<BTreeSet<u64>>, heirs: &[usize]) -> Known {
        Known { taken: taken.into(), heirs: heirs.to_vec(), ..Known::default() }
    }

    #[test]
    fn heirs_of_heirs() {
        // 0 leaves 2 and 4 to 1, 1 and 3 to 2; 1 took 2 (and left it to 3) before it retired.
        let estate = Estate {
            known: vec![
                known([1, 2, 3, 4], &[1, 2]),
                known([2], &[3]),
                known([3], &[]),
                known([], &[]),
            ],
        };
        assert_eq!(estate.left_to(2), [1], "3 has been taken");
        assert_eq!(estate.left_to(3), [4, 2], "4 as the heir of an heir, 2 as its heir");
        assert_eq!(estate.left_to(1), [0; 0]);
        assert_eq!((estate.heir(None, 0), estate.heir(None, 2)), (Some(3), Some(2)));
    }

    #[test]
    fn two_that_leave_to_each_other_leave_nothing() {
        let estate = Estate { known: vec![known([1], &[1]), known([2], &[0])] };
        assert_eq!(estate.heir(None, 0), None);
    }
}
