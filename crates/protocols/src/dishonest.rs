//! What no honest party does is not done, and laid at the door of whoever did it.
//!
//! Random runs with forged messages see that honest parties come to no harm by it; here it is what
//! becomes of the message itself. And what honest parties may well do is nobody's fault.

use alloc::vec;
use alloc::vec::Vec;

use holdall_core::{
    Addr, Call, Clock, Effect, Event, Gone, ManagerId, NodeId, Options, Party, Pool, PoolId,
    Protocol, RequestId, Role, Topology, UserId,
};

use crate::awerbuch_saks::{self, AwerbuchSaks};
use crate::chandy_misra::{self, ChandyMisra};
use crate::chandy_misra_drinking::{self, Drinking};
use crate::choy_singh::{self, ChoySingh, Passed};
use crate::coordinator::{self, Coordinator};
use crate::ordered::{self, Ordered};
use crate::positions::{Move, News};
use crate::skeen::{self, Skeen};
use crate::skr::{self, Skr};
use crate::testing::{by_user, config, request, step};
use crate::walk::Walking;

const U0: UserId = UserId::first(0);
const U1: UserId = UserId::first(1);

/// A path: user 0 may ask for pools 0 and 1, user 1 for pools 1 and 2.
fn path<P: Protocol>() -> P {
    let users = [[0, 1], [1, 2]].map(|set| set.map(PoolId).into());
    let pools = vec![Pool { capacity: 1, node: NodeId(0), listed: false }; 3];
    let topology = Topology { users: users.to_vec(), ..Topology::of_pools(pools) };
    P::new(&topology, &Options::default()).expect("it serves this")
}

fn asks<R: Role<Call = Call>>(user: UserId, pools: &[u64]) -> Event<R> {
    let needs: Vec<_> = pools.iter().map(|pool| (*pool, 1)).collect();
    Event::Call(Call::Ask(request(user, &needs), None))
}

/// Who is accused in a step.
fn accused<R: Role>(cfg: &R::P, role: &mut R, event: Event<R>) -> Vec<Addr> {
    let effects = step(cfg, role, event).into_iter();
    let accused = effects.filter_map(|effect| match effect {
        Effect::Misbehaved(who, _) => Some(who),
        _ => None,
    });
    accused.collect()
}

/// Among neighbours, whoever asks for what it did not name beforehand, or twice, accuses itself.
fn is_bound_by_its_word<P: Protocol>() {
    let cfg: P = path();
    let mut user = cfg.user(U0);
    for unnamed in [&[2][..], &[0, 2]] {
        assert_eq!(accused(&cfg, &mut user, asks(U0, unnamed)), [Addr::User(U0)]);
        assert!(user.is_idle());
    }
    assert_eq!(accused(&cfg, &mut user, asks(U0, &[0, 1])), []);
    assert_eq!(accused(&cfg, &mut user, asks(U0, &[0, 1])), [Addr::User(U0)]);
}

#[test]
fn among_neighbours_everybody_is_bound_by_its_word() {
    is_bound_by_its_word::<AwerbuchSaks>();
    is_bound_by_its_word::<ChandyMisra>();
    is_bound_by_its_word::<Drinking>();
    is_bound_by_its_word::<ChoySingh>();
}

/// A message of its neighbour that a user does not believe, at the start.
fn refuses<P: Protocol>(user: UserId, from: UserId, msg: P::ToUser) {
    let cfg: P = path();
    let mut role = cfg.user(user);
    let before = role.clone();
    assert_eq!(accused(&cfg, &mut role, by_user(from, msg)), [Addr::User(from)]);
    assert_eq!(role, before);
}

/// At the start user 0 has what both share, and user 1 the token with which it may ask for it.
#[test]
fn nobody_asks_without_a_token_or_gives_what_it_was_not_asked_for() {
    let pool = PoolId(1);
    refuses::<ChandyMisra>(U1, U0, chandy_misra::ToUser::Ask);
    refuses::<ChandyMisra>(U0, U1, chandy_misra::ToUser::Fork);
    refuses::<Drinking>(U1, U0, chandy_misra_drinking::ToUser::Ask(pool));
    refuses::<Drinking>(U0, U1, chandy_misra_drinking::ToUser::Bottle(pool));
    refuses::<ChoySingh>(U1, U0, choy_singh::ToUser::Ask);
    refuses::<ChoySingh>(U0, U1, choy_singh::ToUser::Fork);
}

#[test]
fn nobody_tells_how_far_another_has_come() {
    let news = |user| choy_singh::ToUser::Passed(RequestId { user, seq: 1 }, Passed::Outer);
    refuses::<ChoySingh>(U0, U1, news(U0));
    let cfg: ChoySingh = path();
    assert_eq!(accused(&cfg, &mut cfg.user(U0), by_user(U1, news(U1))), []);
}

/// One report may overtake another, a second one may not: the first is not answered yet.
#[test]
fn who_was_not_answered_does_not_report_again() {
    let cfg: AwerbuchSaks = path();
    let mut user = cfg.user(U0);
    let early = || by_user(U1, awerbuch_saks::ToUser::Report { at: None, odd: false });
    assert_eq!(accused(&cfg, &mut user, early()), []);
    assert_eq!(accused(&cfg, &mut user, early()), [Addr::User(U1)]);
}

/// What a user says first to the manager of the only pool.
fn first_of<P: Protocol>(cfg: &P, user: UserId) -> P::ToManager {
    let said = step(cfg, &mut cfg.user(user), asks(user, &[0])).into_iter();
    let mut said = said.filter_map(|effect| match effect {
        Effect::ToManager(ManagerId(0), msg) => Some(msg),
        _ => None,
    });
    said.next().expect("it asks the manager")
}

/// Requests wait once, whether they are served or not, and only their own user takes them back. A
/// release that comes before its request is remembered, but not longer than its user is there.
fn guards_its_pool<P: Protocol>(variant: &str, release: impl Fn(RequestId) -> P::ToManager) {
    let cfg: P = config(variant, &[1]);
    let mut manager = cfg.manager(ManagerId(0));
    for user in [U0, U1] {
        let ask = || by_user(user, first_of(&cfg, user));
        assert_eq!(accused(&cfg, &mut manager, ask()), []);
        let before = manager.clone();
        assert_eq!(accused(&cfg, &mut manager, ask()), [Addr::User(user)]);
        assert_eq!(manager, before);
    }
    let before = manager.clone();
    let id = RequestId { user: U0, seq: 1 };
    assert_eq!(accused(&cfg, &mut manager, by_user(U1, release(id))), [Addr::User(U1)]);
    assert_eq!(manager, before);

    let mut manager = cfg.manager(ManagerId(0));
    assert_eq!(accused(&cfg, &mut manager, by_user(U0, release(id))), []);
    assert!(!manager.is_idle(), "the request is yet to come");
    step(&cfg, &mut manager, Event::Gone(Gone::Departed(Party::User(U1))));
    assert!(!manager.is_idle(), "of somebody else");
    step(&cfg, &mut manager, Event::Gone(Gone::Departed(Party::User(U0))));
    assert!(manager.is_idle());
}

#[test]
fn managers_guard_their_pools() {
    guards_its_pool::<Coordinator>("fifo", coordinator::ToManager::Release);
    guards_its_pool::<Ordered>("", ordered::ToManager::Release);
    guards_its_pool::<Skeen>("", skeen::ToManager::Release);
    guards_its_pool::<Skr>("", |id| skr::ToManager::Move(Move::Release(id)));
}

/// A time is agreed once, and not before the one proposed.
fn agrees_once<P: Protocol>(
    proposed: impl Fn(P::ToUser) -> Clock,
    agreed: impl Fn(RequestId, Clock) -> P::ToManager,
) {
    let cfg: P = config("", &[1]);
    let mut manager = cfg.manager(ManagerId(0));
    let times = [U0, U1].map(|user| {
        let told = step(&cfg, &mut manager, by_user(user, first_of(&cfg, user))).into_iter();
        let mut told = told.filter_map(|effect| match effect {
            Effect::ToUser(_, msg) => Some(proposed(msg)),
            _ => None,
        });
        told.next().expect("a time is proposed")
    });
    let mut agree = |user, time| {
        let msg = agreed(RequestId { user, seq: 1 }, time);
        accused(&cfg, &mut manager, by_user(user, msg))
    };
    assert_eq!(agree(U1, times[0]), [Addr::User(U1)], "before the one proposed");
    assert_eq!(agree(U1, times[1]), [], "it is not served before user 0");
    assert_eq!(agree(U1, times[1]), [Addr::User(U1)], "twice");
}

#[test]
fn times_are_agreed_once() {
    agrees_once::<Skeen>(
        |msg| match msg {
            skeen::ToUser::Proposed { time, .. } => time,
            other => panic!("{other:?}"),
        },
        |request, time| skeen::ToManager::Agreed { request, time },
    );
    agrees_once::<Skr>(
        |msg| match msg {
            skr::ToUser::Proposed { time, .. } => time,
            other => panic!("{other:?}"),
        },
        |request, time| skr::ToManager::Agreed { request, time },
    );
}

/// What was on its way to a user when it left is late, and nobody's fault.
fn lets_late_answers_pass<P: Protocol>(variant: &str, more: Option<P::ToUser>) {
    let cfg: P = config(variant, &[1]);
    let mut manager = cfg.manager(ManagerId(0));
    let answers = step(&cfg, &mut manager, by_user(U0, first_of(&cfg, U0))).into_iter();
    let answers = answers.filter_map(|effect| match effect {
        Effect::ToUser(_, msg) => Some(msg),
        _ => None,
    });
    let answers: Vec<P::ToUser> = answers.chain(more).collect();
    assert!(!answers.is_empty());
    let mut user = cfg.user(U0);
    step(&cfg, &mut user, asks(U0, &[0]));
    step(&cfg, &mut user, Event::Call(Call::Leave));
    for answer in answers {
        let from = Addr::Manager(ManagerId(0));
        let told = step(&cfg, &mut user, Event::Message { from, msg: answer });
        assert!(told.is_empty(), "{told:?}");
    }
    assert!(user.is_idle());
}

#[test]
fn late_answers_are_nobodys_fault() {
    let id = RequestId { user: U0, seq: 1 };
    let marked = || News::Marked { request: id, positions: Vec::new() };
    lets_late_answers_pass::<Coordinator>("skip", None);
    lets_late_answers_pass::<Ordered>("", None);
    lets_late_answers_pass::<Skeen>("", Some(skeen::ToUser::Held(id)));
    lets_late_answers_pass::<Skr>("", Some(skr::ToUser::News(marked())));
    lets_late_answers_pass::<Walking>("", None);
}
