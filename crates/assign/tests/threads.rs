//! Real threads, more than there are cores.
#![cfg(not(any(loom, shuttle)))]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use holdall_assign::Assigner;
use holdall_assign::paper::Assignment;
use holdall_assign::registers::{Memory, Registers};

fn run(workers: usize, ring: usize, batch: u64, items: u64) {
    let sizes = Assigner::builder(workers).ring(ring).batch(batch);
    share(&sizes.threads().expect("sizes"), items);
}

/// All workers take until the stream has passed `items`; then those learn what they have won.
fn share<M: Memory<Error = Infallible> + Sync>(assigner: &Assigner<M>, items: u64)
where
    M::Handle: Send,
{
    let (workers, batch) = (assigner.layout().workers(), assigner.layout().batch());
    let newest = AtomicU64::new(0);
    let mut all: Vec<u64> = thread::scope(|scope| {
        let work = |id| {
            let newest = &newest;
            move || {
                let mut worker = assigner.worker(id).expect("a free id");
                let mut mine = Vec::new();
                while newest.fetch_max(*mine.last().unwrap_or(&0), Ordering::Relaxed) < items {
                    mine.push(worker.next());
                }
                (worker, mine)
            }
        };
        let threads: Vec<_> = (0..workers).map(|id| scope.spawn(work(id))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let joined: Vec<_> = joined.collect();
        joined.into_iter().flat_map(|(worker, mine)| finish(worker, mine)).collect()
    });
    all.sort_unstable();
    let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "handed out twice");
    // Nobody is in an operation: up to the windows each entered last, nothing is missing.
    let sure = items - 3 * workers as u64 * batch;
    let hole = (0..sure).find(|item| all[*item as usize] != *item);
    assert_eq!(hole, None, "handed out to nobody");
}

/// After all others have stopped: one more entry leaves everything behind, and closes it.
fn finish(mut worker: holdall_assign::Worker<impl Registers>, mut mine: Vec<u64>) -> Vec<u64> {
    let mut out = Vec::new();
    for _ in 0..3 {
        worker.acquire(&mut out).expect("atomics do not fail");
    }
    mine.extend(out.into_iter().flatten());
    mine
}

/// A store of whole objects: puts are collected until a fence, and between two fences each other
/// worker's object is read once. Every now and then a reader pauses between two objects.
#[derive(Clone)]
struct Objects(Arc<Vec<Mutex<Vec<u64>>>>);

struct Handle {
    objects: Objects,
    id: usize,
    own: Vec<u64>,
    read: Vec<Option<Vec<u64>>>,
    random: u64,
}

impl Memory for Objects {
    type Handle = Handle;
    type Error = Infallible;

    fn workers(&self) -> usize {
        self.0.len()
    }

    fn slots(&self) -> usize {
        self.0[0].lock().expect("no panic").len()
    }

    fn handle(&self, id: usize) -> Result<Handle, Infallible> {
        let own = self.0[id].lock().expect("no panic").clone();
        let read = vec![None; self.0.len()];
        Ok(Handle { objects: self.clone(), id, own, read, random: id as u64 })
    }
}

impl Registers for Handle {
    type Error = Infallible;

    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, Infallible> {
        if owner == self.id {
            return Ok(self.own[slot]);
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if self.read[owner].is_none() && self.random >> 60 == 0 {
            thread::yield_now();
        }
        let object = &self.objects.0[owner];
        let read = || object.lock().expect("no panic").clone();
        Ok(self.read[owner].get_or_insert_with(read)[slot])
    }

    fn put(&mut self, slot: usize, value: u64) -> Result<(), Infallible> {
        self.own[slot] = value;
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Infallible> {
        self.read.fill(None);
        self.publish()
    }

    fn publish(&mut self) -> Result<(), Infallible> {
        self.objects.0[self.id].lock().expect("no panic").clone_from(&self.own);
        Ok(())
    }
}

#[test]
fn whole_objects() {
    for round in 0..6 {
        let workers = 4 + round % 3;
        let layout = Assigner::builder(workers).ring(2).layout().expect("sizes");
        let object = |_| Mutex::new(vec![0; layout.slots()]);
        let objects = Objects(Arc::new((0..workers).map(object).collect()));
        share(&Assigner::over(layout, objects), 60_000);
    }
}

#[test]
fn nothing_twice_and_no_hole() {
    for workers in [1, 2, 3, 4, 8, 16] {
        run(workers, 64, 1, 200_000);
    }
}

#[test]
fn a_small_ring_and_batches() {
    for round in 0..10 {
        run(2 + round % 4, 2, 1, 30_000);
        run(4, 8, 7, 100_000);
    }
}

#[test]
fn many_workers() {
    run(64, 16, 1, 50_000);
}

#[test]
fn an_id_is_used_once_and_again() {
    let assigner = Assigner::builder(2).threads().expect("sizes");
    let mut worker = assigner.worker(0).expect("free");
    assert!(assigner.worker(0).is_err());
    assert!(assigner.worker(2).is_err());
    let mut had: Vec<_> = (0..10).map(|_| worker.next()).collect();
    drop(worker);
    let mut worker = assigner.worker(0).expect("free again");
    let mut doubts = Vec::new();
    worker.doubtful(&mut doubts);
    assert!(doubts.len() <= 3, "{doubts:?}");
    had.extend((0..10).map(|_| worker.next()));
    had.sort_unstable();
    had.dedup();
    assert_eq!(had.len(), 20);
}

#[test]
fn single_use_assignment() {
    for round in 0..500 {
        let n = 2 + round % 7;
        let assignment = Assignment::single_use(n);
        let said: Vec<_> = thread::scope(|scope| {
            let work = |p| {
                let mut participant = assignment.participant(p).expect("memory");
                move || {
                    participant.enter().expect("the first operation");
                    participant.announce()
                }
            };
            let threads: Vec<_> = (0..n).map(|p| scope.spawn(work(p))).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        agree(said, 2 * n as u64 - 1);
    }
}

#[test]
fn long_lived_assignment() {
    for _ in 0..50 {
        let assignment = Assignment::long_lived(4, 16);
        let said: Vec<_> = thread::scope(|scope| {
            let work = |p| {
                let mut participant = assignment.participant(p).expect("memory");
                move || {
                    let mut said = Vec::new();
                    while participant.enter().is_ok() {
                        said.extend(participant.announce());
                    }
                    said
                }
            };
            let threads: Vec<_> = (0..4).map(|p| scope.spawn(work(p))).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        agree(said, 127);
    }
}

/// Every item up to `end` was announced, and always for the same processor.
fn agree(mut said: Vec<(u64, usize)>, end: u64) {
    said.sort_unstable();
    said.dedup();
    let items: Vec<_> = said.iter().map(|(item, _)| *item).collect();
    assert_eq!(items, (1..=end).collect::<Vec<_>>());
}
