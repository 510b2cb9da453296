//! Names of the things and parties in a protocol. Their `Debug` form is short (`u0`, `m1`, `p2`,
//! `u0#3`), because traces are read by people.

use core::fmt;
use core::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::stamp::Family;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl $name {
            /// The id as an index into a list that has one place for each.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A manager: the role that guards pools.
    ManagerId, "m"
);
id!(
    /// A node: messages inside one take no time and cannot be lost.
    NodeId, "n"
);
id!(
    /// A pool: a named set of interchangeable units. Its order is the global order of pools.
    PoolId, "p"
);

/// A user: the role that acts for one client.
///
/// A *lane* is a place from which users come and go one after another; the *life* counts them.
/// Ids are ordered by lane first, so comparing users of two lanes never depends on how often
/// either was replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UserId(u64);

impl UserId {
    /// How many lanes there can be.
    pub const LANES: u32 = 1 << 24;
    const LIFE_BITS: u32 = 40;

    /// The first user of a lane.
    ///
    /// # Panics
    /// If the lane is not below [`UserId::LANES`].
    pub const fn first(lane: u32) -> Self {
        assert!(lane < Self::LANES, "a lane is below UserId::LANES");
        Self((lane as u64) << Self::LIFE_BITS)
    }

    /// The user that follows this one in its lane.
    #[must_use]
    pub const fn next_life(self) -> Self {
        Self(self.0 + 1)
    }

    /// The lane this user is in.
    pub const fn lane(self) -> u32 {
        (self.0 >> Self::LIFE_BITS) as u32
    }

    /// How many users this lane had before.
    pub const fn life(self) -> u64 {
        self.0 & ((1 << Self::LIFE_BITS) - 1)
    }
}

impl Hash for UserId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.lane());
        Family::Life(self.lane()).hash_stamp(self.life(), state);
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{}", self.lane())?;
        if self.life() > 0 {
            write!(f, ".{}", self.life())?;
        }
        Ok(())
    }
}

/// A request: the `seq`-th of its user, counted from 1.
///
/// Numbers of different users are never compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId {
    /// Who asks.
    pub user: UserId,
    /// Which of its requests this is.
    pub seq: u64,
}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.user.hash(state);
        Family::Seq(self.user.lane()).hash_stamp(self.seq, state);
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.user, self.seq)
    }
}

/// Where a message comes from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Addr {
    /// A manager.
    Manager(ManagerId),
    /// A user.
    User(UserId),
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager(m) => m.fmt(f),
            Self::User(u) => u.fmt(f),
        }
    }
}
