//! The thread that writes the history down, and keeps the queue up with what happens.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdall_history::forecast::Live;
use holdall_history::{Expect, Keeper, Line, Mark, What as Noted, files};
use tracing::{error, warn};

use super::estimates::Followed;
use super::{Before, Happened};
use crate::handoff::{Batch, Taker};

/// How long it is collected what has happened.
const COLLECT: Duration = Duration::from_millis(100);
/// Of former times so many bytes are read, or one file.
const READ_BACK: u64 = 16 << 20;

pub(super) struct Writer {
    pub(super) keeper: Keeper,
    pub(super) dir: PathBuf,
    /// What tells the log from others.
    pub(super) log: String,
    /// Up to which record everything is handed over.
    pub(super) upto: Arc<AtomicU64>,
    pub(super) queue: Followed,
    /// The time of the last line.
    pub(super) last: u64,
    /// How many lines could not be written.
    pub(super) lost: u64,
}

impl Writer {
    pub(super) fn run(mut self, taker: &Taker<Happened>, before: Before) {
        self.make_up(&before);
        self.queue.begin_with(&before.standing);
        drop(before);
        self.read_back();
        self.queue.change(Live::has_remembered);
        loop {
            // Whatever it counts is in this batch, or was in one before.
            let upto = self.upto.load(Ordering::Acquire);
            let Some(batch) = taker.next(COLLECT) else { return };
            self.take(batch, upto);
        }
    }

    /// Writes what the log has and the history does not.
    fn make_up(&mut self, before: &Before) {
        self.last = before.events.first().map_or(before.now, |(at, _)| *at);
        let mut lines = Vec::new();
        if let Some(gap) = before.gap {
            lines.push(Line { at: self.last, what: Noted::Gap { lines: gap } });
        }
        lines.extend(before.events.iter().filter_map(|(at, what)| Line::of_event(*at, what)));
        self.write(lines, before.upto);
    }

    fn take(&mut self, Batch { items, left_out }: Batch<Happened>, upto: u64) {
        self.lost += left_out as u64;
        let told = self.queue.told();
        let mut lines: Vec<Line> = items.iter().filter_map(Happened::line).collect();
        // They were worked out before what has just happened, or at the same time.
        let at = lines.first().map_or(self.last, |line| line.at);
        lines.splice(..0, told.into_iter().map(|expect| expected(at, expect)));
        self.write(lines, upto);
        if items.is_empty() {
            return;
        }
        self.queue.change(|live| {
            for item in &items {
                if let Happened::Event(at, what) = item {
                    live.happens(*at, what);
                }
            }
        });
    }

    /// Writes lines, and how far they go.
    fn write(&mut self, mut lines: Vec<Line>, upto: u64) {
        let mark = Mark { upto, of: self.log.clone() };
        if lines.is_empty() && self.lost == 0 && self.keeper.mark() == Some(&mark) {
            return;
        }
        self.last = lines.last().map_or(self.last, |line| line.at);
        let count = lines.len() as u64;
        if self.lost > 0 {
            lines.insert(0, Line { at: self.last, what: Noted::Gap { lines: self.lost } });
        }
        match self.keeper.write(lines, Some(mark), self.last) {
            Ok(()) => self.lost = 0,
            Err(error) => {
                if self.lost == 0 {
                    error!("the history is incomplete: {error}");
                }
                self.lost += count;
            }
        }
    }

    /// Takes in how long uses have taken before, and what came when, from the last files.
    fn read_back(&mut self) {
        let mut all = match files(&self.dir) {
            Ok(files) => files,
            Err(error) => return warn!("former uses are not known: {error}"),
        };
        let mut bytes = 0;
        let mut recent = Vec::new();
        while let Some((_, path)) = all.pop() {
            bytes += path.metadata().map_or(0, |file| file.len());
            if bytes > READ_BACK && !recent.is_empty() {
                break;
            }
            recent.push(path);
        }
        for path in recent.into_iter().rev() {
            let Ok(file) = File::open(&path) else { continue };
            for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
                if let Ok(line) = serde_json::from_slice::<Line>(&line) {
                    self.queue.remember(line);
                }
            }
        }
    }
}

impl Happened {
    fn line(&self) -> Option<Line> {
        match self {
            Self::Event(at, what) => Line::of_event(*at, what),
            Self::Line(line) => Some(line.clone()),
        }
    }
}

fn expected(at: u64, expect: Expect) -> Line {
    Line { at, what: Noted::Expect(expect) }
}
