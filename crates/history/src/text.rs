//! Texts line by line, within bounds: whatever is given as a file, reading it comes to an end.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

/// So many bytes are read at most.
const MOST_BYTES: u64 = 1 << 30;
/// What is longer is no line.
const LONGEST: u64 = 16 << 20;
/// After so many bytes it is told how far it is.
const TOLD: u64 = 1 << 20;

/// A line of a text.
pub(crate) struct TextLine<'a> {
    /// From 1 on.
    pub(crate) number: usize,
    pub(crate) text: Cow<'a, str>,
    /// Whether it has an end: the last one may be only half there.
    pub(crate) is_whole: bool,
}

/// What is left to be read, of all files together, and who is told how much was.
pub(crate) struct Allowance<'a> {
    left: u64,
    told_at: u64,
    told: &'a dyn Fn(u64),
}

impl<'a> Allowance<'a> {
    pub(crate) fn new(told: &'a dyn Fn(u64)) -> Self {
        Self { left: MOST_BYTES, told_at: 0, told }
    }

    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, TOO_LARGE));
        };
        self.left = left;
        let read = MOST_BYTES - left;
        if read - self.told_at >= TOLD {
            self.told_at = read;
            (self.told)(read);
        }
        Ok(())
    }
}

const TOO_LARGE: &str = "it is larger than 1 GiB: give a part of it";

/// Hands the lines of a text to `take`, until that fails.
pub(crate) fn each_line<E: From<io::Error>>(
    mut from: impl BufRead,
    allowance: &mut Allowance<'_>,
    mut take: impl FnMut(TextLine<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = from.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        allowance.take(read as u64)?;
        if read as u64 == LONGEST && !line.ends_with(b"\n") {
            skip_line(&mut from, allowance)?;
            line.truncate(0);
            line.extend(b"(too long)\n");
        }
        let (text, is_whole) = (String::from_utf8_lossy(&line), line.ends_with(b"\n"));
        take(TextLine { number, text, is_whole })?;
    }
    Ok(())
}

fn skip_line(from: &mut impl BufRead, allowance: &mut Allowance<'_>) -> io::Result<()> {
    loop {
        let more = from.fill_buf()?;
        let end = more.iter().position(|byte| *byte == b'\n');
        let skipped = end.map_or(more.len(), |end| end + 1);
        from.consume(skipped);
        allowance.take(skipped as u64)?;
        if end.is_some() || skipped == 0 {
            return Ok(());
        }
    }
}
