//! How far a search may go, apart from the number of states.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::CutOff;
use crate::check::Settings;

/// Lets a search be ended from outside, by Ctrl-C for example. Copies end the same searches.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends the searches that have it among their settings.
    pub fn interrupt(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether they were ended.
    pub fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// What a signal handler sets to end them.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// When a search is to end.
pub(crate) struct Limits {
    deadline: Option<Instant>,
    memory: Option<u64>,
    interrupt: Interrupt,
}

impl Limits {
    /// Of a search that begins now.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            deadline: settings.time.and_then(|time| Instant::now().checked_add(time)),
            memory: settings.memory,
            interrupt: settings.interrupt.clone(),
        }
    }

    /// Why it is to end now, if it is.
    pub(crate) fn reached(&self) -> Option<CutOff> {
        if self.interrupt.is_interrupted() {
            return Some(CutOff::Interrupted);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Some(CutOff::Time);
        }
        let too_much = |memory: u64| memory_in_use().is_some_and(|used| used > memory);
        self.memory.is_some_and(too_much).then_some(CutOff::Memory)
    }
}

/// How much memory the process takes up, in bytes, if the system says so.
pub(crate) fn memory_in_use() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kilobytes)
}
