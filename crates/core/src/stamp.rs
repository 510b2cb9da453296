//! Numbers that only grow: logical clocks, request numbers, lives of users.
//!
//! A user that asks for ever makes such numbers grow for ever, so no search over plain states
//! would end. Behaviour depends only on their differences, so the checker identifies states that
//! are equal after shifting each *family* of stamps to a common origin. It needs no help from a
//! protocol beyond this: keep growing numbers in a [`Stamp`] (or in an id), never in a plain
//! integer. The stamp then says in its hash what it is, by a call of `write_u128` that nothing
//! else in a role or a message makes, and a hasher that knows can tell stamps from other numbers.

use core::fmt;
use core::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::ids::{ManagerId, UserId};

/// Stamps that are compared with each other, and therefore shifted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The attempts of one lane to get the resource at one place of what it asks for.
    Attempt(u32, u32),
    /// A family of its own, one for the whole system: see [`Stamp`].
    Clock(u16),
    /// The lives of one lane.
    Life(u32),
    /// What the users of one lane and one manager count between them: see [`LinkStamp`].
    Link(u16, u32, ManagerId),
    /// The request numbers of one lane.
    Seq(u32),
}

impl Family {
    /// Hashes a stamp of this family: the family through `write_u128`, then the value.
    pub fn hash_stamp<H: Hasher>(self, value: u64, state: &mut H) {
        state.write_u128(self.code());
        state.write_u64(value);
    }

    const fn code(self) -> u128 {
        match self {
            Self::Attempt(lane, place) => 3 << 64 | (place as u128) << 32 | lane as u128,
            Self::Clock(n) => n as u128,
            Self::Life(lane) => 1 << 64 | lane as u128,
            Self::Seq(lane) => 2 << 64 | lane as u128,
            Self::Link(kind, lane, at) => {
                (3 + kind as u128) << 64 | (lane as u128) << 32 | at.0 as u128
            }
        }
    }
}

/// A number of the family [`Family::Clock`]`(FAMILY)`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp<const FAMILY: u16>(pub u64);

/// Logical time in the sense of Lamport: above every time heard of.
pub type Clock = Stamp<0>;

impl<const FAMILY: u16> Stamp<FAMILY> {
    /// The next greater stamp.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl<const FAMILY: u16> Hash for Stamp<FAMILY> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Family::Clock(FAMILY).hash_stamp(self.0, state);
    }
}

impl<const FAMILY: u16> fmt::Debug for Stamp<FAMILY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A number that a user and a manager count between them, of the family [`Family::Link`]: the numbers
/// of different links are never compared, and may run away from each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkStamp<const KIND: u16> {
    lane: u32,
    at: ManagerId,
    value: u64,
}

impl<const KIND: u16> LinkStamp<KIND> {
    /// The first of a link.
    pub const fn first(user: UserId, at: ManagerId) -> Self {
        Self { lane: user.lane(), at, value: 0 }
    }

    /// The next greater stamp.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { value: self.value + 1, ..self }
    }

    /// Whether it is of the link between these two.
    pub fn is_between(self, user: UserId, at: ManagerId) -> bool {
        (self.lane, self.at) == (user.lane(), at)
    }
}

impl<const KIND: u16> Hash for LinkStamp<KIND> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Family::Link(KIND, self.lane, self.at).hash_stamp(self.value, state);
    }
}

impl<const KIND: u16> fmt::Debug for LinkStamp<KIND> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.value)
    }
}
