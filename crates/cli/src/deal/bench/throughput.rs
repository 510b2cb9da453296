//! Items a second, each way in the same run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::{ArrayQueue, SegQueue};
use holdall_assign::Assigner;

use super::Row;
use super::bakery::Bakery;

/// Test-and-set objects in a row: as many items as one measurement can use.
const ROW: usize = 1 << 27;

pub(super) fn measure(workers: usize, millis: u64, rounds: usize) -> Vec<Row> {
    let run = Run { workers, time: Duration::from_millis(millis), rounds };
    let ways: Vec<(&str, [f64; 3])> = vec![
        ("windows (plain registers)", run.median(|run| run.windows(1))),
        ("windows, batches of 16", run.median(|run| run.windows(16))),
        ("Bakery lock (plain registers)", run.median(Run::bakery)),
        ("fetch_add", run.median(Run::fetch_add)),
        ("test-and-set row (Fig. 1)", run.median(Run::test_and_set)),
        ("SegQueue push+pop", run.median(Run::seg_queue)),
        ("ArrayQueue push+pop", run.median(Run::array_queue)),
        ("Mutex<VecDeque> push+pop", run.median(Run::mutex)),
    ];
    let ours = ways[0].1[1];
    let row = |(name, [least, median, most]): (&str, [f64; 3])| {
        let ratio = ("to windows", format!("{:.3}", median / ours));
        let million = |rate: f64| format!("{:.2}", rate / 1e6);
        let range = ("least..most", format!("{}..{}", million(least), million(most)));
        Row::new(workers, name, vec![("M items/s", million(median)), range, ratio])
    };
    ways.into_iter().map(row).collect()
}

#[derive(Clone, Copy)]
struct Run {
    workers: usize,
    time: Duration,
    rounds: usize,
}

impl Run {
    /// Least, median and most of some rounds.
    fn median(&self, way: impl Fn(&Self) -> f64) -> [f64; 3] {
        let mut rates: Vec<_> = (0..self.rounds).map(|_| way(self)).collect();
        rates.sort_unstable_by(f64::total_cmp);
        [rates[0], rates[rates.len() / 2], rates[rates.len() - 1]]
    }

    /// Runs `take` in every worker until the time is up; `make` gives each its own.
    fn rate<F: FnMut() -> Option<u64> + Send>(
        &self,
        stop: &AtomicBool,
        make: impl Fn(usize) -> F,
    ) -> f64 {
        let barrier = Barrier::new(self.workers + 1);
        let total = AtomicU64::new(0);
        // Until the last one has ended: on a busy machine that is later than asked for.
        let took = thread::scope(|scope| {
            let mut threads = Vec::new();
            for id in 0..self.workers {
                let (mut take, barrier, total) = (make(id), &barrier, &total);
                threads.push(scope.spawn(move || {
                    barrier.wait();
                    let (mut items, mut sum) = (0, 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        let Some(item) = take() else { break };
                        // Somebody uses the item, so that it is not optimized away.
                        sum = sum.wrapping_add(item);
                        items += 1;
                    }
                    std::hint::black_box(sum);
                    total.fetch_add(items, Ordering::Relaxed);
                }));
            }
            barrier.wait();
            let start = Instant::now();
            thread::sleep(self.time);
            stop.store(true, Ordering::Relaxed);
            let ended = threads.into_iter().all(|thread| thread.join().is_ok());
            assert!(ended, "a worker panicked");
            start.elapsed()
        });
        total.load(Ordering::Relaxed) as f64 / took.as_secs_f64()
    }

    fn windows(&self, batch: u64) -> f64 {
        let assigner = Assigner::builder(self.workers).batch(batch).threads();
        let assigner = assigner.expect("good sizes");
        self.rate(&AtomicBool::new(false), |id| {
            let mut worker = assigner.worker(id).expect("each id once");
            move || Some(worker.next())
        })
    }

    fn bakery(&self) -> f64 {
        let (bakery, stop) = (Bakery::new(self.workers), AtomicBool::new(false));
        self.rate(&stop, |id| {
            let (bakery, stop) = (&bakery, &stop);
            move || bakery.next(id, stop, &mut |_| {})
        })
    }

    fn fetch_add(&self) -> f64 {
        let next = AtomicU64::new(0);
        self.rate(&AtomicBool::new(false), |_| || Some(next.fetch_add(1, Ordering::Relaxed)))
    }

    fn test_and_set(&self) -> f64 {
        let row: Vec<AtomicBool> = (0..ROW).map(|_| AtomicBool::new(false)).collect();
        self.rate(&AtomicBool::new(false), |_| {
            let (row, mut at) = (&row, 0);
            move || {
                // Goes on from its own last place: what is before is taken.
                while row.get(at)?.swap(true, Ordering::AcqRel) {
                    at += 1;
                }
                Some(at as u64)
            }
        })
    }

    fn seg_queue(&self) -> f64 {
        let queue = SegQueue::new();
        (0..1000).for_each(|item| queue.push(item));
        self.rate(&AtomicBool::new(false), |_| {
            || {
                queue.push(1);
                queue.pop()
            }
        })
    }

    fn array_queue(&self) -> f64 {
        let queue = ArrayQueue::new(4096);
        self.rate(&AtomicBool::new(false), |_| {
            || {
                // Never full: each worker takes one out for each it puts in.
                let _ = queue.push(1);
                queue.pop().or(Some(0))
            }
        })
    }

    fn mutex(&self) -> f64 {
        let queue = Mutex::new(VecDeque::from_iter(0..1000_u64));
        self.rate(&AtomicBool::new(false), |_| {
            || {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.push_back(1);
                queue.pop_front()
            }
        })
    }
}
