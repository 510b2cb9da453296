//! The paper's algorithms one after another, without rivals: what each is promised to say.
#![cfg(not(any(loom, shuttle)))]

use holdall_assign::paper::{Allocation, Assignment, BadGrowth, EnterError, Growth, Tournament};
use holdall_assign::registers::{Atomics, Dir, Durability};

#[test]
fn a_growth_increases() {
    let new = |values: &[u64]| Growth::new(values);
    assert_eq!(new(&[]), Err(BadGrowth::Flat(0)));
    assert_eq!(new(&[1, 2]), Err(BadGrowth::Flat(0)));
    assert_eq!(new(&[0, 1, 1]), Err(BadGrowth::Flat(2)));
    assert_eq!(new(&[0, 2, 1]), Err(BadGrowth::Flat(2)));
    let squares = new(&[0, 1, 4, 9]).expect("increasing");
    assert_eq!((squares.at(2), squares.processors()), (4, 3));
    let least = Growth::least(3);
    assert_eq!([0, 1, 2, 3].map(|k| least.at(k)), [0, 1, 3, 5]);
}

#[test]
fn a_growth_that_is_too_narrow_or_too_slow_is_refused() {
    let why = |values: &[u64]| Growth::new(values).expect("increasing").assignable().err();
    assert_eq!(why(&[0, 1, 3, 5, 7]), None);
    assert_eq!(why(&[0, 2, 4, 6]), None);
    assert_eq!(why(&[0, 1, 2, 4]), Some(BadGrowth::Narrow { k: 2, j: 0 }));
    assert_eq!(why(&[0, 2, 5, 6, 7]), Some(BadGrowth::Narrow { k: 4, j: 2 }));
    assert_eq!(why(&[0, 5, 6, 9]), Some(BadGrowth::Slow { k: 1 }));
    assert_eq!(why(&[0, 3, 6, 8]), Some(BadGrowth::Slow { k: 2 }));
}

#[test]
fn what_is_allocated_is_all_and_ends() {
    let allocation = Allocation::new(Growth::new([0, 1, 4, 9]).expect("increasing"));
    let had = [(); 4].map(|()| allocation.allocate());
    assert_eq!(had, [Some(1..=1), Some(2..=4), Some(5..=9), None]);
}

#[test]
fn a_tournament_is_won_at_its_root() {
    let mut way = Tournament::new(2, 4);
    assert_eq!((way.object(), way.side(), way.told(true)), (3, false, None));
    assert_eq!((way.object(), way.side(), way.told(true)), (1, true, Some(true)));
    assert_eq!(Tournament::new(1, 3).told(false), Some(false));
}

#[test]
fn one_after_another_each_learns_what_is_certain() {
    let assignment = Assignment::long_lived(2, 3);
    let [mut p, mut q] = [0, 1].map(|id| {
        let Ok(participant) = assignment.participant(id);
        participant
    });
    assert_eq!(p.announce(), []);
    assert_eq!((p.enter(), p.announce()), (Ok(1), vec![(1, 0)]));
    assert_eq!(q.enter(), Ok(3));
    assert_eq!(q.announce(), [(1, 0), (2, 0), (3, 1)]);
    assert_eq!([q.enter(), q.enter()], [Ok(5), Ok(7)]);
    assert_eq!(q.enter(), Err(EnterError::Exhausted { processor: 1 }));
    assert_eq!([p.enter(), p.enter()], [Ok(9), Ok(11)]);
    assert_eq!(p.enter(), Err(EnterError::Exhausted { processor: 0 }));
    let owners = [0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0];
    let all: Vec<_> = (1..).zip(owners).collect();
    assert_eq!((p.announce(), q.announce()), (all.clone(), all));
}

#[test]
fn another_growth_is_looked_at() {
    let with = |values: &[u64]| {
        Assignment::single_use(2).with_growth(Growth::new(values).expect("increasing"))
    };
    assert_eq!(with(&[0, 1, 2]).err(), Some(BadGrowth::Narrow { k: 2, j: 0 }));
    let Ok(mut p) = with(&[0, 2, 4]).expect("good").participant(0);
    assert_eq!((p.enter(), p.announce()), (Ok(2), vec![(1, 0), (2, 0)]));
}

#[test]
#[should_panic = "too few operations"]
fn a_growth_for_too_few_is_refused() {
    let _ = Assignment::single_use(3).with_growth(Growth::least(2));
}

#[test]
#[should_panic = "registers are needed"]
fn a_memory_that_is_too_small_is_refused() {
    let _ = Assignment::over(Atomics::new(2, Assignment::slots(2, 3) - 1), 3);
}

#[test]
#[should_panic = "33 processors"]
fn more_processors_than_bits_are_refused() {
    Assignment::slots(33, 1);
}

#[test]
#[should_panic = "66 operations"]
fn more_operations_than_bits_are_refused() {
    Assignment::slots(22, 3);
}

#[test]
fn a_full_word_of_operations() {
    let assignment = Assignment::long_lived(32, 2);
    let items: Vec<_> = (0..32)
        .flat_map(|id| {
            let Ok(mut p) = assignment.participant(id);
            [p.enter(), p.enter()]
        })
        .collect();
    assert_eq!(items, (0..64).map(|k| Ok(2 * k + 1)).collect::<Vec<_>>());
}

#[test]
fn a_directory_will_do() {
    let store = tempfile::tempdir().expect("a directory");
    let slots = Assignment::slots(2, 3);
    let dir = || Dir::new(store.path(), 2, slots, [0; 4], Durability::Process);
    let enter = |id| Assignment::over(dir(), 3).participant(id).expect("new").try_enter();
    assert_eq!([0, 1].map(|id| enter(id).expect("an item")), [1, 3]);
}

#[test]
fn who_announces_again_looks_again() {
    let store = tempfile::tempdir().expect("a directory");
    let slots = Assignment::slots(2, 1);
    let dir = Dir::new(store.path(), 2, slots, [0; 4], Durability::Process);
    let assignment = Assignment::over(dir, 1);
    let [mut p, mut q] = [0, 1].map(|id| assignment.participant(id).expect("new"));
    assert_eq!(p.try_enter().expect("an item"), 1);
    assert_eq!(p.try_announce().expect("read"), [(1, 0)]);
    assert_eq!(q.try_enter().expect("an item"), 3);
    assert_eq!(p.try_announce().expect("read"), [(1, 0), (2, 0), (3, 1)]);
}
