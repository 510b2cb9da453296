//! What leads to more facts than a record of a log has room for.

use holdall_wire::Part;

use super::*;
use crate::replay::{PART_MAX, Parts};

/// One grant of all units of a large pool is longer than a record.
#[test]
fn a_long_record_comes_in_parts() {
    let mut story = Story::new(&[(&"x".repeat(40), 65_536)]);
    story.comes(1);
    let before = story.log.len();
    let needs = format!("{}:all", "x".repeat(40));
    assert!(is_grant(&story.asks(1, 1, &needs, Lasting::Connection)));
    let parts = story.log.len() - before;
    assert!(parts > 3, "{parts} parts");
    assert!(story.log.iter().all(|part| part.len() <= PART_MAX));
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (1, 0));
    // A beginning without an end was never told.
    story.log.truncate(before + parts - 1);
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (0, 0));
    assert_eq!(story.comes_back(1), []);
    assert!(is_grant(&story.asks(1, 1, &needs, Lasting::Connection)));
    story.restart("boot", true);
    let mut middle = Parts::default();
    assert!(middle.take(&story.log[before + 1]).is_err(), "an end without a beginning is damage");
    assert!(middle.take(&[]).is_err());
    assert!(middle.take(&[0, 1, 2]).is_err());
}

#[test]
fn many_who_share_are_granted_at_once() {
    let mut story = Story::new(&[]);
    let lock = "l".repeat(200);
    story.comes(1);
    story.asks(1, 1, &lock, Lasting::Connection);
    let request = story.cell.books.grants().next().expect("it is held").0;
    for session in 2..5 {
        story.comes(session);
        for call in 1..=1000 {
            story.asks(session, call, &format!("{lock}:shared"), Lasting::Connection);
        }
    }
    let before = story.log.len();
    story.calls(1, 2, Wish::End { request, rest: None });
    assert_eq!(story.cell.engine.load(), (3000, 0));
    assert!(story.log.len() > before + 1, "in parts");
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (3000, 0));
}

/// On a full disk what was let in can be brought to its end: there was room for all of it.
#[test]
fn there_is_room_for_all_that_follows_from_what_is_let_in() {
    let mut story = Story::new(&[("gpu", 9)]);
    let nothing = story.cell.owed();
    let comes = Input::Attach { conn: conn(1), hello: hello(1, PROCESS, false) };
    let length = |story: &Story, from: usize| story.log[from..].iter().map(Vec::len).sum::<usize>();
    let room = story.cell.admits(&comes).expect("it is new");
    let before = story.log.len();
    story.input(comes.clone());
    assert!(length(&story, before) <= room);

    let needs = vec!["gpu:9".parse().expect("a need")];
    let (now, lasting) = (false, Lasting::Command(Leftovers::Kill));
    let from = From { command: "make".repeat(100), ..From::default() };
    let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
    let wish = Wish::Ask { who: who(1), ask: ask.into(), length: None };
    let input = Input::Call { conn: conn(1), call: CallNo(1), heard: CallNo(0), wish };
    let room = story.cell.admits(&input).expect("it is new");
    let (before, owed) = (story.log.len(), story.cell.owed());
    story.input(input);
    assert!(length(&story, before) <= room, "{room}");
    let owed = (story.cell.owed() - owed) as usize;
    let (before, request) = (story.log.len(), story.cell.books.grants().next().expect("held").0);
    story.input(Input::Prepared { request, holder: None, place: None });
    story.calls(1, 2, Wish::Child { request, holder: child(9) });
    let rest = Some(Rest { holder: child(9), pids: vec![9; 20] });
    let end = Wish::End { request, rest };
    let input = Input::Call { conn: conn(1), call: CallNo(3), heard: CallNo(0), wish: end.clone() };
    assert_eq!(story.cell.admits(&input), None, "whatever is held can be given back");
    story.calls(1, 3, end);
    story.input(Input::HolderEnded(request));
    assert!(length(&story, before) <= owed, "{owed}");
    story.calls(1, 4, Wish::Leave);
    assert_eq!(story.cell.owed(), nothing, "nothing is owed any more");
}

/// What a session leads to besides: that it comes back some times, and its end.
#[test]
fn there_is_room_for_those_who_come_back() {
    let mut story = Story::new(&[]);
    let nothing = story.cell.owed();
    let hello = Hello {
        session: SessionId(u128::MAX),
        secret: Secret(u128::MAX),
        uid: u32::MAX,
        means: Means::Process { pid: u32::MAX, start: u64::MAX },
        returns: false,
        heard: CallNo(u64::MAX),
    };
    story.input(Input::Attach { conn: ConnNo(u64::MAX), hello });
    let (owed, before) = ((story.cell.owed() - nothing) as usize, story.log.len());
    story.input(Input::Detach(ConnNo(u64::MAX)));
    for back in 1..=4 {
        let conn = ConnNo(u64::MAX - back);
        story.input(Input::Attach { conn, hello: Hello { returns: true, ..hello } });
        story.input(Input::Detach(conn));
    }
    story.input(Input::Over(hello.session));
    assert_eq!(story.log.len(), before + 10);
    // What a log adds to each record.
    let length = story.log[before..].iter().map(|payload| payload.len() + 40).sum::<usize>();
    assert!(length <= owed, "{length} of {owed}");
}

/// On a full disk nobody takes the room that is kept for the ends of others.
#[test]
fn what_leads_to_nothing_may_be_refused() {
    let mut story = Story::new(&[]);
    story.comes(1);
    story.comes(2);
    story.asks(1, 1, "a", Lasting::Connection);
    story.asks(2, 1, "a", Lasting::Connection);
    let request = story.cell.books.grants().next().expect("held").0;
    let (rest, asked) = (None, CallNo(1));
    let call = |session, wish| Input::Call {
        conn: conn(session),
        call: CallNo(2),
        heard: CallNo(0),
        wish,
    };
    let release = |request| {
        let (by, may, unseen, beyond) = (who(1), true, false, None);
        Wish::Release { request, force: true, by, may, unseen, beyond }
    };
    let unknown = RequestNo(77);
    let may = [
        Input::Attach { conn: conn(1), hello: hello(1, PROCESS, true) },
        Input::Heard { conn: conn(1), upto: CallNo(1) },
        call(1, Wish::Withdraw { asked: CallNo(9), rest: None }),
        call(2, Wish::End { request, rest: None }),
        call(2, Wish::Child { request, holder: child(9) }),
        call(1, Wish::Child { request: unknown, holder: child(9) }),
        call(1, release(unknown)),
    ];
    for input in may {
        assert!(story.cell.admits(&input).is_some(), "{input:?}");
    }
    let must = [
        call(1, Wish::End { request, rest: rest.clone() }),
        call(1, Wish::Withdraw { asked, rest: rest.clone() }),
        call(2, Wish::Withdraw { asked, rest }),
        call(1, Wish::Child { request, holder: child(9) }),
        call(2, release(request)),
        call(2, Wish::Leave),
        Input::Over(SessionId(1)),
        Input::Detach(conn(1)),
        Input::HolderEnded(request),
    ];
    for input in must {
        assert_eq!(story.cell.admits(&input), None, "{input:?}");
    }
}

/// Each would be a record in the room that is kept for the ends of others.
#[test]
fn a_release_of_what_is_ending_already_may_be_refused() {
    let mut story = Story::new(&[("gpu", 8)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    let release = || {
        let (by, may, unseen, beyond) = (who(1), true, false, None);
        Wish::Release { request, force: true, by, may, unseen, beyond }
    };
    let call = |call| {
        let (conn, call, heard) = (conn(1), CallNo(call), CallNo(0));
        Input::Call { conn, call, heard, wish: release() }
    };
    assert_eq!(story.cell.admits(&call(3)), None);
    story.calls(1, 3, release());
    assert!(story.cell.admits(&call(4)).is_some(), "it was taken away");
    story.restart("boot", false);
    story.comes_back(1);
    assert!(story.cell.admits(&call(4)).is_some());
    // Its processes outlast its session, and are killed.
    story.comes(2);
    story.input(Input::Over(SessionId(1)));
    assert!(story.cell.books.get(request).is_some_and(|entry| entry.left.is_some()));
    let by_another =
        Input::Call { conn: conn(2), call: CallNo(1), heard: CallNo(0), wish: release() };
    assert!(story.cell.admits(&by_another).is_some(), "it is being killed");
}

/// A reservation that was released lasts as long as its parts, and no release makes that shorter.
#[test]
fn a_release_of_what_is_closing_may_be_refused() {
    let mut story = Story::new(&[("gpu", 8)]);
    story.comes(1);
    story.asks(1, 1, "gpu:2", Lasting::Reservation(50_000));
    let of = story.cell.books.grants().next().expect("held").0;
    let needs = vec!["gpu".parse().expect("a need")];
    let (lasting, part) = (Lasting::Command(Leftovers::Wait), Some(Part { of, outlasts: true }));
    let (now, from, within, limit) = (false, From::default(), None, None);
    let ask = Ask { needs, now, lasting, from, within, limit, part };
    let effects = story.calls(1, 2, Wish::Ask { who: who(1), ask: ask.into(), length: None });
    let [Effect::Prepare(request)] = effects[..] else { panic!("{effects:?}") };
    story.input(Input::Prepared { request, holder: None, place: None });
    story.calls(1, 3, Wish::Child { request, holder: child(9) });
    let release = || {
        let (by, may, unseen, beyond) = (who(1), true, false, None);
        Wish::Release { request: of, force: false, by, may, unseen, beyond }
    };
    let call = |call| {
        let (conn, call, heard) = (conn(1), CallNo(call), CallNo(0));
        Input::Call { conn, call, heard, wish: release() }
    };
    assert_eq!(story.cell.admits(&call(4)), None);
    story.calls(1, 4, release());
    assert!(story.cell.books.get(of).is_some_and(|entry| entry.closing.is_some()));
    assert!(story.cell.admits(&call(5)).is_some());
}

/// More than there is will be refused: that is not long.
#[test]
fn what_is_asked_for_beyond_a_pool_needs_no_room() {
    let story = Story::new(&[("gpu", 8)]);
    let room = |needs: &str| {
        let needs = vec![needs.parse().expect("a need")];
        let (now, lasting, from) = (false, Lasting::Connection, From::default());
        let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
        let wish = Wish::Ask { who: who(1), ask: ask.into(), length: None };
        let input = Input::Call { conn: conn(1), call: CallNo(1), heard: CallNo(0), wish };
        story.cell.admits(&input).expect("it is new")
    };
    assert_eq!(room("gpu:60000"), room("gpu:all"));
    assert_eq!(room("npu:60000"), room("npu"));
    assert!(room("gpu:8") > room("gpu:7"));
}
