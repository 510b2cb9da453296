//! The paper's scenario: one worker is suspended in the middle of an operation.
//!
//! For windows, at every single access of the operation; for the Bakery lock, at its three stages.
//! What do the others obtain meanwhile, and which items stay unassigned?

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use holdall_assign::machine::{Access, Machine};
use holdall_assign::registers::{Atomics, Memory, Registers, WordRegisters};
use holdall_assign::windows::{Layout, Seat, Worker};

use super::Row;
use super::bakery::{Bakery, Point};

pub(super) fn measure(workers: usize, millis: u64) -> Vec<Row> {
    let time = Duration::from_millis(millis);
    let mut rows = Vec::new();
    for point in [Point::Doorway, Point::Numbered, Point::Inside] {
        let others = bakery(workers, time, point);
        rows.push(row(workers, format!("Bakery, suspended: {point:?}"), others, "all".into()));
    }
    for accesses in 0.. {
        let Some((next, others, unassigned)) = windows(workers, time, accesses) else { break };
        let what = format!("windows, suspended before {next}");
        rows.push(row(workers, what, others, unassigned.to_string()));
    }
    rows
}

fn row(workers: usize, what: String, others: u64, unassigned: String) -> Row {
    let values = vec![("others obtain", others.to_string()), ("stay unassigned", unassigned)];
    Row::new(workers, what, values)
}

fn bakery(workers: usize, time: Duration, point: Point) -> u64 {
    let (bakery, stop) = (Bakery::new(workers), AtomicBool::new(false));
    let (got, suspended) = (AtomicU64::new(0), Barrier::new(workers));
    thread::scope(|scope| {
        let (bakery, stop, got, suspended) = (&bakery, &stop, &got, &suspended);
        for id in 1..workers {
            scope.spawn(move || {
                suspended.wait();
                while !stop.load(Ordering::Relaxed) {
                    let item = bakery.next(id, stop, &mut |_| {});
                    let meanwhile = item.is_some() && !stop.load(Ordering::Relaxed);
                    got.fetch_add(u64::from(meanwhile), Ordering::Relaxed);
                }
            });
        }
        bakery.next(0, stop, &mut |at| {
            if at == point {
                suspended.wait();
                thread::sleep(time);
                stop.store(true, Ordering::Relaxed);
            }
        });
    });
    got.load(Ordering::Relaxed)
}

/// Worker 0 makes 100 operations among the others and stops before access number `accesses` of
/// the next: which that is, what the others obtain from then on, and how many items below the
/// windows they end with belong to nobody. `None` if the operation has no such access.
fn windows(workers: usize, time: Duration, accesses: usize) -> Option<(String, u64, u64)> {
    let layout = Layout::new(workers, 256, 1).expect("good sizes");
    let memory = Atomics::new(workers, layout.slots());
    let (stop, suspended) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut seat = Seat::new(layout, 0);
    let (next, lots, ended) = thread::scope(|scope| {
        let others = (1..workers).map(|id| {
            let (stop, suspended, memory) = (&stop, &suspended, &memory);
            scope.spawn(move || go_on(layout, memory, id, stop, suspended))
        });
        let others: Vec<_> = others.collect();
        let (next, lots) = stop_at(&mut seat, &memory, accesses);
        suspended.store(true, Ordering::Relaxed);
        thread::sleep(if next.is_some() { time } else { Duration::ZERO });
        stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = others.into_iter().filter_map(|other| other.join().ok()).collect();
        (next, lots, ended)
    });
    let next = next?;
    let obtained = ended.iter().map(|(_, _, obtained)| obtained).sum();
    Some((next, obtained, unassigned(&memory, &lots, ended, layout)))
}

type Ended = (Worker<WordRegisters<Atomics>>, Vec<Range<u64>>, u64);

/// Another worker: all it obtained, and how much of that after worker 0 was suspended.
fn go_on(
    layout: Layout,
    memory: &Atomics,
    id: usize,
    stop: &AtomicBool,
    suspended: &AtomicBool,
) -> Ended {
    let Ok(regs) = memory.handle(id);
    let Ok(mut worker) = Worker::resume(layout, id, regs);
    let (mut had, mut since) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) && had.len() < 2_000_000 {
        let before = had.len();
        let Ok(()) = worker.acquire(&mut had);
        if suspended.load(Ordering::Relaxed) {
            since += (had.len() - before) as u64;
        }
    }
    (worker, had, since)
}

/// Drives a worker through 100 operations and `accesses` accesses more.
fn stop_at(seat: &mut Seat, memory: &Atomics, accesses: usize) -> (Option<String>, Vec<u64>) {
    let Ok(mut regs) = memory.handle(0);
    let mut lots = Vec::new();
    for _ in 0..100 {
        seat.acquire();
        let Ok(()) = holdall_assign::machine::drive(seat, &mut regs);
        lots.append(seat.won());
    }
    seat.acquire();
    let (mut read, mut made) = (0, 0);
    loop {
        let next = seat.step(read);
        if next == Access::Done {
            lots.append(seat.won());
            return (None, lots);
        }
        if made == accesses {
            let name = match next {
                Access::Get { owner, slot } => format!("access {made}, a get ({owner}, {slot})"),
                Access::Put { slot, .. } => format!("access {made}, a put ({slot})"),
                other => format!("access {made}, {other:?}"),
            };
            return (Some(name), lots);
        }
        made += 1;
        match next {
            Access::Get { owner, slot } => {
                let Ok(value) = regs.get(owner, slot);
                read = value;
            }
            Access::Put { slot, value } => {
                let Ok(()) = regs.put(slot, value);
            }
            _ => {
                let Ok(()) = regs.fence();
            }
        }
    }
}

/// Items that are nobody's, below all windows that the others entered last, and not in a window
/// that the suspended worker has recorded: what it has there is its own.
fn unassigned(memory: &Atomics, lots: &[u64], ended: Vec<Ended>, layout: Layout) -> u64 {
    let mut all: Vec<u64> = lots.to_vec();
    let mut below = u64::MAX;
    for (mut worker, mut had, _) in ended {
        // Two more entries and a look: all that can be closed is.
        for _ in 0..3 {
            let Ok(()) = worker.acquire(&mut had);
        }
        let Ok(()) = worker.learn(&mut had);
        below = below.min(worker.entered().map_or(0, |items| items.start));
        all.extend(had.into_iter().flatten());
    }
    all.sort_unstable();
    let n = layout.workers() as u64;
    let holes = (0..below).filter(|item| all.binary_search(item).is_err());
    let Ok(mut regs) = memory.handle(0);
    let mut recorded = |window| {
        let Ok(found) = regs.get(0, layout.record(window));
        found == window
    };
    holes.filter(|item| !recorded(item / n + 1)).count() as u64
}
