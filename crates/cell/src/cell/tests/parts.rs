//! Parts of grants.

use holdall_wire::Part;

use super::*;

impl Story {
    fn asks_part(&mut self, call: u64, of: RequestNo, needs: &str, outlasts: bool) -> Vec<Effect> {
        let needs = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
        let (now, lasting) = (false, Lasting::Connection);
        let (from, part) = (From::default(), Some(Part { of, outlasts }));
        let ask = Ask { needs, now, lasting, from, within: None, limit: None, part };
        self.calls(1, call, Wish::Ask { who: who(1), ask: ask.into(), length: None })
    }

    /// The same for a command that runs.
    fn runs_part(&mut self, call: u64, of: RequestNo, outlasts: bool, pid: u32) -> RequestNo {
        let needs = vec!["gpu".parse().expect("a need")];
        let lasting = Lasting::Command(Leftovers::Wait);
        let (from, part) = (From::default(), Some(Part { of, outlasts }));
        let ask = Ask { needs, now: false, lasting, from, within: None, limit: None, part };
        let effects = self.calls(1, call, Wish::Ask { who: who(1), ask: ask.into(), length: None });
        let [Effect::Prepare(request)] = effects[..] else { panic!("{effects:?}") };
        self.input(Input::Prepared { request, holder: None, place: None });
        self.calls(1, call + 1, Wish::Child { request, holder: child(pid) });
        request
    }

    fn reserves(&mut self, needs: &str) -> RequestNo {
        self.comes(1);
        granted(&self.asks(1, 1, needs, Lasting::Reservation(50_000)))
    }

    fn releases(&mut self, call: u64, request: RequestNo, force: bool) -> Vec<Effect> {
        let (by, may, unseen, beyond) = (who(1), false, false, None);
        self.calls(1, call, Wish::Release { request, force, by, may, unseen, beyond })
    }
}

fn granted(effects: &[Effect]) -> RequestNo {
    let [Effect::Reply { reply: Reply::Granted { request, .. }, .. }] = effects[..] else {
        panic!("{effects:?}")
    };
    request
}

fn is_queued(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Reply { reply: Reply::Queued(_), .. }])
}

#[test]
fn parts_use_what_their_grant_holds_one_after_the_other() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 3)]);
        let whole = story.reserves("gpu:2 db");
        let first = granted(&story.asks_part(2, whole, "gpu db:shared", false));
        let second = granted(&story.asks_part(3, whole, "gpu db:shared", false));
        assert_eq!(story.units(first)[0], "gpu/0");
        assert_eq!(story.units(second)[0], "gpu/1");
        assert!(is_queued(&story.asks_part(4, whole, "gpu db", false)));
        story.restart("boot", upgrade);
        story.comes_back(1);
        assert_eq!(story.calls(1, 5, Wish::End { request: first, rest: None }).len(), 1);
        let told = story.calls(1, 6, Wish::End { request: second, rest: None });
        let third = told.iter().filter(|effect| is_grant(std::slice::from_ref(effect))).count();
        assert_eq!(third, 1, "{told:?}");
    }
}

/// It ends with its last part, and whoever waits gets it then.
#[test]
fn a_grant_outlasts_its_parts() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        let whole = story.reserves("gpu");
        let part = story.runs_part(2, whole, false, 9);
        assert!(is_queued(&story.asks_part(4, whole, "gpu", false)));
        story.comes(2);
        assert!(is_queued(&story.asks(2, 1, "gpu", Lasting::Connection)));
        let effects = story.releases(5, whole, false);
        let refused = |effect: &Effect| {
            matches!(effect, Effect::Reply { call: CallNo(4), reply: Reply::Refused(_), .. })
        };
        assert!(effects.iter().any(refused), "who waits for a part is told: {effects:?}");
        assert!(effects.contains(&reply(1, 2, Reply::Lost(part))), "{effects:?}");
        assert!(effects.contains(&reply(1, 5, Reply::Done)), "{effects:?}");
        story.restart("boot", upgrade);
        assert_eq!(story.units(whole), ["gpu/0"], "it lasts");
        story.comes_back(1);
        story.comes_back(2);
        let late = story.asks_part(6, whole, "gpu", false);
        let refused = [Effect::Reply {
            conn: conn(1),
            call: CallNo(6),
            reply: Reply::Refused(Refusal::Conflict(format!("{whole} is ending"))),
        }];
        assert_eq!(late, refused, "no part begins any more");
        story.at += 10_000;
        assert_eq!(story.input(Input::Due), [Effect::Kill(part, child(9))]);
        let told = story.input(Input::HolderEnded(part));
        let next = told.iter().filter(|effect| is_grant(std::slice::from_ref(effect))).count();
        assert_eq!(next, 1, "upgrade {upgrade}: {told:?}");
        assert!(story.cell.books.get(whole).is_none());
    }
}

#[test]
fn parts_may_outlast_their_grant_for_some_time() {
    let mut story = Story::new(&[("gpu", 2)]);
    story.limits.overtime = 3000;
    story.restart("boot", false);
    let whole = story.reserves("gpu:2");
    let stays = story.runs_part(2, whole, true, 8);
    let goes = story.runs_part(4, whole, false, 9);
    let effects = story.releases(6, whole, false);
    assert_eq!(effects, [reply(1, 4, Reply::Lost(goes)), reply(1, 6, Reply::Done)]);
    assert_eq!(story.cell.next_due(), Some(story.at + 3000));
    story.restart("boot", true);
    story.comes_back(1);
    story.at += 3000;
    assert_eq!(story.input(Input::Due), [reply(1, 2, Reply::Lost(stays))]);
    story.input(Input::HolderEnded(goes));
    assert!(story.cell.books.get(whole).is_some());
    let done = story.calls(1, 7, Wish::End { request: stays, rest: None });
    assert_eq!(done, [reply(1, 7, Reply::Done)]);
    let done = story.calls(1, 8, Wish::End { request: goes, rest: None });
    assert_eq!(done, [reply(1, 8, Reply::Done)]);
    assert!(story.cell.books.get(whole).is_none(), "and with the last part it is over");
}

#[test]
fn by_force_nothing_outlasts_its_grant() {
    let mut story = Story::new(&[("gpu", 2)]);
    let whole = story.reserves("gpu:2");
    let stays = story.runs_part(2, whole, true, 8);
    assert_eq!(story.releases(4, whole, false), [reply(1, 4, Reply::Done)]);
    let effects = story.releases(5, whole, true);
    assert_eq!(effects, [reply(1, 2, Reply::Lost(stays)), reply(1, 5, Reply::Done)]);
    let mut story = Story::new(&[("gpu", 2)]);
    let whole = story.reserves("gpu:2");
    let stays = story.runs_part(2, whole, true, 8);
    let effects = story.releases(4, whole, true);
    assert_eq!(effects, [reply(1, 2, Reply::Lost(stays)), reply(1, 4, Reply::Done)], "at once");
}

/// It has ended, and says so once.
#[test]
fn a_grant_that_is_closing_closes_once() {
    let mut story = Story::new(&[("gpu", 1)]);
    let whole = story.runs(1, "gpu", Leftovers::Wait);
    let part = granted(&story.asks_part(3, whole, "gpu", true));
    let rest = Some(Rest { holder: child(9), pids: vec![9] });
    story.calls(1, 4, Wish::End { request: whole, rest });
    story.input(Input::HolderEnded(whole));
    let before = story.log.len();
    assert_eq!(story.input(Input::HolderEnded(whole)), []);
    assert_eq!(story.log.len(), before, "nothing has changed");
    story.calls(1, 5, Wish::End { request: part, rest: None });
    assert_eq!(story.cell.engine.load(), (0, 0));
}

/// A program that holds things by its connection, and has commands use them.
#[test]
fn parts_are_stopped_when_the_client_of_their_grant_is_gone() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.comes(1);
    let whole = granted(&story.asks(1, 1, "gpu", Lasting::Connection));
    let part = story.runs_part(2, whole, true, 9);
    let effects = story.input(Input::Over(SessionId(1)));
    assert!(effects.contains(&Effect::Kill(part, child(9))), "{effects:?}");
    assert_eq!(story.units(whole), ["gpu/0"], "in use");
    story.input(Input::HolderEnded(part));
    assert_eq!(story.cell.engine.load(), (0, 0));
}

/// A reservation that was released and is still in use by a part does not run out once more.
#[test]
fn what_is_closing_has_no_other_end() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.limits.overtime = 90_000;
    story.restart("boot", false);
    let whole = story.reserves("gpu");
    let part = story.runs_part(2, whole, true, 9);
    story.releases(4, whole, false);
    story.at += 50_000;
    assert_eq!(story.input(Input::Due), []);
    assert_eq!(story.cell.next_due(), Some(90_100));
    story.calls(1, 5, Wish::End { request: part, rest: None });
    assert_eq!(story.cell.engine.load(), (0, 0));
}
