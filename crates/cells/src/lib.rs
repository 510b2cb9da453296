//! Whole cells under faults: several cells with their logs, links between them that delay, stall and break, clocks that
//! drift, machines that are killed or lose power, clients that ask, use, pause and die; and a bystander that sees what is used.
//!
//! A run is a function of its seed. First faults happen, and nothing may be used twice. Then everything heals, and
//! everybody who still wants something must get it, and nothing may be left behind.
//!
//! | module | what |
//! |---|---|
//! | `world` | time, and what happens next |
//! | `node` | a machine: a cell, its log, its clock, its leases |
//! | `net`, `meeting` | connections between machines, and who lets in whom |
//! | `carry` | what follows from inputs: done, said, heard |
//! | `client`, `clients` | programs that ask, and what they do |
//! | `late` | a machine whose log is written late |
//! | `hostile` | a machine that says what it likes |
//! | `bystander` | who uses what, and whether that can be |
//! | `faults`, `put_back`, `lost` | what goes wrong |
//! | `report` | what a run came to |

mod bystander;
mod carry;
mod client;
mod clients;
mod faults;
mod hostile;
mod late;
mod lost;
mod meeting;
mod net;
mod node;
mod put_back;
mod report;
mod world;

use holdall_cell::lease::Terms;

pub use self::bystander::Violation;
pub use self::report::Report;

/// What is played.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many cells there are.
    pub cells: usize,
    /// How many clients each of them has.
    pub clients: usize,
    /// For how many milliseconds things go wrong.
    pub faulty: u64,
    /// Whether the log of one of them is written late, as in etcd.
    pub late: bool,
    /// A change that must be found.
    pub mutant: Option<Mutant>,
    /// Whether everything that happens is told on standard error.
    pub told: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { cells: 3, clients: 3, faulty: 40_000, late: false, mutant: None, told: false }
    }
}

/// The terms of the simulated leases: short, so that they run out often.
const TERMS: Terms = Terms { lease: 4000, grace: 1000, stopping: 1200, suspicion: 1800 };

/// Something that is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A home counts its lease from when the beat came back.
    LeaseFromReceipt,
    /// A guard gives to others when the lease is over, and not later; and counts with a clock that runs fast.
    NoGrace,
    /// What arrives over a connection that is over is heard.
    OldConnections,
    /// A home numbers the fences of what other cells guard.
    FencesAtHome,
    /// Nobody sends again.
    NoResend,
    /// A guard that has lost its memory does not listen to what homes hold.
    AssertionsIgnored,
    /// A guard that has lost its memory does not wait for what homes hold.
    NoRecovery,
    /// A new life of a machine is taken for the old one.
    OldLife,
    /// A guard confirms that it keeps a reservation, and does not.
    KeepUnconfirmed,
    /// A machine that was started from a copy of its disk is let in, and gives at once.
    CopyAccepted,
    /// A machine that others refuse, since they have known more of it than its log tells, goes on.
    RefusalIgnored,
    /// What is heard of how long the log of another one is, is not kept.
    HeardForgotten,
    /// Of a log that was put back it is looked only where the present start began.
    OnlyLastStart,
    /// What a home has forgotten is over, also a reservation.
    ReservationsDropped,
    /// What rests on a record leaves before that is written.
    ToldBeforeWritten,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::LeaseFromReceipt,
        Self::NoGrace,
        Self::OldConnections,
        Self::FencesAtHome,
        Self::NoResend,
        Self::AssertionsIgnored,
        Self::NoRecovery,
        Self::OldLife,
        Self::KeepUnconfirmed,
        Self::CopyAccepted,
        Self::RefusalIgnored,
        Self::HeardForgotten,
        Self::OnlyLastStart,
        Self::ReservationsDropped,
        Self::ToldBeforeWritten,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaseFromReceipt => "lease-from-receipt",
            Self::NoGrace => "no-grace",
            Self::OldConnections => "old-connections",
            Self::FencesAtHome => "fences-at-home",
            Self::NoResend => "no-resend",
            Self::AssertionsIgnored => "assertions-ignored",
            Self::NoRecovery => "no-recovery",
            Self::OldLife => "old-life",
            Self::KeepUnconfirmed => "keep-unconfirmed",
            Self::CopyAccepted => "copy-accepted",
            Self::RefusalIgnored => "refusal-ignored",
            Self::HeardForgotten => "heard-forgotten",
            Self::OnlyLastStart => "only-last-start",
            Self::ReservationsDropped => "reservations-dropped",
            Self::ToldBeforeWritten => "told-before-written",
        }
    }

    /// Whether it is one of a log that is written late.
    pub const fn is_of_late_logs(self) -> bool {
        matches!(self, Self::ToldBeforeWritten)
    }
}

/// Plays a seed.
///
/// # Errors
/// If something was used twice, or somebody waits for ever, or something is left behind.
pub fn play(seed: u64, settings: &Settings) -> Result<Report, Violation> {
    world::World::new(seed, settings).play()
}
