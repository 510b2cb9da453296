//! The thread that writes the history down, and keeps the queue up with what happens.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdall_history::forecast::Live;
use holdall_history::{
    Expect, Keeper, Line, Mark, Told, What as Noted, files, is_of_later_version,
};
use holdall_wire::event::What;
use tracing::{error, warn};

use super::estimates::Followed;
use super::{Before, Happened};
use crate::handoff::{Batch, Taker};

/// How long it is collected what has happened.
const COLLECT: Duration = Duration::from_millis(20);
/// Of former times so many bytes are read, or one file.
const READ_BACK: u64 = 16 << 20;
/// An estimate that was made so many milliseconds before or after the lines beside it was made by another clock. With a long
/// queue it takes minutes.
const APART: u64 = 10 * 60_000;

pub(super) struct Writer {
    pub(super) keeper: Keeper,
    pub(super) dir: PathBuf,
    /// What tells the log from others.
    pub(super) log: String,
    /// The record up to which everything is written.
    pub(super) upto: u64,
    pub(super) queue: Followed,
    /// Set if nobody knows how it stands.
    pub(super) lost_track: Arc<AtomicBool>,
    /// The time of the last line.
    pub(super) last: u64,
    /// How many lines could not be written.
    pub(super) lost: u64,
}

impl Writer {
    pub(super) fn run(mut self, taker: &Taker<Happened>, before: Before) {
        self.make_up(&before);
        self.queue.begin_with(&before.standing);
        let now = before.now;
        drop(before);
        self.read_back();
        self.queue.change(|live| live.has_remembered(now));
        while let Some(batch) = taker.next(COLLECT) {
            self.take(&batch);
            taker.give_back(batch.items);
        }
    }

    /// Writes what the log has and the history does not.
    fn make_up(&mut self, before: &Before) {
        // The pools as they are after that: it may begin a file, which tells of them.
        let standing = before.standing.iter();
        let lines = standing.filter_map(|(at, what)| Line::of_event(*at, what));
        lines.for_each(|line| self.keeper.notice(&line));
        self.last = before.events.first().map_or(before.now, |(at, _)| *at);
        let mut lines = Vec::new();
        if let Some(gap) = before.gap {
            lines.push(Line { at: self.last, what: Noted::Gap { lines: gap } }.into());
        }
        lines.extend(before.events.iter().filter_map(|(at, what)| Told::of_event(*at, what)));
        self.write(lines);
    }

    fn take(&mut self, Batch { items, left_out }: &Batch<Happened>) {
        let left_out = *left_out;
        self.lost += left_out as u64;
        self.upto = items.iter().filter_map(Happened::record).fold(self.upto, u64::max);
        let mut lines: Vec<Told<'_>> = items.iter().filter_map(Happened::told).collect();
        let told = self.queue.told();
        if !told.is_empty() {
            let next = lines.first().map(Told::at);
            let told = told.into_iter().filter_map(|told| expected(self.last, told, next));
            lines.splice(..0, told.map(Told::from).collect::<Vec<_>>());
        }
        self.write(lines);
        if left_out > 0 {
            // Whatever else there is, something between is missing; the clock is always told.
            self.lost_track.store(true, Ordering::Relaxed);
            self.queue.change(|live| {
                live.lose_track();
                items.iter().filter(|item| item.is_clock()).for_each(|item| item.follow(live));
            });
        } else if items.iter().any(Happened::is_followed) {
            self.queue.change(|live| items.iter().for_each(|item| item.follow(live)));
        }
    }

    /// Writes lines, and how far they go.
    fn write(&mut self, mut lines: Vec<Told<'_>>) {
        let mark = Mark { upto: self.upto, of: self.log.clone() };
        if lines.is_empty() && self.lost == 0 && self.keeper.mark() == Some(&mark) {
            return;
        }
        let count = lines.len() as u64;
        if self.lost > 0 {
            let at = lines.first().map_or(self.last, Told::at);
            lines.insert(0, Line { at, what: Noted::Gap { lines: self.lost } }.into());
        }
        self.last = lines.last().map_or(self.last, Told::at);
        match self.keeper.write(lines, Some(mark), self.last) {
            Ok(()) => self.lost = 0,
            Err(error) => {
                if self.lost == 0 {
                    error!("the history is incomplete: {error}");
                }
                self.lost += count;
            }
        }
        self.keeper.troubles().iter().for_each(|trouble| warn!("{trouble}"));
    }

    /// Takes in how long uses have taken before, and what came when, from the last files.
    fn read_back(&mut self) {
        let mut all = match files(&self.dir) {
            Ok(files) => files,
            Err(error) => return warn!("former uses are not known: {error}"),
        };
        let mut bytes = 0;
        let mut recent = Vec::new();
        // What is of a later version may mean something else.
        all.retain(|(_, path)| !is_of_later_version(path).unwrap_or(true));
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

/// The line for an estimate that was made some time ago, after lines up to `last`. Lines are in the order of time, so it may
/// have to be told as of later. None if it was made by another clock.
fn expected(last: u64, (made, expect): (u64, Expect), next: Option<u64>) -> Option<Line> {
    let at = made.max(last);
    let at = next.map_or(at, |next| at.min(next.max(last)));
    if at.abs_diff(made) > APART {
        return None;
    }
    let since = at.saturating_sub(made);
    let from_then = |(from, to): (u64, u64)| (from.saturating_sub(since), to.saturating_sub(since));
    let (half, nine) = (from_then(expect.half), from_then(expect.nine));
    Some(Line { at, what: Noted::Expect(Expect { half, nine, ..expect }) })
}

impl Happened {
    /// The record of the log that it goes up to.
    fn record(&self) -> Option<u64> {
        match self {
            Self::Event(record, ..) | Self::Nothing(record) => Some(*record),
            Self::Line(_) | Self::Standing(..) => None,
        }
    }

    /// Whether it matters for who waits and holds.
    fn is_followed(&self) -> bool {
        matches!(self, Self::Event(..) | Self::Standing(..))
    }

    /// Whether the clock was set.
    fn is_clock(&self) -> bool {
        matches!(self, Self::Event(_, _, What::ClockSet { .. }))
    }

    fn follow(&self, live: &mut Live) {
        match self {
            Self::Event(_, at, what) => live.happens(*at, what),
            Self::Standing(now, standing) => live.find_again(*now, standing),
            Self::Line(_) | Self::Nothing(_) => {}
        }
    }

    fn told(&self) -> Option<Told<'_>> {
        match self {
            Self::Event(_, at, what) => Told::of_event(*at, what),
            Self::Line(line) => Some(line.clone().into()),
            Self::Nothing(_) | Self::Standing(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use holdall_wire::{Kind, RequestNo};

    use super::super::estimates::Estimates;
    use super::*;
    use crate::handoff::Item;

    fn clock_set() -> Happened {
        Happened::Event(1, 5, What::ClockSet { by: 3 })
    }

    #[test]
    fn an_estimate_is_noted_in_the_order_of_time_unless_it_is_of_another_clock() {
        const MINUTE: u64 = 60_000;
        let noted = |made, last, next: Option<u64>| {
            let span = (5 * MINUTE, 9 * MINUTE);
            let expect = Expect { r: RequestNo(1), half: span, nine: span, user: None };
            let line = expected(last, (made, expect), next)?;
            match line.what {
                Noted::Expect(expect) => Some((line.at / MINUTE, expect.half.0 / MINUTE)),
                other => panic!("{other:?}"),
            }
        };
        let at = |minutes| minutes * MINUTE;
        assert_eq!(noted(at(100), at(90), Some(at(300))), Some((100, 5)));
        assert_eq!(noted(at(100), at(102), Some(at(300))), Some((102, 3)), "told as of later");
        assert_eq!(noted(at(100), at(90), Some(at(99))), Some((99, 5)));
        assert_eq!(noted(at(100), at(160), None), None, "the clock was set forward");
        assert_eq!(noted(at(100), at(20), Some(at(40))), None, "the clock was set back");
    }

    fn writer(dir: &Path, estimates: &Estimates) -> Writer {
        Writer {
            keeper: Keeper::open(dir, Default::default(), 1).expect("writable"),
            dir: dir.into(),
            log: String::new(),
            upto: 0,
            queue: estimates.queue(),
            lost_track: Arc::default(),
            last: 0,
            lost: 0,
        }
    }

    #[test]
    fn a_file_that_is_begun_by_what_is_made_up_for_tells_of_the_pools() {
        let dir = tempfile::tempdir().expect("a directory");
        let estimates = Estimates::start(Live::default(), Default::default()).expect("a thread");
        let pool = What::Pool {
            name: "gpu".parse().expect("a name"),
            kind: Some(Kind::Numbered(4)),
            configured: false,
        };
        let before = Before {
            events: vec![(5, What::ClockSet { by: 3 })],
            standing: vec![(5, pool)],
            now: 5,
            ..Before::default()
        };
        writer(dir.path(), &estimates).make_up(&before);
        let history = holdall_history::read(dir.path()).expect("a history");
        let known = history.pools().iter().map(|(name, pool)| (name.as_str(), pool.capacity()));
        assert_eq!(known.collect::<Vec<_>>(), [("gpu", 4)]);
    }

    #[test]
    fn the_clock_is_followed_whatever_is_left_out() {
        assert!(clock_set().must_stay());
        let dir = tempfile::tempdir().expect("a directory");
        let estimates = Estimates::start(Live::default(), Default::default()).expect("a thread");
        let mut writer = writer(dir.path(), &estimates);
        for left_out in [3, 0] {
            writer.take(&Batch { items: vec![clock_set()], left_out });
        }
        let mut clock_sets = 0;
        writer.queue.change(|live| clock_sets = live.clock_sets());
        assert_eq!(clock_sets, 2);
    }
}
