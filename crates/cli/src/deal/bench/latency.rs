//! Over a directory, as it is or with so much added to every reading and writing of a file:
//! put and get against compare-and-swap.
//!
//! Windows run over the registers that `holdall deal` uses, on real files; the command itself also
//! keeps a journal and starts processes, which is not measured here. The compare-and-swap counter
//! is a word of memory that takes as long to read and to swap: it reads the counter and tries to
//! advance it, again and again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdall_assign::registers::{Dir, DirError, DirRegisters, Durability, Memory, Registers};
use holdall_assign::windows::{Layout, Worker};

use super::Row;

#[derive(Default)]
struct Counts {
    puts: AtomicU64,
    gets: AtomicU64,
    swaps: AtomicU64,
}

pub(super) fn measure(
    workers: usize,
    millis: u64,
    call: Duration,
    store: &Path,
) -> anyhow::Result<Vec<Row>> {
    let time = Duration::from_millis(millis);
    let mut rows = Vec::new();
    for batch in [1, 16] {
        let (items, took, counts) = windows(workers, batch, time, call, store)?;
        rows.push(row(workers, format!("windows, batch {batch}"), items, &counts, took));
        if !call.is_zero() {
            let (items, took, counts) = counter(workers, batch, time, call);
            rows.push(row(workers, format!("CAS counter, batch {batch}"), items, &counts, took));
        }
    }
    Ok(rows)
}

fn row(workers: usize, what: String, items: u64, counts: &Counts, took: Duration) -> Row {
    let each =
        |count: &AtomicU64| format!("{:.2}", count.load(Ordering::Relaxed) as f64 / items as f64);
    Row::new(
        workers,
        what,
        vec![
            ("items/s", format!("{:.0}", items as f64 / took.as_secs_f64())),
            ("put an item", each(&counts.puts)),
            ("get an item", each(&counts.gets)),
            ("cas an item", each(&counts.swaps)),
        ],
    )
}

/// Runs `take`, which says how many items it obtained, in every worker until the time is up; says
/// how many there were in all and how long that took.
fn run<F: FnMut() -> anyhow::Result<u64> + Send>(
    time: Duration,
    workers: Vec<F>,
) -> anyhow::Result<(u64, Duration)> {
    let stop = &AtomicBool::new(false);
    let start = Instant::now();
    let obtained = thread::scope(|scope| {
        let work = |mut take: F| {
            scope.spawn(move || {
                let mut obtained = 0;
                while !stop.load(Ordering::Relaxed) {
                    obtained += take()?;
                }
                anyhow::Ok(obtained)
            })
        };
        let threads: Vec<_> = workers.into_iter().map(work).collect();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let obtained = threads.into_iter().map(|thread| thread.join().expect("no panic in there"));
        obtained.sum::<anyhow::Result<u64>>()
    })?;
    Ok((obtained, start.elapsed()))
}

fn counter(workers: usize, batch: u64, time: Duration, call: Duration) -> (u64, Duration, Counts) {
    let (next, counts) = (&AtomicU64::new(0), Counts::default());
    let take = || {
        let counts = &counts;
        move || loop {
            thread::sleep(call);
            counts.gets.fetch_add(1, Ordering::Relaxed);
            let seen = next.load(Ordering::SeqCst);
            thread::sleep(call);
            counts.swaps.fetch_add(1, Ordering::Relaxed);
            let (was, will) = (Ordering::SeqCst, Ordering::SeqCst);
            if next.compare_exchange(seen, seen + batch, was, will).is_ok() {
                return Ok(batch);
            }
        }
    };
    let done = run(time, (0..workers).map(|_| take()).collect());
    let (items, took) = done.expect("a word of memory does not fail");
    (items, took, counts)
}

fn windows(
    workers: usize,
    batch: u64,
    time: Duration,
    call: Duration,
    store: &Path,
) -> anyhow::Result<(u64, Duration, Counts)> {
    let layout = Layout::new(workers, 16, batch)?;
    let at = tempfile::Builder::new().prefix("bench-").tempdir_in(store)?;
    let dir = Dir::new(at.path(), workers, layout.slots(), [0; 4], Durability::Process);
    let (dir, counts) = (dir.slowed(call), &Counts::default());
    let take = |id| {
        let regs = Counting { inner: dir.handle(id)?, counts, id, read: 0 };
        let mut worker = Worker::<_>::resume(layout, id, regs)?;
        let mut out = Vec::new();
        anyhow::Ok(move || {
            worker.acquire(&mut out)?;
            Ok(out.drain(..).map(|items| items.end - items.start).sum())
        })
    };
    let taking = (0..workers).map(take).collect::<anyhow::Result<_>>()?;
    let (items, took) = run(time, taking)?;
    let take = |count: &AtomicU64| AtomicU64::new(count.load(Ordering::Relaxed));
    let swaps = AtomicU64::new(0);
    Ok((items, took, Counts { puts: take(&counts.puts), gets: take(&counts.gets), swaps }))
}

/// Counts the files read and written.
struct Counting<'a> {
    inner: DirRegisters,
    counts: &'a Counts,
    id: usize,
    /// Whose files were read since the last fence, as bits.
    read: u64,
}

impl Registers for Counting<'_> {
    type Error = DirError;

    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, DirError> {
        if owner != self.id && self.read >> owner & 1 == 0 {
            self.read |= 1 << owner;
            self.counts.gets.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.get(owner, slot)
    }

    fn put(&mut self, slot: usize, value: u64) -> Result<(), DirError> {
        self.inner.put(slot, value)
    }

    fn fence(&mut self) -> Result<(), DirError> {
        self.read = 0;
        self.counts.puts.fetch_add(1, Ordering::Relaxed);
        self.inner.fence()
    }

    fn publish(&mut self) -> Result<(), DirError> {
        self.counts.puts.fetch_add(1, Ordering::Relaxed);
        self.inner.publish()
    }
}
