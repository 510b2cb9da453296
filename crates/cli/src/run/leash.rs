//! When a command has to be stopped because its grant is lent for a time only: units of other machines, or an agent on
//! another one. Pure.
//!
//! As long as all is well the end moves on before it comes near. If it does not, the agent may be gone, cut off or
//! stopped, and nobody but this process knows in time: the command is asked to end a quarter of the lease before its end,
//! and killed in the middle of what is left then. That leaves room for clocks that do not run alike and a machine that is busy.

use std::time::Duration;

/// How long before its end a command is asked to end, at most.
const MOST: i64 = 15_000;

/// Until when a command may run. Times are in milliseconds since the machine booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leash {
    end: Option<i64>,
    /// The longest that the end ever was ahead when it was told: nearly all of a lease.
    longest: i64,
}

impl Leash {
    /// The end is another, or there is none: then the time is not asked for.
    pub(super) fn set(&mut self, end: Option<i64>, now: impl FnOnce() -> i64) {
        self.end = end;
        self.longest = self.longest.max(end.map_or(0, |end| end.saturating_sub(now())));
    }

    fn stopping(self) -> i64 {
        (self.longest / 4).min(MOST)
    }

    /// When the command is asked to end.
    pub(super) fn stop_at(self) -> Option<i64> {
        Some(self.end? - self.stopping())
    }

    /// When it is killed.
    pub(super) fn kill_at(self) -> Option<i64> {
        Some(self.end? - self.stopping() / 2)
    }

    /// Whether a command that is started now is not to be stopped at once.
    pub(super) fn has_time(self, now: impl FnOnce() -> i64) -> bool {
        self.stop_at().is_none_or(|at| now() < at)
    }

    /// How long it is until the end.
    pub(super) fn left(self, now: i64) -> Duration {
        let left = self.end.map_or(0, |end| end.saturating_sub(now));
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_asked_to_end_and_killed_before_the_end() {
        let mut leash = Leash::default();
        assert_eq!((leash.stop_at(), leash.kill_at()), (None, None));
        leash.set(Some(161_000), || 101_000);
        assert_eq!((leash.stop_at(), leash.kill_at()), (Some(146_000), Some(153_500)));
        leash.set(Some(165_000), || 130_000);
        assert_eq!(leash.stop_at(), Some(150_000), "what was the most counts");
        assert_eq!(leash.left(160_000), Duration::from_secs(5));
        leash.set(None, || 170_000);
        assert_eq!(leash.stop_at(), None);
    }

    #[test]
    fn nothing_is_started_that_is_to_be_stopped_at_once() {
        let mut leash = Leash::default();
        assert!(leash.has_time(|| 5), "it is lent for good");
        leash.set(Some(160_000), || 100_000);
        assert!(leash.has_time(|| 144_999) && !leash.has_time(|| 145_000));
        let mut late = Leash::default();
        late.set(Some(100_000), || 100_001);
        assert!(!late.has_time(|| 100_001), "it was over before it was heard of");
    }

    #[test]
    fn short_leases_leave_little_and_long_ones_no_more_than_needed() {
        let stop_at = |end| {
            let mut leash = Leash::default();
            leash.set(Some(end), || 0);
            leash.stop_at()
        };
        assert_eq!(stop_at(4_000), Some(3_000));
        assert_eq!(stop_at(3_600_000), Some(3_585_000));
        assert_eq!(stop_at(-5), Some(-5), "it is over");
    }
}
