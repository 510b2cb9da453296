//! What a worker has done with its items: a file of its own, a line for each event.
//!
//! A line is written before what it says is acted on, so a worker that is killed and started again
//! knows what it has, what it began, and what it ended. Nobody else writes the file; a line cut
//! short by a full disk is ignored, because nothing was done about it yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// How a line ends that was not cut short.
const WHOLE: &str = " .";

/// What the lines say.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Items that are this worker's.
    pub(super) taken: BTreeSet<u64>,
    /// Items for which the command was, or was about to be, started.
    pub(super) started: BTreeSet<u64>,
    /// Items done, with the exit status.
    pub(super) ended: BTreeMap<u64, i32>,
    /// Nobody works under this number any more: those who get its items, in turn.
    pub(super) heirs: Vec<usize>,
    /// Those who get the items that may be done.
    pub(super) retriers: Vec<usize>,
}

impl Known {
    pub(super) fn retired(&self) -> bool {
        !self.heirs.is_empty()
    }

    /// Items of its own that were never started.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.taken.difference(&self.started).copied()
    }

    /// Items started and not recorded as finished: they may or may not have been done.
    pub(super) fn undecided(&self) -> impl Iterator<Item = u64> {
        self.started.iter().copied().filter(|item| !self.ended.contains_key(item))
    }

    /// The same, those left out that were handed on to be run again.
    pub(super) fn skipped(&self) -> impl Iterator<Item = u64> {
        self.undecided().filter(|_| self.retriers.is_empty())
    }

    /// What it leaves to others, and to whom.
    pub(super) fn estate(&self) -> impl Iterator<Item = (u64, usize)> {
        // By the item alone: who gets it does not depend on what else there is.
        let to = |heirs: &[usize], item: u64| (item, heirs[item as usize % heirs.len()]);
        let waiting = self.waiting().filter(|_| self.retired());
        let again = self.undecided().filter(|_| !self.retriers.is_empty());
        waiting
            .map(move |item| to(&self.heirs, item))
            .chain(again.map(move |item| to(&self.retriers, item)))
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (what, numbers) = line.strip_suffix(WHOLE)?.split_once(' ')?;
        let numbers = numbers.split(' ').map(|number| number.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let workers = || numbers.iter().map(|number| *number as usize).collect();
        match (what, &numbers[..]) {
            ("take", [start, end]) => self.taken.extend(*start..*end),
            ("start", [item]) => {
                self.started.insert(*item);
            }
            ("end", [item, status]) => {
                self.ended.insert(*item, i32::try_from(*status).ok()?);
            }
            ("retired", _) => self.heirs = workers(),
            ("retry", _) => self.retriers = workers(),
            _ => return None,
        }
        Some(())
    }
}

/// A worker's journal.
pub(super) struct Journal {
    file: File,
    sync: bool,
    pub(super) known: Known,
}

impl Journal {
    pub(super) fn open(store: &Path, worker: usize, sync: bool) -> anyhow::Result<Self> {
        let known = read(store, worker)?;
        let path = path(store, worker);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
        if !fs::read(&path).unwrap_or_default().ends_with(b"\n") && file.metadata()?.len() > 0 {
            file.write_all(b"\n")?;
        }
        Ok(Self { file, sync, known })
    }

    fn write(&mut self, line: &str) -> anyhow::Result<()> {
        let line = format!("{line}{WHOLE}");
        self.file.write_all(format!("{line}\n").as_bytes()).context("cannot write the journal")?;
        if self.sync {
            self.file.sync_data().context("cannot sync the journal")?;
        }
        self.known.line(&line).context("a line of our own")
    }

    /// These items are this worker's.
    pub(super) fn take(&mut self, items: &Range<u64>) -> anyhow::Result<()> {
        self.write(&format!("take {} {}", items.start, items.end))
    }

    /// The command is about to be started for an item.
    pub(super) fn start(&mut self, item: u64) -> anyhow::Result<()> {
        self.write(&format!("start {item}"))
    }

    /// The command has ended.
    pub(super) fn end(&mut self, item: u64, status: i32) -> anyhow::Result<()> {
        self.write(&format!("end {item} {status}"))
    }

    /// Nobody will work under this number again: its items go to these in turn. One line, so that
    /// it is all said or nothing.
    pub(super) fn retire(&mut self, heirs: &[usize]) -> anyhow::Result<()> {
        self.write(&format!("retired {}", list(heirs)))
    }

    /// The items of a retired worker that may be done go to these in turn.
    pub(super) fn retry(&mut self, heirs: &[usize]) -> anyhow::Result<()> {
        self.write(&format!("retry {}", list(heirs)))
    }
}

fn list(workers: &[usize]) -> String {
    workers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// What a worker's journal says; nothing if there is none.
pub(super) fn read(store: &Path, worker: usize) -> anyhow::Result<Known> {
    let path = path(store, worker);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut known = Known::default();
    for line in text.lines() {
        let _ = known.line(line);
    }
    Ok(known)
}

/// Counts the items done by all workers, reading each time only what is new.
pub(super) struct Tally {
    files: Vec<(PathBuf, u64)>,
    done: u64,
}

impl Tally {
    pub(super) fn new(store: &Path, workers: usize) -> Self {
        Self { files: (0..workers).map(|worker| (path(store, worker), 0)).collect(), done: 0 }
    }

    /// How many are done by now, as far as can be read.
    pub(super) fn done(&mut self) -> u64 {
        for (path, read) in &mut self.files {
            let mut new = Vec::new();
            let text = File::open(path).and_then(|mut file| {
                file.seek(SeekFrom::Start(*read))?;
                file.read_to_end(&mut new)
            });
            if text.is_err() {
                continue;
            }
            // A line that is being written is read next time.
            let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *read += whole as u64;
            let lines = String::from_utf8_lossy(&new[..whole]);
            let ends = lines.lines().filter(|l| l.starts_with("end ") && l.ends_with(WHOLE));
            self.done += ends.count() as u64;
        }
        self.done
    }
}

fn path(store: &Path, worker: usize) -> PathBuf {
    store.join(format!("journal-{worker}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_after_a_line_cut_short() {
        let store = tempfile::tempdir().expect("a directory");
        let mut journal = Journal::open(store.path(), 3, false).expect("a new one");
        journal.take(&(4..8)).expect("written");
        journal.start(4).expect("written");
        journal.start(5).expect("written");
        journal.end(4, 7).expect("written");
        journal.file.write_all(b"end 5 0").expect("written");
        drop(journal);
        let mut journal = Journal::open(store.path(), 3, false).expect("there");
        assert_eq!(journal.known.waiting().collect::<Vec<_>>(), [6, 7]);
        assert_eq!(journal.known.undecided().collect::<Vec<_>>(), [5]);
        journal.retire(&[1, 2]).expect("written");
        let known = read(store.path(), 3).expect("there");
        assert_eq!(known.ended, BTreeMap::from([(4, 7)]));
        assert_eq!(known.estate().collect::<Vec<_>>(), [(6, 1), (7, 2)]);
        assert_eq!(known.skipped().collect::<Vec<_>>(), [5]);
        journal.retry(&[2]).expect("written");
        let known = read(store.path(), 3).expect("there");
        assert_eq!(known.estate().collect::<Vec<_>>(), [(6, 1), (7, 2), (5, 2)]);
        assert_eq!(known.skipped().count(), 0);
    }

    #[test]
    fn counts_what_is_new() {
        let store = tempfile::tempdir().expect("a directory");
        let mut tally = Tally::new(store.path(), 2);
        assert_eq!(tally.done(), 0);
        let mut journal = Journal::open(store.path(), 1, false).expect("a new one");
        for item in 0..3 {
            journal.start(item).expect("written");
            journal.end(item, 0).expect("written");
            assert_eq!(tally.done(), item + 1);
        }
        journal.file.write_all(b"end 3 0").expect("written");
        assert_eq!(tally.done(), 3, "a line is counted when it is whole");
        journal.file.write_all(b" .\n").expect("written");
        assert_eq!((tally.done(), tally.done()), (4, 4));
    }
}
