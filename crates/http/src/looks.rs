//! Whose turn it is to look at everything, which takes long: a few at the same time, and one of each user.
//! Whoever calls often waits for itself, and not others for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many look at the same time.
const LOOKS: usize = 4;

/// Who looks, and who waits to.
pub(crate) struct Looks {
    all: Arc<Semaphore>,
    by: Mutex<HashMap<u32, Weak<Semaphore>>>,
}

/// A turn, until it is dropped.
pub(crate) struct Look {
    _own: OwnedSemaphorePermit,
    _one_of_few: OwnedSemaphorePermit,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(LOOKS)), by: Mutex::default() }
    }

    /// Waits for the turn of a user. (There is always one: nobody closes a semaphore here.)
    pub(crate) async fn turn(&self, uid: u32) -> Option<Look> {
        let own = self.own(uid).acquire_owned().await.ok()?;
        let one_of_few = self.all.clone().acquire_owned().await.ok()?;
        Some(Look { _own: own, _one_of_few: one_of_few })
    }

    fn own(&self, uid: u32) -> Arc<Semaphore> {
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = by.get(&uid).and_then(Weak::upgrade) {
            return own;
        }
        by.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        by.insert(uid, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn whoever_calls_often_waits_for_itself() {
        let looks = Looks::new();
        let mut nobody = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(looks.turn(1)).poll(&mut nobody) else {
            panic!("nobody else looks")
        };
        let mut greedy: Vec<_> = (0..200).map(|_| Box::pin(looks.turn(1))).collect();
        assert!(greedy.iter_mut().all(|turn| turn.as_mut().poll(&mut nobody).is_pending()));
        assert!(pin!(looks.turn(2)).poll(&mut nobody).is_ready(), "others have their turn");
        drop(first);
        assert!(
            greedy.iter_mut().all(|turn| turn.as_mut().poll(&mut nobody).is_ready()),
            "one after the other"
        );
        drop(greedy);
        assert!(pin!(looks.turn(3)).poll(&mut nobody).is_ready());
        assert_eq!(looks.by.lock().expect("unpoisoned").len(), 1, "others are forgotten");
    }
}
