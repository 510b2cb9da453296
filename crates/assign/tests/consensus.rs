//! Theorem 3.2, in every order of accesses: two agree if they can allocate, and any number can
//! allocate if two can agree.
#![cfg(not(any(loom, shuttle)))]

use std::collections::BTreeSet;

use holdall_assign::paper::{Growth, Propose, Tournament, Walk};

/// Every state that can be reached, each once; says how many.
fn explore<S: Clone + Ord>(start: S, next: impl Fn(&S) -> Vec<S>, check: impl Fn(&S)) -> usize {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![start]);
    while let Some(state) = todo.pop() {
        if seen.insert(state.clone()) {
            check(&state);
            todo.extend(next(&state));
        }
    }
    seen.len()
}

/// The row of test-and-set objects, what each has posted, and where each is.
type Agreeing = (u8, [u64; 2], [Propose; 2]);

#[test]
fn two_agree_from_allocation() {
    for growth in
        [Growth::least(2), Growth::new([0, 1, 2]).expect("k"), Growth::new([0, 3, 4]).expect("f")]
    {
        let next = |(row, posted, both): &Agreeing| {
            let mut states = Vec::new();
            for p in 0..2 {
                let (mut row, mut posted, mut both) = (*row, *posted, both.clone());
                if let Some(proposal) = both[p].post() {
                    posted[p] = proposal;
                } else if let Some(object) = both[p].object() {
                    let won = row >> object & 1 == 0;
                    row |= 1 << object;
                    both[p].told(won, &growth);
                } else {
                    continue;
                }
                states.push((row, posted, both));
            }
            states
        };
        let check = |state: &Agreeing| {
            let (_, posted, both) = state;
            let decided = [0, 1].map(|p| both[p].decided(posted[1 - p]));
            let over = next(state).is_empty();
            assert_eq!(over, decided.iter().all(Option::is_some), "in the end both decide");
            if let [Some(one), Some(other)] = decided {
                assert_eq!(one, other, "both decide the same");
            }
            assert!(decided.iter().flatten().all(|value| [5, 6].contains(value)), "a proposal");
        };
        let start = (0, [0; 2], [Propose::new(5), Propose::new(6)]);
        assert!(explore(start, next, check) > 9);
    }
}

/// One processor on its way: along the row of test-and-set objects, each of which is a tournament
/// of consensus objects for two; or its items.
type Place = Result<(Walk, Tournament), (u64, u64)>;
/// What the consensus objects have decided, and where each processor is.
type Allocating = (BTreeSet<(usize, usize, bool)>, Vec<Option<Place>>);

fn allocate(n: usize, growth: &Growth) -> usize {
    let begin = |p| Ok((Walk::default(), Tournament::new(p, n)));
    let step = |decided: &mut BTreeSet<(usize, usize, bool)>, p: usize, place: &Place| -> Place {
        let Ok((mut walk, mut way)) = place.clone() else { return place.clone() };
        let (object, node, side) = (walk.object(), way.object(), way.side());
        // Consensus of two: the first proposal is the decision.
        if !decided.contains(&(object, node, !side)) {
            decided.insert((object, node, side));
        }
        let won = decided.contains(&(object, node, side));
        match way.told(won) {
            None => Ok((walk, way)),
            Some(won) => match walk.told(won, growth) {
                Some(items) => Err((*items.start(), *items.end())),
                None => Ok((walk, Tournament::new(p, n))),
            },
        }
    };
    let next = |(decided, places): &Allocating| {
        let mut states = Vec::new();
        for p in 0..n {
            let (mut decided, mut places) = (decided.clone(), places.clone());
            let place = places[p].clone().unwrap_or_else(|| begin(p));
            if place.is_ok() {
                places[p] = Some(step(&mut decided, p, &place));
                states.push((decided, places));
            }
        }
        states
    };
    let check = |(_, places): &Allocating| {
        let came = places.iter().flatten().count();
        let mut items: Vec<_> =
            places.iter().flatten().filter_map(|place| place.clone().err()).collect();
        items.sort_unstable();
        assert!(items.windows(2).all(|pair| pair[0].1 < pair[1].0), "no item is allocated twice");
        if items.len() == came {
            // A partition of the first f(k).
            let sizes: u64 = items.iter().map(|(start, end)| end - start + 1).sum();
            let last = items.last().map_or(0, |(_, end)| *end);
            assert_eq!((sizes, last), (growth.at(came), growth.at(came)));
        }
    };
    explore((BTreeSet::new(), vec![None; n]), next, check)
}

#[test]
fn any_number_allocate_from_consensus_of_two() {
    let squares = Growth::new([0, 1, 4, 9, 16]).expect("k^2");
    let states = [2, 3, 4].map(|n| allocate(n, &squares));
    assert!(states[0] < states[1] && states[1] < states[2], "{states:?}");
}
