//! Who may conflict with whom, where that is known from the start.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use holdall_core::{Addr, Assumes, Known, Needs, PoolId, Topology, UserId};

/// What protocols among known neighbours assume: pools of one unit, users that stay, and messages
/// that arrive once, in any order.
pub(crate) const AMONG_NEIGHBOURS: Assumes =
    Assumes { participants: Known::Known, units: false, departures: false, ..Assumes::RELIABLE };

/// The conflict graph: two users are neighbours if there is a pool that both may ask for.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// For each lane, what its user may ask for.
    pools: Vec<BTreeSet<PoolId>>,
    /// For each lane, its neighbours in ascending order.
    lists: Vec<Vec<UserId>>,
}

impl Neighbours {
    pub(crate) fn new(topology: &Topology) -> Self {
        let mut sharers: BTreeMap<PoolId, Vec<UserId>> = BTreeMap::new();
        for (lane, pools) in (0..).zip(&topology.users) {
            for pool in pools {
                sharers.entry(*pool).or_default().push(UserId::first(lane));
            }
        }
        let list = |(lane, pools): (u32, &BTreeSet<PoolId>)| {
            let all = pools.iter().flat_map(|pool| &sharers[pool]).copied();
            let others: BTreeSet<_> = all.filter(|user| user.lane().number != lane).collect();
            others.into_iter().collect()
        };
        let lists = (0..).zip(&topology.users).map(list).collect();
        Self { pools: topology.users.clone(), lists }
    }

    /// The neighbours of a user, ascending. A place in this list names an edge.
    pub(crate) fn of(&self, user: UserId) -> &[UserId] {
        self.lists.get(user.lane().index()).map_or(&[], |list| list)
    }

    /// The place of a sender among the neighbours of a user; none if it is no neighbour.
    pub(crate) fn place(&self, user: UserId, from: Addr) -> Option<usize> {
        match from {
            Addr::User(from) => self.of(user).binary_search(&from).ok(),
            Addr::Manager(_) => None,
        }
    }

    /// The pools that both may ask for, ascending.
    pub(crate) fn shared(&self, a: UserId, b: UserId) -> impl Iterator<Item = PoolId> {
        let [a, b] = [a, b].map(|user| self.pools.get(user.lane().index()));
        a.zip(b).into_iter().flat_map(|(a, b)| a.intersection(b)).copied()
    }

    /// Whether a user named all these pools beforehand.
    pub(crate) fn may_ask(&self, user: UserId, needs: &Needs) -> bool {
        let pools = self.pools.get(user.lane().index());
        pools.is_some_and(|pools| needs.iter().all(|need| pools.contains(&need.pool)))
    }
}

/// A colour for each of so many things that none of those adjacent to it has: one after the other
/// takes the smallest that is left. At most one more than the most that are adjacent to any.
pub(crate) fn colours<I>(count: usize, adjacent: impl Fn(usize) -> I) -> Vec<u32>
where
    I: Iterator<Item = usize>,
{
    let mut colours: Vec<u32> = Vec::with_capacity(count);
    for thing in 0..count {
        let used: BTreeSet<u32> =
            adjacent(thing).filter_map(|it| colours.get(it)).copied().collect();
        let least_left = (0..).zip(&used).take_while(|(colour, used)| colour == *used).count();
        colours.push(least_left as u32);
    }
    colours
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use holdall_core::{ManagerId, NodeId, Pool};

    use super::*;

    #[test]
    fn what_is_adjacent_differs_in_colour() {
        let ring = |n: usize| colours(n, move |i| [(i + 1) % n, (i + n - 1) % n].into_iter());
        assert_eq!(ring(4), [0, 1, 0, 1]);
        assert_eq!(ring(5), [0, 1, 0, 1, 2]);
        assert_eq!(colours(3, |i| (0..3).filter(move |j| *j != i)), [0, 1, 2]);
        assert_eq!(colours(3, |_| 0..0), [0, 0, 0]);
    }

    #[test]
    fn whoever_shares_a_pool_is_a_neighbour() {
        let pools = vec![Pool { capacity: 1, node: NodeId(0), listed: false }; 4];
        let users = [[0, 1], [1, 2], [2, 3], [0, 3]].map(|set| set.map(PoolId).into());
        let ring =
            Neighbours::new(&Topology { users: users.to_vec(), ..Topology::of_pools(pools) });
        let user = UserId::first;
        assert_eq!(ring.of(user(0)), [user(1), user(3)]);
        assert_eq!(ring.of(user(2)), [user(1), user(3)]);
        assert_eq!(ring.of(user(9)), []);
        assert_eq!(ring.shared(user(0), user(3)).collect::<Vec<_>>(), [PoolId(0)]);
        assert_eq!(ring.shared(user(0), user(2)).count(), 0);
        assert_eq!(ring.place(user(0), Addr::User(user(3))), Some(1));
        for stranger in [user(0), user(2), user(1).next_generation().expect("a next one"), user(9)]
        {
            assert_eq!(ring.place(user(0), Addr::User(stranger)), None);
        }
        assert_eq!(ring.place(user(0), Addr::Manager(ManagerId(1))), None);
    }
}
