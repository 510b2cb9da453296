//! Units by name, at one manager.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use holdall_core::{
    Capacity, Effect, Event, ManagerId, Need, Needs, PoolId, Protocol, RequestId, Resize, Unit,
    UserId,
};

use super::super::{House, Manager, Marks, Round, Span, Stance, ToManager, ToUser};
use crate::testing::{by_user, config, config_of, request, step};

/// A manager of one listed pool.
struct Desk {
    cfg: House,
    manager: Manager,
}

type Served = Vec<(u32, Vec<Unit>)>;

impl Desk {
    fn new(units: u32) -> Self {
        let cfg: House = config_of("", &[units], true);
        Self { manager: cfg.manager(ManagerId(0)), cfg }
    }

    /// Who is served at once, and with what.
    fn step(&mut self, event: Event<Manager>) -> Served {
        let told = step(&self.cfg, &mut self.manager, event).into_iter();
        let served = told.filter_map(|effect| match effect {
            Effect::ToUser(to, ToUser::Yes { units, .. }) => {
                Some((to.lane().number, units.into_values().flatten().collect()))
            }
            _ => None,
        });
        served.collect()
    }

    fn asks(&mut self, lane: u32, units: u32, named: &[Unit]) -> Served {
        let user = UserId::first(lane);
        let need = Need { named: named.iter().copied().collect(), ..Need::any(PoolId(0), units) };
        let needs = Needs::new(vec![need]).expect("sensible");
        let request = RequestId { user, seq: 1 };
        self.step(by_user(user, ToManager::Try { request, needs, solo: true, span: Span::ONE }))
    }

    fn ends(&mut self, lane: u32) -> Served {
        let user = UserId::first(lane);
        self.step(by_user(user, ToManager::Release(request(user, &[(0, 1)]).id)))
    }

    fn has(&mut self, units: &[Unit], away: &[Unit]) -> Served {
        let set = |some: &[Unit]| some.iter().copied().collect::<BTreeSet<Unit>>();
        let capacity = Capacity::Listed { units: set(units), away: set(away) };
        self.step(Event::Call(Resize { pool: PoolId(0), capacity }))
    }
}

#[test]
fn units_are_picked_and_told() {
    let mut desk = Desk::new(4);
    assert_eq!(desk.asks(0, 2, &[2]), [(0, vec![0, 2])], "the unit named and another one");
    assert_eq!(desk.asks(1, 1, &[2]), [], "that is in use");
    assert_eq!(desk.asks(2, 1, &[]), [(2, vec![1])]);
    assert_eq!(desk.ends(0), [(1, vec![2])]);
}

/// Whoever waits for a unit by name is not passed by those who would take any.
#[test]
fn what_the_oldest_named_is_kept_for_it() {
    let mut desk = Desk::new(3);
    desk.asks(0, 1, &[0]);
    desk.asks(1, 1, &[1]);
    assert_eq!(desk.asks(2, 2, &[0, 1]), []);
    assert_eq!(desk.ends(0), [], "1 is in use");
    assert_eq!(desk.asks(3, 1, &[]), [(3, vec![2])], "0 is free, and kept");
    assert_eq!(desk.asks(4, 1, &[]), []);
    assert_eq!(desk.ends(1), [(2, vec![0, 1])]);
}

/// Whoever waits for any units is not passed by those who name some.
#[test]
fn what_the_oldest_counts_on_is_kept_for_it() {
    let mut desk = Desk::new(2);
    desk.asks(0, 1, &[0]);
    assert_eq!(desk.asks(1, 2, &[]), []);
    assert_eq!(desk.asks(2, 1, &[1]), [], "it is free, and one of the two that are waited for");
    assert_eq!(desk.ends(0), [(1, vec![0, 1])]);
}

/// Whoever needs a unit that is away waits, and keeps nothing from others.
#[test]
fn units_that_are_away_hold_nobody_up_who_can_do_without() {
    let mut desk = Desk::new(3);
    assert_eq!(desk.has(&[0, 1, 2], &[2]), []);
    assert_eq!(desk.asks(0, 2, &[2]), [], "2 is away");
    assert_eq!(desk.asks(1, 3, &[]), [], "so there are not three");
    assert_eq!(desk.asks(2, 2, &[]), [(2, vec![0, 1])]);
    assert_eq!(desk.has(&[0, 1, 2], &[]), [], "it is back, but not alone");
    assert_eq!(desk.asks(3, 1, &[]), [], "it is kept for the first");
    assert_eq!(desk.ends(2), [(0, vec![0, 2])]);
    assert_eq!(desk.has(&[0, 1], &[]), [], "what is removed stays in use");
    assert_eq!(desk.ends(0), [], "there will not be three any more");
}

/// However many wait, and under whatever rounds, a refusal is small.
#[test]
fn a_refusal_is_bounded() {
    let cfg: House = config("", &[1, 1]);
    let mut manager = cfg.manager(ManagerId(0));
    let needs = || Needs::new(vec![Need::any(PoolId(0), 1)]).expect("sensible");
    let base = Round::first(cfg.topology.origin);
    let refused = |told: Vec<Effect<House, _>>| {
        told.into_iter().find_map(|effect| match effect {
            Effect::ToUser(_, ToUser::No { marks, .. }) => Some(marks),
            _ => None,
        })
    };
    let mut queue = |lane, round| {
        let user = UserId::first(lane);
        let request = RequestId { user, seq: 1 };
        let stance =
            Stance { request, n: 1, round, span: Span::ONE, base, needs: needs(), parked: false };
        refused(step(&cfg, &mut manager, by_user(user, ToManager::Queue(stance))))
    };
    let round = |lane: u32| base.plus(2 * u64::from(lane) + 2);
    for lane in 0..500 {
        assert_eq!(queue(lane, round(lane)), None, "nobody else has this round");
    }
    let marks = queue(500, round(300)).expect("that is taken");
    assert_eq!(marks.stretches(), Marks::TOLD);
    assert_eq!(marks.first_free(round(300), Span::ONE), round(300).next(), "the next one is not");
    assert_eq!(marks.first_free(round(300).next(), Span::ONE), round(301).next());
    let user = UserId::first(501);
    let request = RequestId { user, seq: 1 };
    let tried = ToManager::Try { request, needs: needs(), solo: false, span: Span::ONE };
    let marks = refused(step(&cfg, &mut manager, by_user(user, tried))).expect("it must wait");
    assert_eq!(marks.stretches(), Marks::TOLD);
    assert_eq!(marks.first_free(round(9), Span::ONE), round(9).next());
}
