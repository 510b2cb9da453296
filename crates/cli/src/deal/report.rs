//! What a worker tells while it works: a live line on a terminal, or JSON events.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::print;

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
    bar: ProgressBar,
}

impl Reporter {
    pub(super) fn new(worker: usize, json: bool) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { worker, json, bar }
    }

    pub(super) fn event(&self, event: Event) -> anyhow::Result<()> {
        if !self.json {
            return Ok(());
        }
        print(&serde_json::to_string(&Line { schema: 1, worker: self.worker, event })?)
    }

    /// The live line.
    pub(super) fn show(&self, text: String) {
        self.bar.set_message(text);
    }

    /// A line that stays, for a person.
    pub(super) fn say(&self, text: &str) {
        if !self.json {
            self.bar.suspend(|| eprintln!("holdall: {text}"));
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
