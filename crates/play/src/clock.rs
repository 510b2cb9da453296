//! Time: the machine's monotonic clock, which all processes share, and alarms by it.

use std::collections::BTreeMap;

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

/// What is due some time, in the order of times.
#[derive(Debug)]
pub(crate) struct Alarms<T> {
    due: BTreeMap<Set, T>,
    set: u64,
}

/// An alarm that was set: for when, and its number.
pub(crate) type Set = (Nanos, u64);

impl<T> Default for Alarms<T> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), set: 0 }
    }
}

impl<T> Alarms<T> {
    pub(crate) fn set(&mut self, at: Nanos, what: T) -> Set {
        self.set += 1;
        self.due.insert((at, self.set), what);
        (at, self.set)
    }

    /// Lets an alarm not ring.
    pub(crate) fn cancel(&mut self, alarm: Set) {
        self.due.remove(&alarm);
    }

    /// When the next one rings.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// The first that is due, if any.
    pub(crate) fn ring(&mut self, now: Nanos) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop_first().map(|(_, what)| what)
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
