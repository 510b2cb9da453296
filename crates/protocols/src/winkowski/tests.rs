//! What no honest party does, and what a variant means.

use holdall_core::{Addr, Call, Effect, Event, ManagerId, Protocol, UserId};

use super::{Complete, Level, Number, Restricted, Settings, Stance, Ticket, ToUser, User, View};
use crate::testing::{by_manager, by_user, config, request, step};

type Effects<T> = alloc::vec::Vec<Effect<Complete, T>>;

fn accuses<T>(effects: &Effects<T>) -> Option<Addr> {
    effects.iter().find_map(|effect| match effect {
        Effect::Misbehaved(who, _) => Some(*who),
        _ => None,
    })
}

/// A user that has been granted its only pool, and the view that confirmed it.
fn granted(cfg: &Complete, id: UserId) -> (User<true>, ToUser) {
    let mut user = cfg.user(id);
    let mut manager = cfg.manager(ManagerId(0));
    let mut effects = step(cfg, &mut user, Event::Call(Call::Ask(request(id, &[(0, 1)]), None)));
    for _ in 0..10 {
        let stance = effects.iter().find_map(|effect| match effect {
            Effect::ToManager(_, stance) => Some(*stance),
            _ => None,
        });
        let stance = stance.expect("it plays on until it is granted");
        let answers = step(cfg, &mut manager, by_user(id, stance));
        let view = answers.into_iter().find_map(|effect| match effect {
            Effect::ToUser(_, view) => Some(view),
            _ => None,
        });
        let view = view.expect("every stance is answered");
        effects = step(cfg, &mut user, by_manager(0, view));
        if effects.iter().any(|effect| matches!(effect, Effect::Granted(_))) {
            return (user, view);
        }
    }
    panic!("nobody else is there, and it is not granted");
}

#[test]
fn a_view_that_does_not_fit_the_stance_is_not_believed() {
    let cfg: Complete = config("", &[1]);
    for level in [Level::Out, Level::Reg, Level::Adm, Level::Req, Level::Ord] {
        let (mut user, view) = granted(&cfg, UserId::first(0));
        let ToUser::View { request, n, version, top, .. } = view else { panic!("{view:?}") };
        let view = View { level, may: true, ..View::default() };
        let later = ToUser::View { request, n, version: version.next(), view, top };
        let effects = step(&cfg, &mut user, by_manager(0, later));
        assert_eq!(accuses(&effects), Some(Addr::Manager(ManagerId(0))), "{level:?}");
    }
}

/// An honest user may have been told it by a manager that is not: it loses its task, and no more.
#[test]
fn a_ticket_too_far_ahead_ends_the_task() {
    let cfg: Complete = config("numbers=1", &[1]);
    let mut manager = cfg.manager(ManagerId(0));
    let id = UserId::first(0);
    let mut user = cfg.user(id);
    let effects = step(&cfg, &mut user, Event::Call(Call::Ask(request(id, &[(0, 1)]), None)));
    let [Effect::ToManager(_, first)] = effects[..] else { panic!("{effects:?}") };
    let _ = step(&cfg, &mut manager, by_user(id, first));
    let number = Number::first(cfg.topology.origin).plus(u64::MAX);
    let ticket = Some(Ticket { number, n: 0, lane: id.lane() });
    let stance = Stance { n: first.n.next(), level: Level::Req, ticket, ..first };
    let effects = step(&cfg, &mut manager, by_user(id, stance));
    assert_eq!(accuses(&effects), None);
    let over = |effect: &Effect<_, _>| matches!(effect, Effect::ToUser(_, ToUser::Over(_)));
    assert!(effects.iter().any(over), "{effects:?}");
}

/// In the restricted game whoever fits once fits until it uses; a stranger who passed it would make an
/// honest manager go back on its word.
#[test]
fn nobody_passes_others_in_the_restricted_game() {
    let cfg: Restricted = config("", &[1]);
    let mut manager = cfg.manager(ManagerId(0));
    let id = UserId::first(0);
    let effects =
        step(&cfg, &mut cfg.user(id), Event::Call(Call::Ask(request(id, &[(0, 1)]), None)));
    let [Effect::ToManager(_, first)] = effects[..] else { panic!("{effects:?}") };
    let _ = step(&cfg, &mut manager, by_user(id, first));
    let number = Number::first(cfg.topology.origin);
    let ticket = Some(Ticket { number, n: 0, lane: id.lane() });
    for (level, special) in [(Level::Ord, false), (Level::Req, true)] {
        let stance = Stance { n: first.n.next(), level, special, ticket, ..first };
        let effects = step(&cfg, &mut manager, by_user(id, stance));
        assert!(matches!(effects[..], [Effect::Misbehaved(Addr::User(who), _)] if who == id));
    }
}

#[test]
fn a_variant_says_what_is_on() {
    let new = |variant| Settings::new("winkowski", Some(variant));
    let gamma = |variant| new(variant).map(|settings| settings.gamma);
    assert_eq!((gamma("gamma=7"), gamma("gamma=20")), (Ok(7), Ok(20)));
    assert!(new("gamma=21").is_err() && new("gamma=long").is_err() && new("numbers=2").is_err());
    let plain = Settings { numbers: true, agents: true, gamma: 3, ..Settings::PLAIN };
    assert_eq!(new("numbers=1,tickets=agents,gamma=3,plain"), Ok(plain));
}

/// With the agents' tickets the place at the agent comes before the agent.
#[test]
fn tickets_are_those_of_the_agents_or_of_the_lanes() {
    let cfg: Complete = config("", &[1]);
    let lane = UserId::first(5).lane();
    let number = Number::first(cfg.topology.origin);
    let of_agents = Settings { agents: true, ..Settings::DEFAULT };
    assert_eq!(of_agents.ticket(number, lane).n, 5);
    assert_eq!(Settings::DEFAULT.ticket(number, lane).n, 0);
}
