//! What a guard holds back.

use alloc::vec::Vec;

use holdall_core::{Effect, ManagerId, Protocol, RequestId, UserId};

use super::{Move, Rhee, ToManager, ToUser};
use crate::ordered::Ordered;
use crate::positions::News;
use crate::testing::{by_user, config, step};

const U0: UserId = UserId::first(0);
const U1: UserId = UserId::first(1);
const U2: UserId = UserId::first(2);

/// Otherwise a stream of reports could keep a release out (erratum D7).
#[test]
fn what_is_held_back_is_taken_in_the_order_it_came() {
    let cfg: Rhee<Ordered> = config("ordered", &[1]);
    let mut manager = cfg.manager(ManagerId(1)); // The subroutine's comes first.
    let id = |user| RequestId { user, seq: 1 };
    let report = |user| (user, ToManager::Report { request: id(user), units: 1 });
    let select =
        |user, position| (user, ToManager::Move(Move::Select { request: id(user), position }));
    let mut hears = |(user, msg)| -> Vec<(UserId, News)> {
        let told = step(&cfg, &mut manager, by_user(user, msg)).into_iter();
        let told = told.filter_map(|effect| match effect {
            Effect::ToUser(to, ToUser::News(news)) => Some((to, news)),
            _ => None,
        });
        told.collect()
    };
    hears(report(U0));
    assert_eq!(hears(select(U0, 1)), [(U0, News::Grant(id(U0)))]);
    assert!(matches!(hears(report(U1))[..], [(U1, News::Marked { .. })]));
    assert!(hears((U0, ToManager::Move(Move::Release(id(U0))))).is_empty(), "user 1 selects");
    assert!(hears(report(U2)).is_empty());
    let told = hears(select(U1, 2));
    let [(U1, News::Dec { from: 2, .. }), (U2, News::Marked { .. })] = told[..] else {
        panic!("{told:?}")
    };
}
