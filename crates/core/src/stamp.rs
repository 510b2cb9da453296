//! Numbers that only grow: logical clocks, request numbers, generations of users.
//!
//! A user that asks for ever makes such numbers grow for ever, so no search over plain states
//! would end. Behaviour depends only on their differences, so the checker identifies states that
//! are equal after shifting each *family* of stamps to a common origin. It needs no help from a
//! protocol beyond this: keep growing numbers in a [`Stamp`] (or in an id), never in a plain
//! integer. The stamp then says in its hash what it is, by a call of `write_u128` that nothing
//! else in a role or a message makes, and a hasher that knows can tell stamps from other numbers.
//!
//! That behaviour depends only on differences is the protocol's duty, and stamps are made to help:
//! nobody can look inside one, and the first of a family comes from the [`Origin`] that the world
//! chose. Numbers that are compared only within one request or one lane (attempts, what two parties
//! count between them) start at 0. Every protocol is run from several origins, with equal outcomes (a
//! test).

use core::fmt;
use core::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::ids::{Addr, Lane, ManagerId, UserId};

/// Stamps that are compared with each other, and therefore shifted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The attempts of one lane to get the resource at one place of what it asks for.
    Attempt(Lane, u32),
    /// What one role counts of what it sends to another; the users of a lane count together. See
    /// [`ChannelStamp`].
    Channel(Addr, Addr),
    /// A family of its own, one for the whole system: see [`Stamp`].
    Clock(u16),
    /// The generations of one lane.
    Generation(Lane),
    /// What the users of one lane and one manager count between them: see [`LinkStamp`].
    Link(u16, Lane, ManagerId),
    /// The request numbers of one lane.
    Seq(Lane),
}

impl Family {
    /// Hashes a stamp of this family: the family through `write_u128`, then the value.
    pub fn hash_stamp<H: Hasher>(self, value: u64, state: &mut H) {
        state.write_u128(self.code());
        state.write_u64(value);
    }

    /// A number for each family. Those that identify stamps number cells, lives, places and managers
    /// from 0, so that nothing of importance is cut off here.
    const fn code(self) -> u128 {
        match self {
            Self::Clock(n) => n as u128,
            Self::Generation(lane) => 1 << 120 | lane_code(lane),
            Self::Seq(lane) => 2 << 120 | lane_code(lane),
            Self::Attempt(lane, place) => 3 << 120 | lane_code(lane) | place as u128,
            Self::Link(kind, lane, at) => {
                4 << 120 | (kind as u128) << 104 | lane_code(lane) | at.0 as u32 as u128
            }
            Self::Channel(from, to) => 5 << 120 | end_code(from) << 60 | end_code(to),
        }
    }
}

/// 72 bits, above the lowest 32: the number of the lane, its cell, its life.
const fn lane_code(lane: Lane) -> u128 {
    let (cell, life) = (lane.home.cell.0 as u32, lane.home.life.0 as u16);
    (lane.number as u128) << 80 | (cell as u128) << 48 | (life as u128) << 32
}

/// 60 bits: a manager, or the lane of a user.
const fn end_code(end: Addr) -> u128 {
    match end {
        Addr::Manager(manager) => manager.0 as u32 as u128,
        Addr::User(user) => {
            let lane = user.lane();
            let (cell, life) = (lane.home.cell.0 as u16, lane.home.life.0 as u16);
            1 << 56 | (lane.number as u128) << 32 | (cell as u128) << 16 | life as u128
        }
    }
}

/// Where the clocks of a system start. Nothing may depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    /// An origin; worlds choose, roles only pass on what they are given.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }
}

/// A number of the family [`Family::Clock`]`(FAMILY)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp<const FAMILY: u16>(u64);

/// Logical time in the sense of Lamport: above every time heard of.
pub type Clock = Stamp<0>;

impl<const FAMILY: u16> Stamp<FAMILY> {
    /// No honest party is ever so far ahead of another: at ten thousand a second, that takes years.
    const LEAP: u64 = 1 << 40;

    /// The first stamp of a system.
    pub const fn first(origin: Origin) -> Self {
        Self(origin.0)
    }

    /// The next greater stamp. The greatest of all is its own next: strangers who leap as far as
    /// [`Stamp::leaps_beyond`] allows need millions of messages to get there, and then order is lost,
    /// but nothing else.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The stamp that follows after so many.
    #[must_use]
    pub const fn plus(self, steps: u64) -> Self {
        Self(self.0.saturating_add(steps))
    }

    /// Whether a stamp that somebody sends is so far beyond one's own that it cannot be honest.
    pub const fn leaps_beyond(self, own: Self) -> bool {
        self.0.saturating_sub(own.0) > Self::LEAP
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
    lane: Lane,
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
        Self { value: self.value.saturating_add(1), ..self }
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

/// A number that a role gives to what it sends to another, of the family [`Family::Channel`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelStamp {
    from: Addr,
    to: Addr,
    value: u64,
}

impl ChannelStamp {
    /// The first of a channel.
    pub const fn first(from: Addr, to: Addr) -> Self {
        Self { from, to, value: 0 }
    }

    /// The next greater stamp.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { value: self.value.saturating_add(1), ..self }
    }

    /// Whether it is of the channel from one role to another.
    pub fn is_of(self, from: Addr, to: Addr) -> bool {
        (self.from, self.to) == (from, to)
    }
}

impl Hash for ChannelStamp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Family::Channel(self.from, self.to).hash_stamp(self.value, state);
    }
}

impl fmt::Debug for ChannelStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.value)
    }
}
