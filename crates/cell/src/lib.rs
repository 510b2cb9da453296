//! The pure state machine of a cell: the engine, and, not used by the agent yet, sessions and the
//! books of what has become of requests.
//!
//! No clock (whoever calls says what time it is), no I/O, no randomness, no hash order: the same
//! inputs lead to the same state, so that a log of inputs is enough to build it again.

pub mod books;
pub mod engine;
pub mod facts;
pub mod session;
