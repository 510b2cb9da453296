//! Instructions an item, under callgrind: one thread in which one worker calls alone, or all in
//! turn. `docs/assignment.md` has the command and the figures.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use holdall_assign::Assigner;

fn main() {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().unwrap_or_default();
    let (what, workers, calls) = (next(), next().parse().unwrap_or(2), next().parse().unwrap_or(0));
    let assigner = Assigner::builder(workers).threads().expect("1 to 64 workers");
    let mut team: Vec<_> = (0..workers).map(|id| assigner.worker(id).expect("free")).collect();
    let counter = AtomicU64::new(0);
    for call in 0..calls {
        black_box(match what.as_str() {
            "alone" => team[0].next(),
            "turns" => team[call % workers].next(),
            "fetch_add" => counter.fetch_add(1, Ordering::Relaxed),
            _ => panic!("turns alone|turns|fetch_add WORKERS CALLS"),
        });
    }
}
