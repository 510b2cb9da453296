//! Time: how long things last, and what time it is.

use super::*;

#[test]
fn a_grant_is_taken_away_when_its_time_is_over() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        story.limit = Some(1000);
        story.restart("boot", upgrade);
        story.comes(1);
        let effects = story.asks(1, 1, "gpu", Lasting::Connection);
        let [Effect::Reply { reply: Reply::Granted { request, limit, .. }, .. }] = effects[..]
        else {
            panic!("{effects:?}")
        };
        assert_eq!(limit, Some(1000));
        story.at += 400;
        story.limit = None;
        story.restart("boot", upgrade);
        let answers = story.comes_back(1);
        let [(_, Some(Reply::Granted { limit, .. }))] = answers[..] else { panic!("{answers:?}") };
        assert_eq!(limit, Some(600), "what is left of it");
        assert_eq!(story.cell.next_due(), Some(1100));
        story.at = 1099;
        assert_eq!(story.input(Input::Due), []);
        story.at = 1100;
        assert_eq!(story.input(Input::Due), [reply(1, 1, Reply::Lost(request))]);
        assert_eq!(story.cell.engine.load(), (0, 0));
    }
}

/// What a client wants counts if it is less; a reservation says itself how long it lasts.
#[test]
fn the_shortest_limit_counts_and_none_for_reservations() {
    let mut story = Story::new(&[("gpu", 3)]);
    story.limit = Some(1000);
    story.restart("boot", false);
    story.comes(1);
    let asks = |wanted, lasting| {
        let needs = vec!["gpu".parse().expect("a need")];
        let from = From::default();
        let ask = Ask { needs, now: false, lasting, from, within: None, limit: wanted, part: None };
        Wish::Ask { who: who(1), ask: ask.into(), length: None }
    };
    let mut limit = |call, wanted, lasting| {
        let effects = story.calls(1, call, asks(wanted, lasting));
        match effects[..] {
            [Effect::Reply { reply: Reply::Granted { limit, .. }, .. }] => limit,
            _ => panic!("{effects:?}"),
        }
    };
    assert_eq!(limit(1, Some(2000), Lasting::Connection), Some(1000));
    assert_eq!(limit(2, Some(500), Lasting::Connection), Some(500));
    assert_eq!(limit(3, Some(500), Lasting::Reservation(9000)), None);
}

/// `run` ends its command itself when its time is over; if it does not, it is killed.
#[test]
fn a_command_has_some_time_to_end() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.limit = Some(1000);
    story.restart("boot", false);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    story.at = 1100 + 14_999;
    assert_eq!(story.input(Input::Due), []);
    story.at += 1;
    assert_eq!(story.input(Input::Due), [reply(1, 1, Reply::Lost(request))]);
    // It is given back, and something stays: that is killed all the same.
    let rest = Some(Rest { holder: child(9), pids: vec![9] });
    story.calls(1, 3, Wish::End { request, rest });
    story.at += 10_000;
    assert_eq!(story.input(Input::Due), [Effect::Kill(request, child(9))]);
    story.input(Input::HolderEnded(request));
    assert_eq!(story.cell.engine.load(), (0, 0));
}

fn start(boot: &str, boottime: u64, wall: u64) -> Input {
    let boot = boot.into();
    Input::Started(Box::new(Start {
        epoch: 1,
        boot,
        boottime,
        wall,
        ephemeral: true,
        ..Start::default()
    }))
}

const HOUR: u64 = 3_600_000;

/// Within a boot nobody moves time by setting the clock; from one to the next the wall counts.
#[test]
fn time_goes_on_and_not_back() {
    let mut cell = Cell::new().expect("an engine");
    cell.step(0, start("one", HOUR, 1000 * HOUR)).expect("unbroken");
    assert_eq!(cell.now(), 1000 * HOUR);
    assert_eq!(cell.clock().steady(2 * HOUR), 1001 * HOUR);
    // The wall was wrong by years, and is put right.
    cell.step(1001 * HOUR, Input::Clock { ahead: -900 * HOUR as i64 }).expect("unbroken");
    assert_eq!(cell.clock().wall(1001 * HOUR), 101 * HOUR);
    cell.step(0, start("one", 5 * HOUR, 104 * HOUR)).expect("unbroken");
    assert_eq!(cell.now(), 1004 * HOUR, "the same boot: what has passed since");
    cell.step(0, start("two", 0, 106 * HOUR)).expect("unbroken");
    assert_eq!(cell.now(), 1006 * HOUR, "another: what has passed on the wall");
    assert_eq!(cell.clock().steady(HOUR), 1007 * HOUR);
    assert_eq!(cell.clock().wall(cell.now()), 106 * HOUR);
    cell.step(0, start("three", 0, 1)).expect("unbroken");
    assert_eq!(cell.now(), 1006 * HOUR, "it does not go back with the wall");
    assert_eq!(cell.clock().wall(cell.now()), 1, "which is shown as it is");
    cell.step(0, start("", 7, 2 * HOUR)).expect("unbroken");
    cell.step(0, start("", 3, 3 * HOUR)).expect("unbroken");
    assert_eq!(cell.now(), 1009 * HOUR - 1, "no boot is known: only the wall");
}

#[test]
fn a_user_has_so_many_that_wait() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.limits.waiting = 2;
    story.restart("boot", false);
    story.comes(1);
    assert!(is_grant(&story.asks(1, 1, "gpu", Lasting::Connection)), "it does not wait");
    story.asks(1, 2, "gpu", Lasting::Connection);
    story.asks(1, 3, "gpu", Lasting::Connection);
    let refused = story.asks(1, 4, "gpu", Lasting::Connection);
    assert!(
        matches!(&refused[..], [Effect::Reply { reply: Reply::Refused(Refusal::Closed(_)), .. }]),
        "{refused:?}"
    );
    story.comes(2);
    assert_eq!(story.asks(2, 1, "gpu", Lasting::Connection).len(), 1, "another user");
    assert!(is_grant(&story.asks(1, 5, "other", Lasting::Connection)));
    // They stay, whatever is allowed now.
    story.limits.waiting = 0;
    story.restart("boot", true);
    assert_eq!(story.cell.engine.load(), (2, 3));
}
