//! The paper's algorithms.
//!
//! Source: Carole Delporte-Gallet, Hugues Fauconnier, Eli Gafni, Giuliano Losa, "The Assignment
//! Problem" (2018). What it prints and where that fails is in `docs/errata.md`.
//!
//! | paper | here |
//! |---|---|
//! | Fig. 1, allocation from test-and-set | [`Allocation`] |
//! | Theorem 3.2, consensus of two from allocation | [`Consensus`], [`Propose`] |
//! | Theorem 3.2, allocation from consensus of two | [`Tournament`] |
//! | immediate snapshot, (2k-1)-adaptive renaming (Borowsky and Gafni) | `snapshot.rs`, `enter.rs` |
//! | Fig. 2, single-use assignment, with l4 of Fig. 3 | [`Assignment::single_use`] |
//! | Fig. 2 with its own l4, on an atomic snapshot | [`Atomic`] |
//! | remark on general f, with the corrected condition | [`Growth::assignable`] |
//! | Fig. 3, long-lived assignment, for a fixed number of operations | [`Assignment::long_lived`] |

mod allocation;
mod announce;
mod assignment;
mod consensus;
mod enter;
mod growth;
mod ids;
mod snapshot;

pub use self::allocation::{Allocation, Walk};
pub(crate) use self::announce::Announce;
pub use self::announce::{Announcing, AsPrinted, Atomic, Biggest, Framed};
pub use self::assignment::{Assignment, EnterError, Participant};
pub use self::consensus::{Consensus, Propose, Tournament};
pub(crate) use self::enter::{Enter, instance_depth};
pub use self::growth::{BadGrowth, Growth};
pub(crate) use self::ids::Ids;
pub(crate) use self::snapshot::unpack as unpack_level;
