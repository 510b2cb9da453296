//! Who waits for one request at this moment. Whoever loses patience withdraws it only if nobody else waits for it; and
//! whoever comes once that is decided knows that it has to ask anew.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Those who wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Count>);

#[derive(Debug, Default)]
struct Count {
    waiting: usize,
    given_up: bool,
}

/// One who waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Waiters);

impl Waiters {
    /// One more waits; none if the last one has given up.
    pub(crate) fn join(&self) -> Option<Waiter<'_>> {
        let mut count = self.lock();
        if count.given_up {
            return None;
        }
        count.waiting += 1;
        Some(Waiter(self))
    }

    /// Whether the last one has given up.
    pub(crate) fn have_given_up(&self) -> bool {
        self.lock().given_up
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    /// Gives up. Says whether nobody else waits: then nobody will.
    pub(crate) fn give_up(self) -> bool {
        let mut count = ManuallyDrop::new(self).0.lock();
        count.waiting -= 1;
        count.given_up |= count.waiting == 0;
        count.given_up
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_who_gives_up_does_so_for_all() {
        let waiters = Waiters::default();
        let patient = waiters.join().expect("one waits");
        assert!(!waiters.join().expect("another waits").give_up());
        drop(waiters.join().expect("one who hangs up"));
        assert!(!waiters.have_given_up());
        assert!(patient.give_up());
        assert!(waiters.have_given_up() && waiters.join().is_none());
    }
}
