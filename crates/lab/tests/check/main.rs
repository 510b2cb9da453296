//! The checker in process: what it decides of every protocol, and that it decides rightly.

mod canonical;
mod common;
mod fairness;
mod pinned;
mod protocols;
mod resume;
