//! Pools that change beside others.

use alloc::vec::Vec;

use holdall_core::{Effect, Event, ManagerId, PoolId, Protocol, Resize, UserId};

use super::{Coordinator, ToManager};
use crate::testing::{by_user, config, request, step};

#[test]
fn a_pool_changes_and_those_beside_it_do_not() {
    let cfg: Coordinator = config("skip", &[1, 2]);
    let mut manager = cfg.manager(ManagerId(0));
    step(&cfg, &mut manager, Event::Call(Resize { pool: PoolId(0), capacity: 3.into() }));
    let user = UserId::first(0);
    let ask = ToManager::Ask(request(user, &[(0, 3), (1, 2)]));
    let told: Vec<_> = step(&cfg, &mut manager, by_user(user, ask));
    assert!(matches!(told[..], [Effect::ToUser(..)]), "{told:?}");
}
