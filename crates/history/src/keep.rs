//! Keeping a history: files that are begun anew now and then, the oldest of which go when there are too many bytes
//! or when they are too old.
//!
//! A file is called `history-T.jsonl`, with the time at which it was begun in milliseconds since 1970. What is in it is older
//! than the beginning of the next.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::line::{Line, Mark, VERSION, What};

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

/// Where a file is begun, before it has its name.
const NEW: &str = "history.new";

/// Writes a history.
///
/// What is written at once ends with a mark, which says how far into the agent's log it goes. After a crash, whatever follows
/// the last mark is cut off: the log has it still. So nothing is there twice, and nothing is missing.
#[derive(Debug)]
pub struct Keeper {
    dir: PathBuf,
    retention: Retention,
    /// The last file, and when it was begun.
    file: Option<(File, u64)>,
    size: u64,
    mark: Option<Mark>,
}

impl Keeper {
    /// Goes on with the history in a directory, or begins one with what is written first. `now` is the time in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(dir: &Path, retention: Retention, now: u64) -> io::Result<Self> {
        let dir = dir.to_owned();
        let mut keeper = Self { dir, retention, file: None, size: 0, mark: None };
        if !keeper.go_on_after_mark()?
            && let Some((begun, path)) = files(&keeper.dir)?.pop()
        {
            let mut file = OpenOptions::new().read(true).append(true).open(path)?;
            keeper.size = end_line(&mut file)?;
            keeper.file = Some((file, begun));
        }
        keeper.make_room(now)?;
        Ok(keeper)
    }

    /// Goes on after the last mark, whichever file it is in, and removes what follows. False if there is none.
    fn go_on_after_mark(&mut self) -> io::Result<bool> {
        let files = files(&self.dir)?;
        for (at, (begun, path)) in files.iter().enumerate().rev() {
            let mut file = OpenOptions::new().read(true).append(true).open(path)?;
            let Some((mark, end)) = last_mark(&mut file)? else { continue };
            file.set_len(end)?;
            for (_, begun_in_vain) in &files[at + 1..] {
                fs::remove_file(begun_in_vain)?;
            }
            (self.file, self.size, self.mark) = (Some((file, *begun)), end, Some(mark));
            return Ok(true);
        }
        Ok(false)
    }

    /// How far it goes, if that is known.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// Writes lines, and how far they go; `now` is the time of the last of them, in milliseconds since 1970.
    ///
    /// # Errors
    /// If they cannot be written: then none of them is.
    pub fn write(
        &mut self,
        lines: impl IntoIterator<Item = Line>,
        mark: Option<Mark>,
        now: u64,
    ) -> io::Result<()> {
        let (mut text, mut first) = (Vec::new(), None);
        for line in lines {
            first.get_or_insert(line.at);
            let line = if self.retention.anonymous { line.anonymous() } else { line };
            line.write_to(&mut text)?;
        }
        if let Some(mark) = &mark {
            Line { at: now, what: What::Mark(mark.clone()) }.write_to(&mut text)?;
        }
        self.begin_if_due(first.unwrap_or(now))?;
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        if let Err(error) = file.write_all(&text) {
            // A part of it would be taken for all of it.
            file.set_len(self.size)?;
            return Err(error);
        }
        self.size += text.len() as u64;
        self.mark = mark.or_else(|| self.mark.take());
        Ok(())
    }

    /// Begins a new file if there is none, or if the last one is large or old.
    fn begin_if_due(&mut self, now: u64) -> io::Result<()> {
        let begun = self.file.as_ref().map(|(_, begun)| *begun);
        let large = self.size >= self.retention.bytes / PARTS;
        let old = |begun| now.saturating_sub(begun) > self.retention.millis / PARTS;
        if begun.is_some_and(|begun| !large && !old(begun)) {
            return Ok(());
        }
        // Whatever the clock says: the names are in the order of the files.
        let now = now.max(begun.map_or(0, |begun| begun + 1));
        let (file, size) = begin(&self.dir, now, self.mark.as_ref())?;
        (self.file, self.size) = (Some((file, now)), size);
        self.make_room(now)
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

/// Begins a file, which goes as far as the one before. It has its name once that is in it: on a full disk there would be
/// an empty one for each attempt.
fn begin(dir: &Path, now: u64, mark: Option<&Mark>) -> io::Result<(File, u64)> {
    let new = dir.join(NEW);
    let mut text = Vec::new();
    Line { at: now, what: What::Begin { v: VERSION } }.write_to(&mut text)?;
    if let Some(mark) = mark {
        Line { at: now, what: What::Mark(mark.clone()) }.write_to(&mut text)?;
    }
    let begun = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        fs::rename(&new, dir.join(format!("history-{now}.jsonl")))?;
        Ok(file)
    };
    let file = begun().inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok((file, text.len() as u64))
}

/// A line that is only half there is ended. Returns the length of the file.
fn end_line(file: &mut File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    if size > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            return Ok(size + 1);
        }
    }
    Ok(size)
}

/// How much is looked through at once for a mark.
const CHUNK: u64 = 1 << 16;

/// The last mark of a file, and where its line ends. It is looked for from the end on.
fn last_mark(file: &mut File) -> io::Result<Option<(Mark, u64)>> {
    let mut from = file.metadata()?.len();
    let mut tail: Vec<u8> = Vec::new();
    while from > 0 {
        let more = from.min(CHUNK);
        from -= more;
        file.seek(SeekFrom::Start(from))?;
        let mut chunk = vec![0; more as usize];
        file.read_exact(&mut chunk)?;
        chunk.append(&mut tail);
        tail = chunk;
        // The first line may have begun before.
        let whole = if from == 0 { Some(0) } else { tail.iter().position(|b| *b == b'\n') };
        let Some(whole) = whole.map(|at| at + usize::from(from > 0)) else { continue };
        let mut end = tail.len();
        for line in tail[whole..].split_inclusive(|byte| *byte == b'\n').rev() {
            if let Some(mark) = mark_in(line) {
                return Ok(Some((mark, from + end as u64)));
            }
            end -= line.len();
        }
        tail.truncate(whole);
    }
    Ok(None)
}

/// The mark that a line is, if it is a whole one.
fn mark_in(line: &[u8]) -> Option<Mark> {
    let text = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    match serde_json::from_str(text).ok()? {
        Line { what: What::Mark(mark), .. } => Some(mark),
        _ => None,
    }
}

/// The files of the history in a directory, with the time at which each was begun, oldest first.
///
/// # Errors
/// If the directory cannot be read.
pub fn files(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
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
        Line { at, what: What::End { r: RequestNo(r), how: How::Withdrawn, user: None } }
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
            keeper.write([ask(at)], None, at).expect("writable");
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
            keeper.write([ask(at)], None, at).expect("writable");
            let kept = asked(dir.path());
            assert!(kept[0] <= 1.max(at.saturating_sub(80)), "{at}: {kept:?}");
            assert!(kept[0] + 80 + 22 >= at, "{at}: {kept:?}");
        }
    }

    #[test]
    fn it_goes_on_after_a_crash_and_tells_what_is_torn() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
        keeper.write([ask(6), ask(7)], None, 7).expect("writable");
        keeper.file.as_mut().expect("a file").0.write_all(b"{\"t\":8,\"k\":\"as").expect("torn");
        drop(keeper);
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
        keeper.write([end(10, 6)], None, 10).expect("writable");
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
        keeper.write([ask(6)], None, 6).expect("writable");
        assert_eq!(read(dir.path()).expect("a history").uses[0].name, None);
    }

    #[test]
    fn what_follows_the_last_mark_is_cut_off_after_a_crash() {
        let dir = tempfile::tempdir().expect("a directory");
        let mark = |upto| Mark { upto, of: "here".into() };
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
        assert_eq!(keeper.mark(), None);
        keeper.write([ask(6)], Some(mark(40)), 6).expect("writable");
        // More than is looked through at once.
        let long = (0..2 * CHUNK).map(|_| 'x').collect::<String>();
        let torn = ask(7).to_text().expect("JSON") + &long;
        keeper.file.as_mut().expect("a file").0.write_all(torn.as_bytes()).expect("torn");
        drop(keeper);
        let keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
        assert_eq!(keeper.mark(), Some(&mark(40)));
        let history = read(dir.path()).expect("a history");
        assert_eq!((history.uses.len(), &history.notes[..]), (1, &[][..]));
    }

    #[test]
    fn a_new_file_goes_as_far_as_the_one_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let retention = Retention { bytes: 800, ..Retention::default() };
        let mut keeper = Keeper::open(dir.path(), retention, 5).expect("writable");
        for at in 6..40 {
            let mark = Mark { upto: at, of: "here".into() };
            keeper.write([ask(at)], Some(mark.clone()), at).expect("writable");
            keeper = Keeper::open(dir.path(), retention, at).expect("writable");
            assert_eq!(keeper.mark(), Some(&mark));
        }
        assert!(files(dir.path()).expect("there").len() > 2);
    }

    #[test]
    fn a_file_that_was_begun_and_not_written_does_not_hide_the_mark() {
        let dir = tempfile::tempdir().expect("a directory");
        let mark = |upto| Mark { upto, of: "here".into() };
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
        keeper.write([ask(6)], Some(mark(40)), 6).expect("writable");
        drop(keeper);
        for torn in ["", "{\"t\":7,\"k\":\"beg", "{\"t\":7,\"k\":\"begin\",\"v\":1}\n"] {
            fs::write(dir.path().join("history-7.jsonl"), torn).expect("written");
            let keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
            assert_eq!(keeper.mark(), Some(&mark(40)), "{torn}");
            assert_eq!(files(dir.path()).expect("there").len(), 1, "{torn}");
        }
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 9).expect("writable");
        keeper.write([ask(10)], Some(mark(41)), 10).expect("writable");
        assert_eq!(asked(dir.path()), [6, 10]);
    }

    #[test]
    fn a_file_that_cannot_be_begun_is_not_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut keeper = Keeper::open(dir.path(), Retention::default(), 5).expect("writable");
        fs::create_dir(dir.path().join(NEW)).expect("made");
        keeper.write([ask(6)], None, 6).expect_err("it cannot be begun");
        assert_eq!(files(dir.path()).expect("there").len(), 0);
        fs::remove_dir(dir.path().join(NEW)).expect("removed");
        keeper.write([ask(7)], None, 7).expect("writable");
        assert_eq!(asked(dir.path()), [7]);
    }
}
