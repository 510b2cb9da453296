//! Keeping a history: files that are begun anew now and then, the oldest of which go when there are too many bytes
//! or when they are too old.
//!
//! A file is called `history-T.jsonl`, with the time at which it was begun in milliseconds since 1970. What is in it is older
//! than the beginning of the next.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::line::{Line, VERSION, What};

/// Into about how many files a history is divided.
const PARTS: u64 = 8;

/// How much of a history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At most so many bytes.
    pub bytes: u64,
    /// At least for so many milliseconds, if there is room, and at most an eighth longer.
    pub millis: u64,
    /// Whether users, names and commands are left out.
    pub anonymous: bool,
}

impl Default for Retention {
    /// 64 MiB, 90 days.
    fn default() -> Self {
        Self { bytes: 64 << 20, millis: 90 * 24 * 3600 * 1000, anonymous: false }
    }
}

/// Writes a history.
#[derive(Debug)]
pub struct Keeper {
    dir: PathBuf,
    retention: Retention,
    file: File,
    size: u64,
    begun: u64,
}

impl Keeper {
    /// Goes on with the history in a directory, or begins one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(dir: &Path, retention: Retention, now: u64) -> io::Result<Self> {
        let (begun, file, size) = match files(dir)?.pop() {
            Some((begun, path)) => {
                let (file, size) = reopen(&path)?;
                (begun, file, size)
            }
            None => begin(dir, now)?,
        };
        let mut keeper = Self { dir: dir.into(), retention, file, size, begun };
        keeper.begin_anew(now)?;
        keeper.make_room(now)?;
        Ok(keeper)
    }

    /// Writes lines; `now` is the time, in milliseconds since 1970.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, lines: impl IntoIterator<Item = Line>, now: u64) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            let line = if self.retention.anonymous { line.anonymous() } else { line };
            text.push_str(&line.to_text()?);
        }
        self.file.write_all(text.as_bytes())?;
        self.size += text.len() as u64;
        if self.begin_anew(now)? { self.make_room(now) } else { Ok(()) }
    }

    /// Begins a new file if this one is large or old.
    fn begin_anew(&mut self, now: u64) -> io::Result<bool> {
        let large = self.size >= self.retention.bytes / PARTS;
        let due = large || now.saturating_sub(self.begun) > self.retention.millis / PARTS;
        if due {
            // Whatever the clock says: the names are in the order of the files.
            (self.begun, self.file, self.size) = begin(&self.dir, now.max(self.begun + 1))?;
        }
        Ok(due)
    }

    /// Removes what need not be kept.
    fn make_room(&self, now: u64) -> io::Result<()> {
        let files = files(&self.dir)?;
        let mut bytes = 0;
        for (at, (_, path)) in files.iter().enumerate().rev() {
            bytes += fs::metadata(path)?.len();
            let ended = files.get(at + 1).map(|(next, _)| *next);
            let old = ended.is_some_and(|end| now.saturating_sub(end) > self.retention.millis);
            if old || (ended.is_some() && bytes > self.retention.bytes) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Begins a file.
fn begin(dir: &Path, now: u64) -> io::Result<(u64, File, u64)> {
    let path = dir.join(format!("history-{now}.jsonl"));
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let text = Line { at: now, what: What::Begin { v: VERSION } }.to_text()?;
    file.write_all(text.as_bytes())?;
    Ok((now, file, text.len() as u64))
}

/// Opens a file to write on; a line that is only half there is ended.
fn reopen(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    if size > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            return Ok((file, size + 1));
        }
    }
    Ok((file, size))
}

/// The files of the history in a directory, with the time at which each was begun, oldest first.
pub(crate) fn files(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let middle = name.to_str().and_then(|name| name.strip_prefix("history-"));
        let begun = middle.and_then(|middle| middle.strip_suffix(".jsonl")?.parse().ok());
        files.extend(begun.map(|begun| (begun, entry.path())));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use holdall_wire::RequestNo;

    use super::*;
    use crate::line::{Ask, How};
    use crate::note::Note;
    use crate::read;

    fn ask(at: u64) -> Line {
        let needs = vec!["gpu".parse().expect("a need")];
        let name = Some("night".into());
        Line { at, what: What::Ask(Ask { r: Some(RequestNo(at)), name, needs, ..Ask::default() }) }
    }

    fn end(at: u64, r: u64) -> Line {
        Line { at, what: What::End { r: RequestNo(r), how: How::Withdrawn } }
    }

    fn asked(dir: &Path) -> Vec<u64> {
        read(dir).expect("a history").uses.iter().filter_map(|one| one.asked).collect()
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let retention = Retention { bytes: 4000, ..Retention::default() };
        let mut keeper = Keeper::open(dir.path(), retention, 0).expect("writable");
        for at in 1..=500 {
            keeper.write([ask(at)], at).expect("writable");
            let files = files(dir.path()).expect("there");
            let bytes: u64 = files.iter().map(|(_, f)| fs::metadata(f).expect("there").len()).sum();
            assert!(bytes <= 4000 + 600, "{bytes}");
        }
        let kept = asked(dir.path());
        let first = kept[0];
        assert!(kept.len() > 40 && kept == (first..=500).collect::<Vec<_>>(), "{kept:?}");
    }

    #[test]
    fn what_is_too_old_goes_and_nothing_younger() {
        let dir = tempfile::tempdir().expect("a directory");
        let retention = Retention { millis: 80, ..Retention::default() };
        let mut keeper = Keeper::open(dir.path(), retention, 0).expect("writable");
        for at in 1..=300 {
            keeper.write([ask(at)], at).expect("writable");
            let kept = asked(dir.path());
            assert!(kept[0] <= 1.max(at.saturating_sub(80)), "{at}: {kept:?}");
            assert!(kept[0] + 80 + 22 >= at, "{at}: {kept:?}");
        }
    }

    #[test]
    fn it_goes_on_after_a_crash_and_tells_what_is_torn() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
        keeper.write([ask(6), ask(7)], 7).expect("writable");
        keeper.file.write_all(b"{\"t\":8,\"k\":\"as").expect("torn");
        drop(keeper);
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
        keeper.write([end(10, 6)], 10).expect("writable");
        let history = read(dir.path()).expect("a history");
        assert_eq!((history.uses.len(), history.uses[0].ended), (2, Some(10)));
        assert!(matches!(history.notes[0], Note::Unreadable { line: 4, lines: 1, .. }));
        assert_eq!(files(dir.path()).expect("there").len(), 1);
    }

    #[test]
    fn an_anonymous_history_has_no_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let retention = Retention { anonymous: true, ..Retention::default() };
        let mut keeper = Keeper::open(dir.path(), retention, 5).expect("writable");
        keeper.write([ask(6)], 6).expect("writable");
        assert_eq!(read(dir.path()).expect("a history").uses[0].name, None);
    }
}
