//! Every schedule of two threads under the memory model of C11, up to a number of preemptions:
//! `crates/assign/schedules.sh loom`.
#![cfg(loom)]

use std::collections::BTreeSet;
use std::ops::Range;

use holdall_assign::Assigner;
use holdall_assign::paper::Assignment;
use holdall_assign::windows::rules::{Impatient, Rules, Sound, Unfenced};

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(body);
}

/// Two workers with so many operations each; at the end everything is learned.
fn windows<V: Rules>(ops: [usize; 2]) {
    let assigner = Assigner::builder(2).ring(2).threads().expect("sizes");
    let worker = |id| assigner.worker_with::<V>(id).expect("free");
    let mut workers = [worker(0), worker(1)];
    let mut outs: [Vec<Range<u64>>; 2] = Default::default();
    let [mut zero, mut one] = workers;
    let thread = loom::thread::spawn(move || {
        let mut out = Vec::new();
        (0..ops[1]).for_each(|_| one.acquire(&mut out).expect("atomics"));
        (one, out)
    });
    (0..ops[0]).for_each(|_| zero.acquire(&mut outs[0]).expect("atomics"));
    let (one, out) = thread.join().expect("no panic");
    outs[1] = out;
    workers = [zero, one];
    for (worker, out) in workers.iter_mut().zip(&mut outs) {
        worker.learn(out).expect("atomics");
    }
    let all: Vec<_> = outs.concat();
    let distinct: BTreeSet<_> = all.iter().map(|range| range.start).collect();
    assert_eq!(all.len(), distinct.len(), "handed out twice");
}

#[test]
fn windows_1_2() {
    model(3, || windows::<Sound>([1, 2]));
}

#[test]
fn windows_2_3() {
    model(3, || windows::<Sound>([2, 3]));
}

#[test]
fn windows_with_help() {
    model(2, || windows::<Impatient>([1, 4]));
}

#[test]
fn three_threads() {
    model(2, || {
        let assigner = Assigner::builder(3).ring(2).threads().expect("sizes");
        let take = |id, ops: usize| {
            let mut worker = assigner.worker_with::<Sound>(id).expect("free");
            move || {
                let mut out = Vec::new();
                (0..ops).for_each(|_| worker.acquire(&mut out).expect("atomics"));
                out
            }
        };
        let others = [loom::thread::spawn(take(1, 1)), loom::thread::spawn(take(2, 1))];
        let mut all = take(0, 2)();
        all.extend(others.into_iter().flat_map(|thread| thread.join().expect("no panic")));
        let distinct: BTreeSet<_> = all.iter().map(|range| range.start).collect();
        assert_eq!(all.len(), distinct.len(), "handed out twice");
    });
}

#[test]
#[should_panic(expected = "handed out twice")]
fn without_the_fence() {
    model(2, || windows::<Unfenced>([1, 3]));
}

#[test]
fn single_use() {
    model(3, || {
        let assignment = Assignment::single_use(2);
        let (mut p, mut q) = [0, 1].map(|p| assignment.participant(p).expect("memory")).into();
        let thread = loom::thread::spawn(move || {
            q.enter().expect("the first operation");
            q.announce()
        });
        p.enter().expect("the first operation");
        let mut said = p.announce();
        said.extend(thread.join().expect("no panic"));
        said.sort_unstable();
        said.dedup();
        let items: Vec<_> = said.iter().map(|(item, _)| *item).collect();
        assert_eq!(items, [1, 2, 3]);
    });
}
