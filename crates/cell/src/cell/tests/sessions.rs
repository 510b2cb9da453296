//! Sessions that are over, come again, or do what they should not.

use super::*;

fn lease(session: u64, conn_no: u64, secret: u128, uid: u32) -> Input {
    let means = Means::Lease(50);
    let hello = Hello { secret: Secret(secret), uid, ..hello(session, means, false) };
    Input::Attach { conn: conn(conn_no), hello }
}

/// An id is no secret: whoever takes one that is over finds nothing under it.
#[test]
fn what_outlives_its_session_is_nobodys() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        story.input(lease(1, 1, 7, 1001));
        let effects = story.asks(1, 1, "gpu", Lasting::Reservation(50_000));
        let [Effect::Reply { reply: Reply::Granted { request, .. }, .. }] = effects[..] else {
            panic!("{effects:?}")
        };
        story.input(Input::Over(SessionId(1)));
        story.restart("boot", upgrade);
        story.input(lease(1, 1, 8, 2000));
        assert!(conflict(&story.calls(1, 1, Wish::End { request, rest: None })), "it is another's");
        assert_eq!(story.units(request), ["gpu/0"]);
    }
}

/// Whoever asks again for a reservation finds the one it has, however late, and whoever has started since.
#[test]
fn a_session_lasts_as_long_as_its_reservation() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        story.input(lease(1, 1, 7, 1001));
        story.asks(1, 1, "gpu", Lasting::Reservation(5_000));
        story.input(Input::Detach(conn(1)));
        assert_eq!(story.cell.next_due(), Some(5_100), "not the lease, but the reservation");
        story.at = 4_000;
        story.input(Input::Due);
        story.restart("boot", upgrade);
        story.at = 5_000;
        story.input(Input::Due);
        let told = story.input(lease(1, 1, 7, 1001));
        let [Effect::Welcome { answers, .. }] = &told[..] else { panic!("{told:?}") };
        assert!(matches!(answers[..], [(CallNo(1), Some(Reply::Granted { .. }))]), "{answers:?}");
        story.input(Input::Detach(conn(1)));
        story.at = 5_200;
        story.input(Input::Due);
        assert_eq!(story.cell.engine.load(), (0, 0));
        assert_eq!(story.cell.books.sessions().count(), 0, "both are over");
    }
}

/// The first holder ends, and the second session of that id notices nothing.
#[test]
fn a_session_that_comes_again_is_another() {
    let mut story = Story::new(&[("gpu", 2)]);
    story.input(lease(1, 1, 7, 1001));
    let effects = story.asks(1, 1, "gpu", Lasting::Command(Leftovers::Wait));
    let [Effect::Prepare(first)] = effects[..] else { panic!("{effects:?}") };
    story.input(Input::Prepared { request: first, holder: None, place: None });
    story.calls(1, 2, Wish::Child { request: first, holder: child(9) });
    story.input(Input::Detach(conn(1)));
    story.at += 50;
    let over = story.input(Input::Due);
    assert_eq!(over, [Effect::Forget(SessionId(1), None), Effect::Kill(first, child(9))]);
    story.input(lease(1, 2, 7, 1001));
    let (call, heard) = (CallNo(1), CallNo(0));
    let needs = vec!["gpu".parse().expect("a need")];
    let (lasting, from) = (Lasting::Connection, From::default());
    let (now, within, limit, part) = (false, None, None, None);
    let ask = Ask { needs, now, lasting, from, within, limit, part };
    let wish = Wish::Ask { who: who(1), ask: ask.into(), length: None };
    let granted = story.input(Input::Call { conn: conn(2), call, heard, wish });
    assert!(is_grant(&granted), "{granted:?}");
    assert_eq!(story.input(Input::HolderEnded(first)), [], "nobody is told anything");
    assert_eq!(story.cell.engine.load(), (1, 0));
    story.input(Input::Over(SessionId(1)));
    assert_eq!(story.cell.engine.load(), (0, 0), "the second has gone with its session");
}

#[test]
fn a_session_that_is_over_is_forgotten_and_its_connection_closed() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let effects = story.calls(1, 1, Wish::Leave);
    let forget = Effect::Forget(SessionId(1), Some(conn(1)));
    assert_eq!(effects, [reply(1, 1, Reply::Done), forget]);
}

/// What is being ended cannot be given back in another way.
#[test]
fn what_is_being_killed_is_not_withdrawn() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Kill);
    let rest = || Some(Rest { holder: child(9), pids: vec![9] });
    let ends = story.calls(1, 3, Wish::End { request, rest: rest() });
    assert_eq!(ends, [Effect::End(request, child(9))]);
    for (call, rest) in [(4, rest()), (5, None)] {
        let withdraw = Wish::Withdraw { asked: CallNo(1), rest };
        assert_eq!(story.calls(1, call, withdraw), [reply(1, call, Reply::Done)]);
        assert_eq!(story.units(request), ["gpu/0"], "its processes run");
    }
    assert_eq!(story.input(Input::HolderEnded(request)), [reply(1, 3, Reply::Done)]);
}

/// Whoever names a child before it is told of its grant would have it forgotten.
#[test]
fn a_child_comes_after_its_grant() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.comes(1);
    let effects = story.asks(1, 1, "gpu", Lasting::Command(Leftovers::Wait));
    let [Effect::Prepare(request)] = effects[..] else { panic!("{effects:?}") };
    let early = story.calls(1, 2, Wish::Child { request, holder: child(8) });
    assert_eq!(early[0], Effect::Unused(child(8)), "it becomes nothing");
    assert!(conflict(&early[1..]), "{early:?}");
    story.input(Input::Prepared { request, holder: None, place: None });
    let child = Wish::Child { request, holder: child(9) };
    assert_eq!(story.calls(1, 3, child), [reply(1, 3, Reply::Done)]);
}

#[test]
fn a_connection_with_a_session_gets_no_other() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let other = hello(2, PROCESS, false);
    let effects = story.input(Input::Attach { conn: conn(1), hello: other });
    assert_eq!(effects, [Effect::TurnedAway(conn(1), Turned::Attached)]);
    assert!(is_grant(&story.asks(1, 1, "a", Lasting::Connection)), "it has its own");
}

/// An input that breaks an invariant is in no record; the call that led to it fails when its client
/// makes it again.
#[test]
fn a_call_that_breaks_an_invariant_is_not_done_again() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.comes(1);
    // The engine has lost a grant that the books have.
    story.asks(1, 1, "gpu", Lasting::Connection);
    let request = RequestNo((1 << 32) + 1);
    story.cell.engine.step(story.at, engine::Input::End(request)).expect("unbroken");
    let needs = vec!["gpu".parse().expect("a need")];
    let (now, lasting, from) = (false, Lasting::Connection, From::default());
    let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
    let wish = Wish::Ask { who: who(1), ask: ask.into(), length: None };
    let input = Input::Call { conn: conn(1), call: CallNo(2), heard: CallNo(0), wish };
    let broken = story.cell.step(story.at, input.clone()).expect_err("it is held twice");
    assert!(matches!(broken, Defect::Books(Contradiction::Double { .. })), "{broken}");
    story.restart("boot", true);
    let spare = Input::Spare { session: SessionId(1), call: CallNo(2) };
    assert_eq!(story.input(spare.clone()), [], "nobody is there");
    assert_eq!(story.input(spare), [], "and once is enough");
    let answers = story.comes_back(1);
    assert!(matches!(answers[1], (CallNo(2), Some(Reply::Failed(Fault::Failed(_))))));
    let again = story.input(input);
    let failed = Effect::Reply {
        conn: conn(1),
        call: CallNo(2),
        reply: answers[1].1.clone().expect("it failed"),
    };
    assert_eq!(again, [failed]);
    assert_eq!(story.cell.engine.load(), (1, 0));
    assert_eq!(story.input(Input::Spare { session: SessionId(5), call: CallNo(1) }), []);
}

/// Acknowledging comes first: there may be no room otherwise.
#[test]
fn what_is_acknowledged_with_a_call_makes_room_for_it() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let nothing = || Wish::Withdraw { asked: CallNo(9999), rest: None };
    let most = crate::session::UNACKNOWLEDGED_MAX as u64;
    for call in 1..=most {
        story.cell.step(1, call_of(call, 0, nothing())).expect("unbroken");
    }
    let out = story.cell.step(1, call_of(most + 1, 0, nothing())).expect("unbroken");
    assert!(matches!(out.effects[..], [Effect::NotTaken(..)]), "{:?}", out.effects);
    let out = story.cell.step(1, call_of(most + 1, most + 1, nothing())).expect("unbroken");
    assert_eq!(out.effects, [reply(1, most + 1, Reply::Done)]);
    let again = story.cell.step(1, call_of(most + 1, 0, nothing())).expect("unbroken");
    assert_eq!(again.effects, out.effects, "nobody has heard of it before it was made");
    assert!(!story.cell.is_new_call(conn(1), CallNo(most + 1)));
    assert!(story.cell.is_new_call(conn(1), CallNo(most + 2)));
}

/// However many requests a session has open, it can give them back.
#[test]
fn open_requests_leave_room_for_calls() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let most = crate::session::UNACKNOWLEDGED_MAX as u64;
    for call in 1..=most + 1 {
        let needs = vec![format!("lock{call}").parse().expect("a need")];
        let (now, lasting, from) = (false, Lasting::Connection, From::default());
        let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
        let wish = Wish::Ask { who: who(1), ask: ask.into(), length: None };
        let out = story.cell.step(1, call_of(call, 0, wish)).expect("unbroken");
        assert!(is_grant(&out.effects), "{:?}", out.effects);
    }
    story.cell.books.check().expect("sound");
}

/// However much its client has left unheard: what it does not want any more must not stay with it.
#[test]
fn giving_back_is_always_taken() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let nothing = || Wish::Withdraw { asked: CallNo(9999), rest: None };
    for call in 1..=3 {
        story.asks(1, call, &format!("lock{call}"), Lasting::Connection);
    }
    story.asks(1, 4, "lock1", Lasting::Connection);
    let command = story.asks(1, 5, "lock5", Lasting::Command(Leftovers::Wait));
    let [Effect::Prepare(command)] = command[..] else { panic!("{command:?}") };
    story.input(Input::Prepared { request: command, holder: Some(child(9)), place: None });
    assert_eq!(story.cell.engine.load(), (4, 1));
    let most = crate::session::UNACKNOWLEDGED_MAX as u64;
    for call in 6..6 + most {
        story.cell.step(1, call_of(call, 0, nothing())).expect("unbroken");
    }
    let mut next = 6 + most;
    let mut is_taken = |story: &mut Story, wish: Wish| {
        next += 1;
        let out = story.cell.step(1, call_of(next, 0, wish)).expect("unbroken");
        story.cell.books.check().expect("sound");
        !out.effects.iter().any(|effect| matches!(effect, Effect::NotTaken(..)))
    };
    let (first, ..) = story.cell.books.grants().next().expect("held");
    let withdraw = |asked, rest| Wish::Withdraw { asked: CallNo(asked), rest };
    assert!(!is_taken(&mut story, Wish::End { request: RequestNo(77), rest: None }));
    assert!(!is_taken(&mut story, nothing()), "it gives nothing back");
    assert!(is_taken(&mut story, withdraw(4, None)), "what waits");
    assert!(is_taken(&mut story, Wish::End { request: first, rest: None }));
    assert!(!is_taken(&mut story, Wish::End { request: first, rest: None }), "once");
    assert!(is_taken(&mut story, withdraw(2, None)), "what is held");
    assert!(!is_taken(&mut story, withdraw(2, None)));
    let rest = Some(Rest { holder: child(9), pids: vec![9] });
    assert!(is_taken(&mut story, withdraw(5, rest.clone())), "what processes use");
    for _ in 0..3 {
        assert!(!is_taken(&mut story, withdraw(5, rest.clone())), "what ends does so once");
    }
    assert_eq!(story.cell.engine.load(), (2, 0));
    assert!(is_taken(&mut story, Wish::Leave));
    assert_eq!(story.cell.engine.load(), (1, 0), "which ends with its processes");
}

fn call_of(call: u64, heard: u64, wish: Wish) -> Input {
    Input::Call { conn: conn(1), call: CallNo(call), heard: CallNo(heard), wish }
}

#[test]
fn a_session_gives_up_the_last_first() {
    let mut story = Story::new(&[]);
    story.comes(1);
    story.asks(1, 1, "a", Lasting::Connection);
    story.asks(1, 2, "a b", Lasting::Connection);
    story.asks(1, 3, "b", Lasting::Connection);
    let before = story.log.len();
    story.input(Input::Over(SessionId(1)));
    assert_eq!(story.log.len(), before + 1);
    let recorded = crate::replay::Parts::default().take(&story.log[before]).expect("readable");
    let facts = recorded.expect("whole").facts;
    let granted = facts.iter().any(|fact| matches!(fact, Fact::Granted { .. }));
    assert!(!granted, "nothing is granted on the way out: {facts:?}");
}

/// A client that knows no sessions asks again over a new connection: it must not wait for itself.
#[test]
fn whoever_does_not_come_back_keeps_what_it_holds_and_waits_for_nothing() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 2)]);
        let means = Means::Once { pid: 2, start: 3 };
        story.input(Input::Attach { conn: conn(1), hello: hello(1, means, false) });
        assert!(is_grant(&story.asks(1, 1, "gpu", Lasting::Connection)));
        story.asks(1, 2, "gpu", Lasting::Command(Leftovers::Wait));
        story.asks(1, 3, "gpu", Lasting::Connection);
        assert_eq!(story.cell.engine.load(), (2, 1));
        let effects = story.restart("boot", upgrade);
        assert!(effects.contains(&Effect::WatchSession(SessionId(1), means)), "{effects:?}");
        assert_eq!(story.cell.engine.load(), (1, 0), "what it was told of");
        story.input(Input::Over(SessionId(1)));
        assert_eq!(story.cell.engine.load(), (0, 0));
        story.input(Input::Attach { conn: conn(2), hello: hello(2, means, false) });
        story.restart("another boot", upgrade);
        assert_eq!(story.cell.books.sessions.count(), 0, "all processes are gone");
    }
}

/// Unless the connection of such a client outlasts the start; and that start alone.
#[test]
fn whoever_keeps_its_connection_keeps_its_place() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 2)]);
        let means = Means::Once { pid: 2, start: 3 };
        story.input(Input::Attach { conn: conn(1), hello: hello(1, means, false) });
        for (call, lasting) in [(1, Lasting::Connection), (2, Lasting::Command(Leftovers::Wait))] {
            story.asks(1, call, "gpu", lasting);
        }
        story.asks(1, 3, "gpu", Lasting::Connection);
        let (epoch, sessions) = (story.epoch + 1, vec![SessionId(1)]);
        let before = story.log.len();
        story.replay(upgrade);
        story.input(Input::Keep { epoch, sessions: sessions.clone() });
        story.start("boot", upgrade);
        assert_eq!(story.cell.engine.load(), (2, 1));
        // And so it is when the log of both versions is replayed.
        let mut replay = Replay::new(LOGIC + u32::from(upgrade), None).expect("an engine");
        for (at, record) in story.log.iter().enumerate() {
            let by = LOGIC + u32::from(upgrade && at >= before);
            replay.take(by, record).expect("readable");
        }
        let replayed = replay.finish().expect("an engine");
        assert_eq!((replayed.diverged, replayed.cell.engine.load()), (None, (2, 1)));
        story.replay(false);
        story.input(Input::Keep { epoch, sessions });
        story.start("boot", false);
        assert_eq!(story.cell.engine.load(), (1, 0), "that was another start");
    }
}

/// Also one whose process cannot be seen.
#[test]
fn whoever_lasts_as_long_as_its_connection_lasts_as_long_as_that_is_kept() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        for session in [1, 2] {
            let hello = hello(session, Means::Connection, false);
            story.input(Input::Attach { conn: conn(session), hello });
            story.asks(session, 1, "gpu", Lasting::Connection);
        }
        story.replay(upgrade);
        let epoch = story.epoch + 1;
        story.input(Input::Keep { epoch, sessions: vec![SessionId(2)] });
        story.start("boot", upgrade);
        assert_eq!(story.cell.books.sessions.count(), 1);
        assert_eq!(story.cell.engine.load(), (1, 0), "the second has it");
        story.replay(false);
        assert_eq!(story.cell.engine.load(), (1, 0));
        story.start("boot", false);
        assert_eq!(story.cell.engine.load(), (0, 0), "it was kept once");
    }
}

/// Whoever comes back is told of every call that was taken, also of those that are not done.
#[test]
fn what_is_given_back_is_not_told_again_and_what_is_being_done_is_named() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 2)]);
        let rest = || Some(Rest { holder: child(9), pids: vec![9] });
        let request = story.runs(1, "gpu", Leftovers::Kill);
        story.calls(1, 3, Wish::End { request, rest: rest() });
        let request = story.runs(2, "gpu", Leftovers::Wait);
        story.calls(2, 3, Wish::End { request, rest: rest() });
        story.restart("boot", upgrade);
        let done = Some(Reply::Done);
        let kill = [(CallNo(1), None), (CallNo(2), done.clone()), (CallNo(3), None)];
        assert_eq!(story.comes_back(1), kill, "it is being killed");
        let left = Some(Reply::Leftovers(vec![9]));
        let wait = [(CallNo(1), None), (CallNo(2), done), (CallNo(3), left)];
        assert_eq!(story.comes_back(2), wait, "it has given it back");
    }
}

#[test]
fn what_was_heard_is_forgotten_also_by_another_version() {
    let mut story = Story::new(&[]);
    story.comes(1);
    story.calls(1, 1, Wish::Withdraw { asked: CallNo(9), rest: None });
    let hello = Hello { heard: CallNo(1), ..hello(1, PROCESS, true) };
    story.input(Input::Attach { conn: conn(1), hello });
    story.restart("boot", true);
    assert_eq!(story.comes_back(1), []);
}

#[test]
fn a_grant_has_one_child_and_what_that_leaves_behind_is_known() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let second = story.calls(1, 3, Wish::Child { request, holder: child(10) });
    assert!(
        matches!(&second[..], [Effect::Reply { reply: Reply::Failed(Fault::Wrong(_)), .. }]),
        "{second:?}"
    );
    let others = vec![ProcessId { pid: 11, start: 8 }];
    let holder = Box::new(Record { others, ..*child(9) });
    let rest = Some(Rest { holder: holder.clone(), pids: vec![11] });
    story.calls(1, 4, Wish::End { request, rest });
    let effects = story.restart("boot", false);
    assert!(effects.contains(&Effect::Watch(request, holder)), "{effects:?}");
}

#[test]
fn a_reservation_is_renewed_by_its_owner_or_who_may_and_not_while_it_ends() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.comes(1);
    story.comes(2);
    story.asks(1, 1, "gpu", Lasting::Reservation(5000));
    let request = story.cell.books.grants().next().expect("it is held").0;
    let renew = |session, may| Wish::Renew { request, millis: 9000, by: who(session), may };
    assert!(denied(&story.calls(2, 1, renew(2, false))));
    assert_eq!(story.cell.next_due(), Some(5100));
    assert_eq!(story.calls(2, 2, renew(2, true)), [reply(2, 2, Reply::Done)]);
    assert_eq!(story.cell.next_due(), Some(9100));
    let told = story.cell.engine.grant(request).expect("it is held").until;
    assert_eq!(told, Some(9100), "the engine shows it");
    let part = Some(holdall_wire::Part { of: request, outlasts: true });
    let (needs, lasting) = (vec!["gpu".parse().expect("a need")], Lasting::Connection);
    let (now, from) = (false, From::default());
    let ask = Ask { needs, now, lasting, from, within: None, limit: None, part };
    story.calls(1, 2, Wish::Ask { who: who(1), ask: ask.into(), length: None });
    let (by, may, unseen, beyond) = (who(1), false, false, None);
    story.calls(1, 3, Wish::Release { request, force: false, by, may, unseen, beyond });
    assert!(conflict(&story.calls(1, 4, renew(1, false))), "it is ending");
}

/// A second force changes nothing: whoever was told has the time that it was told.
#[test]
fn what_is_taken_away_twice_is_killed_when_it_was_said() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let force = || {
        let (by, may, unseen, beyond) = (who(1), false, false, None);
        Wish::Release { request, force: true, by, may, unseen, beyond }
    };
    story.calls(1, 3, force());
    let due = story.cell.next_due();
    story.at += 5000;
    assert_eq!(story.calls(1, 4, force()), [reply(1, 4, Reply::Done)], "it is told once");
    assert_eq!(story.cell.next_due(), due);
}

/// The wrapper has ended in order: what its command has left behind is waited for, and not killed.
#[test]
fn what_was_left_behind_in_order_outlives_its_session() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let rest = Some(Rest { holder: child(9), pids: vec![9] });
    story.calls(1, 3, Wish::End { request, rest });
    let forget = Effect::Forget(SessionId(1), Some(conn(1)));
    assert_eq!(story.input(Input::Over(SessionId(1))), [forget]);
    let effects = story.restart("boot", true);
    assert_eq!(effects, [Effect::Watch(request, child(9))]);
}

/// Nobody sees here whether its client still uses it.
#[test]
fn what_is_lent_and_taken_away_is_held_until_it_is_given_back_or_the_lease_is_over() {
    for (gives_back, is_away) in [(true, false), (false, false), (false, true)] {
        let mut story = Story::new(&[("gpu", 1)]);
        story.input(lease(1, 1, 7, 1001));
        let effects = story.asks(1, 1, "gpu", Lasting::Connection);
        let [Effect::Reply { reply: Reply::Granted { request, .. }, .. }] = effects[..] else {
            panic!("{effects:?}")
        };
        if is_away {
            story.input(Input::Detach(conn(1)));
            story.at += 10;
        }
        story.comes(2);
        story.asks(2, 1, "gpu", Lasting::Connection);
        let (by, may, unseen, beyond) = (who(2), true, false, None);
        let told =
            story.calls(2, 2, Wish::Release { request, force: true, by, may, unseen, beyond });
        let lost = (!is_away).then(|| reply(1, 1, Reply::Lost(request)));
        let expected: Vec<_> = lost.into_iter().chain([reply(2, 2, Reply::Done)]).collect();
        assert_eq!(told, expected, "nobody else has it yet");
        if gives_back {
            let given = story.calls(1, 2, Wish::End { request, rest: None });
            assert!(is_grant(&given[..1]), "{given:?}");
            continue;
        }
        story.at += if is_away { 39 } else { 49 };
        assert_eq!(story.input(Input::Due), []);
        story.at += 1;
        let given = story.input(Input::Due);
        assert!(given.iter().any(|one| is_grant(std::slice::from_ref(one))), "{given:?}");
    }
}

/// What cannot be seen from here is not waited for.
#[test]
fn a_grant_whose_users_cannot_be_seen_ends_at_once_by_force() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let (by, may, beyond) = (who(1), false, Some(String::from("they run on")));
    let release = Wish::Release { request, force: true, by, may, unseen: true, beyond };
    let effects = story.calls(1, 3, release);
    assert_eq!(effects[0], reply(1, 1, Reply::Lost(request)));
    assert!(conflict(&effects[1..]), "{effects:?}");
    assert_eq!(story.cell.engine.load(), (0, 0));
}
