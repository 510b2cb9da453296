//! Places in the queue.

use core::fmt;

use holdall_core::UserId;
use serde::{Deserialize, Serialize};

/// A place in the queue. The front is slot 0 of level 0; slot 0 of a level comes right after the
/// last slot of the level below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Which level.
    pub level: u8,
    /// Which slot of the level.
    pub slot: u32,
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Self::SOMEWHERE => write!(f, "{}.?", self.level),
            slot => write!(f, "{}.{slot}", self.level),
        }
    }
}

impl Position {
    /// The front of the queue.
    pub(super) const FRONT: Self = Self { level: 0, slot: 0 };
    /// No slot in particular, of a competitor that has not reported yet.
    const SOMEWHERE: u32 = u32::MAX;

    /// What is known of a competitor at the start: it is of concern from the level of the highest
    /// bit in which the ids differ.
    pub(super) fn unknown(user: UserId, competitor: UserId) -> Self {
        let differ = user.lane().number ^ competitor.lane().number;
        Self { level: differ.checked_ilog2().unwrap_or(0) as u8, slot: Self::SOMEWHERE }
    }

    /// What a user keeps of the place that a competitor reports: above the door to the first level
    /// in which they meet it is of no concern, and it must be asked again before that.
    pub(super) fn of_concern(self, user: UserId, competitor: UserId) -> Self {
        let unknown = Self::unknown(user, competitor);
        let concerns = self.level <= unknown.level || self.is_door_to(unknown.level);
        if concerns { self } else { unknown }
    }

    /// Whether this is the place right behind another in the same level.
    pub(super) fn is_right_behind(self, other: Self) -> bool {
        self.level == other.level && Some(self.slot) == other.slot.checked_add(1)
    }

    /// Whether this is where the level is entered from.
    pub(super) fn is_door_to(self, level: u8) -> bool {
        Some(self.level) == level.checked_add(1) && self.slot == 0
    }

    /// The first slot of a level that a user may take: by the level's bit of its id, every fourth.
    pub(super) fn first_proper_slot(user: UserId, level: u8) -> u32 {
        2 * (user.lane().number.checked_shr(level.into()).unwrap_or(0) & 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bit_that_differs_counts() {
        let level = |a, b| Position::unknown(UserId::first(a), UserId::first(b)).level;
        assert_eq!([level(0, 1), level(2, 3), level(1, 2), level(3, 4)], [0, 0, 1, 2]);
        let slot = |lane, level| Position::first_proper_slot(UserId::first(lane), level);
        assert_eq!([slot(5, 0), slot(5, 1), slot(5, 2), slot(5, 99)], [2, 0, 2, 0]);
    }
}
