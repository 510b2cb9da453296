//! What is to be written to the audit log, whether the disk takes it or not.
//!
//! # Invariants
//! - A line that must stay is kept, in a bounded room, until it is written.
//! - Every other line is written, or counted in a `left-out` line that is written as soon as the disk takes it.

use tracing::{error, info};

use super::file::{Line, Log};
use crate::handoff::Item;

/// So many bytes of lines that must stay are kept while the disk does not take them.
const ROOM: usize = 4 << 20;

pub(super) struct Writer {
    log: Log,
    /// What must stay and is not written.
    owed: Vec<Line>,
    /// How many others were not.
    lost: usize,
    /// The time of the last line.
    last: u64,
    /// Since the disk has refused something, it has not taken all there was.
    refused: bool,
}

impl Writer {
    pub(super) fn new(log: Log) -> Self {
        Self { log, owed: Vec::new(), lost: 0, last: 0, refused: false }
    }

    /// Whether something is still to be written.
    pub(super) fn owes(&self) -> bool {
        self.lost > 0 || !self.owed.is_empty()
    }

    /// Writes lines, and that some were left out before. Those that the disk does not take are kept if they must be.
    pub(super) fn write(&mut self, lines: &mut Vec<Line>, left_out: usize) {
        self.last = lines.last().map_or(self.last, |line| line.at);
        self.lost += left_out;
        lines.splice(..0, self.owed.drain(..));
        let (some, mut taken) = (!lines.is_empty(), true);
        while let Err(error) = self.attempt(lines) {
            taken = false;
            if !std::mem::replace(&mut self.refused, true) {
                error!("the audit log is incomplete until the disk takes more: {error:#}");
            }
            let all = lines.len();
            lines.retain(Item::must_stay);
            self.lost += all - lines.len();
            // There may be room for these.
            if lines.is_empty() || lines.len() == all {
                break;
            }
        }
        if some && taken && std::mem::take(&mut self.refused) {
            info!("the disk takes the audit log again");
        }
        let (mut room, unwritten) = (ROOM, lines.len());
        lines.retain(|line| room.checked_sub(line.size()).inspect(|left| room = *left).is_some());
        self.lost += unwritten - lines.len();
        self.owed.append(lines);
    }

    /// Writes lines, and how many are missing. Those that are not written are left.
    fn attempt(&mut self, lines: &mut Vec<Line>) -> anyhow::Result<()> {
        if self.lost > 0 {
            let why = if self.refused {
                "the disk did not take them"
            } else {
                // There was no room because of the others.
                "they came faster than they could be written"
            };
            let text = format!("{} lines: {why}", self.lost);
            lines.push(Line::new(self.last, "left-out").detail(Some(text)));
        }
        let (written, done) = self.log.write(lines);
        lines.drain(..written);
        if self.lost > 0 && lines.pop().is_none() {
            self.lost = 0;
        }
        done
    }

    /// Nothing more comes: what is owed is written now or never.
    pub(super) fn end(mut self) {
        if self.owes() {
            self.write(&mut Vec::new(), 0);
        }
        let missing = self.lost + self.owed.len();
        if missing > 0 {
            error!("{missing} lines are missing in the audit log: the disk did not take them");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::directory::Directory;

    /// A log in a directory, and a file that takes nothing.
    fn writer(dir: &std::path::Path) -> (Writer, File) {
        let own = Arc::new(Directory::private(dir).expect("ours"));
        let full = File::options().append(true).open("/dev/full").expect("it is there");
        (Writer::new(Log::open(own, 1 << 24, 1).expect("writable")), full)
    }

    fn told(dir: &std::path::Path) -> Vec<(String, Option<String>)> {
        let text = std::fs::read_to_string(dir.join("audit.jsonl")).expect("it is there");
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let text = |key: &str| line[key].as_str().map(str::to_owned);
            (text("what").expect("something"), text("detail"))
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_written_later_or_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut writer, full) = writer(dir.path());
        let disk = writer.log.replace_file(full);
        for (at, what) in [(1, "asked"), (2, "forced"), (3, "granted"), (4, "pool")] {
            writer.write(&mut vec![Line::new(at, what), Line::new(at, "released")], 0);
        }
        assert!(told(dir.path()).is_empty() && writer.owes());
        writer.log.replace_file(disk);
        writer.write(&mut vec![Line::new(5, "asked")], 0);
        let told = told(dir.path());
        let what: Vec<_> = told.iter().map(|(what, _)| &what[..]).collect();
        assert_eq!(what, ["forced", "pool", "asked", "left-out"]);
        assert_eq!(told[3].1.as_deref(), Some("6 lines: the disk did not take them"));
        assert!(!writer.owes() && !writer.refused);
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut writer, full) = writer(dir.path());
        let disk = writer.log.replace_file(full);
        let long = || Line::new(1, "forced").detail(Some("x".repeat(1 << 20)));
        (0..5).for_each(|_| writer.write(&mut vec![long()], 0));
        assert_eq!((writer.owed.len(), writer.lost), (3, 2));
        writer.log.replace_file(disk);
        writer.end();
        let told = told(dir.path());
        let what: Vec<_> = told.iter().map(|(what, _)| &what[..]).collect();
        assert_eq!(what, ["forced", "forced", "forced", "left-out"]);
    }
}
