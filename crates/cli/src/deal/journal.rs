//! What a worker has done with its items: a file of its own, a line for each event.
//!
//! A line is written before what it says is acted on, so a worker that is killed and started again
//! knows what it has, what it began, and what it ended. Nobody else writes the file; a line cut
//! short by a full disk is ignored, because nothing was done about it yet.
//!
//! That nobody else writes it is looked at with every line: if the file is longer than what this
//! process wrote, there is another under the same number, and nothing more may be started.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::items::Extent;
use super::outcome::alarm;
use super::ranges::Ranges;

/// How a line ends that was not cut short.
pub(super) const WHOLE: &str = " .";

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A process works under the number from here on.
    Begin,
    /// So many items are known of.
    Items(Extent),
    /// These items are this worker's.
    Take(Range<u64>),
    /// These were, and go to another.
    Give(Range<u64>, usize),
    /// These were another's, who gave them or left them.
    Receive(Range<u64>, usize),
    /// The command is about to be started for an item.
    Start(u64),
    /// It could not be started.
    Back(u64),
    /// It ended, with this status.
    End(u64, i32),
    /// This worker has nothing to do and would take what others give.
    Idle,
    /// Nobody will work under this number again: what it leaves goes to these in turn.
    Retired(Vec<usize>),
}

impl Line {
    /// A line of a file; `None` if it was cut short.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix(WHOLE)?.split(' ');
        let what = words.next()?;
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let worker = |number: &u64| usize::try_from(*number).ok();
        Some(match (what, &numbers[..]) {
            ("begin", []) => Self::Begin,
            ("items", [count, fingerprint]) => {
                Self::Items(Extent { count: *count, fingerprint: *fingerprint })
            }
            ("take", [start, end]) => Self::Take(*start..*end),
            ("give", [start, end, to]) => Self::Give(*start..*end, worker(to)?),
            ("receive", [start, end, from]) => Self::Receive(*start..*end, worker(from)?),
            ("start", [item]) => Self::Start(*item),
            ("back", [item]) => Self::Back(*item),
            ("end", [item, status]) => Self::End(*item, i32::try_from(*status).ok()?),
            ("idle", []) => Self::Idle,
            ("retired", [_, ..]) => {
                Self::Retired(numbers.iter().map(worker).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => write!(f, "begin")?,
            Self::Items(all) => write!(f, "items {} {}", all.count, all.fingerprint)?,
            Self::Take(items) => write!(f, "take {} {}", items.start, items.end)?,
            Self::Give(items, to) => write!(f, "give {} {} {to}", items.start, items.end)?,
            Self::Receive(items, from) => {
                write!(f, "receive {} {} {from}", items.start, items.end)?;
            }
            Self::Start(item) => write!(f, "start {item}")?,
            Self::Back(item) => write!(f, "back {item}")?,
            Self::End(item, status) => write!(f, "end {item} {status}")?,
            Self::Idle => write!(f, "idle")?,
            Self::Retired(heirs) => {
                write!(f, "retired")?;
                heirs.iter().try_for_each(|heir| write!(f, " {heir}"))?;
            }
        }
        write!(f, "{WHOLE}")
    }
}

/// What the lines say together.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The items it deals.
    pub(super) items: Option<Extent>,
    /// All that was ever its own from the beginning, that is not from another worker.
    pub(super) taken: Ranges,
    /// Its items that were never started.
    pub(super) waiting: Ranges,
    /// Items started by the process that works, or last worked, under the number.
    pub(super) running: BTreeSet<u64>,
    /// Items started by an earlier process and not recorded as finished: they may or may not have
    /// been done.
    pub(super) interrupted: BTreeSet<u64>,
    /// Items done, with the exit status.
    pub(super) ended: BTreeMap<u64, i32>,
    /// What it gave away, by taker, and what it got, by giver.
    pub(super) given: BTreeMap<usize, Ranges>,
    pub(super) received: BTreeMap<usize, Ranges>,
    /// It would take what others give.
    pub(super) idle: bool,
    /// Nobody works under this number any more: those who get its items, in turn.
    pub(super) heirs: Vec<usize>,
    /// Those who get them if none of the heirs is left.
    pub(super) further_heirs: Vec<usize>,
}

impl Known {
    pub(super) fn retired(&self) -> bool {
        !self.heirs.is_empty()
    }

    /// Items started and not recorded as finished, if no process works under the number.
    pub(super) fn undecided(&self) -> impl Iterator<Item = u64> {
        self.interrupted.union(&self.running).copied()
    }

    pub(super) fn failed(&self) -> impl Iterator<Item = u64> {
        self.ended.iter().filter(|(_, status)| **status != 0).map(|(item, _)| *item)
    }

    /// Whether it may give an item away: one that it had from the beginning. So an item does not
    /// wander, and comes back to nobody who gave it.
    pub(super) fn may_give(&self, item: u64) -> bool {
        self.taken.contains(item)
            && !self.given.values().any(|given| given.contains(item))
            && !self.received.values().any(|received| received.contains(item))
    }

    pub(super) fn apply(&mut self, line: &Line) {
        self.idle = *line == Line::Idle;
        match line {
            Line::Begin => self.interrupted.append(&mut self.running),
            Line::Items(extent) => self.items = Some(*extent),
            Line::Take(items) => {
                self.taken.insert(items);
                self.waiting.insert(items);
            }
            Line::Give(items, to) => {
                self.waiting.remove(items);
                for item in items.clone() {
                    self.running.remove(&item);
                    self.interrupted.remove(&item);
                    self.ended.remove(&item);
                }
                self.given.entry(*to).or_default().insert(items);
            }
            Line::Receive(items, from) => {
                self.waiting.insert(items);
                self.received.entry(*from).or_default().insert(items);
            }
            Line::Start(item) => {
                self.waiting.remove(&(*item..item + 1));
                self.interrupted.remove(item);
                self.ended.remove(item);
                self.running.insert(*item);
            }
            Line::Back(item) => {
                self.running.remove(item);
                self.waiting.insert(&(*item..item + 1));
            }
            Line::End(item, status) => {
                self.running.remove(item);
                self.ended.insert(*item, *status);
            }
            Line::Idle => {}
            Line::Retired(heirs) if self.heirs.is_empty() => self.heirs.clone_from(heirs),
            Line::Retired(heirs) => self.further_heirs.extend(heirs),
        }
    }
}

/// A worker's journal, to write.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// How long it is, if nobody else writes it.
    len: u64,
    sync: bool,
    pub(super) known: Known,
}

impl Journal {
    pub(super) fn open(store: &Path, worker: usize, sync: bool) -> anyhow::Result<Self> {
        let path = path(store, worker);
        let cannot = || format!("cannot write {}", path.display());
        let mut file =
            OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
        let text = fs::read(&path).with_context(cannot)?;
        let mut len = text.len() as u64;
        if !text.is_empty() && !text.ends_with(b"\n") {
            file.write_all(b"\n").with_context(cannot)?;
            len += 1;
        }
        if sync {
            // The file may be new: its name must last as well.
            File::open(store).and_then(|dir| dir.sync_all()).with_context(cannot)?;
        }
        let mut known = Known::default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(Line::parse).for_each(|line| known.apply(&line));
        Ok(Self { path, file, len, sync, known })
    }

    pub(super) fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let text = format!("{line}\n");
        let cannot = || format!("cannot write {}", self.path.display());
        self.file.write_all(text.as_bytes()).with_context(cannot)?;
        if self.sync {
            self.file.sync_data().with_context(cannot)?;
        }
        self.len += text.len() as u64;
        if self.file.metadata().with_context(cannot)?.len() != self.len {
            return Err(alarm(&format!(
                "{} is written by another process: two work under one number",
                self.path.display()
            )));
        }
        self.known.apply(line);
        Ok(())
    }
}

/// What a worker's journal says; nothing if there is none.
pub(super) fn read(store: &Path, worker: usize) -> anyhow::Result<Known> {
    let path = path(store, worker);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut known = Known::default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(Line::parse).for_each(|line| known.apply(&line));
    Ok(known)
}

const PREFIX: &str = "journal-";

pub(super) fn path(store: &Path, worker: usize) -> PathBuf {
    store.join(format!("{PREFIX}{worker}"))
}

/// Whose journal a file of this name is.
pub(super) fn owner(name: &str) -> Option<usize> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(store: &Path) -> Journal {
        Journal::open(store, 3, false).expect("a journal")
    }

    fn write(journal: &mut Journal, lines: &[&str]) {
        for line in lines {
            let parsed = Line::parse(&format!("{line}{WHOLE}")).expect("a line");
            assert_eq!(parsed.to_string(), format!("{line}{WHOLE}"));
            journal.write(&parsed).expect("written");
        }
    }

    #[test]
    fn goes_on_after_a_line_cut_short() {
        let store = tempfile::tempdir().expect("a directory");
        let mut journal = new(store.path());
        write(&mut journal, &["begin", "items 9 7", "take 4 8", "start 4", "start 5", "end 4 7"]);
        journal.file.write_all(b"end 5 0").expect("written");
        drop(journal);
        let mut journal = new(store.path());
        assert_eq!(journal.known.waiting.iter().collect::<Vec<_>>(), vec![6..8; 1]);
        assert_eq!(journal.known.undecided().collect::<Vec<_>>(), [5]);
        assert_eq!(journal.known.failed().collect::<Vec<_>>(), [4]);
        write(&mut journal, &["begin", "start 6", "back 6", "start 7", "retired 1 2", "retired 4"]);
        let known = read(store.path(), 3).expect("there");
        assert_eq!(known.interrupted, BTreeSet::from([5]));
        assert_eq!(known.running, BTreeSet::from([7]));
        assert_eq!(known.waiting.iter().collect::<Vec<_>>(), vec![6..7; 1]);
        assert_eq!((known.heirs, known.further_heirs), (vec![1, 2], vec![4]));
    }

    #[test]
    fn items_change_hands() {
        let store = tempfile::tempdir().expect("a directory");
        let mut journal = new(store.path());
        write(&mut journal, &["take 0 4", "receive 8 9 1", "start 0", "end 0 1", "give 2 4 5"]);
        let known = &journal.known;
        let may: Vec<_> = (0..9).filter(|item| known.may_give(*item)).collect();
        assert_eq!(may, [0, 1], "neither what was given nor what was received");
        assert_eq!(known.waiting.iter().collect::<Vec<_>>(), [1..2, 8..9]);
        write(&mut journal, &["give 0 1 5", "idle"]);
        assert!(journal.known.ended.is_empty() && journal.known.idle, "who has it will say");
        write(&mut journal, &["receive 0 1 5"]);
        assert!(!journal.known.idle && !journal.known.may_give(0));
    }

    #[test]
    fn two_writers_are_found_out_before_anything_is_started() {
        let store = tempfile::tempdir().expect("a directory");
        let (mut one, mut other) = (new(store.path()), new(store.path()));
        one.write(&Line::Start(1)).expect("nobody else has written");
        assert!(other.write(&Line::Start(1)).is_err());
        assert!(one.write(&Line::Start(2)).is_err());
    }
}
