//! The doors and the forks, step by step: what they are for shows only in runs longer than any that
//! can be searched.

use alloc::vec;
use alloc::vec::Vec;

use holdall_core::{
    Call, Effect, Event, NodeId, Options, Pool, PoolId, Protocol, RequestId, Topology, UserId,
};

use super::{ChoySingh, Passed, ToUser, User};
use crate::testing::{by_user, request, step};

const U0: UserId = UserId::first(0);
const U1: UserId = UserId::first(1);
const U2: UserId = UserId::first(2);

/// So many users that all ask for pool 0.
fn all_rivals(users: usize) -> ChoySingh {
    let pools = vec![Pool { capacity: 1, node: NodeId(0), listed: false }];
    let users = vec![[PoolId(0)].into(); users];
    let topology = Topology { users, ..Topology::of_pools(pools) };
    ChoySingh::new(&topology, &Options::default()).expect("it serves this")
}

fn id(user: UserId, seq: u64) -> RequestId {
    RequestId { user, seq }
}

/// What a user tells its neighbours in a step, and whether it is granted what it wants.
fn does(cfg: &ChoySingh, user: &mut User, event: Event<User>) -> (Vec<(UserId, ToUser)>, bool) {
    let (mut told, mut granted) = (Vec::new(), false);
    for effect in step(cfg, user, event) {
        match effect {
            Effect::ToUser(to, msg) => told.push((to, msg)),
            Effect::Granted(_) => granted = true,
            other => panic!("{other:?}"),
        }
    }
    (told, granted)
}

fn asks(user: UserId) -> Event<User> {
    Event::Call(Call::Ask(request(user, &[(0, 1)]), None))
}

fn nothing() -> (Vec<(UserId, ToUser)>, bool) {
    (Vec::new(), false)
}

/// Whoever passes a door says so. Whoever waits before the outer one passes when it has seen each
/// neighbour outside, be it only between two requests.
#[test]
fn nobody_passes_the_outer_door_before_its_neighbours_were_outside() {
    let cfg = all_rivals(2);
    let (mut first, mut second) = (cfg.user(U0), cfg.user(U1));
    let passes = |user, seq| {
        let passed = |passed| ToUser::Passed(id(user, seq), passed);
        [passed(Passed::Outer), passed(Passed::Inner)]
    };
    let (told, granted) = does(&cfg, &mut first, asks(U0));
    assert_eq!(told, passes(U0, 1).map(|msg| (U1, msg)));
    assert!(granted, "its fork is here");

    let [outer, inner] = passes(U0, 1);
    assert_eq!(does(&cfg, &mut second, by_user(U0, outer)), nothing());
    assert_eq!(does(&cfg, &mut second, asks(U1)), nothing(), "the other is inside");
    assert_eq!(does(&cfg, &mut second, by_user(U0, inner)), nothing(), "still the same request");
    let mut told_later = second.clone();

    let next = passes(U0, 2)[0].clone();
    let (told, _) = does(&cfg, &mut second, by_user(U0, next));
    assert_eq!(told[..2], passes(U1, 1).map(|msg| (U0, msg)), "it was outside in between");
    assert_eq!(told[2..], [(U0, ToUser::Ask)]);

    let out = ToUser::Passed(id(U0, 1), Passed::Out);
    let (told, _) = does(&cfg, &mut told_later, by_user(U0, out));
    assert_eq!(told[..2], passes(U1, 1).map(|msg| (U0, msg)));
}

/// Behind the doors a fork shared with a larger colour is kept only while those shared with smaller ones
/// are here, and asked for only then.
#[test]
fn high_forks_wait_for_the_low_ones() {
    let cfg = all_rivals(3); // Their colours are their numbers.
    let mut user = cfg.user(U1);
    let (told, granted) = does(&cfg, &mut user, asks(U1));
    assert!(told.ends_with(&[(U0, ToUser::Ask)]) && !granted, "{told:?}");
    let given = does(&cfg, &mut user, by_user(U2, ToUser::Ask));
    assert_eq!(given, (vec![(U2, ToUser::Fork)], false), "and not asked for again");
    let low = does(&cfg, &mut user, by_user(U0, ToUser::Fork));
    assert_eq!(low, (vec![(U2, ToUser::Ask)], false));
    let high = does(&cfg, &mut user, by_user(U2, ToUser::Fork));
    assert_eq!(high, (Vec::new(), true));
}
