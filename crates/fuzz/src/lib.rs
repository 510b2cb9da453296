//! Random long schedules: the same roles that the service runs, at scopes that no search covers.
//!
//! A run is a function of a protocol, a [`Mode`] and a seed. From the seed a plan is drawn: up to eight
//! users on up to three cells, up to six pools, and the faults that the protocol says it can bear. With
//! [`Mode::Faults`], users ask, use, leave, stop and come back while messages of their predecessors are
//! still under way, cells reboot, messages are late, lost or doubled, the living are taken for dead; then
//! the system is left to heal, and must: every request that is still wanted is granted, and nothing is
//! left in any role. With [`Mode::Forged`], one party sends what no honest one would: nobody may panic,
//! no honest role's invariant may break, and nobody honest may be accused.
//!
//! What is judged is what the protocol promises, and what the contract of the worlds
//! (`holdall_core::contract`), which this world keeps too, demands.

#![forbid(unsafe_code)]

mod failure;
mod forge;
mod plan;
mod random;
mod roles;
mod target;
mod world;

pub use self::failure::{Failure, Problem};
pub use self::target::{NoTarget, Target};

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything goes wrong that the protocol assumes may go wrong.
    Faults,
    /// All goes well, but one party is not honest.
    Forged,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Faults, Self::Forged];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::Forged => "forged",
        }
    }
}

/// What came of a run that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Steps of roles.
    pub steps: u64,
    /// Requests granted.
    pub grants: u64,
    /// Users that left, stopped or were replaced.
    pub replaced: u64,
    /// Messages that no honest party sent.
    pub forged: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.grants += other.grants;
        self.replaced += other.replaced;
        self.forged += other.forged;
    }
}
