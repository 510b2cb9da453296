//! What no search of small scopes shows.

use holdall_core::{Effect, Event, ManagerId, PoolId, Protocol, Resize, Stamp, UserId};

use super::{House, Stance, ToManager, ToUser};
use crate::testing::{by_user, config, needs, request, step};

/// An honest user may have been told it by a manager that is not: it loses its request, and no more.
#[test]
fn a_round_too_far_ahead_ends_the_request() {
    let cfg: House = config("", &[1, 1]);
    let mut manager = cfg.manager(ManagerId(0));
    let user = UserId::first(0);
    let request = request(user, &[(0, 1), (1, 1)]).id;
    let floor = Stamp::first(cfg.topology.origin);
    let queue = |steps| {
        let (round, base) = (floor.plus(steps), floor);
        let needs = needs(&[(0, 1)]);
        ToManager::Queue(Stance { request, n: 1, round, base, needs, parked: false })
    };
    let told = step(&cfg, &mut manager, by_user(user, queue(u64::MAX)));
    let over = |effect: &Effect<_, _>| matches!(effect, Effect::ToUser(to, ToUser::Over(id)) if *to == user && *id == request);
    assert!(told.iter().any(over), "{told:?}");
    assert!(!told.iter().any(|effect| matches!(effect, Effect::Misbehaved(..))), "{told:?}");
    let told = step(&cfg, &mut manager, by_user(user, queue(1)));
    assert!(told.is_empty(), "the request is over: {told:?}");
}

/// A pool shrinks while somebody uses all of it: a copy of what was asked then ends nothing.
#[test]
fn a_late_copy_ends_no_hold_that_no_longer_fits() {
    let cfg: House = config("", &[4]);
    let mut manager = cfg.manager(ManagerId(0));
    let user = UserId::first(0);
    let request = request(user, &[(0, 4)]).id;
    let asked = || by_user(user, ToManager::Try { request, needs: needs(&[(0, 4)]), solo: true });
    let holds = |told: &[Effect<House, _>]| matches!(told, [Effect::ToUser(_, ToUser::Yes { request: id, .. })] if *id == request);
    assert!(holds(&step(&cfg, &mut manager, asked())));
    step(&cfg, &mut manager, Event::Call(Resize { pool: PoolId(0), capacity: 3 }));
    let told = step(&cfg, &mut manager, asked());
    assert!(holds(&told), "{told:?}");
}
