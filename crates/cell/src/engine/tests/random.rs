//! Random runs of an engine, beside a model that knows only effects.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{Broken, RequestId, contract};
use holdall_protocols::house::House;
use holdall_wire::{
    Amount, Ask, Change, Drained, Kind, Name, Need, Part, RequestNo, Taken, WaitView,
};
use proptest::prelude::*;

use super::super::{Effect, Engine, Input, Serving};
use super::{ask, engine, granted, name, step, who};

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
                Input::Ask {
                    who: who().into(),
                    ask: Ask { needs, now, ..ask("x") }.into(),
                    length: None,
                }
            }
            Move::Part { of, needs } => {
                let held: Vec<_> = self.held.keys().copied().collect();
                let of = *of.get(if held.is_empty() { return None } else { &held });
                let part = Some(Part { of, outlasts: false });
                let input = self.input(Move::Ask { needs, now: false }, next)?;
                self.part_of.insert(next, of);
                let Input::Ask { who, ask, length } = input else { return None };
                Input::Ask { who, ask: Ask { part, ..(*ask).clone() }.into(), length }
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

    fn holds(&self, _: RequestId) -> bool {
        false // There are no other cells.
    }

    fn has_waiting(&self, request: RequestId) -> bool {
        Self::waiting(self).contains(&request)
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
                Input::Ask { who: who().into(), ask: Ask { needs: vec![need(*which, *amount)], ..ask("x") }.into(), length: None }
            });
            inputs.flat_map(|input| step(&mut engine, input)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
