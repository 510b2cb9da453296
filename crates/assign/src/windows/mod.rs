//! The practical, long-lived assignment: windows of n lots, wait-free, in bounded memory.
//!
//! [`Assigner`] and [`Worker`] are what programs use; [`Seat`] is the algorithm of one worker, as
//! a step machine; [`Layout`] says which register is where. `docs/assignment.md` explains it in
//! plain words.

mod assigner;
mod enter;
mod layout;
mod look;
mod resume;
pub mod rules;
mod save;
mod seat;
mod worker;

pub use self::assigner::{Assigner, Builder, Pin, Position, WorkerError};
pub use self::layout::{BATCH_MAX, BadLayout, Layout, WORKERS_MAX};
pub use self::seat::Seat;
pub use self::worker::Worker;
