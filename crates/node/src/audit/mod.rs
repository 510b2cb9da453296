//! The audit log: who asked for, got, gave back and lost what, and when. One JSON object a line.
//!
//! A thread of its own puts lines into words and writes them, many at a time: no grant waits for it.
//! If the disk is so slow that more lines wait than there is room for, some are left out, and a line
//! says how many; never those that tell who has used a right over others. The same goes for lines that a full disk
//! does not take ([`owed`]).

mod file;
mod owed;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::file::Line;
use self::file::Log;
use self::owed::Writer;
use crate::directory::Directory;
use crate::handoff::{Giver, Item, Taker};

/// How long lines are collected.
const COLLECT: Duration = Duration::from_millis(10);
/// How often it is tried again what the disk has not taken, when nothing else is to be written.
const AGAIN: Duration = Duration::from_secs(1);
/// What is never left out.
const KEPT: [&str; 3] = ["forced", "pool", "cluster"];

/// Where lines go.
pub(crate) type Audit = Giver<Line>;

impl Item for Line {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn must_stay(&self) -> bool {
        KEPT.contains(&self.what)
    }
}

/// Opens or begins a log that is rotated at `max` bytes, with so many old ones kept.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn open(dir: Arc<Directory>, max: u64, files: u32) -> anyhow::Result<Audit> {
    let log = Log::open(dir, max, files)?;
    Ok(Giver::start("audit", move |lines| write(&lines, log))?)
}

fn write(waiting: &Taker<Line>, log: Log) {
    let mut writer = Writer::new(log);
    while let Some(batch) = waiting.next_within(COLLECT, writer.owes().then_some(AGAIN)) {
        let mut lines = batch.items;
        writer.write(&mut lines, batch.left_out);
        waiting.give_back(lines);
    }
    writer.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_written_when_it_is_waited_for_and_in_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut audit = open(own, 1 << 20, 1).expect("writable");
        let lines = || {
            let text = std::fs::read_to_string(dir.path().join("audit.jsonl"));
            text.expect("it is there").lines().count()
        };
        for n in 1..=100 {
            audit.add(Line::new(0, "asked"));
            audit.flush();
            assert_eq!(lines(), n);
        }
        audit.flush();
        audit.leave_out(3);
        audit.add(Line::new(0, "asked"));
        drop(audit);
        assert_eq!(lines(), 102, "also that some were left out");
    }
}
