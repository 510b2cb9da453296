//! Time: the machine's monotonic clock, which all processes share, and alarms by it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment that is the same for all processes.
pub(crate) type Nanos = u64;

pub(crate) const MICROSECOND: Nanos = 1_000;
pub(crate) const MILLISECOND: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}

/// What is due some time.
#[derive(Debug)]
pub(crate) struct Alarms<T> {
    due: BinaryHeap<Reverse<(Nanos, u64)>>,
    what: HashMap<u64, T>,
    set: u64,
}

impl<T> Default for Alarms<T> {
    fn default() -> Self {
        Self { due: BinaryHeap::new(), what: HashMap::new(), set: 0 }
    }
}

impl<T> Alarms<T> {
    /// Sets an alarm, and returns its number.
    pub(crate) fn set(&mut self, at: Nanos, what: T) -> u64 {
        self.set += 1;
        self.due.push(Reverse((at, self.set)));
        self.what.insert(self.set, what);
        self.set
    }

    /// Lets an alarm not ring.
    pub(crate) fn cancel(&mut self, number: u64) {
        self.what.remove(&number);
    }

    /// When the next one rings.
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        while let Some(Reverse((at, number))) = self.due.peek() {
            if self.what.contains_key(number) {
                return Some(*at);
            }
            self.due.pop();
        }
        None
    }

    /// The first that is due, if any.
    pub(crate) fn ring(&mut self, now: Nanos) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, number)) = self.due.pop()?;
        self.what.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_ring_in_order_unless_cancelled() {
        let mut alarms = Alarms::default();
        alarms.set(30, 'c');
        let early = alarms.set(10, 'a');
        alarms.set(20, 'b');
        alarms.cancel(early);
        assert_eq!(alarms.next(), Some(20));
        assert_eq!(alarms.ring(19), None);
        assert_eq!(
            (alarms.ring(40), alarms.ring(40), alarms.ring(40)),
            (Some('b'), Some('c'), None)
        );
    }
}
