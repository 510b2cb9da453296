//! Every order of accesses of small scopes, with the numbers of states pinned: another number means
//! that the algorithm or the explorer has changed. Larger scopes: the example `explore`.
#![cfg(not(any(loom, shuttle)))]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use holdall_assign::explore::{
    AssignmentModel, AssignmentScope, Buffers, Found, Memory, Model, Settings, Slotted,
    WindowsModel, WindowsScope, World, explore,
};
use holdall_assign::paper::{AsPrinted, Atomic, Biggest, Framed, Growth, Walk};
use holdall_assign::windows::rules::{
    Eager, Forgetful, Greedy, Helpless, Impatient, Insatiable, Overgiving, Rules, Sound, Unfenced,
    Unvalidated,
};

const PLAIN: Settings =
    Settings { buffers: Buffers::None, crashes: 0, max_states: 10_000_000, reduce: false };
const STORES: Settings = Settings { buffers: Buffers::Stores, ..PLAIN };
const REDUCED: Settings = Settings { reduce: true, ..PLAIN };

/// States, and the most that was unassigned because one stopped.
fn sound(model: &impl Model, settings: &Settings) -> (usize, u32) {
    let Found { states, complete, violation, most, .. } = explore(model, settings);
    assert!(violation.is_none(), "{violation:?}");
    assert!(complete);
    (states, most)
}

fn windows<V: Rules>(ops: &[u32], ring: usize) -> WindowsModel<V> {
    WindowsModel::new(&WindowsScope { ops: ops.into(), ring })
}

fn figures(ops: &[usize]) -> AssignmentScope {
    AssignmentScope { ops: ops.into(), growth: None, as_printed: false }
}

#[test]
fn windows_hand_out_nothing_twice_and_lose_nothing() {
    // A stopped worker delays n-1 lots at most.
    assert_eq!(sound(&windows::<Sound>(&[4, 4], 8), &PLAIN).1, 1);
    assert_eq!(sound(&windows::<Helpless>(&[2, 2, 2], 8), &PLAIN).1, 2);
    assert_eq!(sound(&windows::<Helpless>(&[2, 1, 1, 1], 4), &PLAIN).1, 3);
}

#[test]
fn help_arrives_once() {
    assert_eq!(sound(&windows::<Impatient>(&[1, 8], 8), &PLAIN).1, 1);
    assert_eq!(sound(&windows::<Impatient>(&[2, 6], 8), &PLAIN).1, 1);
    assert_eq!(sound(&windows::<Impatient>(&[1, 1, 3], 8), &PLAIN).1, 2);
}

#[test]
fn the_ring_comes_round() {
    // A ring of two windows: every entry but the first overwrites, and passes are frequent.
    assert_eq!(sound(&windows::<Sound>(&[4, 4], 2), &PLAIN), (163_189, 1));
    assert_eq!(sound(&windows::<Impatient>(&[1, 7], 2), &PLAIN).1, 1);
    assert_eq!(sound(&windows::<Impatient>(&[2, 2, 2], 2), &PLAIN), (563_574, 2));
}

#[test]
fn crashed_workers_come_back() {
    let crash = Settings { crashes: 1, ..PLAIN };
    sound(&windows::<Impatient>(&[3, 3], 2), &crash);
    sound(&windows::<Impatient>(&[1, 1, 2], 2), &crash);
    // Puts that were not published are lost.
    let files = Settings { buffers: Buffers::Files, ..crash };
    sound(&windows::<Impatient>(&[2, 3], 2), &files);
    sound(&windows::<Impatient>(&[2, 2], 2), &Settings { crashes: 2, ..files });
}

#[test]
fn one_fence_is_enough() {
    sound(&windows::<Impatient>(&[3, 3], 2), &STORES);
    sound(&AssignmentModel::<Framed>::new(&figures(&[1, 1])), &STORES);
}

#[test]
fn tries_are_bounded() {
    // The steps of a worker's one operation do not grow with what its rival does.
    let steps = |rival| explore(&windows::<Impatient>(&[1, rival], 8), &PLAIN).steps[0];
    assert_eq!(steps(6), steps(9));
    // Without help they do.
    let steps = |rival| explore(&windows::<Helpless>(&[1, rival], 8), &PLAIN).steps[0];
    assert!(steps(6) < steps(9));
}

fn caught<V: Rules>(ops: &[u32], settings: &Settings, what: &str) {
    let violation = explore(&windows::<V>(ops, 2), settings).violation;
    let violation = violation.expect("the mutant is caught");
    assert!(violation.what.contains(what), "{violation:?}");
}

#[test]
fn mutants_are_caught() {
    caught::<Unvalidated>(&[3, 3], &PLAIN, "twice");
    caught::<Unfenced>(&[3, 3], &STORES, "twice");
    caught::<Eager>(&[3, 3], &PLAIN, "twice");
    caught::<Forgetful>(&[3, 5], &PLAIN, "twice");
    caught::<Greedy>(&[2, 6], &PLAIN, "twice");
    caught::<Overgiving>(&[2, 6], &PLAIN, "lost");
    caught::<Insatiable>(&[2, 2, 2], &PLAIN, "lost");
}

#[test]
fn figures_2_and_3() {
    assert_eq!(sound(&AssignmentModel::<Framed>::new(&figures(&[1, 1])), &PLAIN), (351, 2));
    let three = AssignmentModel::<Framed>::new(&figures(&[1, 1, 1]));
    assert_eq!(sound(&three, &PLAIN), (129_488, 3));
}

#[test]
fn figure_3_long_lived_delays_n_plus_2() {
    // Theorem 5.2 says n.
    let long_lived = |ops| AssignmentModel::<Framed>::new(&figures(ops));
    assert_eq!(sound(&long_lived(&[1, 3]), &PLAIN), (35_084, 4));
    assert_eq!(sound(&long_lived(&[1, 3]), &REDUCED), (21_925, 4));
    assert_eq!(sound(&long_lived(&[1, 2, 1]), &REDUCED), (1_706_841, 4));
}

/// Every end of a search: what each processor has said when all are done.
struct Ends<'a> {
    model: &'a Figures,
    seen: RefCell<HashSet<Vec<Processor>>>,
}

type Figures = AssignmentModel<Framed>;
type Processor = <Figures as Model>::Process;

impl Model for Ends<'_> {
    type Process = Processor;

    fn slots(&self) -> usize {
        self.model.slots()
    }

    fn start(&self) -> Vec<Processor> {
        self.model.start()
    }

    fn check(&self, world: &World<'_, Processor>) -> Result<u32, String> {
        if world.processes().all(Slotted::done) {
            let processes = world.processes().map(|p| p.process.clone());
            self.seen.borrow_mut().insert(processes.collect());
        }
        self.model.check(world)
    }

    fn restart(&self, who: usize, process: &Processor, memory: &Memory) -> Processor {
        self.model.restart(who, process, memory)
    }

    fn settled(&self, world: &World<'_, Processor>, who: usize) -> bool {
        self.model.settled(world, who)
    }
}

#[test]
fn the_reduction_leaves_no_end_out() {
    for ops in [&[1, 1][..], &[2, 2], &[1, 4], &[1, 1, 1]] {
        let model = &Figures::new(&figures(ops));
        let ends = |settings| {
            let ends = Ends { model, seen: RefCell::default() };
            sound(&ends, settings);
            ends.seen.into_inner()
        };
        let all = ends(&PLAIN);
        assert!(all.len() > 2 && all == ends(&REDUCED), "{ops:?}: of {} ends", all.len());
        let steps = |settings| explore(model, settings).steps;
        assert_eq!(steps(&PLAIN), steps(&REDUCED), "{ops:?}");
    }
}

/// One that stops delays as much, and no less, if orders are left out; and who rests harms nothing.
#[test]
fn the_reduction_finds_the_same_delays() {
    for ops in [&[1, 1][..], &[1, 2], &[2, 1], &[1, 3]] {
        let model = Figures::new(&figures(ops));
        assert_eq!(sound(&model, &PLAIN).1, sound(&model, &REDUCED).1, "figures {ops:?}");
    }
    for ops in [&[2, 2][..], &[3, 3], &[1, 1, 1]] {
        let model = windows::<Sound>(ops, 2);
        assert_eq!(sound(&model, &PLAIN).1, sound(&model, &REDUCED).1, "windows {ops:?}");
    }
}

#[test]
fn the_text_and_figure_2_are_wrong_with_three() {
    for settings in [PLAIN, REDUCED] {
        let biggest = explore(&AssignmentModel::<Biggest>::new(&figures(&[1, 1, 1])), &settings);
        assert!(biggest.violation.is_some_and(|v| v.what.contains("item 2")));
    }
    let printed = explore(&AssignmentModel::<AsPrinted>::new(&figures(&[1, 1, 1])), &PLAIN);
    assert!(printed.violation.is_some_and(|v| v.what.contains("item 3")));
    let two = AssignmentModel::<AsPrinted>::new(&figures(&[1, 1]));
    sound(&two, &PLAIN);
}

/// Fig. 2 with its own rule at l4, on an atomic snapshot: right, and the lemmas of Section 4 hold in
/// every state.
#[test]
fn figure_2_on_an_atomic_snapshot() {
    sound(&AssignmentModel::<Atomic>::new(&figures(&[1, 1, 1])), &PLAIN);
}

#[test]
fn figure_2_for_two_on_an_atomic_snapshot() {
    sound(&AssignmentModel::<Atomic>::new(&figures(&[1, 1])), &PLAIN);
    sound(&AssignmentModel::<Atomic>::new(&figures(&[2, 1])), &PLAIN);
}

/// f(k) = 2k - ceil(k/(n-1)), at which assignment is impossible: the first item of each operation
/// would be its new name, and adaptive renaming into so few names is impossible. The algorithm
/// refuses such an f, and run all the same, breaks; with one item more it is 2k-1 and holds.
#[test]
fn the_lower_bound() {
    for n in [2, 3_usize] {
        let bound: Vec<_> = (0..=n).map(|k| (2 * k - k.div_ceil(n - 1)) as u64).collect();
        let growth = Growth::new(bound).expect("increasing");
        assert!(growth.clone().assignable().is_err());
        let scope = AssignmentScope { ops: vec![1; n], growth: Some(growth), as_printed: false };
        assert!(explore(&AssignmentModel::<Framed>::new(&scope), &PLAIN).violation.is_some());
    }
}

#[test]
fn other_growths() {
    for good in [vec![0, 2, 4, 6], vec![0, 3, 6, 9], vec![0, 1, 4, 9], vec![0, 2, 6, 12]] {
        let growth = Growth::new(good).expect("increasing").assignable().expect("good");
        let scope = AssignmentScope { ops: vec![1, 1, 1], growth: Some(growth), as_printed: false };
        sound(&AssignmentModel::<Framed>::new(&scope), &PLAIN);
    }
    for bad in [vec![0, 1, 2, 4], vec![0, 5, 6, 8]] {
        let growth = Growth::new(bad).expect("increasing");
        assert!(growth.clone().assignable().is_err());
        let scope = AssignmentScope { ops: vec![1, 1, 1], growth: Some(growth), as_printed: false };
        for settings in [PLAIN, REDUCED] {
            let found = explore(&AssignmentModel::<Framed>::new(&scope), &settings);
            assert!(found.violation.is_some());
        }
    }
}

#[test]
fn the_remarks_formula_is_off_by_one() {
    let scope = AssignmentScope { ops: vec![1, 1], growth: None, as_printed: true };
    assert!(explore(&AssignmentModel::<Framed>::new(&scope), &PLAIN).violation.is_some());
}

/// Fig. 1: the row of test-and-set objects as bits, and where each processor is or what it got.
#[test]
fn figure_1() {
    type Place = Result<Walk, (u64, u64)>;
    let states = [2, 3, 4, 5].map(|n: usize| {
        let growth = Growth::new((0..=n as u64).map(|k| k * k).collect::<Vec<_>>()).expect("k^2");
        let mut seen: BTreeSet<(u32, Vec<Place>)> = BTreeSet::new();
        let mut todo = vec![(0, vec![Ok(Walk::default()); n])];
        while let Some(state) = todo.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            for p in 0..n {
                let (mut row, mut places) = state.clone();
                if let Ok(mut walk) = places[p].clone() {
                    let won = row >> walk.object() & 1 == 0;
                    row |= 1 << walk.object();
                    let items = walk.told(won, &growth);
                    places[p] = items.map_or(Ok(walk), |items| Err((*items.start(), *items.end())));
                    todo.push((row, places));
                }
            }
            partition(&state.1, &growth);
        }
        seen.len()
    });
    assert_eq!(states, [7, 37, 261, 2301]);
}

/// What was allocated are the first f(k) items if k came and all are done.
fn partition(places: &[Result<Walk, (u64, u64)>], growth: &Growth) {
    let owners: BTreeMap<_, _> = places.iter().filter_map(|place| place.clone().err()).collect();
    let came = places.iter().filter(|place| **place != Ok(Walk::default())).count();
    if owners.len() == came {
        let mut next = 1;
        for (start, end) in owners {
            assert_eq!(start, next);
            next = end + 1;
        }
        assert_eq!(next, growth.at(came) + 1);
    }
}
