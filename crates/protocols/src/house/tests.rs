//! What no search of small scopes shows.

mod nodes;
mod patience;
mod units;

use alloc::vec::Vec;

use holdall_core::{
    Effect, Event, Gone, Home, ManagerId, Party, PoolId, Protocol, Resize, Role, Stamp, UserId,
};

use super::{House, Manager, Span, Stance, ToManager, ToUser};
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
        ToManager::Queue(Stance {
            request,
            n: 1,
            round,
            span: Span::ONE,
            base,
            needs,
            parked: false,
        })
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
    let needs = || needs(&[(0, 4)]);
    let tried = || ToManager::Try { request, needs: needs(), solo: true, span: Span::ONE };
    let asked = || by_user(user, tried());
    let holds = |told: &[Effect<House, _>]| matches!(told, [Effect::ToUser(_, ToUser::Yes { request: id, .. })] if *id == request);
    assert!(holds(&step(&cfg, &mut manager, asked())));
    step(&cfg, &mut manager, Event::Call(Resize { pool: PoolId(0), capacity: 3.into() }));
    let told = step(&cfg, &mut manager, asked());
    assert!(holds(&told), "{told:?}");
}

/// A manager of one node, and users that ask for something of it alone.
struct Desk {
    cfg: House,
    manager: Manager,
}

impl Desk {
    fn new(capacities: &[u32]) -> Self {
        let cfg: House = config("", capacities);
        let manager = cfg.manager(ManagerId(0));
        Self { cfg, manager }
    }

    /// Who is served at once, and who is told that its request is over.
    fn step(&mut self, event: Event<Manager>) -> (Vec<u32>, Vec<u32>) {
        let (mut served, mut over) = (Vec::new(), Vec::new());
        for effect in step(&self.cfg, &mut self.manager, event) {
            match effect {
                Effect::ToUser(to, ToUser::Yes { .. }) => served.push(to.lane().number),
                Effect::ToUser(to, ToUser::Over(_)) => over.push(to.lane().number),
                _ => {}
            }
        }
        (served, over)
    }

    fn asks(&mut self, lane: u32, units: u32) -> (Vec<u32>, Vec<u32>) {
        let user = UserId::first(lane);
        let request = request(user, &[(0, units)]);
        let (id, span) = (request.id, Span::ONE);
        let asked = ToManager::Try { request: id, needs: request.needs, solo: true, span };
        self.step(by_user(user, asked))
    }

    fn ends(&mut self, lane: u32) -> (Vec<u32>, Vec<u32>) {
        let user = UserId::first(lane);
        let release = ToManager::Release(request(user, &[(0, 1)]).id);
        self.step(by_user(user, release))
    }

    fn resize(&mut self, capacity: u32) -> (Vec<u32>, Vec<u32>) {
        self.step(Event::Call(Resize { pool: PoolId(0), capacity: capacity.into() }))
    }
}

fn nobody() -> (Vec<u32>, Vec<u32>) {
    (Vec::new(), Vec::new())
}

/// Pools grow and shrink under those who use them and wait, and go when they have no units and no users.
#[test]
fn pools_change_under_their_users() {
    let mut desk = Desk::new(&[1]);
    assert_eq!(desk.asks(0, 1), (Vec::from([0]), Vec::new()));
    assert_eq!(desk.asks(1, 1), nobody(), "there is only one unit");
    assert_eq!(desk.resize(2), (Vec::from([1]), Vec::new()), "now there are two");
    assert_eq!(desk.resize(1), nobody(), "who holds goes on holding");
    assert_eq!(desk.asks(2, 1), nobody());
    assert_eq!(desk.ends(0), nobody(), "one unit is still used, and there is only one");
    assert_eq!(desk.ends(1), (Vec::from([2]), Vec::new()));
    assert_eq!(desk.resize(0), nobody());
    assert!(!desk.manager.pools.is_empty(), "somebody uses it");
    assert_eq!(desk.asks(3, 1), (Vec::new(), Vec::from([3])), "there will be none any more");
    assert_eq!(desk.ends(2), nobody());
    assert!(desk.manager.pools.is_empty(), "a pool without units and users is forgotten");
    assert_eq!(desk.resize(0), nobody());
    assert!(desk.manager.pools.is_empty(), "nothing begins with no units");
    assert_eq!(desk.asks(4, 1), (Vec::new(), Vec::from([4])));
    assert_eq!(desk.resize(3), nobody());
    assert_eq!(desk.asks(5, 3), (Vec::from([5]), Vec::new()), "it is there again");
}

/// Nothing is left in a manager of a cell that is gone: neither requests nor what it knew of the lanes.
#[test]
fn a_cell_that_is_gone_leaves_nothing_behind() {
    let fresh = Desk::new(&[1]).manager;
    let mut desk = Desk::new(&[1]);
    desk.asks(0, 1);
    desk.asks(1, 1);
    desk.asks(2, 1);
    assert_eq!(desk.ends(0), (Vec::from([1]), Vec::new()));
    assert!(!desk.manager.is_idle());
    desk.step(Event::Gone(Gone::Departed(Party::Home(Home::default()))));
    assert!(desk.manager.is_idle());
    assert_eq!(desk.manager, fresh);
}

/// Those who wait are told of in the order in which they are served.
#[test]
fn those_who_wait_are_told_of_in_their_order() {
    let mut desk = Desk::new(&[1]);
    for lane in [3, 1, 2, 0] {
        desk.asks(lane, 1);
    }
    let waiting = |desk: &Desk| -> Vec<u32> {
        desk.manager.waiting().iter().map(|id| id.user.lane().number).collect()
    };
    assert_eq!(waiting(&desk), [1, 2, 0], "not who holds");
    desk.ends(3);
    assert_eq!(waiting(&desk), [2, 0]);
}
