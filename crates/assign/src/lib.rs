//! Shares a stream of numbered items among workers with plain reads and writes.
//!
//! No lock, no compare-and-swap, no coordinator: each worker writes its own registers and reads
//! the others'. An item is handed out **at most once, never twice**; a worker that stops delays a
//! few items, and nobody waits for it. `docs/assignment.md` explains the problem in plain words,
//! says when to use which, and gives the measurements.
//!
//! - [`Assigner`] and [`Worker`]: the practical version, for a stream without end.
//! - [`paper`]: the algorithms of Delporte-Gallet, Fauconnier, Gafni and Losa, "The Assignment
//!   Problem" (2018), as printed where that is right and repaired where it is not.
//! - [`registers`]: the memory underneath: threads, a mapped file, a directory.
//! - [`machine`] and [`explore`]: the algorithms are step machines, which the running code drives
//!   and the tests explore in every order of accesses.

pub mod explore;
pub mod machine;
pub mod paper;
pub mod registers;
mod sync;
pub mod windows;

pub use self::windows::{Assigner, Pin, Worker};
