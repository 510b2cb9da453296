//! Keeping a history: files that are begun anew now and then, the oldest of which go when there are too many bytes
//! or when they are too old.
//!
//! A file is called `history-T.jsonl`, with the time at which it was begun in milliseconds since 1970, or a little more if the
//! clock was set back since: files are in the order of their names. What is in it is older than the beginning of the next.
//!
//! # Invariants
//! - A file of a later version, and what is before it, is never written to: a new one is begun.
//! - However the clock is set, nothing is removed for its age at once: time in which no file was begun counts for a quarter
//!   of the time for which everything is kept at most, and what the clock was set back by for as much less.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use holdall_wire::Name;

use crate::clock::from_to;
use crate::line::{Line, Mark, VERSION, What};
use crate::told::Told;

/// Into about how many files a history is divided.
const PARTS: u64 = 8;

/// How much of a history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At most so many bytes, and what is written at once.
    pub bytes: u64,
    /// At least for so many milliseconds, if there is room, and about a quarter longer at most while files are begun that often. Of
    /// the time between the beginnings of two files at most a quarter of this counts: what is seldom used is kept until five
    /// more files are begun, and what is not used at all stays.
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

/// So much room for that is kept.
const TEXT: usize = 1 << 20;

/// Where a file is begun, before it has its name.
const NEW: &str = "history.new";

/// What is not as it should be, though nothing that was to be written is missing.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// What need not be kept any more cannot be removed. It is tried again when the next file is begun.
    #[error("the history takes more room than it should: what is too old cannot be removed: {0}")]
    Crowded(io::Error),
    /// A file was begun that does not tell of the pools that there are.
    #[error(
        "a file of the history does not tell of the {0} pools and locks: that would take more than a sixteenth of `bytes`; once \
         those before it are gone, it is not known how many units they had"
    )]
    PoolsLeftOut(usize),
}

/// Writes a history.
///
/// What is written at once ends with a mark, which says how far into the agent's log it goes. After a crash, whatever follows
/// the last mark is cut off: the log has it still. So nothing is there twice, and nothing is missing.
#[derive(Debug)]
pub struct Keeper {
    dir: PathBuf,
    retention: Retention,
    /// The last file, and when it was begun by the clock; nothing if the next line begins one.
    file: Option<(File, u64)>,
    /// The time in the name of the last file that there is.
    last: u64,
    size: u64,
    mark: Option<Mark>,
    /// The pools as they are, as far as that is known.
    pools: BTreeMap<Name, Option<u32>>,
    later: Option<(PathBuf, u32)>,
    /// Room for what is written at once.
    text: Vec<u8>,
    troubles: Vec<Trouble>,
}

impl Keeper {
    /// Goes on with the history in a directory, or begins one with what is written first. `now` is the time in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(dir: &Path, retention: Retention, now: u64) -> io::Result<Self> {
        let dir = dir.to_owned();
        let mut keeper = Self {
            dir,
            retention,
            file: None,
            last: 0,
            size: 0,
            mark: None,
            pools: BTreeMap::new(),
            later: None,
            text: Vec::new(),
            troubles: Vec::new(),
        };
        keeper.go_on()?;
        keeper.make_room(now)?;
        Ok(keeper)
    }

    /// Goes on after the last mark, whichever file it is in, and removes what follows; or at the end of the last file.
    fn go_on(&mut self) -> io::Result<()> {
        let files = files(&self.dir)?;
        self.last = files.last().map_or(0, |(name, _)| *name);
        for (at, (name, path)) in files.iter().enumerate().rev() {
            let head = Head::of(path)?;
            if head.is_later() && self.later.is_none() {
                self.later = Some((path.clone(), head.version));
            }
            let (begun, is_ours) = (head.begun.unwrap_or(*name), self.later.is_none());
            let mut file = OpenOptions::new().read(true).append(is_ours).open(path)?;
            let Some((mark, end)) = last_mark(&mut file)? else { continue };
            self.mark = Some(mark);
            if is_ours {
                file.set_len(end)?;
                for (_, begun_in_vain) in &files[at + 1..] {
                    fs::remove_file(begun_in_vain)?;
                }
                (self.file, self.size, self.last) = (Some((file, begun)), end, *name);
            }
            return Ok(());
        }
        if let Some((name, path)) = files.last().filter(|_| self.later.is_none()) {
            let mut file = OpenOptions::new().read(true).append(true).open(path)?;
            self.size = end_line(&mut file)?;
            self.file = Some((file, Head::of(path)?.begun.unwrap_or(*name)));
        }
        Ok(())
    }

    /// The last file that is of a later version, if there is one, and its version. It stays as it is.
    pub fn later(&self) -> Option<(&Path, u32)> {
        self.later.as_ref().map(|(path, version)| (path.as_path(), *version))
    }

    /// How far it goes, if that is known.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// What is not as it should be since this was asked last.
    pub fn troubles(&mut self) -> Vec<Trouble> {
        std::mem::take(&mut self.troubles)
    }

    /// Takes notice of a line, if it tells of a pool that is there: each file tells of those, since the one before may be gone.
    pub fn notice(&mut self, line: &Line) {
        match &line.what {
            What::Pool { pool, units: Some(0) } => drop(self.pools.remove(pool)),
            What::Pool { pool, units } => drop(self.pools.insert(pool.clone(), *units)),
            _ => {}
        }
    }

    /// Writes lines, and how far they go; `now` is the time of the last of them, in milliseconds since 1970.
    ///
    /// # Errors
    /// If they cannot be written: then none of them is.
    pub fn write<'a, T: Into<Told<'a>>>(
        &mut self,
        lines: impl IntoIterator<Item = T>,
        mark: Option<Mark>,
        now: u64,
    ) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let written = self.write_with(lines, mark, now, &mut text);
        text.shrink_to(TEXT);
        self.text = text;
        written
    }

    fn write_with<'a, T: Into<Told<'a>>>(
        &mut self,
        lines: impl IntoIterator<Item = T>,
        mark: Option<Mark>,
        now: u64,
        text: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut first = None;
        for line in lines {
            let told: Told<'_> = line.into();
            first.get_or_insert_with(|| told.at());
            if let Some(line) = told.line() {
                self.notice(line);
            }
            told.write_to(self.retention.anonymous, text)?;
        }
        let first = first.unwrap_or(now);
        let is_due = self.is_due(first);
        if is_due {
            // After what is written first: that may be that the clock was set.
            self.tell_pools(now, text)?;
        }
        if let Some(mark) = &mark {
            Line { at: now, what: What::Mark(mark.clone()) }.write_to(text)?;
        }
        match &mut self.file {
            Some((file, _)) if !is_due => {
                append(file, self.size, text)?;
                self.size += text.len() as u64;
            }
            _ => self.begin(first, text)?,
        }
        self.mark = mark.or_else(|| self.mark.take());
        Ok(())
    }

    /// Adds the pools as they are, unless that would fill a file.
    fn tell_pools(&mut self, now: u64, text: &mut Vec<u8>) -> io::Result<()> {
        let mut told = Vec::new();
        for (pool, units) in &self.pools {
            let what = What::Pool { pool: pool.clone(), units: *units };
            Line { at: now, what }.write_to(&mut told)?;
        }
        if told.len() as u64 <= self.retention.bytes / PARTS / 2 {
            text.append(&mut told);
        } else {
            self.troubles.push(Trouble::PoolsLeftOut(self.pools.len()));
        }
        Ok(())
    }

    /// Whether the next line begins a file: there is none, or the last one is large or old.
    fn is_due(&self, now: u64) -> bool {
        let Some((_, begun)) = &self.file else { return true };
        // The clock may have been set back since.
        let is_old = now.abs_diff(*begun) > self.retention.millis / PARTS;
        is_old || self.size >= self.retention.bytes / PARTS
    }

    /// Begins a file with a text.
    fn begin(&mut self, now: u64, text: &[u8]) -> io::Result<()> {
        // Whatever the clock says: the names are in the order of the files.
        let name = now.max(self.last.saturating_add(1));
        let (file, size) = begin(&self.dir, name, now, self.mark.as_ref(), text)?;
        (self.file, self.last, self.size) = (Some((file, now)), name, size);
        // What was to be written is.
        self.troubles.extend(self.make_room(now).err().map(Trouble::Crowded));
        Ok(())
    }

    /// Removes what need not be kept.
    fn make_room(&self, now: u64) -> io::Result<()> {
        let (mut bytes, mut age, mut next) = (0, 0, None);
        let kept = i64::try_from(self.retention.millis).unwrap_or(i64::MAX);
        let most = kept / (PARTS as i64 / 2);
        for (name, path) in files(&self.dir)?.into_iter().rev() {
            let size = fs::metadata(&path)?.len();
            // The last one grows.
            let part = self.retention.bytes / PARTS;
            bytes += if next.is_none() { size.max(part) } else { size };
            // A file ends when the next one begins.
            let old = age >= kept;
            if next.is_some() && (old || bytes > self.retention.bytes) {
                fs::remove_file(&path)?;
                continue;
            }
            let begun = Head::of(&path)?.begun.unwrap_or(name);
            let lasted = from_to(begun, next.unwrap_or(now));
            age = i64::saturating_add(age, lasted.clamp(-most, most));
            next = Some(begun);
        }
        Ok(())
    }
}

/// What the first line of a file says.
struct Head {
    version: u32,
    /// What the clock said when it was begun.
    begun: Option<u64>,
}

impl Head {
    fn of(path: &Path) -> io::Result<Self> {
        let mut first = Vec::new();
        BufReader::new(File::open(path)?).take(HEAD_MAX).read_until(b'\n', &mut first)?;
        Ok(match serde_json::from_slice(&first) {
            Ok(Line { at, what: What::Begin { v } }) => Self { version: v, begun: Some(at) },
            _ => Self { version: VERSION, begun: None },
        })
    }

    fn is_later(&self) -> bool {
        self.version > VERSION
    }
}

/// The first line of a file is no longer.
const HEAD_MAX: u64 = 4096;

/// Whether a file of a history is of a later version than this program knows.
///
/// # Errors
/// If it cannot be read.
pub fn is_of_later_version(path: &Path) -> io::Result<bool> {
    Ok(Head::of(path)?.is_later())
}

/// Adds a text to a file of this size, or nothing.
fn append(file: &mut File, size: u64, text: &[u8]) -> io::Result<()> {
    let written = file.write_all(text);
    if written.is_err() {
        // A part of it would be taken for all of it.
        file.set_len(size)?;
    }
    written
}

/// Begins a file, which goes as far as the one before, with a text. It has its name once all that is in it: on a full disk there
/// would be an empty one for each attempt, and after a crash one without its pools.
fn begin(
    dir: &Path,
    name: u64,
    now: u64,
    mark: Option<&Mark>,
    first: &[u8],
) -> io::Result<(File, u64)> {
    let new = dir.join(NEW);
    let mut text = Vec::new();
    Line { at: now, what: What::Begin { v: VERSION } }.write_to(&mut text)?;
    if let Some(mark) = mark {
        Line { at: now, what: What::Mark(mark.clone()) }.write_to(&mut text)?;
    }
    text.extend_from_slice(first);
    let begun = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        fs::rename(&new, dir.join(format!("history-{name}.jsonl")))?;
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
fn last_mark(file: &mut (impl Read + Seek)) -> io::Result<Option<(Mark, u64)>> {
    let mut from = file.seek(SeekFrom::End(0))?;
    let mut tail: Vec<u8> = Vec::new();
    while from > 0 {
        // As much again as has been found without an end of a line: one of many megabytes is looked through twice, not a thousand times.
        let more = from.min(CHUNK.max(tail.len() as u64));
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

/// The files of the history in a directory, with the time in the name of each, oldest first.
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
        // There is no such time, and no later one for the next file.
        let begun = begun.filter(|begun| i64::try_from(*begun).is_ok());
        // A pipe would keep its reader waiting, and through a link something else would be written.
        let begun = begun.filter(|_| entry.metadata().is_ok_and(|file| file.is_file()));
        files.extend(begun.map(|begun| (begun, entry.path())));
    }
    files.sort();
    Ok(files)
}
