//! The audit log, read from its files: newest first for whoever asks, and from a place on for those who
//! listen. The agent rotates it: `audit.jsonl` is the newest, `audit.jsonl.1` the one before.
//!
//! All of this waits for the disk, and so is called on threads that may wait.

mod line;
mod place;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) use self::line::{Line, Reader, Wanted};
use self::place::Part;
pub(crate) use self::place::Place;
use crate::problem::{Kind, Problem};

/// How much is read for somebody who has missed something; what is more is left out.
const CATCH_UP: u64 = 2 << 20;
/// How far the clock may have been set back between two lines.
const SET_BACK: u64 = 3_600_000;

/// The files of the log.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    data: PathBuf,
}

/// Lines from a place on.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Since {
    /// Each with the place after it.
    pub(crate) lines: Vec<(Line, Place)>,
    /// How many bytes of lines before them were left out.
    pub(crate) left_out: u64,
    /// The place after the last one.
    pub(crate) end: Place,
}

impl Audit {
    pub(crate) fn new(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    /// Another one whenever something was written.
    pub(crate) fn version(&self) -> Option<(u64, u64)> {
        let found = std::fs::metadata(self.data.join("audit.jsonl")).ok()?;
        Some((found.ino(), found.size()))
    }

    /// The end of the log; if nothing is in it, its beginning.
    pub(crate) fn end(&self) -> io::Result<Place> {
        self.open()?.first_mut().map_or_else(|| Ok(Place::default()), Part::end)
    }

    /// All files with something in them, the newest first. If they are rotated meanwhile, one may be found
    /// twice.
    fn open(&self) -> io::Result<Vec<Part>> {
        let mut all: Vec<Part> = Vec::new();
        for n in 0.. {
            let name = if n == 0 { "audit.jsonl".into() } else { format!("audit.jsonl.{n}") };
            let part = match File::open(self.data.join(name)) {
                Ok(file) => Part::new(file)?,
                // When the log has just been rotated there is no newest one.
                Err(error) if error.kind() == io::ErrorKind::NotFound && n == 0 => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            all.extend(part.filter(|part| all.iter().all(|other| other.inode != part.inode)));
        }
        Ok(all)
    }

    /// The newest lines before a place, newest first, and where to go on; nowhere if that was all.
    pub(crate) fn before(
        &self,
        place: Option<Place>,
        wanted: &Wanted,
        reader: &Reader,
        most: usize,
    ) -> io::Result<(Vec<Line>, Option<Place>)> {
        let mut lines = Vec::new();
        let mut files = self.open()?;
        let mut upto = None;
        if let Some(place) = place {
            // What is not there any more was the oldest.
            let Some(found) = find(&mut files, place)? else { return Ok((lines, None)) };
            files.drain(..found);
            upto = Some(place.offset);
        }
        for mut part in files {
            let end = upto.take().unwrap_or(part.length);
            let mut text = Vec::with_capacity(end as usize);
            part.file.seek(SeekFrom::Start(0))?;
            part.file.by_ref().take(end).read_to_end(&mut text)?;
            let ends = |text: &[u8]| text.iter().rposition(|byte| *byte == b'\n');
            let mut next = ends(&text);
            while let Some(end) = next {
                next = ends(&text[..end]);
                let from = next.map_or(0, |at| at + 1);
                let line = Line::read(&text[from..end]);
                let old = line.as_ref().is_some_and(|line| line.at + SET_BACK < wanted.since);
                let told = line.map(|line| reader.told(line));
                lines.extend(told.filter(|line| wanted.takes(line)));
                if old {
                    return Ok((lines, None));
                } else if lines.len() >= most {
                    let last = next.map_or(0, |end| ends(&text[..end]).map_or(0, |at| at + 1));
                    let last = &text[last..next.unwrap_or(0)];
                    return Ok((lines, Some(part.place(from as u64, last))));
                }
            }
        }
        Ok((lines, None))
    }

    /// The lines from a place on, up to another one or all; none if these are not known any more. Of very
    /// many the last.
    pub(crate) fn after(&self, place: Place, upto: Option<Place>) -> io::Result<Option<Since>> {
        let mut since = Since { end: place, ..Since::default() };
        if upto == Some(place) {
            return Ok(Some(since));
        }
        let mut files = self.open()?;
        let oldest = files.len().saturating_sub(1);
        let oldest =
            if place == Place::default() { Some(oldest) } else { find(&mut files, place)? };
        let Some(oldest) = oldest else { return Ok(None) };
        // From the newest on: what there is no room for is the oldest.
        let mut room = CATCH_UP;
        let mut from_each = Vec::new();
        for (n, part) in files.into_iter().take(oldest + 1).enumerate() {
            let first = if n == oldest { place.offset } else { 0 };
            let length = part.length.saturating_sub(first);
            let left_out = length.saturating_sub(room);
            since.left_out += left_out;
            room = room.saturating_sub(length);
            from_each.push((part, first, left_out));
        }
        for (part, first, left_out) in from_each.into_iter().rev() {
            if since.read(&part, first, left_out, upto)? {
                return Ok(Some(since));
            }
        }
        Ok(upto.is_none().then_some(since))
    }
}

impl Since {
    /// Reads the lines from an offset on, without so many bytes; true if there is no need to go on.
    fn read(
        &mut self,
        part: &Part,
        first: u64,
        left_out: u64,
        upto: Option<Place>,
    ) -> io::Result<bool> {
        let (mut reader, mut at) = (BufReader::new(&part.file), first + left_out);
        reader.seek(SeekFrom::Start(at))?;
        if left_out > 0 {
            // This is somewhere in a line.
            at += reader.skip_until(b'\n')? as u64;
        }
        let mut text = Vec::new();
        loop {
            text.clear();
            at += reader.read_until(b'\n', &mut text)? as u64;
            // What has no end yet is being written.
            if text.pop() != Some(b'\n') {
                return Ok(false);
            }
            self.end = part.place(at, &text);
            self.lines.extend(Line::read(&text).map(|line| (line, self.end)));
            if upto == Some(self.end) {
                return Ok(true);
            }
        }
    }
}

/// What whoever wants to read it is told.
pub(crate) fn unreadable(error: &io::Error) -> Problem {
    Problem::new(Kind::Failed, format!("the audit log: {error}"))
}

/// Which of the files a place is in.
fn find(files: &mut [Part], place: Place) -> io::Result<Option<usize>> {
    for (n, part) in files.iter_mut().enumerate() {
        if part.has(place)? {
            return Ok(Some(n));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
