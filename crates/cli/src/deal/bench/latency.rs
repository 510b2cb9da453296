//! Over a store where every call takes 2 ms: put and get against compare-and-swap.
//!
//! Simulated: the calls sleep. A worker's registers are one object; the objects of all others are
//! read at once, as a client with several connections would. The compare-and-swap counter reads
//! the counter and tries to advance it, again and again.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use holdall_assign::registers::Registers;
use holdall_assign::windows::{Layout, Worker};

use super::Row;

const CALL: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Counts {
    puts: AtomicU64,
    gets: AtomicU64,
    swaps: AtomicU64,
}

pub(super) fn measure(workers: usize, millis: u64) -> Vec<Row> {
    let time = Duration::from_millis(millis.max(1000));
    let mut rows = Vec::new();
    for batch in [1, 16] {
        let (items, counts) = windows(workers, batch, time);
        rows.push(row(workers, format!("windows, batch {batch}"), items, &counts, time));
        let (items, counts) = counter(workers, batch, time);
        rows.push(row(workers, format!("CAS counter, batch {batch}"), items, &counts, time));
    }
    rows
}

fn row(workers: usize, what: String, items: u64, counts: &Counts, time: Duration) -> Row {
    let each =
        |count: &AtomicU64| format!("{:.2}", count.load(Ordering::Relaxed) as f64 / items as f64);
    Row::new(
        workers,
        what,
        vec![
            ("items/s", format!("{:.0}", items as f64 / time.as_secs_f64())),
            ("put an item", each(&counts.puts)),
            ("get an item", each(&counts.gets)),
            ("cas an item", each(&counts.swaps)),
        ],
    )
}

/// Runs `take`, which says how many items it obtained, in every worker until the time is up.
fn run<F: FnMut() -> u64 + Send>(workers: usize, time: Duration, make: impl Fn(usize) -> F) -> u64 {
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for id in 0..workers {
            let (mut take, stop, total) = (make(id), &stop, &total);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    total.fetch_add(take(), Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    total.load(Ordering::Relaxed)
}

fn counter(workers: usize, batch: u64, time: Duration) -> (u64, Counts) {
    let (next, counts) = (AtomicU64::new(0), Counts::default());
    let items = run(workers, time, |_| {
        let (next, counts) = (&next, &counts);
        move || loop {
            thread::sleep(CALL);
            counts.gets.fetch_add(1, Ordering::Relaxed);
            let seen = next.load(Ordering::SeqCst);
            thread::sleep(CALL);
            counts.swaps.fetch_add(1, Ordering::Relaxed);
            let (was, will) = (Ordering::SeqCst, Ordering::SeqCst);
            if next.compare_exchange(seen, seen + batch, was, will).is_ok() {
                return batch;
            }
        }
    });
    (items, counts)
}

fn windows(workers: usize, batch: u64, time: Duration) -> (u64, Counts) {
    let layout = Layout::new(workers, 16, batch).expect("good sizes");
    let objects: Vec<_> = (0..workers).map(|_| Mutex::new(vec![0; layout.slots()])).collect();
    let (objects, counts) = (Arc::new(objects), Arc::new(Counts::default()));
    let items = run(workers, time, |id| {
        let own = vec![0; layout.slots()];
        let (objects, counts) = (Arc::clone(&objects), Arc::clone(&counts));
        let regs = Slow { objects, counts, id, own, dirty: false, read: None };
        let Ok(mut worker) = Worker::<_>::resume(layout, id, regs);
        let mut out = Vec::new();
        move || {
            let Ok(()) = worker.acquire(&mut out);
            out.drain(..).map(|items| items.end - items.start).sum()
        }
    });
    (items, Arc::into_inner(counts).unwrap_or_default())
}

/// A worker's handle to the store.
struct Slow {
    objects: Arc<Vec<Mutex<Vec<u64>>>>,
    counts: Arc<Counts>,
    id: usize,
    own: Vec<u64>,
    dirty: bool,
    /// All objects, as read since the last fence.
    read: Option<Vec<Vec<u64>>>,
}

impl Registers for Slow {
    type Error = Infallible;

    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, Infallible> {
        if owner == self.id {
            return Ok(self.own[slot]);
        }
        let (objects, counts) = (&self.objects, &self.counts);
        let read = self.read.get_or_insert_with(|| {
            thread::sleep(CALL);
            counts.gets.fetch_add(objects.len() as u64 - 1, Ordering::Relaxed);
            let lock = |object: &Mutex<Vec<u64>>| {
                object.lock().unwrap_or_else(PoisonError::into_inner).clone()
            };
            objects.iter().map(lock).collect()
        });
        Ok(read[owner][slot])
    }

    fn put(&mut self, slot: usize, value: u64) -> Result<(), Infallible> {
        self.dirty |= self.own[slot] != value;
        self.own[slot] = value;
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Infallible> {
        self.read = None;
        self.publish()
    }

    fn publish(&mut self) -> Result<(), Infallible> {
        if std::mem::take(&mut self.dirty) {
            thread::sleep(CALL);
            self.counts.puts.fetch_add(1, Ordering::Relaxed);
            let mut object = self.objects[self.id].lock().unwrap_or_else(PoisonError::into_inner);
            object.clone_from(&self.own);
        }
        Ok(())
    }
}
