//! Places in the audit log.
//!
//! A place is known by what is written there, not by how the file is called or where the disk has it: it is found again after
//! a rotation, in a copy, and in what was restored from one; and if what was there is not there any more, that is
//! noticed.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use hmac_sha256::Hash;

/// The longest line: its texts are limited, and what is in JSON for each of their bytes.
const LINE_MAX: u64 = 1 << 20;

/// A place: after a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first line of the file.
    file: u64,
    pub(super) offset: u64,
    /// The line before the place; 0 at the beginning.
    last: u64,
}

impl Place {
    /// A place that no log has.
    pub(crate) const NOWHERE: Self = Self { file: 0, offset: u64::MAX, last: 0 };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}.{:x}", self.file, self.offset, self.last)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.').map(|part| u64::from_str_radix(part, 16).map_err(drop));
        let mut next = || parts.next().unwrap_or(Err(()));
        let place = Self { file: next()?, offset: next()?, last: next()? };
        if parts.next().is_some() { Err(()) } else { Ok(place) }
    }
}

/// What tells a line from others, without its end.
fn mark(line: &[u8]) -> u64 {
    let hash = Hash::hash(line);
    u64::from_le_bytes(std::array::from_fn(|at| hash[at]))
}

/// A file of the log, with at least one line in it.
pub(super) struct Part {
    pub(super) file: File,
    /// What places in it are known by: its first line.
    mark: u64,
    /// What it is known by while it is open.
    pub(super) inode: u64,
    pub(super) length: u64,
}

impl Part {
    /// None if no line in it is whole.
    pub(super) fn new(file: File) -> io::Result<Option<Self>> {
        let (inode, length) = file.metadata().map(|it| (it.ino(), it.len()))?;
        let mut first = Vec::new();
        BufReader::new(&file).take(LINE_MAX).read_until(b'\n', &mut first)?;
        if first.pop() != Some(b'\n') {
            return Ok(None);
        }
        Ok(Some(Self { file, mark: mark(&first), inode, length }))
    }

    /// The place at an offset, after this line.
    pub(super) fn place(&self, offset: u64, line: &[u8]) -> Place {
        Place { file: self.mark, offset, last: if offset == 0 { 0 } else { mark(line) } }
    }

    /// The place after its last whole line.
    pub(super) fn end(&mut self) -> io::Result<Place> {
        let (line, end) = self.line_before(self.length)?;
        Ok(self.place(end, &line))
    }

    /// Whether this is a place in this file.
    pub(super) fn has(&mut self, place: Place) -> io::Result<bool> {
        if place.file != self.mark || place.offset > self.length {
            return Ok(false);
        }
        let (line, end) = self.line_before(place.offset)?;
        Ok(end == place.offset && self.place(end, &line) == place)
    }

    /// The last whole line up to an offset, and where it ends.
    fn line_before(&mut self, offset: u64) -> io::Result<(Vec<u8>, u64)> {
        let mut much = 1 << 12;
        loop {
            let from = offset.saturating_sub(much);
            let mut text = Vec::new();
            self.file.seek(SeekFrom::Start(from))?;
            self.file.by_ref().take(offset - from).read_to_end(&mut text)?;
            let ends = |text: &[u8]| text.iter().rposition(|byte| *byte == b'\n');
            if let Some(end) = ends(&text) {
                let begins = ends(&text[..end]).map(|at| at + 1);
                if let Some(begins) = begins.or_else(|| (from == 0).then_some(0)) {
                    return Ok((text[begins..end].to_vec(), from + end as u64 + 1));
                }
            }
            if from == 0 || much > LINE_MAX {
                return Ok((Vec::new(), 0));
            }
            much *= 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written_and_nothing_else_is_one() {
        let place = Place { file: u64::MAX, offset: 17, last: 3 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for bad in ["", "1.2", "1.2.3.4", "x.2.3", "1.2.", "1.-2.3", "11111111111111111.2.3"] {
            assert_eq!(bad.parse::<Place>(), Err(()), "{bad}");
        }
    }
}
