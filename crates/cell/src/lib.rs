//! The pure state machine of a cell.
//!
//! No clock (whoever calls says what time it is), no I/O, no randomness, no hash order: the same
//! inputs lead to the same state, so that a log of inputs is enough to build it again.
//!
//! | module | what |
//! |---|---|
//! | [`engine`] | who holds and who waits: the protocol, and the names of what it counts |
//! | [`session`] | clients that lose their connection, or their agent, and not their place |
//! | [`facts`], [`books`] | what came of everything, and what that adds up to |
//! | [`events`] | what people are told of facts |
//! | [`peer`], [`lease`], [`greeting`] | what cells say to each other, for how long it counts, and who may |
//! | `cell` | all of these together: inputs in, facts and effects out |
//! | [`replay`], `record` | how a cell comes back from its log, and what is in that |

pub mod books;
mod cell;
pub mod engine;
pub mod events;
pub mod facts;
mod few;
pub mod greeting;
mod input;
pub mod lease;
pub mod peer;
pub mod plan;
mod record;
pub mod replay;
pub mod session;
mod sorted;

pub use cell::{Cell, Defect};
pub use input::{
    Cluster, Declared, Effect, Former, Import, Input, Limits, Out, Over, Rest, Start, Wish,
};
