//! The corners of the engine: what is refused and why, timers, what comes back, what is shown.

use std::collections::BTreeMap;

use holdall_core::{PoolId, Rung};
use holdall_protocols::house::House;
use holdall_wire::{Ask, Change, Fault, Kind, Lasting, NEEDS_MAX, Refusal, State, UNITS_MAX};

use super::super::look::{PAGE, Page};
use super::super::{Effect, Engine, Input, Reservation, TimerNo, Walk};
use super::{Story, ask, engine, granted, name, never, step, units, who};

/// Steps an engine and keeps account of its timers.
struct Clockwork {
    engine: Engine<House>,
    armed: BTreeMap<TimerNo, Rung>,
    last: Option<TimerNo>,
}

impl Clockwork {
    fn new(variant: Option<&str>) -> Self {
        let engine = Engine::new(variant, 1, true).expect("a variant");
        Self { engine, armed: BTreeMap::new(), last: None }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        if let Input::Timer(timer) = input {
            self.armed.remove(&timer);
        }
        let effects = self.engine.step(0, input).expect("unbroken");
        for effect in &effects {
            match effect {
                Effect::Arm(timer, rung) => {
                    assert!(self.last < Some(*timer), "a number is used once");
                    self.last = Some(*timer);
                    self.armed.insert(*timer, *rung);
                }
                Effect::Disarm(timer) => {
                    assert!(self.armed.remove(timer).is_some(), "only what is armed is disarmed");
                }
                _ => {}
            }
        }
        effects
    }

    fn asks(&mut self, needs: &str) -> holdall_wire::RequestNo {
        let request = self.engine.next_number();
        self.step(Input::Ask { who: who().into(), ask: ask(needs).into(), length: None });
        request
    }
}

#[test]
fn timers_are_armed_once_ring_once_and_go_with_their_requests() {
    for variant in [None, Some("resend=1")] {
        let mut clock = Clockwork::new(variant);
        let first = clock.asks("a");
        assert!(clock.armed.is_empty(), "nobody waits");
        let waiting: Vec<_> = (0..3).map(|_| clock.asks("a")).collect();
        let expected = if variant.is_some() { 1 + waiting.len() } else { 1 };
        assert_eq!(clock.armed.len(), expected, "{:?}", clock.armed);
        if variant.is_some() {
            let (timer, rung) = clock.armed.iter().find(|(_, rung)| **rung == 0).expect("a resend");
            let (timer, rung) = (*timer, *rung);
            clock.step(Input::Timer(timer));
            assert_eq!(clock.armed.len(), expected, "it is armed again");
            assert!(clock.armed.values().any(|later| *later == rung + 1), "and waits longer");
            assert!(clock.step(Input::Timer(timer)).is_empty(), "it rings once");
        }
        clock.step(Input::End(waiting[1]));
        clock.step(Input::End(first));
        clock.step(Input::End(waiting[0]));
        clock.step(Input::End(waiting[2]));
        assert!(clock.armed.is_empty(), "{:?}", clock.armed);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut story = Story(engine());
    let many: Vec<_> = (0..=NEEDS_MAX).map(|i| format!("l{i}")).collect();
    for needs in [vec![], many.clone()] {
        let needs = needs.iter().map(|need| need.parse().expect("a need")).collect();
        let (_, effects) = story.asks_with(Ask { needs, ..ask("x") });
        assert!(
            matches!(effects[..], [Effect::Refused { why: Refusal::Senseless(_), .. }]),
            "{effects:?}"
        );
    }
    assert_eq!(granted(&story.asks(&many[1..].join(" ")).1).len(), 1, "as many as allowed");
}

#[test]
fn pools_are_added_resized_and_removed_only_as_makes_sense() {
    let mut story = Story(engine());
    let numbered = |n| Change::Add { name: name("p"), kind: Kind::Numbered(n) };
    let named = |names: &[&str]| {
        let names = names.iter().map(|text| name(text)).collect();
        Change::Add { name: name("q"), kind: Kind::Named(names) }
    };
    let resize = |pool: &str, units| Change::Resize { name: name(pool), units };
    let lock = Change::Add { name: name("l"), kind: Kind::Lock };
    let mut tells = |change: Change| match &story.changes(change)[..] {
        [Effect::Changed(Ok(()))] => String::new(),
        [Effect::Changed(Err(Fault::Conflict(why)))] => why.clone(),
        other => panic!("{other:?}"),
    };
    assert!(tells(numbered(0)).contains("at least one"));
    assert!(tells(numbered(UNITS_MAX + 1)).contains("at most"));
    assert_eq!(tells(numbered(2)), "");
    assert!(tells(numbered(2)).contains("already"));
    assert!(tells(resize("p", 0)).contains("at least one"));
    assert!(tells(resize("nowhere", 1)).contains("no pool"));
    assert!(tells(named(&["a", "b", "a"])).contains("twice"));
    assert!(tells(named(&[])).contains("at least one"));
    assert_eq!(tells(named(&["a", "b"])), "");
    assert_eq!(tells(resize("q", 2)), "", "its own size changes nothing");
    assert!(tells(resize("q", 3)).contains("names of their own"));
    assert_eq!(tells(resize("q", 1)), "");
    assert_eq!(tells(lock.clone()), "");
    assert!(tells(lock).contains("already"));
    assert!(tells(resize("l", 2)).contains("no size"));
    assert_eq!(story.0.units(), 2 + 1 + 1);
    assert_eq!(story.0.declared().len(), 3);
    assert!(never(&story.asks("l:2").1));
    assert!(never(&story.asks("l:all").1), "a lock has no units");
    let told = story.changes(resize("nowhere", 1));
    assert!(matches!(&told[..], [Effect::Changed(Err(fault))] if fault.is_unknown()), "{told:?}");
}

#[test]
fn a_lock_in_use_can_be_declared_but_is_no_pool() {
    let mut story = Story(engine());
    let add = |kind| Change::Add { name: name("l"), kind };
    let (held, _) = story.asks("l");
    assert!(matches!(story.changes(add(Kind::Numbered(1)))[..], [Effect::Changed(Err(_))]));
    assert_eq!(story.changes(add(Kind::Lock)), [Effect::Changed(Ok(()))]);
    story.ends(held);
    assert_eq!(story.0.declared(), [add(Kind::Lock)], "it stays when nobody wants it");
}

#[test]
fn a_pool_that_is_being_removed_is_not_there_for_anybody() {
    let mut story = Story(engine());
    story.pool("p", 2);
    let (held, _) = story.asks("p");
    story.changes(Change::Remove { name: name("p"), force: true });
    let view = story.0.status(&[]);
    assert_eq!((view.pools[0].units.len(), view.pools[0].free), (1, 0), "the free unit is gone");
    assert!(view.pools[0].units[0].retiring);
    let again = story.changes(Change::Add { name: name("p"), kind: Kind::Numbered(1) });
    let [Effect::Changed(Err(Fault::Conflict(why)))] = &again[..] else { panic!("{again:?}") };
    assert!(why.contains("being removed"), "{why}");
    story.ends(held);
    assert!(story.0.status(&[]).pools.is_empty());
}

#[test]
fn units_on_their_way_out_stay_if_the_pool_grows_again() {
    let mut story = Story(engine());
    story.pool("p", 3);
    let (held, _) = story.asks("p:3");
    story.changes(Change::Resize { name: name("p"), units: 1 });
    story.changes(Change::Resize { name: name("p"), units: 2 });
    story.ends(held);
    assert_eq!(units(&story.asks("p:2").1).len(), 2);
    let view = story.0.status(&[]);
    assert_eq!(view.pools[0].units.len(), 2);
    assert!(view.pools[0].units.iter().all(|unit| !unit.retiring));
}

#[test]
fn a_free_unit_goes_at_once() {
    let mut story = Story(engine());
    story.pool("p", 3);
    story.changes(Change::Resize { name: name("p"), units: 1 });
    assert_eq!(story.0.status(&[]).pools[0].units.len(), 1);
}

#[test]
fn an_end_is_told_once_and_only_to_whom_it_concerns() {
    let mut story = Story(engine());
    let (held, _) = story.asks("a");
    let (waits, _) = story.asks("a");
    let withdrawn = |request| Effect::Refused { request, why: Refusal::Withdrawn };
    assert_eq!(step(&mut story.0, Input::End(waits)), [withdrawn(waits)]);
    assert_eq!(step(&mut story.0, Input::End(held)), [Effect::Ended(held)]);
    assert_eq!(step(&mut story.0, Input::End(held)), []);
    assert_eq!(story.0.ledger.pools(PoolId(0)).count(), 0);
}

#[test]
fn whoever_is_granted_at_once_is_not_told_that_it_waits() {
    let mut story = Story(engine());
    let (_, effects) = story.asks_with(Ask { now: true, ..ask("a") });
    assert!(matches!(effects[..], [Effect::Granted { .. }]), "{effects:?}");
    assert_eq!(story.0.load(), (1, 0));
}

#[test]
fn those_who_are_passed_are_counted() {
    let mut story = Story(engine());
    story.asks("a");
    for _ in 0..2 {
        story.asks("a b");
    }
    // The two oldest that wait keep b for themselves; c is nobody's.
    let overtook = |effects: &[Effect]| match effects {
        [Effect::Granted { overtook, .. }] => *overtook,
        other => panic!("{other:?}"),
    };
    assert_eq!(overtook(&story.asks("c").1), 0);
    // Beyond the two oldest, who keep only a, nobody keeps anything.
    story.pool("p", 3);
    story.asks("a p:3");
    story.asks("a p:2");
    assert_eq!(overtook(&story.asks("p").1), 2);
}

#[test]
fn requests_inside_a_grant_may_ask_for_what_it_leaves() {
    let mut story = Story(engine());
    story.pool("p", 3);
    let (outer, _) = story.asks("p:2");
    let inside = |needs| Ask { within: Some(outer), ..ask(needs) };
    let (inner, effects) = story.asks_with(inside("p"));
    assert_eq!(units(&effects), ["p/2"], "one is left");
    story.ends(inner);
    let (_, effects) = story.asks_with(inside("p:2"));
    let [Effect::Refused { why: Refusal::Never(why), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(why.contains("'p:2' would wait for itself"), "{why}");
    let (other, _) = story.asks("p");
    let (inner, effects) = story.asks_with(inside("p"));
    assert_eq!(effects, [Effect::Queued(inner)], "another has it, and will give it back");
    assert_eq!(story.ends(other), [inner]);
}

#[test]
fn whoever_is_in_the_way_is_named_and_the_rest_counted() {
    let mut story = Story(engine());
    for holders in [3, 4] {
        while story.0.load().0 < holders {
            story.asks("l:shared");
        }
        let (_, effects) = story.asks_with(Ask { now: true, ..ask("l") });
        let [Effect::Refused { why: Refusal::Busy(why), .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(why.matches("(me, pid 1)").count(), 3, "{why}");
        assert_eq!(why.contains(" and 1 more"), holders > 3, "{why}");
    }
}

fn reservation(needs: &str, taken: Vec<holdall_wire::Taken>) -> Reservation {
    let request = holdall_wire::RequestNo((9 << 32) + 40);
    let needs = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
    Reservation { request, who: who(), needs, taken, since: 1, until: Some(5), part_of: None }
}

fn taken(pool: &str, units: &[(&str, u64)]) -> holdall_wire::Taken {
    let units = units.iter().map(|(unit, fence)| (name(unit), *fence)).collect();
    holdall_wire::Taken { name: name(pool), units }
}

#[test]
fn what_cannot_be_restored_leaves_nothing_behind() {
    let mut story = Story(engine());
    story.pool("p", 2);
    let gone = reservation("q:2", vec![taken("q", &[("q/0", 1), ("q/1", 1)])]);
    let request = gone.request;
    assert_eq!(step(&mut story.0, Input::Restore(gone)), [Effect::Unrestored(request)]);
    let (held, _) = story.asks("p:2");
    assert!(held > request, "numbers go on behind all that were given");
    let busy = reservation("p", vec![taken("p", &[("p/0", 1)])]);
    assert_eq!(step(&mut story.0, Input::Restore(busy)), [Effect::Unrestored(request)]);
    assert_eq!(story.0.load(), (1, 0));
    assert_eq!(story.0.status(&[]).pools[0].waiting, 0);
    story.ends(held);
    assert_eq!(units(&story.asks("p:2").1), ["p/0", "p/1"]);
}

#[test]
fn what_is_restored_is_as_it_was_or_not_at_all() {
    let mut story = Story(engine());
    story.pool("p", 3);
    story.asks("p");
    // One of its units is somebody else's now. Two others are free, but whoever used its units may
    // still do so, and knows no others.
    let other = reservation("p:2", vec![taken("p", &[("p/0", 3), ("p/1", 3)])]);
    let effects = step(&mut story.0, Input::Restore(other.clone()));
    assert_eq!(effects, [Effect::Unrestored(other.request)]);
    assert_eq!(story.0.status(&[]).pools[0].waiting, 0);
    assert_eq!(units(&story.asks("p:2").1), ["p/1", "p/2"], "both are free as before");
    let mut fresh = Story(engine());
    let fence = (9 << 32) + 7;
    let lock = reservation("l:shared", vec![taken("l", &[("l", fence)])]);
    assert_eq!(granted(&step(&mut fresh.0, Input::Restore(lock))).len(), 1);
    let shared = granted(&fresh.asks("l:shared").1);
    assert_eq!(shared[0].1[0].units[0].1, fence, "those who share carry the same fence");
    assert_eq!(fresh.0.epoch(), 9, "numbers have reached it");
}

#[test]
fn what_others_are_to_have_first_is_not_restored() {
    let mut story = Story(engine());
    story.pool("p", 2);
    let (held, _) = story.asks("p");
    let (waits, _) = story.asks("p:2");
    let late = reservation("p", vec![taken("p", &[("p/1", 3)])]);
    let effects = step(&mut story.0, Input::Restore(late.clone()));
    assert_eq!(effects, [Effect::Unrestored(late.request)], "it held nothing, so nothing ended");
    assert_eq!(story.0.load(), (1, 1), "and it does not wait");
    assert_eq!(story.ends(held), [waits]);
}

#[test]
fn a_reservation_is_renewed_and_shown_as_one() {
    let mut story = Story(engine());
    let lasting = Lasting::Reservation(1000);
    let (kept, _) = story.asks_with(Ask { lasting, ..ask("a") });
    let (held, _) = story.asks("b");
    step(&mut story.0, Input::Renew { request: kept, until: 7000 });
    assert_eq!(story.0.reservations()[0].until, Some(7000));
    let state = |request| story.0.grant(request).expect("a grant").state;
    assert!(matches!((state(kept), state(held)), (State::Reserved, State::Held)));
}

#[test]
fn what_is_in_the_way_is_shown_need_by_need() {
    let mut story = Story(engine());
    story.pool("p", 3);
    story.asks("p:2 l:shared");
    let (waits, _) = story.asks("p:2 l free");
    let status = story.0.status(&[]);
    let [p, l] = &status.waiting[0].hindrances[..] else { panic!("{status:?}") };
    assert_eq!((p.wanted, p.free, p.holders.len(), p.ahead_total), (2, 1, 1, 0));
    assert_eq!((l.wanted, l.free, l.holders.len(), l.ahead_total), (1, 0, 1, 0));
    story.asks("free p");
    let status = story.0.status(&[name("free")]);
    assert_eq!(status.waiting.len(), 2, "whoever concerns it with any need");
    assert_eq!(status.pools.len(), 1);
    let last = &status.waiting[1].hindrances;
    assert_eq!(last[0].holders_total, 0, "what is free is only wanted");
    assert_eq!(last[0].ahead, [waits]);
    assert_eq!(last[0].free, 1, "a lock is free or not");
}

#[test]
fn a_view_has_its_limits() {
    let mut page = Page::default();
    page.add(PAGE - 1);
    assert!(page.has_room(), "for one more");
    page.add(PAGE);
    assert!(!page.has_room());
    let mut page = Page::default();
    while page.has_room() {}
    assert_eq!(page.rows, 0, "however little concerns anybody, it ends");
}

/// A queue is shown a page at a time, as it is all at once, in the order of service.
#[test]
fn pages_are_what_there_is() {
    let mut story = Story(engine());
    story.pool("gpu", 2);
    story.asks("a");
    for n in 0..300 {
        story.asks(&format!("a lock{n} gpu"));
    }
    let all = story.0.status(&[]);
    assert_eq!((all.pools.len(), all.grants.len(), all.waiting.len()), (302, 1, 300));
    let order: Vec<_> = all.waiting.iter().map(|wait| wait.request).collect();
    assert_eq!(order, story.0.waiting());
    assert_eq!(all.waiting[299].hindrances[0].ahead_total, 299);
    let (mut walk, mut rows) = (Walk::new(Vec::new()), 0);
    while !walk.is_over() {
        let page = story.0.look(&mut walk);
        let shown = page.pools.len() + page.grants.len() + page.waiting.len();
        assert!(shown <= 64);
        rows += shown;
        assert_eq!(page.left_out as usize, 302usize.saturating_sub(rows), "but for locks");
    }
    assert_eq!(rows, 603);
    let some = story.0.status(&[name("lock7"), name("lock8"), name("nothing")]);
    assert_eq!((some.pools.len(), some.grants.len(), some.waiting.len()), (2, 0, 2));
    let last = order[299];
    let explanation = story.0.explain(last, 1).expect("known");
    assert_eq!((explanation.chain.len(), explanation.release.len()), (1, 1));
    assert!(explanation.left_out > 0, "of those before it some are not followed");
}

#[test]
fn names_are_free_again_when_their_pool_is_gone() {
    let mut story = Story(engine());
    let kind = Kind::Named(vec![name("left"), name("right")]);
    story.changes(Change::Add { name: name("hand"), kind: kind.clone() });
    let other = Kind::Named(vec![name("big"), name("small")]);
    story.changes(Change::Add { name: name("toe"), kind: other });
    assert!(never(&story.asks("left").1), "it is a unit, not a lock");
    story.changes(Change::Remove { name: name("hand"), force: false });
    assert_eq!(units(&story.asks("left").1), ["left"], "a lock, now that it is nothing else");
    assert!(never(&story.asks("big").1), "which others still are");
}
