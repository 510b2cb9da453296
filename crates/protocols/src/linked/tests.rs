//! Frames, acknowledgements and the timer, one by one.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use holdall_core::{
    Addr, Call, ChannelStamp, Effect, Event, Gone, ManagerId, Party, Protocol, Role, UserId,
};

use super::{Content, Linked, Packet, Timer};
use crate::house::{self, House};
use crate::ordered::Ordered;
use crate::testing::{by_manager, by_user, config, request, step};

type Links = Linked<Ordered>;
type User = <Links as Protocol>::User;
type ToUser = Packet<<Ordered as Protocol>::ToUser>;
type ToManager = Packet<<Ordered as Protocol>::ToManager>;

const M0: ManagerId = ManagerId(0);
const U0: UserId = UserId::first(0);

fn cfg() -> Links {
    config("ordered", &[1])
}

/// What a packet is, by its number.
fn packet<M>(packet: &Packet<M>) -> String {
    match packet {
        Packet::Ack(n) => format!("ack {n:?}"),
        Packet::Frame { n, content: Content::Close } => format!("close {n:?}"),
        Packet::Frame { n, content: Content::Message(_) } => format!("frame {n:?}"),
    }
}

/// What a role does, in words.
fn does<R>(cfg: &Links, role: &mut R, event: Event<R>) -> Vec<String>
where
    R: Role<P = Links>,
{
    let said = step(cfg, role, event).into_iter().filter_map(|effect| match effect {
        Effect::ToManager(M0, msg) => Some(packet(&msg)),
        Effect::ToUser(user, msg) => Some(format!("{} to {user:?}", packet(&msg))),
        Effect::Arm(_, rung) => Some(format!("armed {rung}")),
        Effect::Disarm(_) => Some("disarmed".into()),
        Effect::Misbehaved(..) => Some("misbehaved".into()),
        _ => None,
    });
    said.collect()
}

fn asks(cfg: &Links, user: UserId) -> (User, ToManager) {
    let mut role = cfg.user(user);
    let ask = Event::Call(Call::Ask(request(user, &[(0, 1)]), None));
    let mut sent = step(cfg, &mut role, ask).into_iter();
    let mut sent = sent.by_ref().filter_map(|effect| match effect {
        Effect::ToManager(M0, msg) => Some(msg),
        _ => None,
    });
    let frame = sent.next().expect("it asks");
    (role, frame)
}

/// The numbers from a user to the manager, and the other way.
fn there(user: UserId) -> ChannelStamp {
    ChannelStamp::first(Addr::User(user), Addr::Manager(M0))
}

fn back(user: UserId) -> ChannelStamp {
    ChannelStamp::first(Addr::Manager(M0), Addr::User(user))
}

#[test]
fn what_is_not_acknowledged_is_sent_again() {
    let cfg = cfg();
    let mut user = cfg.user(U0);
    let ask = Event::Call(Call::Ask(request(U0, &[(0, 1)]), None));
    assert_eq!(does(&cfg, &mut user, ask), ["frame @0", "armed 0"]);
    assert!(!user.is_idle());
    for _ in 0..2 {
        let again = does(&cfg, &mut user, Event::Timer(Timer::Resend));
        assert_eq!(again, ["frame @0", "armed 0"]);
    }
    let acked = |user: &mut User, n| does(&cfg, user, by_manager(0, ToUser::Ack(n)));
    assert_eq!(acked(&mut user, there(U0).next()), ["misbehaved"], "it was never sent");
    assert_eq!(acked(&mut user, back(U0)), ["misbehaved"], "of the other direction");
    assert_eq!(acked(&mut user, there(U0)), ["disarmed"]);
    assert!(acked(&mut user, there(U0)).is_empty(), "once more, which may be");
}

#[test]
fn what_comes_again_is_acknowledged_and_not_taken_again() {
    let cfg = cfg();
    let mut manager = cfg.manager(M0);
    let (_, frame) = asks(&cfg, U0);
    let mut hears = |msg: ToManager| does(&cfg, &mut manager, by_user(U0, msg));
    assert_eq!(hears(frame.clone()), ["ack @0 to u0", "frame @0 to u0", "armed 0"]);
    assert_eq!(hears(frame.clone()), ["ack @0 to u0"]);
    let Packet::Frame { content, .. } = frame else { panic!("{frame:?}") };
    let strange = Packet::Frame { n: there(UserId::first(1)), content };
    assert_eq!(hears(strange), ["misbehaved"]);
    assert_eq!(hears(Packet::Ack(back(U0).next())), ["misbehaved"]);
    assert_eq!(hears(Packet::Ack(back(U0))), ["disarmed"]);
    assert!(!manager.is_idle(), "the pool is held");
}

/// A manager does not leave, and a user that has left is sent nothing any more.
#[test]
fn who_has_left_is_sent_nothing() {
    let cfg = cfg();
    let (mut user, frame) = asks(&cfg, U0);
    let close = ToUser::Frame { n: back(U0), content: Content::Close };
    assert_eq!(does(&cfg, &mut user, by_manager(0, close)), ["ack @0", "misbehaved"]);
    let left = does(&cfg, &mut user, Event::Call(Call::Leave));
    assert_eq!(left, ["frame @1", "close @2"], "it is given back, and that is all");
    assert!(!user.is_idle(), "until that has arrived");
    for n in [there(U0), there(U0).next(), there(U0).next().next()] {
        assert!(!user.is_idle());
        does(&cfg, &mut user, by_manager(0, ToUser::Ack(n)));
    }
    assert!(user.is_idle());

    let other = UserId::first(1);
    for end in [
        by_user(U0, ToManager::Frame { n: there(U0).next(), content: Content::Close }),
        Event::Gone(Gone::Departed(Party::User(U0))),
    ] {
        let mut manager = cfg.manager(M0);
        does(&cfg, &mut manager, by_user(U0, frame.clone()));
        does(&cfg, &mut manager, by_user(other, asks(&cfg, other).1));
        let told = does(&cfg, &mut manager, end);
        assert!(!told.iter().any(|what| what.starts_with("frame") && what.ends_with("u0")));
        let again = does(&cfg, &mut manager, Event::Timer(Timer::Resend));
        assert!(!again.iter().any(|what| what.ends_with("u0")), "{again:?}");
        assert!(does(&cfg, &mut manager, by_user(U0, Packet::Ack(back(U0)))).is_empty());
    }
}

/// Whoever has lost its request says so, and leaves.
#[test]
fn who_loses_its_request_leaves() {
    let cfg: Linked<House> = config("house", &[1]);
    let mut user = cfg.user(U0);
    let request = request(U0, &[(0, 1)]);
    step(&cfg, &mut user, Event::Call(Call::Ask(request.clone(), None)));
    let over = Content::Message(house::ToUser::Over(request.id));
    let over = Packet::Frame { n: back(U0), content: over };
    let told = step(&cfg, &mut user, by_manager(0, over));
    let is_lost = |effect: &Effect<_, _>| matches!(effect, Effect::Lost(id) if *id == request.id);
    let closes = |effect: &Effect<_, _>| {
        let Effect::ToManager(M0, msg) = effect else { return false };
        matches!(msg, Packet::Frame { content: Content::Close, .. })
    };
    assert!(told.iter().any(is_lost) && told.iter().any(closes), "{told:?}");
}

/// What overtakes is taken at once, and still known when the rest has come.
#[test]
fn frames_may_overtake_each_other() {
    let cfg = cfg();
    let mut manager = cfg.manager(M0);
    let (mut user, ask) = asks(&cfg, U0);
    let mut sent = step(&cfg, &mut user, Event::Call(Call::Leave)).into_iter();
    let release = sent.find_map(|effect| match effect {
        Effect::ToManager(M0, msg @ Packet::Frame { .. }) => Some(msg),
        _ => None,
    });
    let release = release.expect("it gives back");
    let mut hears = |msg: &ToManager| does(&cfg, &mut manager, by_user(U0, msg.clone()));
    for _ in 0..2 {
        assert_eq!(hears(&release), vec!["ack @1 to u0"]);
    }
    for _ in 0..2 {
        assert_eq!(hears(&ask), vec!["ack @0 to u0"], "it was taken back before");
        assert_eq!(hears(&release), vec!["ack @1 to u0"]);
    }
    assert!(manager.is_idle());
}
