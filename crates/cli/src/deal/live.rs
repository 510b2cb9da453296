//! The live line on a terminal: how far all are, how far this worker is, who holds up what.

use std::io::IsTerminal;
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::journals::Journals;
use super::store::Store;

/// How often the journals of all workers are looked at.
const PAUSE: Duration = Duration::from_millis(500);

/// What this worker is doing.
#[derive(Clone, Debug, Default)]
pub(super) struct Now {
    pub(super) run: u64,
    pub(super) waiting: u64,
    /// The items whose commands run.
    pub(super) items: Vec<String>,
    /// Who holds up which items.
    pub(super) delays: Vec<(usize, Range<u64>)>,
}

impl Now {
    fn line(&self, done: u64, count: u64) -> String {
        let Self { run, waiting, .. } = self;
        let mut line = format!("{done} of {count} done, {run} by this worker, {waiting} waiting");
        if !self.items.is_empty() {
            line += &format!(", now {}", self.items.join(", "));
        }
        for (by, items) in &self.delays {
            line += &format!("; {} to {} delayed by worker {by}", items.start, items.end - 1);
        }
        line
    }
}

/// The line, and the thread that keeps it up to date: a command may run for hours.
pub(super) struct Live {
    bar: ProgressBar,
    now: Arc<Mutex<Now>>,
    /// Dropped, it ends the thread.
    goes_on: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    pub(super) fn new(store: &Store) -> Self {
        let bar = ProgressBar::new_spinner();
        let now = Arc::new(Mutex::new(Now::default()));
        let mut live = Self { bar, now, goes_on: None, thread: None };
        if std::io::stderr().is_terminal() {
            live.start(store);
        }
        live
    }

    fn start(&mut self, store: &Store) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(200));
        let (bar, now) = (self.bar.clone(), Arc::clone(&self.now));
        let Ok(mut journals) = Journals::read(&store.path) else { return };
        let (goes_on, ended) = mpsc::channel();
        self.goes_on = Some(goes_on);
        self.thread = Some(thread::spawn(move || {
            loop {
                // What cannot be read now may be next time.
                let _ = journals.refresh();
                bar.set_message(lock(&now).line(journals.done(), journals.count()));
                if ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        }));
    }

    /// Says what this worker is doing now.
    pub(super) fn show(&self, now: Now) {
        *lock(&self.now) = now;
    }

    /// Prints a line that stays.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| crate::say(text));
    }
}

fn lock(now: &Mutex<Now>) -> std::sync::MutexGuard<'_, Now> {
    now.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Live {
    fn drop(&mut self) {
        self.goes_on = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that matters.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line() {
        let items = vec!["x.png".into()];
        let mut now = Now { run: 3, waiting: 2, items, delays: Vec::new() };
        assert_eq!(now.line(7, 20), "7 of 20 done, 3 by this worker, 2 waiting, now x.png");
        now.items.clear();
        now.delays = vec![(1, 4..6)];
        assert_eq!(
            now.line(7, 20),
            "7 of 20 done, 3 by this worker, 2 waiting; 4 to 5 delayed by worker 1"
        );
    }
}
