//! What the simulator, where time is kept, does not come to.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use holdall_core::{
    Call, Effect, Event, Gone, LinkStamp, ManagerId, Party, Protocol, Role, UserId,
};

use super::{Manager, ManagerTimer, TIMEOUT, ToManager, User, UserTimer, Watched};
use crate::ordered::Ordered;
use crate::testing::{by_manager, by_user, config, request, step};

type Watcher = Manager<<Ordered as Protocol>::Manager>;
type Client = User<<Ordered as Protocol>::User>;
type Msg = ToManager<<Ordered as Protocol>::ToManager>;

const M0: ManagerId = ManagerId(0);

fn cfg() -> Watched<Ordered> {
    config("ordered", &[1])
}

/// What a user does: what it sends, and what becomes of its beat and of its request.
fn does(cfg: &Watched<Ordered>, user: &mut Client, event: Event<Client>) -> (Vec<Msg>, String) {
    let (mut sent, mut beat) = (Vec::new(), String::new());
    for effect in step(cfg, user, event) {
        match effect {
            Effect::ToManager(M0, msg) => sent.push(msg),
            Effect::Arm(UserTimer::Beat, 0) => beat.push_str("armed"),
            Effect::Disarm(UserTimer::Beat) => beat.push_str("disarmed"),
            Effect::Granted(_) => beat.push_str("granted"),
            Effect::Released(_) => {}
            other => panic!("{other:?}"),
        }
    }
    (sent, beat)
}

/// What a manager does: whom it tells something, and what becomes of its watches.
fn watches(cfg: &Watched<Ordered>, manager: &mut Watcher, event: Event<Watcher>) -> Vec<String> {
    let told = step(cfg, manager, event).into_iter().map(|effect| match effect {
        Effect::Arm(ManagerTimer::Silent(user), TIMEOUT) => format!("watch {user:?}"),
        Effect::Disarm(ManagerTimer::Silent(user)) => format!("rest {user:?}"),
        Effect::ToUser(user, _) => format!("tell {user:?}"),
        Effect::Misbehaved(..) => "misbehaved".into(),
        Effect::Tally(what, 1) => what.into(),
        other => panic!("{other:?}"),
    });
    told.collect()
}

/// A user and the first thing it says: it asks for the only pool.
fn asking(cfg: &Watched<Ordered>, lane: u32) -> (UserId, Client, Msg) {
    let id = UserId::first(lane);
    let mut user = cfg.user(id);
    let ask = Event::Call(Call::Ask(request(id, &[(0, 1)]), None));
    let (mut sent, beat) = does(cfg, &mut user, ask);
    assert_eq!((sent.len(), beat.as_str()), (1, "armed"));
    (id, user, sent.remove(0))
}

/// From asking to the end of its use a user beats, whatever it says besides; then it says that it rests.
#[test]
fn a_user_beats_while_it_is_busy_and_then_rests() {
    let cfg = cfg();
    let (id, mut user, asked) = asking(&cfg, 0);
    let ToManager::ByUser(first, _) = asked else { panic!("{asked:?}") };
    let (beats, beat) = does(&cfg, &mut user, Event::Timer(UserTimer::Beat));
    let [ToManager::Beat(second)] = beats[..] else { panic!("{beats:?}") };
    assert!(first < second && beat == "armed", "it rings once");
    assert!(!user.is_idle());
    let mut manager = cfg.manager(M0);
    let grant = step(&cfg, &mut manager, by_user(id, asked)).into_iter();
    let mut grant = grant.filter_map(|effect| match effect {
        Effect::ToUser(_, msg) => Some(msg),
        _ => None,
    });
    let granted = by_manager(0, grant.next().expect("the pool is free"));
    assert_eq!(does(&cfg, &mut user, granted), (Vec::new(), "granted".into()), "and it beats on");
    let (sent, beat) = does(&cfg, &mut user, Event::Call(Call::Done));
    let [ToManager::ByUser(third, _), ToManager::Rest(fourth)] = sent[..] else {
        panic!("{sent:?}")
    };
    assert!(second < third && third < fourth && beat == "disarmed");
    assert!(user.is_idle());
    let (sent, beat) = does(&cfg, &mut user, Event::Timer(UserTimer::Beat));
    assert_eq!((sent, beat.as_str()), (Vec::new(), ""), "nobody watches any more");
}

/// Whoever speaks is watched, whoever rests is not, and what was said before is late whenever it comes.
#[test]
fn the_latest_says_whether_to_watch() {
    let cfg = cfg();
    let (id, mut user, asked) = asking(&cfg, 0);
    let beat = does(&cfg, &mut user, Event::Timer(UserTimer::Beat)).0.remove(0);
    let ToManager::Beat(n) = beat else { panic!("{beat:?}") };
    let mut manager = cfg.manager(M0);
    assert!(manager.is_idle());
    assert_eq!(watches(&cfg, &mut manager, by_user(id, asked)), ["watch u0", "tell u0"]);
    assert!(!manager.is_idle());
    let mut hears = |msg: Msg| watches(&cfg, &mut manager, by_user(id, msg));
    assert_eq!(hears(ToManager::Beat(n)), ["watch u0"]);
    assert!(hears(ToManager::Beat(n)).is_empty(), "the same once more");
    assert_eq!(hears(ToManager::Rest(n.next().next())), ["rest u0"]);
    assert!(hears(ToManager::Beat(n.next())).is_empty(), "sent before the rest");
    assert_eq!(hears(ToManager::Beat(n.next().next().next())), ["watch u0"]);
}

/// Of whom nothing is heard any more, what it held is taken back; and who has departed is forgotten.
#[test]
fn silence_is_taken_for_death() {
    let cfg = cfg();
    assert_eq!(cfg.managers().len(), 1, "those of the protocol that is watched");
    let mut manager = cfg.manager(M0);
    let (first, _, asked) = asking(&cfg, 0);
    let (second, _, also) = asking(&cfg, 1);
    let number = |msg: &Msg| match msg {
        ToManager::ByUser(n, _) => *n,
        other => panic!("{other:?}"),
    };
    let (n, other) = (number(&asked), number(&also));
    watches(&cfg, &mut manager, by_user(first, asked));
    assert_eq!(watches(&cfg, &mut manager, by_user(second, also)), ["watch u1"], "it waits");
    let silent = Event::Timer(ManagerTimer::Silent(first));
    assert_eq!(watches(&cfg, &mut manager, silent), ["reported", "tell u1"]);
    let late = |manager: &mut Watcher| {
        let mut late = |user, n| watches(&cfg, manager, by_user(user, ToManager::Beat(n)));
        (late(first, n), late(second, other))
    };
    assert_eq!(late(&mut manager), (Vec::new(), Vec::new()));
    watches(&cfg, &mut manager, Event::Gone(Gone::Departed(Party::User(first))));
    assert_eq!(late(&mut manager), (Vec::from(["watch u0".into()]), Vec::new()), "and nobody else");
}

/// What is not the sender's to say is not listened to.
#[test]
fn strangers_are_told_of() {
    let cfg = cfg();
    let mut manager = cfg.manager(M0);
    let (id, _, asked) = asking(&cfg, 0);
    let ToManager::ByUser(n, inner) = asked else { panic!("{asked:?}") };
    let other = LinkStamp::first(UserId::first(1), M0);
    for event in [
        by_user(id, ToManager::ByManager(inner.clone())),
        by_user(id, ToManager::ByUser(other, inner)),
        by_manager(1, ToManager::Beat(n)),
    ] {
        assert_eq!(watches(&cfg, &mut manager, event), ["misbehaved"]);
    }
    assert!(manager.is_idle());
    assert_eq!(watches(&cfg, &mut manager, by_user(id, ToManager::Beat(n))), ["watch u0"]);
}
