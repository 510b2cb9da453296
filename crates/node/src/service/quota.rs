//! What each user may have of what an agent has to give.
//!
//! Besides a limit of its own, nobody has more than is left over, or than twice that: so however greedy
//! some are, whoever comes new finds room.

use std::collections::BTreeMap;

/// Something that there is a certain amount of.
#[derive(Debug)]
pub(super) struct Quota {
    total: usize,
    each: usize,
    /// How many times what is left over a user may have.
    times: usize,
    used: usize,
    by_user: BTreeMap<u32, usize>,
}

impl Quota {
    /// So much in all, and for each user.
    pub(super) fn new(total: usize, each: usize) -> Self {
        Self { total, each, times: 1, used: 0, by_user: BTreeMap::new() }
    }

    /// So much in all, of which somebody alone may have two thirds.
    pub(super) fn of_two_thirds(total: usize) -> Self {
        Self { times: 2, ..Self::new(total, usize::MAX) }
    }

    /// Takes some for a user, if that is fair. Nothing is always: others who come may make it unfair
    /// what a user has had for long, but do not keep it from going on.
    pub(super) fn take(&mut self, uid: u32, amount: usize) -> bool {
        if amount == 0 {
            return true;
        }
        self.take_anyway(uid, amount);
        let fair = self.is_fair(uid);
        if !fair {
            self.give(uid, amount);
        }
        fair
    }

    /// Whether a user could take some.
    pub(super) fn has_room(&mut self, uid: u32, amount: usize) -> bool {
        let has = self.take(uid, amount);
        if has {
            self.give(uid, amount);
        }
        has
    }

    /// Whether a user has no more than it may.
    pub(super) fn is_fair(&self, uid: u32) -> bool {
        let mine = self.of(uid);
        let left = self.total.saturating_sub(self.used);
        mine <= self.each && mine <= left.saturating_mul(self.times)
    }

    /// Takes some for a user, fair or not: for what is there already.
    pub(super) fn take_anyway(&mut self, uid: u32, amount: usize) {
        self.used = self.used.saturating_add(amount);
        let mine = self.by_user.entry(uid).or_default();
        *mine = mine.saturating_add(amount);
    }

    /// Gives some back.
    pub(super) fn give(&mut self, uid: u32, amount: usize) {
        self.used = self.used.saturating_sub(amount);
        if let Some(mine) = self.by_user.get_mut(&uid) {
            *mine = mine.saturating_sub(amount);
            if *mine == 0 {
                self.by_user.remove(&uid);
            }
        }
    }

    /// How much a user has.
    pub(super) fn of(&self, uid: u32) -> usize {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    /// How much all have.
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_room_for_one_more_user() {
        let mut quota = Quota::new(1 << 20, usize::MAX);
        for user in 0..16 {
            assert!(quota.take(user, 1), "user {user} finds nothing left");
            while quota.take(user, 1) {}
        }
        assert!(quota.used() < 1 << 20);
    }

    #[test]
    fn somebody_alone_has_two_thirds() {
        let mut quota = Quota::of_two_thirds(300);
        assert!(quota.take(1, 200) && !quota.take(1, 1));
        assert!(quota.take(2, 60) && !quota.take(2, 10) && quota.take(3, 20));
        assert!(!quota.take(1, 1), "it has more than twice what is left");
    }

    #[test]
    fn nobody_has_more_than_its_own_and_what_is_given_back_is_free() {
        let mut quota = Quota::new(100, 10);
        assert!(quota.take(1, 10) && !quota.take(1, 1) && quota.take(2, 1));
        quota.give(1, 4);
        assert!(quota.take(1, 4) && !quota.take(1, 1));
        quota.take_anyway(1, 50);
        assert!(!quota.take(1, 1) && quota.take(3, 5));
        quota.give(1, 60);
        assert_eq!((quota.of(1), quota.used()), (0, 6));
    }

    #[test]
    fn whoever_has_more_than_its_share_since_others_came_goes_on() {
        let mut quota = Quota::of_two_thirds(300);
        assert!(quota.take(1, 200) && quota.take(2, 2));
        assert!(!quota.is_fair(1) && !quota.take(1, 1));
        assert!(quota.take(1, 0));
    }
}
