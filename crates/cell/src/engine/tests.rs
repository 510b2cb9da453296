//! The engine against stories, and against random inputs with a model that knows only effects.

mod corners;
mod named;
mod parts;

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{Broken, Protocol, RequestId, UserId, contract};
use holdall_protocols::house::House;
use holdall_wire::{
    Amount, Ask, Change, Drained, From, Kind, Lasting, Name, Need, Part, Refusal, RequestNo, Taken,
    WaitView, Who,
};
use proptest::prelude::*;

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
        (request, step(&mut self.0, Input::Ask { who: who().into(), ask }))
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
    built.0.ask_again(0, RequestNo(b.0 + 2), who().into(), nested).expect("unbroken");
    assert!(never(&built.asks_with(inside).1));
    let mut held = Story(Engine::new(None, 8, true).expect("a variant"));
    for request in [a, b] {
        step(&mut held.0, Input::Restore(story.0.kept(request).expect("it is held")));
    }
    held.0.put_within(b, Some(a));
    assert!(never(&held.asks_with(Ask { within: Some(b), ..ask("a") }).1), "a is around b");
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

/// What a random run may do.
#[derive(Clone, Debug)]
enum Move {
    Ask {
        needs: Vec<(usize, u8)>,
        now: bool,
    },
    /// For a part of a grant.
    Part {
        of: prop::sample::Index,
        needs: Vec<(usize, u8)>,
    },
    End(prop::sample::Index),
    Change(u8, u8),
}

/// Needs of so many kinds, and changes of so many; with as much weight, for parts of grants.
fn moves(kinds: usize, changes: u8, parts: u32) -> impl Strategy<Value = Vec<Move>> {
    let needs = prop::collection::btree_map(0..kinds, 0..4u8, 1..4);
    let part = (any::<prop::sample::Index>(), needs.clone());
    let part = part.prop_map(|(of, needs)| Move::Part { of, needs: needs.into_iter().collect() });
    let one = prop_oneof![
        5 => (needs, prop::bool::weighted(0.2)).prop_map(|(needs, now)| Move::Ask {
            needs: needs.into_iter().collect(),
            now
        }),
        parts => part,
        5 => any::<prop::sample::Index>().prop_map(Move::End),
        1 => (0..changes, 1..5u8).prop_map(|(what, units)| Move::Change(what, units)),
    ];
    prop::collection::vec(one, 1..120)
}

/// Knows who holds what, from effects alone.
#[derive(Default)]
struct Model {
    live: BTreeSet<RequestNo>,
    held: BTreeMap<RequestNo, Vec<(Name, u64)>>,
    needs: BTreeMap<RequestNo, Vec<Need>>,
    /// The grant that a request is for a part of.
    part_of: BTreeMap<RequestNo, RequestNo>,
    /// The last fence of each unit, and whether it was shared.
    fences: BTreeMap<Name, (u64, bool)>,
}

impl Model {
    fn see(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Granted { request, taken, .. } => self.see_grant(*request, taken),
                Effect::Ended(request) => {
                    assert!(self.held.remove(request).is_some(), "only what is held ends");
                    self.live.remove(request);
                }
                Effect::Refused { request, .. } => {
                    assert!(!self.held.contains_key(request), "nobody who holds is refused");
                    self.live.remove(request);
                }
                _ => {}
            }
        }
    }

    fn see_grant(&mut self, request: RequestNo, taken: &[Taken]) {
        let whole = self.part_of.get(&request).copied();
        for taken in taken {
            let shared = self.look_at_units(request, taken);
            for (unit, fence) in &taken.units {
                let has = |whole| self.held[&whole].iter().find(|(held, _)| held == unit);
                let whole_fence = whole.map(|whole| has(whole).expect("it has all its parts").1);
                // Parts are used beside the whole, which holds them for its parts.
                let beside = self.held.iter().filter(|(other, _)| Some(**other) != whole);
                let others = beside.flat_map(|(_, held)| held).filter(|(held, _)| held == unit);
                let others: Vec<_> = others.map(|(_, fence)| fence).collect();
                let (last, was_shared) = self.fences.get(unit).copied().unwrap_or_default();
                // Whoever has a part of a shared lock shares it with those with whom the whole does.
                if others.is_empty() && whole_fence != Some(*fence) {
                    assert!(*fence > last, "fences grow");
                } else {
                    assert!(shared && was_shared, "{unit} has one holder");
                    assert_eq!(*fence, last, "those who share carry the same fence");
                }
                self.fences.insert(unit.clone(), (*fence, shared));
            }
        }
        let met = |need: &Need| taken.iter().any(|taken| is_for(need, taken));
        assert!(self.needs[&request].iter().all(met), "all or nothing");
        let units = taken.iter().flat_map(|t| t.units.clone()).collect();
        assert!(self.held.insert(request, units).is_none(), "granted once");
    }
}

impl Model {
    /// Whether what is taken of a pool is what was asked for of it; returns whether that is a shared lock.
    fn look_at_units(&self, request: RequestNo, taken: &Taken) -> bool {
        let of_pool = |need: &&Need| is_for(need, taken);
        let needs: Vec<_> = self.needs[&request].iter().filter(of_pool).collect();
        assert!(!needs.is_empty(), "nobody has asked for {}", taken.name);
        let mut count = 0;
        for need in &needs {
            count += match need.amount {
                Amount::Units(n) => n as usize,
                _ => 1,
            };
            let held = taken.units.iter().any(|(unit, _)| *unit == need.name);
            assert!(held || !need.name.as_str().contains('/'), "{need} is not among {taken:?}");
        }
        let all = needs.iter().any(|need| need.amount == Amount::All);
        assert!(all || taken.units.len() == count, "{needs:?} is not {taken:?}");
        needs[0].amount == Amount::Shared
    }
}

/// Whether this is what a need is for: a lock of its name, or its pool.
fn is_for(need: &Need, taken: &Taken) -> bool {
    let is_lock = taken.units.iter().any(|(unit, _)| *unit == taken.name);
    let name = need.name.as_str();
    let pool = if is_lock { name } else { name.split('/').next().unwrap_or_default() };
    pool == taken.name.as_str()
}

fn need(which: usize, amount: u8) -> Need {
    let text = match (which, amount) {
        // Units by name, beside what else is wanted of the same pool.
        (6.., _) => format!("pool{}/{}", 4 + which % 2, which / 2 - 3),
        (0..4, 0) => format!("lock{which}:shared"),
        (0..4, _) => format!("lock{which}"),
        (_, 0) => format!("pool{which}:all"),
        _ => format!("pool{which}:{amount}"),
    };
    text.parse().expect("a need")
}

/// A unit, or the pool.
fn unit(pool: &Name, n: u8) -> Name {
    if n == 4 { pool.clone() } else { name(&format!("{pool}/{n}")) }
}

fn change(what: u8, units: u8) -> Change {
    let name = name(&format!("pool{}", 4 + what % 2));
    match what / 2 {
        0 => Change::Add { name, kind: Kind::Numbered(units.into()) },
        1 => Change::Resize { name, units: units.into() },
        3 => {
            let drained = Drained { reason: "broken".into(), by: "me".into(), until: None };
            Change::Drain { name: unit(&name, units), drained }
        }
        4 => Change::Undrain { name: unit(&name, units) },
        _ => Change::Remove { name, force: units.is_multiple_of(2) },
    }
}

impl Model {
    /// The input that a move is, if it is possible now; `next` is the number of the next request.
    fn input(&mut self, one: Move, next: RequestNo) -> Option<Input> {
        Some(match one {
            Move::Ask { needs, now } => {
                let needs: Vec<_> = needs.into_iter().map(|(w, a)| need(w, a)).collect();
                self.live.insert(next);
                self.needs.insert(next, needs.clone());
                Input::Ask { who: who().into(), ask: Ask { needs, now, ..ask("x") } }
            }
            Move::Part { of, needs } => {
                let held: Vec<_> = self.held.keys().copied().collect();
                let of = *of.get(if held.is_empty() { return None } else { &held });
                let part = Some(Part { of, outlasts: false });
                let input = self.input(Move::Ask { needs, now: false }, next)?;
                self.part_of.insert(next, of);
                let Input::Ask { who, ask } = input else { return None };
                Input::Ask { who, ask: Ask { part, ..ask } }
            }
            Move::End(_) if self.live.is_empty() => return None,
            Move::End(index) => {
                let live: Vec<_> = self.live.iter().copied().collect();
                Input::End(*index.get(&live))
            }
            Move::Change(what, units) => Input::Change(change(what, units)),
        })
    }
}

impl Serving for contract::Manager {
    type Place = usize;

    const PICKS: bool = false;

    fn waiting_after(&self, after: Option<usize>) -> impl Iterator<Item = (usize, RequestId)> + '_ {
        let from = after.map_or(0, |after| after + 1);
        Self::waiting(self).into_iter().enumerate().skip(from)
    }

    fn out_of_turn(&self) -> impl Iterator<Item = (usize, RequestId)> + '_ {
        std::iter::empty()
    }

    fn place_out_of_turn(&self, _: RequestId) -> Option<usize> {
        None
    }

    fn check_last_step(&self) -> Result<(), Broken> {
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A probe complains, as a broken invariant, of a world that breaks the contract.
    #[test]
    fn the_engine_keeps_the_contract(moves in moves(6, 6, 0)) {
        let mut engine: Engine<contract::Probe> = Engine::new(None, 7, true).expect("a variant");
        let mut model = Model::default();
        for one in [vec![Move::Change(0, 3), Move::Change(1, 2)], moves].concat() {
            if let Some(input) = model.input(one, engine.next_number()) {
                model.see(&step(&mut engine, input));
            }
        }
    }

    #[test]
    fn nothing_is_held_twice_and_nothing_is_lost(moves in moves(12, 10, 3)) {
        let mut engine = engine();
        let mut model = Model::default();
        for one in [vec![Move::Change(0, 3), Move::Change(1, 2)], moves].concat() {
            let Some(input) = model.input(one, engine.next_number()) else { continue };
            let effects = step(&mut engine, input);
            model.see(&effects);
            let status = engine.status(&[]);
            // Whoever has what is drained keeps it, and its parts may use it.
            let whole = granted(&effects).into_iter().filter(|(r, _)| !model.part_of.contains_key(r));
            let given = whole.flat_map(|(_, taken)| taken).flat_map(|taken| taken.units);
            let given: BTreeSet<_> = given.map(|(unit, _)| unit.to_string()).collect();
            let out = status.pools.iter().flat_map(|pool| &pool.units);
            let out = out.filter(|unit| unit.drained.is_some());
            for unit in out {
                prop_assert!(!given.contains(unit.name.as_str()), "{} is drained", unit.name);
            }
            let (held, waiting) = engine.load();
            prop_assert_eq!(held, model.held.len());
            prop_assert_eq!(held + waiting, model.live.len());
            prop_assert_eq!(engine.waiting().len(), waiting);
            let lacks_drained =
                |wait: &WaitView| wait.hindrances.iter().any(|one| !one.drained.is_empty());
            let hopeful = status.waiting.iter().filter(|wait| !lacks_drained(wait)).count();
            prop_assert!(held > 0 || hopeful == 0, "somebody is served: {:?}", status.waiting);
        }
        while let Some(request) = model.live.first().copied() {
            // A grant ends with its parts, which came after it.
            let next = model.held.keys().next_back().copied().unwrap_or(request);
            model.see(&step(&mut engine, Input::End(next)));
        }
        prop_assert_eq!(engine.load(), (0, 0));
        prop_assert!(engine.users.is_empty() && engine.requests.is_empty());
        let left = engine.status(&[]).pools;
        prop_assert!(left.iter().all(|pool| pool.declared && pool.holders.is_empty()));
    }

    /// At every step an engine that is written and read goes on as the one it was.
    #[test]
    fn a_state_that_was_kept_goes_on_the_same(moves in moves(12, 10, 3), rings in prop::collection::vec(any::<prop::sample::Index>(), 1..120)) {
        let mut engine = engine();
        let (mut model, mut armed, mut at) = (Model::default(), BTreeSet::new(), 0);
        for (one, ring) in [vec![Move::Change(0, 3), Move::Change(1, 2)], moves].concat().into_iter().zip(rings.iter().cycle()) {
            let mut inputs: Vec<Input> = model.input(one, engine.next_number()).into_iter().collect();
            if !armed.is_empty() && ring.index(4) == 0 {
                let all: Vec<_> = armed.iter().copied().collect();
                inputs.push(Input::Timer(*ring.get(&all)));
            }
            for input in inputs {
                at += 1;
                let kept = postcard::to_allocvec(&engine).expect("written");
                let mut again: Engine<House> = postcard::from_bytes(&kept).expect("readable");
                prop_assert_eq!(&postcard::to_allocvec(&again).expect("written"), &kept);
                if let Input::Timer(timer) = input {
                    armed.remove(&timer);
                }
                let effects = engine.step(at, input.clone()).expect("unbroken");
                prop_assert_eq!(&again.step(at, input).expect("unbroken"), &effects);
                prop_assert_eq!(again.status(&[]), engine.status(&[]));
                for effect in &effects {
                    match effect {
                        Effect::Arm(timer, _) => drop(armed.insert(*timer)),
                        Effect::Disarm(timer) => drop(armed.remove(timer)),
                        _ => {}
                    }
                }
                prop_assert!(engine.armed().map(|(timer, ..)| timer).eq(armed.iter().copied()));
                model.see(&effects);
            }
        }
    }

    #[test]
    fn the_same_inputs_lead_to_the_same_effects(asks in prop::collection::vec((0..12usize, 0..4u8), 1..40)) {
        let run = || {
            let mut engine = engine();
            let inputs = asks.iter().map(|(which, amount)| {
                Input::Ask { who: who().into(), ask: Ask { needs: vec![need(*which, *amount)], ..ask("x") } }
            });
            inputs.flat_map(|input| step(&mut engine, input)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

/// A request that waits behind a holder that does not end keeps nothing else idle.
#[test]
fn whoever_waits_behind_an_overdue_holder_steps_aside() {
    let mut engine = engine();
    let mut asks = |needs: &str| engine.step(0, Input::Ask { who: who().into(), ask: ask(needs) });
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
