//! Requests over several nodes.

use alloc::vec::Vec;

use holdall_core::{Call, Effect, Event, ManagerId, NodeId, Options, PoolId, Protocol, UserId};

use crate::house::{House, ToManager};
use crate::testing::{config, request, step};

/// Pools 0 and 2 are on one node, pool 1 is on another.
#[test]
fn each_node_is_asked_once_for_all_that_is_needed_of_it() {
    let mut topology = config::<House>("", &[1, 1, 1]).topology;
    topology.pools[2].node = NodeId(0);
    let cfg = House::new(&topology, &Options::default()).expect("a variant");
    let user = UserId::first(0);
    let ask = Event::Call(Call::Ask(request(user, &[(0, 1), (1, 1), (2, 1)]), None));
    let asked =
        step(&cfg, &mut cfg.user(user), ask).into_iter().filter_map(|effect| match effect {
            Effect::ToManager(to, ToManager::Try { needs, .. }) => {
                Some((to, needs.iter().map(|need| need.pool).collect::<Vec<_>>()))
            }
            _ => None,
        });
    let expected =
        [(ManagerId(0), [PoolId(0), PoolId(2)].into()), (ManagerId(1), [PoolId(1)].into())];
    assert_eq!(asked.collect::<Vec<_>>(), expected);
}
