//! What a worker tells while it works: events for programs, or lines for a person.

use std::cell::Cell;
use std::io::{self, Write};

use serde::Serialize;

use super::live::{Live, Now};
use super::store::Store;
use crate::usage;

/// An event, as `--json` prints it.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// These items are this worker's.
    Taken { start: u64, end: u64 },
    /// The command is started.
    Started { item: u64 },
    /// The command has ended.
    Finished { item: u64, status: i32 },
    /// These items went to a worker that had nothing to do.
    Given { start: u64, end: u64, to: usize },
    /// This worker has nothing to do, and waits for others to give it something.
    Idle {},
    /// Started before this worker was killed, perhaps done: not run again.
    Skipped { item: u64 },
    /// Items that may be this worker's are held up by another.
    Delayed { by: usize, start: u64, end: u64 },
    /// Nothing more to do.
    Done { run: u64, failed: u64, skipped: u64, left: u64 },
}

#[derive(Serialize)]
struct Line {
    schema: u32,
    worker: usize,
    #[serde(flatten)]
    event: Event,
}

pub(super) struct Reporter {
    worker: usize,
    json: bool,
    /// Whether nobody reads the events any more: the items are run all the same.
    unread: Cell<bool>,
    live: Live,
}

impl Reporter {
    pub(super) fn new(worker: usize, json: bool, store: &Store) -> Self {
        Self { worker, json, unread: Cell::new(false), live: Live::new(store) }
    }

    pub(super) fn event(&self, event: Event) -> anyhow::Result<()> {
        if !self.json || self.unread.get() {
            return Ok(());
        }
        let line = serde_json::to_string(&Line { schema: 1, worker: self.worker, event })?;
        match writeln!(io::stdout().lock(), "{line}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unread.set(true);
                self.live.say("nobody reads the events any more; the items are run all the same");
                Ok(())
            }
            Err(error) => Err(usage(format!("cannot write the events: {error}"))),
            Ok(()) => Ok(()),
        }
    }

    /// For the live line.
    pub(super) fn show(&self, now: Now) {
        self.live.show(now);
    }

    /// A line that stays, for a person.
    pub(super) fn say(&self, text: &str) {
        if !self.json {
            self.live.say(text);
        }
    }
}
