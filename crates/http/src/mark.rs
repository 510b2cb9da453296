//! What tells a request from others under the same id: the lease that it has, and what else was asked for.
//!
//! It is the number of the call that asks, so the agent remembers it with the session, also from one start to the
//! next, and nothing needs to be kept here. Numbers of calls have 63 bits: 40 of what was asked for, 22 of the lease, and
//! one that says whether something is asked for or given back.

use holdall_wire::FIRST_QUERY;

const LEASE_BITS: u32 = 22;
/// The number of the call that ends a session. No mark has it: no lease is that long.
pub(crate) const LEAVE: u64 = FIRST_QUERY - 1;

/// The mark of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Of a request with a lease of so many milliseconds, and what else tells it from others.
    pub(crate) fn new(ttl: u64, digest: [u8; 32]) -> Self {
        let digest = u64::from_le_bytes(std::array::from_fn(|at| digest[at]));
        Self(((digest << LEASE_BITS) | ttl) & (LEAVE >> 1))
    }

    /// Of the call that asks, or of the one that gives back.
    pub(crate) fn of_call(call: u64) -> Self {
        Self((call - (1 - call % 2)) >> 1)
    }

    /// The number of the call that asks.
    pub(crate) fn ask(self) -> u64 {
        (self.0 << 1) | 1
    }

    /// The number of the call that gives back.
    pub(crate) fn give_back(self) -> u64 {
        self.ask() + 1
    }

    /// The lease; none if the request was made before there were marks.
    pub(crate) fn ttl(self) -> Option<u64> {
        Some(self.0 & ((1 << LEASE_BITS) - 1)).filter(|ttl| *ttl > 0)
    }

    /// Whether these can be of the same request.
    pub(crate) fn fits(self, other: Self) -> bool {
        self == other || self.ttl().is_none() || other.ttl().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_again_in_the_numbers_of_its_calls() {
        for (ttl, byte) in [(1000, 0), (3_600_000, 0xff), (30_000, 7)] {
            let mark = Mark::new(ttl, [byte; 32]);
            assert_eq!((mark.ask() % 2, mark.give_back() % 2), (1, 0));
            assert!(mark.give_back() < LEAVE, "{mark:?}");
            assert_eq!(Mark::of_call(mark.ask()), mark);
            assert_eq!(Mark::of_call(mark.give_back()), mark);
            assert_eq!(mark.ttl(), Some(ttl));
        }
    }

    #[test]
    fn what_is_asked_for_and_for_how_long_tells_requests_apart() {
        let mark = Mark::new(1000, [1; 32]);
        assert!(mark.fits(mark));
        assert!(!mark.fits(Mark::new(1001, [1; 32])));
        assert!(!mark.fits(Mark::new(1000, [2; 32])));
        let before_marks = Mark::of_call(1);
        assert!(mark.fits(before_marks) && before_marks.ttl().is_none());
        assert_eq!(Mark::of_call(2), before_marks);
    }
}
