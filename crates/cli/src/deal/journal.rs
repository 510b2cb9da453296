//! What a worker has done with its items: a file of its own, a line for each event.
//!
//! A line is written before what it says is acted on, so a worker that is killed and started again
//! knows what it has, what it began, and what it ended. Nobody else writes the file; a line cut
//! short by a full disk is ignored, because nothing was done about it yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
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
    /// Items handed to other workers, and to whom.
    pub(super) willed: BTreeMap<u64, usize>,
    /// Nobody works under this number any more.
    pub(super) retired: bool,
}

impl Known {
    /// Items of its own that were never started.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.taken.difference(&self.started).copied().filter(|item| !self.willed.contains_key(item))
    }

    /// Items started and not recorded as finished: they may or may not have been done.
    pub(super) fn undecided(&self) -> impl Iterator<Item = u64> {
        let ended = |item: &u64| !self.ended.contains_key(item) && !self.willed.contains_key(item);
        self.started.iter().copied().filter(ended)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.strip_suffix(WHOLE)?.split(' ');
        let what = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        match what {
            "take" => {
                let (start, end) = (number()?, number()?);
                self.taken.extend(start..end);
            }
            "start" => {
                self.started.insert(number()?);
            }
            "end" => {
                let item = number()?;
                self.ended.insert(item, i32::try_from(number()?).ok()?);
            }
            "will" => {
                let item = number()?;
                self.willed.insert(item, usize::try_from(number()?).ok()?);
            }
            "retired" => self.retired = true,
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

    /// An item now belongs to another worker.
    pub(super) fn will(&mut self, item: u64, heir: usize) -> anyhow::Result<()> {
        self.write(&format!("will {item} {heir}"))
    }

    /// Nobody will work under this number again.
    pub(super) fn retire(&mut self) -> anyhow::Result<()> {
        self.write("retired")
    }
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
        journal.will(6, 1).expect("written");
        let known = read(store.path(), 3).expect("there");
        assert_eq!(known.waiting().collect::<Vec<_>>(), [7]);
        assert_eq!(known.ended, BTreeMap::from([(4, 7)]));
    }
}
