//! The audit log: who asked for, got, gave back and lost what, and when. One JSON object a line.
//!
//! Lines are collected and written together at the end of a round of the service, so that a busy
//! agent writes once for many requests. The log is rotated by size: `audit.jsonl.1` is the newest
//! of the old ones. A line is short however much was asked for, so that a few large requests do
//! not push out what was there.

use std::fs::File;
use std::io::Write;
use std::rc::Rc;

use anyhow::Context;
use holdall_wire::{Need, RequestNo, Taken, Who};
use serde::Serialize;

use crate::directory::Directory;

const NAME: &str = "audit.jsonl";
/// About how many bytes of needs, and of units, a line has at most.
const LIST_MAX: usize = 2048;

/// One line.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    /// When, in milliseconds since 1970.
    pub(crate) at: u64,
    /// What happened.
    pub(crate) what: &'static str,
    /// To which request; one that was turned away at the door has no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<RequestNo>,
    /// Whose it is.
    pub(crate) who: Option<&'a Who>,
    /// What was asked for.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) needs: &'a [Need],
    /// What is held.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) taken: &'a [Taken],
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// A line as it is written.
#[derive(Serialize)]
struct Cut<'a> {
    #[serde(flatten)]
    line: Line<'a>,
    /// How many needs and units there was no room for.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// As many needs as a line has room for.
fn cut_needs(needs: &[Need]) -> &[Need] {
    let mut room = LIST_MAX;
    let fits = |need: &&Need| {
        let size = need.name.as_str().len() + 8;
        room.checked_sub(size).inspect(|left| room = *left).is_some()
    };
    &needs[..needs.iter().take_while(fits).count()]
}

/// As many units as a line has room for.
fn cut_taken(all: &[Taken]) -> Vec<Taken> {
    let mut room = LIST_MAX;
    let mut cut = Vec::new();
    for taken in all {
        let mut units = taken.units.clone();
        let fits = |unit: &&(_, u64)| {
            let (name, _): &(holdall_wire::Name, u64) = unit;
            room.checked_sub(name.as_str().len() + 24).inspect(|left| room = *left).is_some()
        };
        units.truncate(taken.units.iter().take_while(fits).count());
        if !units.is_empty() {
            cut.push(Taken { name: taken.name.clone(), units });
        }
    }
    cut
}

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    dir: Rc<Directory>,
    file: File,
    length: u64,
    max: u64,
    files: u32,
    pending: Vec<u8>,
}

impl Audit {
    /// Opens or begins a log that is rotated at `max` bytes, with so many old ones kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn open(dir: Rc<Directory>, max: u64, files: u32) -> anyhow::Result<Self> {
        let file = dir.append(NAME)?;
        let length = file.metadata()?.len();
        Ok(Self { dir, file, length, max, files, pending: Vec::new() })
    }

    /// Adds a line; true if it is the first since the last [`Audit::flush`].
    pub(crate) fn add(&mut self, line: Line<'_>) -> bool {
        let first = self.pending.is_empty();
        let units = |all: &[Taken]| all.iter().map(|taken| taken.units.len()).sum::<usize>();
        let (needs, taken) = (cut_needs(line.needs), cut_taken(line.taken));
        let left_out = line.needs.len() - needs.len() + units(line.taken) - units(&taken);
        let line = Cut { line: Line { needs, taken: &taken, ..line }, left_out };
        if serde_json::to_writer(&mut self.pending, &line).is_ok() {
            self.pending.push(b'\n');
        }
        first
    }

    /// Writes what has been added.
    ///
    /// # Errors
    /// If the disk does not take it. The lines are then lost.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        let lines = std::mem::take(&mut self.pending);
        if lines.is_empty() {
            return Ok(());
        }
        if self.length > 0 && self.length + lines.len() as u64 > self.max {
            self.rotate()?;
        }
        self.length += lines.len() as u64;
        let written = self.file.write_all(&lines);
        written.with_context(|| format!("cannot write {}", self.dir.path_of(NAME).display()))
    }

    fn rotate(&mut self) -> anyhow::Result<()> {
        let old = |n: u32| format!("{NAME}.{n}");
        for n in (1..self.files).rev() {
            if self.dir.has(&old(n)) {
                self.dir.rename(&old(n), &old(n + 1))?;
            }
        }
        if self.files > 0 {
            self.dir.rename(NAME, &old(1))?;
        } else {
            self.dir.remove(NAME)?;
        }
        self.file = self.dir.append(NAME)?;
        self.length = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_requests_do_not_push_the_others_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Rc::new(Directory::private(dir.path()).expect("ours"));
        let mut audit = Audit::open(own, 1 << 20, 1).expect("writable");
        let name = |n: u32| format!("{}{n:04}", "x".repeat(190)).parse().expect("a name");
        let need = |n| Need { name: name(n), amount: holdall_wire::Amount::One };
        let needs: Vec<Need> = (0..1000).map(need).collect();
        let units = (0..60_000).map(|n| (name(n % 1000), u64::MAX)).collect();
        let all = Taken { name: name(0), units };
        for n in 0..101 {
            // The first one is somebody else's.
            let (needs, taken) =
                if n == 0 { (&[][..], &[][..]) } else { (&needs[..], std::slice::from_ref(&all)) };
            let (at, what, request) = (n, "granted", Some(RequestNo(n)));
            audit.add(Line { at, what, request, who: None, needs, taken, detail: None });
            audit.flush().expect("writable");
        }
        let text = std::fs::read_to_string(dir.path().join(NAME)).expect("it is there");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 101, "everything is still in one file");
        assert_eq!(lines[0].get("left_out"), None);
        let shown = lines[1]["needs"].as_array().expect("a list").len()
            + lines[1]["taken"][0]["units"].as_array().expect("a list").len();
        assert_eq!(lines[1]["left_out"].as_u64(), Some(61_000 - shown as u64));
        assert!(shown > 15);
    }

    #[test]
    fn the_log_is_rotated_and_old_ones_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Rc::new(Directory::private(dir.path()).expect("ours"));
        let mut audit = Audit::open(own, 150, 2).expect("writable");
        for n in 0..6 {
            let (needs, taken): (&[Need], &[Taken]) = (&[], &[]);
            let request = Some(RequestNo(n));
            let (at, what, who, detail) = (n, "asked", None, Some("x".repeat(40)));
            audit.add(Line { at, what, request, who, needs, taken, detail });
            audit.flush().expect("writable");
        }
        let at = |name: &str| -> Vec<u64> {
            let text = std::fs::read_to_string(dir.path().join(name)).expect("it is there");
            let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
            text.lines().map(|l| line(l)["at"].as_u64().expect("a number")).collect()
        };
        assert_eq!(at("audit.jsonl"), [5]);
        assert_eq!(at("audit.jsonl.1"), [4]);
        assert_eq!(at("audit.jsonl.2"), [3]);
        assert!(!dir.path().join("audit.jsonl.3").exists());
    }
}
