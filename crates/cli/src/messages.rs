//! Messages on standard error of commands for which others wait: what `run` and `hold` do is not held up by whoever reads
//! them, or does not.
//!
//! A thread writes them. Whoever says something waits a moment for it, so that messages and other output come in order; but
//! if nobody reads, not again. Of the messages that wait then, so many are kept, and others counted.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdall_holders::SigSet;

/// How long it is waited for one to be written.
const MOMENT: Duration = Duration::from_millis(100);
/// And for all of them in the end.
const END: Duration = Duration::from_secs(1);
/// How many wait at most.
const MOST: usize = 64;

struct Messages {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    /// Whether a thread writes; otherwise whoever says something does.
    apart: bool,
    /// Whether it has started.
    begun: bool,
    texts: VecDeque<String>,
    /// For how many there was no room.
    left_out: usize,
    writing: bool,
    /// Nobody reads, as it seems.
    unread: bool,
}

impl Waiting {
    fn is_done(&self) -> bool {
        self.texts.is_empty() && self.left_out == 0 && !self.writing
    }

    /// What is to be written next.
    fn next(&mut self) -> Option<String> {
        self.texts.pop_front().or_else(|| match std::mem::take(&mut self.left_out) {
            0 => None,
            count => Some(format!("{count} messages are missing here: nobody read them in time")),
        })
    }
}

static MESSAGES: Messages = Messages {
    waiting: Mutex::new(Waiting {
        apart: false,
        begun: false,
        texts: VecDeque::new(),
        left_out: 0,
        writing: false,
        unread: false,
    }),
    changed: Condvar::new(),
};

/// From now on messages are written by a thread.
pub(crate) fn begin() {
    MESSAGES.lock().apart = true;
}

/// Says something to a person, on standard error.
pub(crate) fn say(text: impl Display) {
    let mut waiting = MESSAGES.lock();
    if !waiting.apart {
        drop(waiting);
        return holdall_commands::say(text);
    }
    if waiting.left_out > 0 || waiting.texts.len() >= MOST {
        waiting.left_out += 1;
        return;
    }
    waiting.texts.push_back(text.to_string());
    if !waiting.begun && start().is_err() {
        return; // There is no room for another thread: the next one who says something tries again.
    }
    waiting.begun = true;
    MESSAGES.changed.notify_all();
    if !waiting.unread {
        MESSAGES.wait(waiting, MOMENT);
    }
}

/// Waits until everything is written that was said, but not for long.
pub(crate) fn finish() {
    let waiting = MESSAGES.lock();
    if waiting.begun {
        MESSAGES.wait(waiting, END);
    }
}

impl Messages {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, waiting: MutexGuard<'_, Waiting>, long: Duration) {
        let waited = self.changed.wait_timeout_while(waiting, long, |waiting| !waiting.is_done());
        let (mut waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.unread = timeout.timed_out();
    }

    fn write(&self) {
        let mut waiting = self.lock();
        loop {
            let Some(text) = waiting.next() else {
                waiting.unread = false;
                self.changed.notify_all();
                let woken = self.changed.wait_while(waiting, |waiting| waiting.is_done());
                waiting = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.writing = true;
            drop(waiting);
            holdall_commands::say(text);
            waiting = self.lock();
            waiting.writing = false;
        }
    }
}

/// Starts the thread. No signal is for it.
fn start() -> std::io::Result<()> {
    let before = SigSet::thread_get_mask()?;
    SigSet::all().thread_block()?;
    let started = std::thread::Builder::new().name("messages".into()).spawn(|| MESSAGES.write());
    before.thread_set_mask()?;
    started.map(drop)
}
