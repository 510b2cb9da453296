//! Timers of roles. One that was disarmed or armed anew leaves its old ring in the event queue;
//! the number of the arming tells it from the one that counts.

use std::hash::Hash;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The armed timers of all roles of one kind.
#[derive(Debug)]
pub(super) struct Timers<K, T> {
    armed: HashMap<(K, T), u64, FxBuildHasher>,
    armings: u64,
}

impl<K, T> Default for Timers<K, T> {
    fn default() -> Self {
        Self { armed: HashMap::default(), armings: 0 }
    }
}

impl<K: Eq + Hash, T: Eq + Hash> Timers<K, T> {
    /// Arms a timer, anew if it is armed, and returns the number that its ring must have.
    pub(super) fn arm(&mut self, role: K, timer: T) -> u64 {
        self.armings += 1;
        self.armed.insert((role, timer), self.armings);
        self.armings
    }

    pub(super) fn disarm(&mut self, role: K, timer: T) {
        self.armed.remove(&(role, timer));
    }

    /// Whether this ring counts; if so, the timer is no longer armed.
    pub(super) fn rings(&mut self, role: K, timer: T, arming: u64) -> bool {
        let key = (role, timer);
        let counts = self.armed.get(&key) == Some(&arming);
        if counts {
            self.armed.remove(&key);
        }
        counts
    }
}

/// How long a timer waits: four mean delays (of at least a tick), doubled for every rung.
pub(super) fn wait(delay: u32, rung: u8) -> u64 {
    let base = 4 * u128::from(delay.max(1));
    u64::try_from(base << rung.min(64)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_arming_rings_and_only_once() {
        let mut timers = Timers::default();
        let first = timers.arm(1, 'a');
        let second = timers.arm(1, 'a');
        assert!(!timers.rings(1, 'a', first));
        assert!(timers.rings(1, 'a', second));
        assert!(!timers.rings(1, 'a', second));
        let third = timers.arm(2, 'a');
        timers.disarm(2, 'a');
        assert!(!timers.rings(2, 'a', third));
    }

    #[test]
    fn rungs_double_and_never_overflow() {
        assert_eq!((wait(50, 0), wait(50, 3), wait(0, 1)), (200, 1600, 8));
        assert_eq!(wait(u32::MAX, u8::MAX), u64::MAX);
    }
}
