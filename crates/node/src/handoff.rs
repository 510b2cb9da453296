//! What the agent's thread hands to another one, which takes its time: nothing waits for that, and what waits is bounded.
//!
//! There is one who gives ([`Giver`]) and one who takes ([`Taker`]). If more waits than there is room for, some is left out,
//! and counted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// About how many bytes may wait.
const ROOM: usize = 32 << 20;
/// And for about how many there is room in any case, once they have come.
const SPARE: usize = 4 << 20;

/// Something that can be handed over.
pub(crate) trait Item {
    /// About how many bytes it takes.
    fn size(&self) -> usize;

    /// Whether it is never left out.
    fn must_stay(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    /// Room for the next ones.
    spare: Vec<T>,
    size: usize,
    left_out: usize,
    /// Whoever takes waits for something.
    idle: bool,
    /// Somebody waits for everything to be done: that is to be taken, or was taken.
    urgent: bool,
    at_it: bool,
    /// Nothing more comes, or nobody takes anything any more.
    closed: bool,
    gone: bool,
}

impl<T: Item> Waiting<T> {
    fn add(&mut self, item: T) {
        let size = item.size();
        if self.gone {
            return;
        }
        if self.size + size > ROOM && !item.must_stay() {
            self.left_out += 1;
        } else {
            self.size += size;
            self.items.push(item);
        }
    }
}

#[derive(Debug)]
struct Handoff<T> {
    waiting: Mutex<Waiting<T>>,
    /// There is something to take.
    filled: Condvar,
    /// Everything is done.
    emptied: Condvar,
}

impl<T> Handoff<T> {
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is taken at once.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) items: Vec<T>,
    /// How many there was no room for.
    pub(crate) left_out: usize,
}

/// Whoever gives.
#[derive(Debug)]
pub(crate) struct Giver<T: Item> {
    pending: Vec<T>,
    handoff: Arc<Handoff<T>>,
    thread: Option<JoinHandle<()>>,
}

/// Whoever takes. If it is dropped, nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct Taker<T>(Arc<Handoff<T>>);

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.gone = true;
        self.0.emptied.notify_all();
    }
}

impl<T> Taker<T> {
    /// What is to be done next, when there is something: what was handed over in so much time. Nothing when there will be
    /// no more. What was taken before is done.
    pub(crate) fn next(&self, collect: Duration) -> Option<Batch<T>> {
        self.next_within(collect, None)
    }

    /// The same; or nothing at all, after some time in which there is nothing.
    pub(crate) fn next_within(
        &self,
        collect: Duration,
        patience: Option<Duration>,
    ) -> Option<Batch<T>> {
        let handoff = &self.0;
        let mut waiting = handoff.lock();
        if std::mem::take(&mut waiting.at_it) {
            handoff.emptied.notify_all();
        }
        while waiting.items.is_empty() && waiting.left_out == 0 && !waiting.urgent {
            if waiting.closed {
                return None;
            }
            waiting.idle = true;
            let Some(patience) = patience else {
                waiting = handoff.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = handoff.filled.wait_timeout(waiting, patience);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            waiting = woken;
            if timeout.timed_out() {
                break;
            }
        }
        waiting.idle = false;
        let collecting = |waiting: &mut Waiting<T>| !waiting.urgent && !waiting.closed;
        let collected = handoff.filled.wait_timeout_while(waiting, collect, collecting);
        let (mut waiting, _) = collected.unwrap_or_else(PoisonError::into_inner);
        waiting.size = 0;
        waiting.at_it = std::mem::take(&mut waiting.urgent);
        let spare = std::mem::take(&mut waiting.spare);
        let items = std::mem::replace(&mut waiting.items, spare);
        Some(Batch { items, left_out: std::mem::take(&mut waiting.left_out) })
    }

    /// Gives back what is done, for the room that it has: otherwise whoever gives would make more, bit by bit.
    pub(crate) fn give_back(&self, mut items: Vec<T>) {
        items.clear();
        items.shrink_to(SPARE / size_of::<T>().max(1));
        self.0.lock().spare = items;
    }
}

impl<T: Item + Send + 'static> Giver<T> {
    /// Starts a thread that takes.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn start(
        name: &str,
        take: impl FnOnce(Taker<T>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let waiting = Waiting {
            items: Vec::new(),
            spare: Vec::new(),
            size: 0,
            left_out: 0,
            idle: false,
            urgent: false,
            at_it: false,
            closed: false,
            gone: false,
        };
        let handoff = Handoff {
            waiting: Mutex::new(waiting),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        };
        let handoff = Arc::new(handoff);
        let taker = Taker(handoff.clone());
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || take(taker))?;
        Ok(Self { pending: Vec::new(), handoff, thread: Some(thread) })
    }
}

impl<T: Item> Giver<T> {
    /// Adds something, which is handed over with the rest.
    pub(crate) fn add(&mut self, item: T) {
        self.pending.push(item);
    }

    /// Hands over what was added.
    pub(crate) fn hand_over(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut waiting = self.handoff.lock();
        for item in self.pending.drain(..) {
            waiting.add(item);
        }
        let was_idle = std::mem::take(&mut waiting.idle);
        // Whoever is woken finds it unlocked.
        drop(waiting);
        if was_idle {
            self.handoff.filled.notify_one();
        }
    }

    /// Everything that was added is to be done now.
    pub(crate) fn hurry(&mut self) {
        self.hand_over();
        self.handoff.lock().urgent = true;
        self.handoff.filled.notify_one();
    }

    /// Waits until everything is done that was added.
    pub(crate) fn flush(&mut self) {
        self.hurry();
        let undone = |waiting: &mut Waiting<T>| (waiting.urgent || waiting.at_it) && !waiting.gone;
        drop(self.handoff.emptied.wait_while(self.handoff.lock(), undone));
    }

    /// There was no room for so many.
    #[cfg(test)]
    pub(crate) fn leave_out(&self, items: usize) {
        self.handoff.lock().left_out += items;
    }
}

impl<T: Item> Drop for Giver<T> {
    fn drop(&mut self) {
        self.hand_over();
        self.handoff.lock().closed = true;
        self.handoff.filled.notify_one();
        // One that panicked does nothing more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Weight(usize, bool);

    impl Item for Weight {
        fn size(&self) -> usize {
            self.0
        }

        fn must_stay(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_and_what_matters_is_kept() {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, going) = std::sync::mpsc::channel::<()>();
        let mut giver = Giver::start("test", move |taker: Taker<Weight>| {
            going.recv().expect("told to go");
            let batch = taker.next(Duration::ZERO).expect("something");
            tell.send((batch.items.len(), batch.left_out)).expect("heard");
        })
        .expect("a thread");
        (0..40).for_each(|_| giver.add(Weight(1 << 20, false)));
        giver.add(Weight(1 << 20, true));
        giver.hand_over();
        go.send(()).expect("it waits");
        assert_eq!(told.recv().expect("told"), (33, 8));
        // It is gone by now, and keeps nobody waiting.
        giver.flush();
    }
}
