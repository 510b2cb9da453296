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
        pub struct $name(pub u64);

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
    /// A cell: a party that acts for clients, or guards pools, or both, and restarts as a whole.
    CellId, "c"
);
id!(
    /// The life of a cell: new whenever the cell may have lost its memory. Two lives of a cell are
    /// the same or not; which came first, the number does not tell.
    Life, "l"
);
id!(
    /// A manager: the role that guards pools.
    ManagerId, "m"
);
id!(
    /// A node: messages inside one take no time and cannot be lost.
    NodeId, "n"
);
id!(
    /// A pool: a named set of interchangeable units. Its order is the global order of pools. The id
    /// of a pool that was removed is never given to another.
    PoolId, "p"
);

/// Where users come from: a cell in one of its lives.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Home {
    /// The cell.
    pub cell: CellId,
    /// Its life.
    pub life: Life,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.cell)?;
        if self.life.0 > 0 {
            write!(f, "{:?}", self.life)?;
        }
        Ok(())
    }
}

/// A place at a home from which users come and go, one after another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// Where it is.
    pub home: Home,
    /// Which of the places there.
    pub number: u32,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.home != Home::default() {
            write!(f, "{:?}", self.home)?;
        }
        write!(f, "u{}", self.number)
    }
}

impl Lane {
    /// The lane as an index into a list that has one place for each; only where lanes are numbered
    /// across all cells, as they are in the lab.
    pub const fn index(self) -> usize {
        self.number as usize
    }
}

/// A user: the role that acts for one client.
///
/// The users of a [`Lane`] follow each other; the *generation* counts them. Ids are ordered by lane
/// first, so comparing users of two lanes never depends on how often either was replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UserId {
    home: Home,
    /// The number of the lane, above; the generation, below.
    local: u64,
}

impl UserId {
    /// How many lanes there can be at a home.
    pub const LANES: u32 = 1 << 24;
    const GENERATION_BITS: u32 = 40;

    /// The first user of a lane of the first cell in its first life.
    ///
    /// # Panics
    /// If the lane is not below [`UserId::LANES`].
    pub const fn first(lane: u32) -> Self {
        Self::first_at(Home { cell: CellId(0), life: Life(0) }, lane)
    }

    /// The first user of a lane.
    ///
    /// # Panics
    /// If the lane is not below [`UserId::LANES`].
    pub const fn first_at(home: Home, lane: u32) -> Self {
        assert!(lane < Self::LANES, "a lane is below UserId::LANES");
        Self { home, local: (lane as u64) << Self::GENERATION_BITS }
    }

    /// A user of a lane, by how many the lane had before.
    ///
    /// # Panics
    /// If the lane is not below [`UserId::LANES`].
    #[must_use]
    pub const fn after(lane: Lane, generation: u64) -> Self {
        let first = Self::first_at(lane.home, lane.number);
        let generation = generation & ((1 << Self::GENERATION_BITS) - 1);
        Self { local: first.local | generation, ..first }
    }

    /// The user that follows this one in its lane. After 2^40 the next lane would begin, so there is
    /// no next one.
    #[must_use]
    pub const fn next_generation(self) -> Option<Self> {
        let next = Self { local: self.local.wrapping_add(1), ..self };
        if next.generation() == 0 { None } else { Some(next) }
    }

    /// Where this user comes from.
    pub const fn home(self) -> Home {
        self.home
    }

    /// The lane this user is in.
    pub const fn lane(self) -> Lane {
        Lane { home: self.home, number: (self.local >> Self::GENERATION_BITS) as u32 }
    }

    /// Which of the users of its home it is; they are ordered by lane, and then as they came.
    pub const fn local(self) -> u64 {
        self.local
    }

    /// How many users this lane had before.
    pub const fn generation(self) -> u64 {
        self.local & ((1 << Self::GENERATION_BITS) - 1)
    }
}

impl Hash for UserId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let lane = self.lane();
        lane.hash(state);
        Family::Generation(lane).hash_stamp(self.generation(), state);
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lane())?;
        if self.generation() > 0 {
            write!(f, ".{}", self.generation())?;
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

/// Of whom something is reported: a user, or all users of a home at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Party {
    /// All users of a home, none of whom uses anything any more: its cell has begun another life, or
    /// is gone for good.
    Home(Home),
    /// One user.
    User(UserId),
}

impl Party {
    /// Whether a user is meant.
    pub fn includes(self, user: UserId) -> bool {
        match self {
            Self::Home(home) => user.home == home,
            Self::User(one) => user == one,
        }
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Home(home) => home.fmt(f),
            Self::User(user) => user.fmt(f),
        }
    }
}
