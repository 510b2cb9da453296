//! Random schedules, and those of few preemptions at random places (PCT), 20,000 each:
//! `crates/assign/schedules.sh shuttle`.
#![cfg(shuttle)]

use std::collections::BTreeSet;

use holdall_assign::Assigner;
use holdall_assign::paper::Assignment;
use holdall_assign::windows::rules::{Impatient, Rules, Sound, Unvalidated};

const SCHEDULES: usize = 20_000;

/// `workers` workers with `ops` operations each; then all learn, and nothing may be missing.
fn windows<V: Rules>(workers: usize, ops: usize) {
    let assigner = Assigner::builder(workers).ring(2).threads().expect("sizes");
    let threads = (0..workers).map(|id| {
        let mut worker = assigner.worker_with::<V>(id).expect("free");
        shuttle::thread::spawn(move || {
            let mut out = Vec::new();
            (0..ops).for_each(|_| worker.acquire(&mut out).expect("atomics"));
            (worker, out)
        })
    });
    let threads: Vec<_> = threads.collect();
    let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
    let mut ended: Vec<_> = ended.collect();
    // The first goes beyond all windows; the others too, and so close theirs.
    let mut all = Vec::new();
    for (worker, out) in &mut ended {
        (0..3).for_each(|_| worker.acquire(out).expect("atomics"));
        all.extend(out.iter().map(|range| range.start));
    }
    let distinct: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len(), "handed out twice");
    let beyond = (all.len() - 3 * workers) as u64;
    let hole = (0..beyond.saturating_sub(3 * workers as u64)).find(|item| !distinct.contains(item));
    assert_eq!(hole, None, "handed out to nobody");
}

#[test]
fn random_three() {
    shuttle::check_random(|| windows::<Sound>(3, 4), SCHEDULES);
}

#[test]
fn random_four() {
    shuttle::check_random(|| windows::<Impatient>(4, 5), SCHEDULES);
}

#[test]
fn pct_three() {
    shuttle::check_pct(|| windows::<Sound>(3, 6), SCHEDULES, 4);
}

#[test]
fn pct_four() {
    shuttle::check_pct(|| windows::<Impatient>(4, 6), SCHEDULES, 6);
}

#[test]
#[should_panic(expected = "handed out twice")]
fn without_validation() {
    shuttle::check_pct(|| windows::<Unvalidated>(3, 4), SCHEDULES, 4);
}

fn assignment(processors: usize, operations: usize) {
    let assignment = Assignment::long_lived(processors, operations);
    let threads = (0..processors).map(|p| {
        let mut participant = assignment.participant(p).expect("memory");
        shuttle::thread::spawn(move || {
            let mut said = Vec::new();
            while participant.enter().is_ok() {
                said.extend(participant.announce());
            }
            said
        })
    });
    let threads: Vec<_> = threads.collect();
    let said = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
    let said: BTreeSet<_> = said.collect();
    let items: Vec<_> = said.iter().map(|(item, _)| *item).collect();
    let end = 2 * (processors * operations) as u64 - 1;
    assert_eq!(items, (1..=end).collect::<Vec<_>>());
}

#[test]
fn single_use() {
    shuttle::check_random(|| assignment(3, 1), SCHEDULES);
    shuttle::check_pct(|| assignment(5, 1), SCHEDULES, 4);
}

#[test]
fn long_lived() {
    shuttle::check_pct(|| assignment(3, 3), SCHEDULES, 4);
}
