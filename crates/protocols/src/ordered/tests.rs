//! The order in which pools are taken.

use alloc::vec;
use alloc::vec::Vec;

use holdall_core::{
    Call, Effect, Event, ManagerId, NodeId, Options, Pool, PoolId, Protocol, Topology, UserId,
};

use super::Ordered;
use crate::testing::{request, step};

/// Whom a user asks first that needs two pools.
fn first(variant: Option<&str>, needs: [u64; 2]) -> ManagerId {
    // A path, and pools that are not there.
    let users = [vec![0, 1], vec![1, 2], vec![2, 3, 4, 9]];
    let users = users.map(|set| set.into_iter().map(PoolId).collect());
    let pools = vec![Pool { capacity: 1, node: NodeId(0), listed: false }; 4];
    let topology = Topology { users: users.to_vec(), ..Topology::of_pools(pools) };
    let options = Options { variant: variant.map(Into::into), ..Options::default() };
    let cfg = Ordered::new(&topology, &options).expect("a variant");
    let id = UserId::first(1);
    let ask = Event::Call(Call::Ask(request(id, &needs.map(|pool| (pool, 1))), None));
    let asked: Vec<_> = step(&cfg, &mut cfg.user(id), ask);
    match asked[..] {
        [Effect::ToManager(manager, _)] => manager,
        _ => panic!("{asked:?}"),
    }
}

/// Pools 0 and 2 are never needed together and have one colour, pools 1 and 3 another.
#[test]
fn pools_are_taken_by_colour_or_by_number() {
    assert_eq!(first(None, [2, 1]), ManagerId(1));
    assert_eq!(first(Some("coloured"), [1, 2]), ManagerId(2), "its colour comes first");
    assert_eq!(first(Some("coloured"), [1, 0]), ManagerId(0));
    assert_eq!(first(Some("coloured"), [3, 2]), ManagerId(2));
}
