//! What commands hold, on disk: so that an agent that starts while some of them live waits for
//! those, and for nothing else.
//!
//! One line for each grant, before its holder is told of it, and one for its end. They are written
//! and not synced: they survive the end of the agent, and with the machine end the commands. Lines
//! are collected, and written together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use holdall_holders::Record;
use holdall_wire::RequestNo;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::directory::Directory;
use crate::engine::Reservation;

const NAME: &str = "holders.jsonl";
/// How many lines of what is over are left standing.
const OVER_MAX: usize = 1 << 14;

/// A grant and who holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held<G = Reservation, H = Record> {
    pub(crate) grant: G,
    pub(crate) holder: H,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line<T> {
    Held(T),
    Over(RequestNo),
}

/// The file.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: Arc<Directory>,
    file: File,
    /// Whether it says what is held; otherwise it must be written anew.
    whole: bool,
    held: FxHashMap<RequestNo, Box<[u8]>>,
    over: usize,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    /// Whose are among them, or could not be written.
    noted: FxHashSet<RequestNo>,
    /// How long the file is.
    length: u64,
}

impl Journal {
    /// What a former agent has left.
    ///
    /// # Errors
    /// If it cannot be read, or understood.
    pub(crate) fn read(dir: &Directory) -> anyhow::Result<Vec<Held>> {
        let text = dir.read(NAME)?.unwrap_or_default();
        let mut held = BTreeMap::new();
        for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            match serde_json::from_slice(line) {
                Ok(Line::Held(one)) => drop(held.insert(request(&one), one)),
                Ok(Line::Over(request)) => drop(held.remove(&request)),
                // Torn: nobody was told of that grant.
                Err(_) if !line.ends_with(b"\n") => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "line {} of {} cannot be understood; make sure that the command it \
                             is about does not run any more, and delete it",
                            at + 1,
                            dir.path_of(NAME).display()
                        )
                    });
                }
            }
        }
        Ok(held.into_values().collect())
    }

    /// Begins it anew, with what is still held.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn begin(dir: &Arc<Directory>, held: &[Held]) -> anyhow::Result<Self> {
        let (mut lines, mut all) = (Vec::new(), FxHashMap::default());
        for one in held {
            let start = lines.len();
            write_line(&mut lines, one)?;
            all.insert(request(one), lines[start..].into());
        }
        let (file, length) = (dir.rewrite(NAME, &lines)?, lines.len() as u64);
        let (held, pending, noted) = (all, Vec::new(), FxHashSet::default());
        Ok(Self { dir: dir.clone(), file, whole: true, held, over: 0, pending, noted, length })
    }

    /// Notes who is about to use a grant, or was left behind with it.
    ///
    /// # Errors
    /// If it cannot be put into words.
    pub(crate) fn note<G: Serialize, H: Serialize>(
        &mut self,
        request: RequestNo,
        held: &Held<G, H>,
    ) -> anyhow::Result<()> {
        let start = self.pending.len();
        write_line(&mut self.pending, held).inspect_err(|_| self.pending.truncate(start))?;
        self.noted.insert(request);
        self.held.insert(request, self.pending[start..].into());
        Ok(())
    }

    /// Notes that a grant is over.
    pub(crate) fn over(&mut self, request: RequestNo) {
        if self.held.remove(&request).is_none() {
            return;
        }
        self.noted.remove(&request);
        self.over += 1;
        // A number can always be put into words.
        if serde_json::to_writer(&mut self.pending, &Line::<()>::Over(request)).is_ok() {
            self.pending.push(b'\n');
        }
    }

    /// Writes what was noted, all of it or nothing.
    ///
    /// # Errors
    /// If the disk does not take it. Whoever was noted must not use its grant; that others are over
    /// a later agent finds out by itself.
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        let lines = std::mem::take(&mut self.pending);
        if lines.is_empty() && self.whole {
            return Ok(());
        }
        let written = if self.whole && self.over <= OVER_MAX {
            self.append(&lines).map_err(Into::into)
        } else {
            self.write_anew()
        };
        self.whole = written.is_ok();
        if self.whole {
            self.noted.clear();
        }
        written.context("cannot note who holds it")
    }

    /// Whether there is nothing to be written, or nothing new since that failed.
    pub(crate) fn is_written(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether what was noted of a grant could not be written.
    pub(crate) fn lacks(&self, request: RequestNo) -> bool {
        self.noted.contains(&request)
    }

    /// From now on nothing can be added; written anew it is well again.
    #[cfg(test)]
    pub(crate) fn break_once(&mut self) {
        let (_, writes) = std::io::pipe().expect("a pipe");
        self.file = File::from(std::os::fd::OwnedFd::from(writes));
    }

    fn append(&mut self, lines: &[u8]) -> std::io::Result<()> {
        let written = self.file.write_all(lines);
        match &written {
            Ok(()) => self.length += lines.len() as u64,
            // Those whose lines are there may be refused. If it cannot be cut, it is written anew.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }

    fn write_anew(&mut self) -> anyhow::Result<()> {
        let mut held: Vec<_> = self.held.iter().collect();
        held.sort_unstable_by_key(|(request, _)| **request);
        let lines: Vec<u8> = held.into_iter().flat_map(|(_, line)| &**line).copied().collect();
        self.file = self.dir.rewrite(NAME, &lines)?;
        self.length = lines.len() as u64;
        self.over = 0;
        Ok(())
    }
}

fn request(held: &Held) -> RequestNo {
    held.grant.request
}

fn write_line<G: Serialize, H: Serialize>(
    lines: &mut Vec<u8>,
    held: &Held<G, H>,
) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *lines, &Line::Held(held))?;
    lines.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdall_wire::Who;

    use super::*;

    fn held(n: u64) -> Held {
        let who = Who { user: "u".repeat(100).into(), ..Who::default() };
        let (needs, taken) = (Vec::new(), Vec::new());
        let (request, since, until, part_of) = (RequestNo(n), 0, None, None);
        let grant = Reservation { request, who, needs, taken, since, until, part_of };
        Held { grant, holder: Record::default() }
    }

    fn numbers(dir: &Directory) -> Vec<u64> {
        Journal::read(dir).expect("readable").iter().map(|held| held.grant.request.0).collect()
    }

    #[test]
    fn what_is_over_is_gone_also_when_it_is_written_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut journal = Journal::begin(&dir, &[held(0)]).expect("writable");
        for n in 1..=OVER_MAX as u64 + 2 {
            journal.note(RequestNo(n), &held(n)).expect("words");
            journal.over(RequestNo(n));
            journal.write().expect("writable");
            if n == 3 {
                assert_eq!(numbers(&dir), [0]);
            }
        }
        journal.note(RequestNo(1 << 40), &held(1 << 40)).expect("words");
        assert_eq!(numbers(&dir), [0], "it is not written before all of it is");
        journal.write().expect("writable");
        assert_eq!(numbers(&dir), [0, 1 << 40]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_not_passed_over_unless_it_is_torn() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut journal = Journal::begin(&dir, &[held(1)]).expect("writable");
        journal.file.write_all(b"{\"held\":").expect("writable");
        assert_eq!(numbers(&dir), [1], "nobody was told of it");
        journal.file.write_all(b"\n").expect("writable");
        let told = Journal::read(&dir).expect_err("somebody may hold it").to_string();
        assert!(told.contains("line 2"), "{told}");
    }

    #[test]
    fn what_could_not_be_written_is_written_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut journal = Journal::begin(&dir, &[]).expect("writable");
        journal.note(RequestNo(1), &held(1)).expect("words");
        journal.write().expect("writable");
        journal.break_once();
        journal.note(RequestNo(2), &held(2)).expect("words");
        assert!(journal.write().is_err());
        assert!(journal.lacks(RequestNo(2)) && !journal.lacks(RequestNo(1)));
        journal.over(RequestNo(2));
        journal.note(RequestNo(3), &held(3)).expect("words");
        journal.write().expect("written anew");
        assert_eq!(numbers(&dir), [1, 3]);
    }
}
