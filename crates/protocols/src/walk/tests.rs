//! What is left of a user that is gone, and what no honest party says.

use alloc::vec::Vec;

use holdall_core::{
    Addr, Call, Effect, Event, Gone, ManagerId, Party, Protocol, RequestId, Role, UserId,
};

use super::{Manager, Move, News, ToManager, ToUser, Walk, Walking};
use crate::testing::{by_manager, by_user, config, request, step};

const U0: UserId = UserId::first(0);
const U1: UserId = UserId::first(1);

fn id(user: UserId) -> RequestId {
    RequestId { user, seq: 1 }
}

/// The second of three managers, to which the message of a user's request has come.
fn visited(cfg: &Walking, users: &[UserId]) -> Manager {
    let mut manager = cfg.manager(ManagerId(1));
    for user in users {
        let request = request(*user, &[(0, 1), (1, 1), (2, 1)]);
        let walk = ToManager::Walk(Walk { request, marked: Vec::new() });
        step(cfg, &mut manager, by_manager(0, walk));
    }
    manager
}

/// Where messages go on to.
fn onwards(cfg: &Walking, role: &mut Manager, event: Event<Manager>) -> Vec<(u64, ToManager)> {
    let sent = step(cfg, role, event).into_iter().filter_map(|effect| match effect {
        Effect::ToManager(ManagerId(to), msg) => Some((to, msg)),
        _ => None,
    });
    sent.collect()
}

/// The one who stopped had told only some that it is over: the others tell each other.
#[test]
fn who_stands_anywhere_is_purged_everywhere() {
    let cfg: Walking = config("", &[1, 1, 1]);
    let mut manager = visited(&cfg, &[U0]);
    let select = Move::Select { request: id(U0), position: 1 };
    step(&cfg, &mut manager, by_user(U0, ToManager::Move(select)));
    let gone = Event::Gone(Gone::Departed(Party::User(U0)));
    assert_eq!(onwards(&cfg, &mut manager, gone), [(2, ToManager::Purge(id(U0)))]);
    assert!(manager.is_idle());
}

#[test]
fn a_purge_ends_a_selection_and_the_next_one_begins() {
    let cfg: Walking = config("", &[1, 1, 1]);
    let mut manager = visited(&cfg, &[U0, U1]);
    let purge = by_manager(0, ToManager::Purge(id(U0)));
    let sent = onwards(&cfg, &mut manager, purge);
    let [(2, ToManager::Purge(purged)), (2, ToManager::Walk(walk))] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!((*purged, walk.request.id), (id(U0), id(U1)));
}

#[test]
fn nobody_recalls_what_another_asked_for() {
    let cfg: Walking = config("", &[1, 1, 1]);
    let mut manager = visited(&cfg, &[U0]);
    let before = manager.clone();
    let recall = by_user(U1, ToManager::Recall(id(U0)));
    let told = step(&cfg, &mut manager, recall);
    assert!(matches!(told[..], [Effect::Misbehaved(Addr::User(U1), _)]), "{told:?}");
    assert_eq!(manager, before);
}

/// Users are told the marks, and with an agent only the grant.
#[test]
fn users_are_told_what_is_theirs_to_know() {
    let marked = || News::Marked { request: id(U0), positions: Vec::new() };
    for (variant, news) in [("", News::Grant(id(U0))), ("agent", marked())] {
        let cfg: Walking = config(variant, &[1]);
        let mut user = cfg.user(U0);
        step(&cfg, &mut user, Event::Call(Call::Ask(request(U0, &[(0, 1)]), None)));
        let told = step(&cfg, &mut user, by_manager(0, ToUser::News(news)));
        assert!(matches!(told[..], [Effect::Misbehaved(Addr::Manager(_), _)]), "{told:?}");
    }
}
