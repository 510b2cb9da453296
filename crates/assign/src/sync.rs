//! The atomics: of the standard library, or of the tool that explores their schedules.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
