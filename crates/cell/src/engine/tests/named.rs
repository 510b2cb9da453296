//! Units by name, and units that are drained.

use holdall_wire::{Ask, Change, Drained, Kind, Lasting, Refusal, RequestNo};

use super::super::{Effect, Engine, Input};
use super::{Story, ask, engine, granted, name, never, step, units};

impl Story {
    fn named(&mut self, pool: &str, units: &[&str]) {
        let kind = Kind::Named(units.iter().map(|unit| name(unit)).collect());
        let change = Change::Add { name: name(pool), kind };
        assert_eq!(self.changes(change), [Effect::Changed(Ok(()))]);
    }

    fn drains(&mut self, unit: &str) -> Vec<Effect> {
        let drained = Drained { reason: "fan broken".into(), by: "me".into(), until: None };
        self.changes(Change::Drain { name: name(unit), drained })
    }

    fn undrains(&mut self, unit: &str) -> Vec<RequestNo> {
        let effects = self.changes(Change::Undrain { name: name(unit) });
        granted(&effects).into_iter().map(|(request, _)| request).collect()
    }
}

fn senseless(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Refused { why: Refusal::Senseless(_), .. }])
}

#[test]
fn certain_units_and_others_are_held_all_or_nothing() {
    let mut story = Story(engine());
    story.pool("board", 4);
    let (first, effects) = story.asks("board/0 board/2");
    assert_eq!(units(&effects), ["board/0", "board/2"]);
    assert_eq!(granted(&effects)[0].1.len(), 1, "of one pool");
    let (second, effects) = story.asks("x board/2 board:1");
    assert_eq!(effects, [Effect::Queued(second)], "one is held, so it holds none");
    assert_eq!(units(&story.asks("board/3").1), ["board/3"], "there is another for the count");
    let (third, effects) = story.asks("board/1");
    assert_eq!(effects, [Effect::Queued(third)], "now there is not");
    let effects = step(&mut story.0, Input::End(first));
    let all = granted(&effects);
    assert_eq!(all[0].0, second);
    assert_eq!(units(&effects)[..3], ["x", "board/0", "board/2"], "board/1 is waited for by name");
    assert_eq!(all[1].0, third);
}

#[test]
fn units_with_names_of_their_own_are_asked_for_with_their_pool() {
    let mut story = Story(engine());
    story.named("seat", &["red", "blue", "seat/green"]);
    assert!(never(&story.asks("red").1), "which pool's?");
    assert_eq!(units(&story.asks("seat/blue").1), ["blue"]);
    assert_eq!(units(&story.asks("seat/green").1), ["seat/green"]);
    assert!(never(&story.asks("seat/black").1));
    assert_eq!(units(&story.asks("seat").1), ["red"]);
    story.named("lab", &["a/b", "c"]);
    assert_eq!(units(&story.asks("lab/c").1), ["c"]);
    assert_eq!(units(&story.asks("lab/a/b").1), ["a/b"]);
    let add = |pool: &str, unit: &str| Change::Add {
        name: name(pool),
        kind: Kind::Named(vec![name(unit)]),
    };
    let effects = story.changes(add("lab/a", "d"));
    assert!(matches!(effects[..], [Effect::Changed(Err(_))]), "lab/a/b would be no unit any more");
    story.named("x/y", &["e"]);
    assert!(matches!(story.changes(add("x", "y/z"))[..], [Effect::Changed(Err(_))]));
    story.named("x", &["f"]);
    assert_eq!(units(&story.asks("x/y/e").1), ["e"], "the longest pool before a slash decides");
    assert!(never(&story.asks("x/y/f").1));
}

#[test]
fn a_unit_is_one_and_named_once() {
    let mut story = Story(engine());
    story.pool("p", 3);
    for bad in ["p/0:2", "p/0:all", "p/0:shared", "p/3", "p/00", "p/x", "p/0 p:3", "p/0/1"] {
        assert!(never(&story.asks(bad).1), "{bad}");
    }
    assert!(senseless(&story.asks("p/0 p/0:1").1));
    let (all, effects) = story.asks("p:all p/1");
    assert_eq!(units(&effects), ["p/0", "p/1", "p/2"], "all, one of them by name");
    story.ends(all);
    assert_eq!(units(&story.asks("p/1:1 p:2").1), ["p/0", "p/1", "p/2"]);
}

#[test]
fn whoever_names_other_units_is_not_in_the_way() {
    let mut story = Story(engine());
    story.pool("p", 3);
    let (holder, _) = story.asks("p/0");
    let (first, _) = story.asks("p/0");
    story.asks("p/1");
    let (second, _) = story.asks("p/1");
    let status = story.0.status(&[name("p/1")]);
    assert_eq!((status.pools.len(), status.grants.len(), status.waiting.len()), (1, 1, 1));
    let [hindrance] = &status.waiting[0].hindrances[..] else { panic!("{status:?}") };
    assert_eq!((hindrance.holders.len(), hindrance.ahead_total), (1, 0), "{hindrance:?}");
    let explanation = story.0.explain(first, 10).expect("known");
    let release: Vec<_> = explanation.release.iter().map(|grant| grant.request).collect();
    assert_eq!(release, [holder]);
    let (counted, _) = story.asks("p:2");
    let all = story.0.status(&[]).waiting;
    assert_eq!(all[2].request, counted);
    assert_eq!(all[2].hindrances[0].ahead, [first, second], "who takes any waits for all before");
}

#[test]
fn a_request_inside_a_grant_knows_its_units_by_name() {
    let mut story = Story(engine());
    story.pool("p", 3);
    let (outer, _) = story.asks("p/1");
    let inside = |needs| Ask { within: Some(outer), ..ask(needs) };
    let (_, effects) = story.asks_with(inside("p/1"));
    assert!(never(&effects), "it would wait for itself");
    let (_, effects) = story.asks_with(Ask { now: true, ..inside("p/1") });
    assert!(never(&effects), "which is not what comes of not waiting");
    let (inner, effects) = story.asks_with(inside("p/2"));
    assert_eq!(units(&effects), ["p/2"]);
    story.ends(inner);
    // Whoever waits for the outer grant and names another unit of the pool is in nobody's way.
    story.asks("p/0");
    story.asks("p/1 p/0");
    let (waits, effects) = story.asks_with(inside("p/2"));
    assert_eq!(units(&effects), ["p/2"]);
    story.ends(waits);
    let (_, effects) = story.asks_with(inside("p/0"));
    assert!(never(&effects), "p/0 is kept for one that waits for the outer grant: {effects:?}");
}

#[test]
fn what_comes_back_has_the_units_it_named() {
    let mut story = Story(engine());
    story.pool("p", 4);
    story.named("seat", &["red", "blue"]);
    let lasting = Lasting::Reservation(1000);
    let (kept, _) = story.asks_with(Ask { lasting, ..ask("p/3 seat/blue p:1 db:shared x/y") });
    let on_disk = story.0.reservations();
    let mut next = Story(Engine::new(None, 8, true).expect("a variant"));
    next.pool("p", 4);
    next.named("seat", &["red", "blue"]);
    let effects = step(&mut next.0, Input::Restore(on_disk[0].clone()));
    assert_eq!(granted(&effects), [(kept, on_disk[0].taken.clone())]);
    assert_eq!(units(&effects), ["p/0", "p/3", "blue", "db", "x/y"]);
    assert_eq!(units(&next.asks("p:2 seat db:shared").1), ["p/1", "p/2", "red", "db"]);
    // A unit that is somebody else's by now is not replaced by another.
    let mut other = Story(Engine::new(None, 8, true).expect("a variant"));
    other.pool("p", 4);
    other.named("seat", &["red", "blue"]);
    other.asks("p/3");
    let effects = step(&mut other.0, Input::Restore(on_disk[0].clone()));
    assert_eq!(effects, [Effect::Unrestored(kept)]);
    assert_eq!(other.0.status(&[]).pools.len(), 2, "and nothing was made on the way");
}

#[test]
fn a_named_unit_that_goes_is_told_to_whom_waits_for_it() {
    let mut story = Story(engine());
    story.pool("p", 3);
    let (held, _) = story.asks("p/2");
    let (hopeless, _) = story.asks("p/2");
    let (patient, _) = story.asks("p/0 p/1");
    assert!(
        !granted(&story.changes(Change::Resize { name: name("p"), units: 2 })).is_empty() || {
            story.0.is_held(patient)
        }
    );
    assert!(!story.0.waiting().contains(&hopeless), "it would wait for ever");
    assert!(never(&story.asks("p/2").1));
    assert_eq!(story.ends(held), []);
    let grown = story.changes(Change::Resize { name: name("p"), units: 3 });
    assert_eq!(grown, [Effect::Changed(Ok(()))]);
    assert_eq!(units(&story.asks("p/2").1), ["p/2"], "another one of that name");
}

#[test]
fn a_smaller_pool_hands_out_no_more_than_it_has() {
    let mut story = Story(engine());
    story.pool("p", 4);
    let (last, _) = story.asks("p/2 p/3");
    story.changes(Change::Resize { name: name("p"), units: 2 });
    assert_eq!(story.0.status(&[]).pools[0].free, 0, "two are in use, though not those that stay");
    let (one, effects) = story.asks("p/1");
    assert_eq!(effects, [Effect::Queued(one)]);
    let hindrance = &story.0.status(&[]).waiting[0].hindrances[0];
    assert_eq!(hindrance.holders, [last]);
    let (any, effects) = story.asks("p");
    assert_eq!(effects, [Effect::Queued(any)]);
    assert_eq!(story.ends(last), [one, any]);
    let mut story = Story(engine());
    story.pool("p", 3);
    let (stays, _) = story.asks("p/0");
    let (goes, _) = story.asks("p/2");
    story.changes(Change::Resize { name: name("p"), units: 1 });
    let (next, _) = story.asks("p");
    assert_eq!(story.ends(stays), [], "one is still in use");
    assert_eq!(story.ends(goes), [next]);
}

/// The manager hears of it last, and may pass on meanwhile whatever it knows to be free.
#[test]
fn what_a_smaller_pool_gives_out_again_was_not_withheld_before() {
    let mut story = Story(engine());
    story.pool("p", 5);
    let [(two, _), (third, _), (fourth, _), (fifth, _)] =
        ["p:2", "p", "p x", "p"].map(|needs| story.asks(needs));
    story.ends(two);
    story.changes(Change::Resize { name: name("p"), units: 3 });
    story.ends(third);
    let (next, effects) = story.asks("p x");
    assert!(granted(&effects).is_empty(), "x is held");
    assert_eq!(story.ends(fourth), [next]);
    story.ends(fifth);
    assert_eq!(units(&story.asks("p:2").1), ["p/0", "p/1"]);
}

#[test]
fn a_drained_unit_is_given_to_nobody_until_it_is_undrained() {
    let mut story = Story(engine());
    story.pool("p", 3);
    let (holder, _) = story.asks("p/1");
    assert_eq!(story.drains("p/1"), [Effect::Changed(Ok(()))], "whoever has it keeps it");
    assert_eq!(story.0.drained().len(), 1);
    story.ends(holder);
    let (two, effects) = story.asks("p:2");
    assert_eq!(units(&effects), ["p/0", "p/2"]);
    let (waits, effects) = story.asks("p/1 x");
    assert_eq!(effects, [Effect::Queued(waits)]);
    let view = story.0.status(&[]);
    assert_eq!(view.pools[0].free, 0);
    let [hindrance] = &view.waiting[0].hindrances[..] else { panic!("{view:?}") };
    assert_eq!(hindrance.drained[0].0, name("p/1"));
    assert!(hindrance.holders.is_empty() && &*hindrance.drained[0].1.reason == "fan broken");
    assert_eq!(units(&story.asks("x").1), ["x"], "it keeps nothing idle");
    let (_, effects) = story.asks_with(Ask { now: true, ..ask("p/1") });
    let [Effect::Refused { why: Refusal::Busy(why), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(why, "p/1 is drained: fan broken");
    story.ends(two);
    let (all, effects) = story.asks("p:3");
    assert_eq!(effects, [Effect::Queued(all)], "the pool has as many, when it is back");
    assert!(never(&story.asks("p:4").1));
    story.drains("p");
    let (_, effects) = story.asks_with(Ask { now: true, ..ask("p") });
    assert!(granted(&effects).is_empty(), "all of it is drained");
    story.undrains("p/0");
    assert_eq!(units(&story.asks("p").1), ["p/0"]);
}

#[test]
fn what_was_drained_goes_to_those_who_waited() {
    let mut story = Story(engine());
    story.pool("p", 2);
    story.drains("p");
    let (first, _) = story.asks("p/0");
    let (second, _) = story.asks("p/0");
    let (any, _) = story.asks("p");
    assert_eq!(story.undrains("p"), [first, any]);
    assert_eq!(story.ends(first), [second]);
    let lock = Change::Add { name: name("l"), kind: Kind::Lock };
    story.changes(lock);
    for bad in ["l", "p/2", "nothing"] {
        assert!(matches!(story.drains(bad)[..], [Effect::Changed(Err(_))]), "{bad}");
    }
}

#[test]
fn a_slip_of_the_pen_is_doubted() {
    let mut story = Story(engine());
    story.pool("board", 1);
    let doubt = |text: &str| story.0.doubt(&text.parse().expect("a need"));
    assert!(doubt("baord").expect("alike").contains("is 'board' meant?"));
    assert!(doubt("Board:shared").is_some());
    for fine in ["board", "board/0", "scope", "board2"] {
        assert_eq!(doubt(fine), None, "{fine}");
    }
}
