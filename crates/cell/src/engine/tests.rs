//! The engine against stories, and against random inputs with a model that knows only effects.

mod corners;
mod long;
mod named;
mod parts;
mod random;

use std::sync::Arc;

use holdall_core::{Protocol, UserId};
use holdall_protocols::house::House;
use holdall_wire::{Ask, Change, From, Kind, Lasting, Name, Refusal, RequestNo, Taken, Who};

use super::{Effect, Engine, Input, Reservation, Serving};

fn engine() -> Engine<House> {
    Engine::new(None, 7, true).expect("a variant")
}

fn who() -> Who {
    let from = From { command: "test".into(), ..From::default() };
    Who { uid: 1, user: "me".into(), host: "here".into(), pid: 1, from }
}

fn ask(needs: &str) -> Ask {
    let needs = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
    Ask {
        needs,
        now: false,
        lasting: Lasting::Connection,
        from: From::default(),
        within: None,
        limit: None,
        part: None,
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Steps an engine and looks at everything that must hold after a step.
fn step<P: Protocol<Manager: Serving>>(engine: &mut Engine<P>, input: Input) -> Vec<Effect> {
    let effects = engine.step(0, input).expect("unbroken");
    engine.ledger.check().expect("the ledger is sound");
    // Timers are the protocol's own affair.
    let is_timer = |effect: &Effect| matches!(effect, Effect::Arm(..) | Effect::Disarm(_));
    effects.into_iter().filter(|effect| !is_timer(effect)).collect()
}

struct Story(Engine<House>);

impl Story {
    fn asks(&mut self, needs: &str) -> (RequestNo, Vec<Effect>) {
        self.asks_with(ask(needs))
    }

    fn asks_with(&mut self, ask: Ask) -> (RequestNo, Vec<Effect>) {
        let request = self.0.next_number();
        (
            request,
            step(&mut self.0, Input::Ask { who: who().into(), ask: ask.into(), length: None }),
        )
    }

    fn ends(&mut self, request: RequestNo) -> Vec<RequestNo> {
        granted(&step(&mut self.0, Input::End(request))).into_iter().map(|(r, _)| r).collect()
    }

    fn changes(&mut self, change: Change) -> Vec<Effect> {
        step(&mut self.0, Input::Change(change))
    }

    fn pool(&mut self, pool: &str, units: u32) {
        let change = Change::Add { name: name(pool), kind: Kind::Numbered(units) };
        assert_eq!(self.changes(change), [Effect::Changed(Ok(()))]);
    }
}

fn granted(effects: &[Effect]) -> Vec<(RequestNo, Vec<Taken>)> {
    let granted = effects.iter().filter_map(|effect| match effect {
        Effect::Granted { request, taken, .. } => Some((*request, taken.to_vec())),
        _ => None,
    });
    granted.collect()
}

fn units(effects: &[Effect]) -> Vec<String> {
    let taken = granted(effects).into_iter().flat_map(|(_, taken)| taken);
    taken.flat_map(|t| t.units).map(|(unit, _)| unit.to_string()).collect()
}

fn never(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Refused { why: Refusal::Never(_), .. }])
}

#[test]
fn opposite_orders_take_turns() {
    let mut story = Story(engine());
    let (first, effects) = story.asks("a b");
    assert_eq!(units(&effects), ["a", "b"]);
    let (second, effects) = story.asks("b a");
    assert_eq!(effects, [Effect::Queued(second)]);
    assert_eq!(story.ends(first), [second]);
    assert_eq!(story.ends(second), []);
    assert_eq!(story.0.status(&[]), Default::default(), "locks are forgotten");
}

#[test]
fn units_are_picked_by_name_and_shared_locks_carry_one_fence() {
    let mut story = Story(engine());
    story.pool("gpu", 3);
    let (first, effects) = story.asks("gpu:2 db:shared");
    assert_eq!(units(&effects), ["gpu/0", "gpu/1", "db"]);
    let fence = |effects: &[Effect]| granted(effects)[0].1.last().expect("db is last").units[0].1;
    let shared = fence(&effects);
    assert!(shared > 7 << 32);
    let (_, effects) = story.asks("gpu db:shared");
    assert_eq!(units(&effects), ["gpu/2", "db"]);
    assert_eq!(fence(&effects), shared);
    story.ends(first);
    let (_, effects) = story.asks("gpu:2");
    assert_eq!(units(&effects), ["gpu/0", "gpu/1"]);
    assert!(granted(&effects)[0].1[0].units[0].1 > shared);
}

#[test]
fn what_can_never_be_is_refused_at_once() {
    let mut story = Story(engine());
    story.pool("gpu", 2);
    for needs in ["gpu:3", "gpu:shared", "lock:2", "lock:all", "a gpu:3"] {
        let (_, effects) = story.asks(needs);
        assert!(never(&effects), "{needs}: {effects:?}");
    }
    let (_, effects) = story.asks("a a:shared");
    assert!(matches!(effects[..], [Effect::Refused { why: Refusal::Senseless(_), .. }]));
    assert_eq!(story.0.status(&[]).pools.len(), 1, "nothing was made on the way");
    let mut strict = Story(Engine::new(None, 1, false).expect("a variant"));
    assert!(never(&strict.asks("a").1));
}

#[test]
fn as_many_requests_as_there_can_be_are_no_end() {
    let mut story = Story(engine());
    story.0.lanes_made = UserId::LANES - 1;
    let (last, effects) = story.asks("a");
    assert_eq!(granted(&effects).len(), 1);
    let (_, effects) = story.asks("b");
    assert!(
        matches!(effects[..], [Effect::Refused { why: Refusal::Closed(_), .. }]),
        "{effects:?}"
    );
    assert_eq!(story.0.status(&[]).pools.len(), 1, "no lock was made on the way");
    story.ends(last);
    let (_, effects) = story.asks("b");
    assert_eq!(granted(&effects).len(), 1, "there is room again");
}

#[test]
fn whoever_will_not_wait_is_told_who_is_in_the_way() {
    let mut story = Story(engine());
    story.asks("a");
    let (_, effects) = story.asks_with(Ask { now: true, ..ask("a b") });
    let [Effect::Refused { why: Refusal::Busy(why), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(why.contains("a is held by 7-1 (me, pid 1)"), "{why}");
    assert_eq!(units(&story.asks("b").1), ["b"], "it left nothing behind");
}

#[test]
fn a_pool_shrinks_as_units_come_back_and_the_hopeless_are_told() {
    let mut story = Story(engine());
    story.pool("gpu", 4);
    let (held, _) = story.asks("gpu:3");
    let (hopeless, _) = story.asks("gpu:4");
    let (small, _) = story.asks("gpu:2");
    let effects = story.changes(Change::Resize { name: name("gpu"), units: 2 });
    let refused = |e: &Effect| matches!(e, Effect::Refused { request, .. } if *request == hopeless);
    assert!(effects.iter().any(refused), "{effects:?}");
    assert_eq!(story.ends(held), [small]);
    let view = story.0.status(&[]);
    assert_eq!(view.pools[0].units.len(), 2);
    let effects = story.changes(Change::Resize { name: name("gpu"), units: 5 });
    assert_eq!(effects, [Effect::Changed(Ok(()))]);
    assert_eq!(units(&story.asks("gpu:3").1), ["gpu/2", "gpu/3", "gpu/4"]);
}

#[test]
fn removal_is_refused_while_held_unless_forced() {
    let mut story = Story(engine());
    story.pool("gpu", 1);
    let (held, _) = story.asks("gpu");
    let (waiter, _) = story.asks("gpu b");
    let remove = |force| Change::Remove { name: name("gpu"), force };
    assert!(matches!(story.changes(remove(false))[..], [Effect::Changed(Err(_))]));
    let effects = story.changes(remove(true));
    let told = |e: &Effect| matches!(e, Effect::Refused { request, .. } if *request == waiter);
    assert!(effects.iter().any(told));
    assert!(never(&story.asks("gpu").1), "it is being removed");
    story.ends(held);
    assert_eq!(units(&story.asks("gpu").1), ["gpu"], "now the name is free for a lock");
}

#[test]
fn the_chain_of_waiting_is_followed_to_its_end() {
    let mut story = Story(engine());
    let (holder, _) = story.asks("a");
    let (middle, _) = story.asks("a b");
    let (last, _) = story.asks("b");
    let explanation = story.0.explain(last, 100).expect("known");
    let chain: Vec<_> = explanation.chain.iter().map(|wait| wait.request).collect();
    assert_eq!(chain, [last, middle]);
    let release: Vec<_> = explanation.release.iter().map(|grant| grant.request).collect();
    assert_eq!(release, [holder]);
    assert!(!explanation.circular);
}

#[test]
fn a_request_inside_a_grant_does_not_wait_for_itself() {
    let mut story = Story(engine());
    let (outer, _) = story.asks("a");
    let inside = |needs| Ask { within: Some(outer), ..ask(needs) };
    assert!(never(&story.asks_with(inside("a b")).1));
    let (free, effects) = story.asks_with(inside("b"));
    assert_eq!(units(&effects), ["b"]);
    story.ends(free);
    story.asks("a b");
    let (_, effects) = story.asks_with(inside("b"));
    assert!(never(&effects), "b is kept for a request that waits for a: {effects:?}");
    let mut other = Story(engine());
    let (a, _) = other.asks("a");
    let (b, _) = other.asks("b");
    assert!(!never(&other.asks_with(Ask { within: Some(a), ..ask("b") }).1));
    assert!(never(&other.asks_with(Ask { within: Some(b), ..ask("a") }).1), "a circle of two");
}

#[test]
fn a_state_that_was_kept_knows_what_was_asked_inside_what() {
    let mut story = Story(engine());
    let (a, _) = story.asks("a");
    let (b, _) = story.asks("b");
    story.asks_with(Ask { within: Some(a), ..ask("b") });
    let kept = postcard::to_allocvec(&story.0).expect("written");
    let mut again = Story(postcard::from_bytes(&kept).expect("readable"));
    let inside = Ask { within: Some(b), ..ask("a") };
    assert!(never(&again.asks_with(inside.clone()).1), "a circle of two");
    // The same for one that is built from the grants.
    let mut built = Story(Engine::new(None, 8, true).expect("a variant"));
    for request in [a, b] {
        step(&mut built.0, Input::Restore(story.0.kept(request).expect("it is held")));
    }
    let nested = Ask { within: Some(a), ..ask("b") };
    built.0.ask_again(0, RequestNo(b.0 + 2), who().into(), &nested.into()).expect("unbroken");
    assert!(never(&built.asks_with(inside).1));
    let mut held = Story(Engine::new(None, 8, true).expect("a variant"));
    for request in [a, b] {
        step(&mut held.0, Input::Restore(story.0.kept(request).expect("it is held")));
    }
    held.0.put_within(b, Some(a));
    assert!(never(&held.asks_with(Ask { within: Some(b), ..ask("a") }).1), "a is around b");
}

#[test]
fn what_many_ask_for_is_kept_once() {
    let mut story = Story(engine());
    story.asks("a");
    let (first, _) = story.asks("a");
    let (second, _) = story.asks("a");
    let (other, _) = story.asks("b");
    let counts = |story: &Story, request: RequestNo| story.0.requests[&request].counts.as_ptr();
    assert_eq!(counts(&story, first), counts(&story, second));
    assert_ne!(counts(&story, first), counts(&story, other));
    let asked = |story: &Story, request: RequestNo| story.0.requests[&request].ask.clone();
    let (same, others) = (Arc::new(ask("a")), Arc::new(Ask { limit: Some(1), ..ask("a") }));
    assert!(Arc::ptr_eq(&story.0.ask_like(same.clone()), &asked(&story, second)));
    assert!(Arc::ptr_eq(&story.0.ask_like(others.clone()), &others), "not quite the same");
    // Whoever reads an engine shares with those who have read the rest.
    let kept = postcard::to_allocvec(&story.0).expect("written");
    let mut again = Story(postcard::from_bytes(&kept).expect("readable"));
    let who = asked_by(&again, first);
    again.0.share(|request| (request == first || request == other).then_some((&who, &same)));
    assert!(Arc::ptr_eq(&asked(&again, first), &same));
    assert!(!Arc::ptr_eq(&asked(&again, other), &same), "it has asked for something else");
    assert_eq!(postcard::to_allocvec(&again.0).expect("written"), kept);
}

fn asked_by(story: &Story, request: RequestNo) -> Arc<Who> {
    Arc::new(Who::clone(&story.0.requests[&request].who))
}

#[test]
fn reservations_come_back_with_their_units_and_fences() {
    let mut story = Story(engine());
    story.pool("gpu", 3);
    let (first, _) = story.asks("gpu");
    let lasting = Lasting::Reservation(1000);
    let (kept, effects) = story.asks_with(Ask { lasting, ..ask("gpu lock") });
    assert_eq!(units(&effects), ["gpu/1", "lock"]);
    story.ends(first);
    let kept_on_disk = story.0.reservations();
    let mut next = Story(Engine::new(None, 8, true).expect("a variant"));
    next.pool("gpu", 3);
    let effects = step(&mut next.0, Input::Restore(kept_on_disk[0].clone()));
    assert_eq!(granted(&effects), [(kept, kept_on_disk[0].taken.clone())]);
    assert_eq!(units(&next.asks("gpu:2").1), ["gpu/0", "gpu/2"]);
    let Reservation { since, until, .. } = next.0.reservations()[0];
    assert_eq!((since, until), (0, Some(1000)));
}

#[test]
fn a_unit_of_a_pool_is_no_lock_of_its_own() {
    let mut story = Story(engine());
    story.pool("gpu", 2);
    assert_eq!(units(&story.asks("gpu/0").1), ["gpu/0"]);
    assert_eq!(units(&story.asks("gpu").1), ["gpu/1"], "the other one");
    assert!(never(&story.asks("gpu/2").1), "there is no such unit");
    story.asks("disk/0");
    let kind = Kind::Numbered(1);
    let change = Change::Add { name: "disk".parse().expect("a name"), kind };
    let effects = step(&mut story.0, Input::Change(change));
    assert!(matches!(effects[..], [Effect::Changed(Err(_))]), "{effects:?}");
}

#[test]
fn a_name_means_one_thing() {
    let mut story = Story(engine());
    let named = |names: &[&str]| Kind::Named(names.iter().map(|text| name(text)).collect());
    let add = |pool: &str, kind: Kind| Change::Add { name: name(pool), kind };
    let resize = |units| Change::Resize { name: name("b"), units };
    let wrong = |effects: &[Effect]| matches!(effects, [Effect::Changed(Err(_))]);
    let done = [Effect::Changed(Ok(()))];
    assert_eq!(story.changes(add("a", named(&["a", "b/1", "red", "c"]))), done);
    assert_eq!(story.changes(add("b", Kind::Numbered(1))), done);
    assert!(wrong(&story.changes(resize(2))), "b/1 is a's");
    assert!(wrong(&story.changes(add("b2", named(&["red"])))), "red is a's");
    assert!(wrong(&story.changes(add("c", Kind::Lock))), "c is a unit");
    assert!(wrong(&story.changes(add("d", named(&["b"])))), "b is a pool");
    assert!(never(&story.asks("red").1), "red is no lock");
    assert_eq!(units(&story.asks("a").1), ["a"]);
    // A lock that is in use keeps its name to itself, and gives it up when it ends.
    assert_eq!(story.changes(add("e", Kind::Numbered(2))), done);
    assert_eq!(story.changes(Change::Remove { name: name("e"), force: false }), done);
    let (lock, _) = story.asks("e/2");
    assert_eq!(story.changes(add("e", Kind::Numbered(2))), done);
    let grow = || Change::Resize { name: name("e"), units: 3 };
    assert!(wrong(&story.changes(grow())), "e/2 is a lock");
    assert!(never(&story.asks("e/2").1), "which nobody else can ask for");
    story.ends(lock);
    assert_eq!(story.changes(grow()), done);
    assert_eq!(story.changes(add("g", named(&["x"]))), done);
    assert!(wrong(&story.changes(add("g/x", Kind::Lock))), "it is a unit of g");
    assert_eq!(story.changes(add("g/y", Kind::Lock)), done);
    assert_eq!(units(&story.asks("g/y").1), ["g/y"], "what is declared comes first");
    // So do units that are on their way out, until they are back.
    let (all, _) = story.asks("e:3");
    assert_eq!(story.changes(Change::Resize { name: name("e"), units: 1 }), done);
    assert!(wrong(&story.changes(add("f", named(&["e/2"])))) && never(&story.asks("e/2").1));
    story.ends(all);
    assert_eq!(story.changes(add("f", named(&["e/2"]))), done);
}

#[test]
fn a_lock_that_has_become_a_unit_does_not_come_back_beside_it() {
    let mut story = Story(engine());
    let (held, _) = story.asks_with(Ask { lasting: Lasting::Reservation(1000), ..ask("gpu/0") });
    let mut next = Story(Engine::new(None, 8, true).expect("a variant"));
    next.pool("gpu", 1);
    let effects = step(&mut next.0, Input::Restore(story.0.reservations()[0].clone()));
    assert_eq!(effects, [Effect::Unrestored(held)]);
}

#[test]
fn what_comes_back_has_the_units_it_had_or_none() {
    let mut story = Story(engine());
    story.pool("gpu", 3);
    let lasting = Lasting::Reservation(1000);
    story.asks("gpu");
    let (moved, _) = story.asks_with(Ask { lasting, ..ask("gpu gpu-lock") });
    let (all, _) = story.asks_with(Ask { lasting, ..ask("x:shared") });
    let on_disk = story.0.reservations();
    let mut next = Story(Engine::new(None, 8, false).expect("a variant"));
    next.pool("gpu", 1);
    let effects = step(&mut next.0, Input::Restore(on_disk[0].clone()));
    assert_eq!(effects, [Effect::Unrestored(moved)], "gpu/1 is not there, and gpu/0 not its own");
    let effects = step(&mut next.0, Input::Restore(on_disk[1].clone()));
    assert_eq!(granted(&effects), [(all, on_disk[1].taken.clone())], "whoever may make locks now");
    assert_eq!(units(&next.asks("gpu:all").1), ["gpu/0"]);
}

#[test]
fn a_reservation_counts_from_its_grant() {
    let mut story = Story(engine());
    let (first, _) = story.asks("a");
    let lasting = Lasting::Reservation(1000);
    story.asks_with(Ask { lasting, ..ask("a") });
    assert_eq!(story.0.reservations(), []);
    story.0.step(5000, Input::End(first)).expect("unbroken");
    let Reservation { since, until, .. } = story.0.reservations()[0];
    assert_eq!((since, until), (5000, Some(6000)));
}

/// A request that waits behind a holder that does not end keeps nothing else idle.
#[test]
fn whoever_waits_behind_an_overdue_holder_steps_aside() {
    let mut engine = engine();
    let mut asks = |needs: &str| {
        engine.step(0, Input::Ask { who: who().into(), ask: ask(needs).into(), length: None })
    };
    asks("a").expect("unbroken");
    let mut effects = asks("a b").expect("unbroken");
    effects.extend(asks("b").expect("unbroken"));
    assert_eq!(granted(&effects), [], "b is kept for the one that came first");
    for ring in 0..2 {
        let armed = effects.iter().find_map(|effect| match effect {
            Effect::Arm(timer, _) => Some(*timer),
            _ => None,
        });
        let timer = armed.expect("somebody waits, so there is patience to lose");
        assert_eq!(granted(&effects), [], "after {ring} rings");
        effects = engine.step(0, Input::Timer(timer)).expect("unbroken");
    }
    assert_eq!(units(&effects), ["b"], "the holder of a is overdue");
}
