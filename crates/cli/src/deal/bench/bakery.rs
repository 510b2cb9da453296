//! Lamport's Bakery lock around a counter: the other way to share work with reads and writes only.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The lock and what it guards.
pub(super) struct Bakery {
    choosing: Vec<AtomicBool>,
    number: Vec<AtomicU64>,
    next: AtomicU64,
}

/// Where a worker can be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Doorway,
    Numbered,
    Inside,
}

impl Bakery {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            choosing: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            number: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU64::new(0),
        }
    }

    /// The next item; `None` if told to stop while it waits. `at` is called at each point.
    pub(super) fn next(
        &self,
        me: usize,
        stop: &AtomicBool,
        at: &mut dyn FnMut(Point),
    ) -> Option<u64> {
        self.choosing[me].store(true, Ordering::Release);
        // The doorway is seen before the numbers are read.
        fence(Ordering::SeqCst);
        at(Point::Doorway);
        let most = self.number.iter().map(|number| number.load(Ordering::Acquire)).max();
        let mine = most.unwrap_or(0) + 1;
        self.number[me].store(mine, Ordering::Release);
        self.choosing[me].store(false, Ordering::Release);
        // The number is seen before the others' doors are looked at.
        fence(Ordering::SeqCst);
        at(Point::Numbered);
        for q in (0..self.number.len()).filter(|q| *q != me) {
            let before = || {
                let number = self.number[q].load(Ordering::Acquire);
                number != 0 && (number, q) < (mine, me)
            };
            while self.choosing[q].load(Ordering::Acquire) || before() {
                if stop.load(Ordering::Relaxed) {
                    self.number[me].store(0, Ordering::Release);
                    return None;
                }
                std::thread::yield_now();
            }
        }
        at(Point::Inside);
        let item = self.next.load(Ordering::Relaxed);
        self.next.store(item + 1, Ordering::Relaxed);
        self.number[me].store(0, Ordering::Release);
        Some(item)
    }
}
