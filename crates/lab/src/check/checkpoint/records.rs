//! A file of records: each with its length before it, and behind it the checksum of everything so far.
//! What is torn, changed, left out or put elsewhere does not read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

use crc32c::crc32c_append;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How many entries of a list are in one record.
const BATCH: usize = 4096;
/// The longest first line that can be of a checkpoint.
const TITLE_MAX: u64 = 64;
/// The last record.
const END: &str = "end";

/// Why something cannot be read back.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is not what was written.
    Damaged,
    /// The system does not hand it out.
    Io(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

impl From<postcard::Error> for Unread {
    fn from(_: postcard::Error) -> Self {
        Self::Damaged
    }
}

/// Writes records.
pub(crate) struct RecordWriter {
    out: BufWriter<File>,
    sum: u32,
}

impl RecordWriter {
    /// Begins a file with a line for people.
    pub(super) fn new(file: File, title: &str) -> io::Result<Self> {
        let mut writer = Self { out: BufWriter::new(file), sum: 0 };
        writer.write(format!("{title}\n").as_bytes())?;
        Ok(writer)
    }

    /// One record.
    pub(crate) fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> io::Result<()> {
        let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.write(&length.to_le_bytes())?;
        self.write(&bytes)?;
        self.out.write_all(&self.sum.to_le_bytes())
    }

    /// A list of any length.
    pub(crate) fn put_list<T: Serialize>(
        &mut self,
        list: impl ExactSizeIterator<Item = T>,
    ) -> io::Result<()> {
        self.put(&list.len())?;
        let mut list = list.peekable();
        while list.peek().is_some() {
            self.put(&list.by_ref().take(BATCH).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// All has been put; it is on the disk when this returns.
    pub(super) fn finish(mut self) -> io::Result<File> {
        self.put(END)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum = crc32c_append(self.sum, bytes);
        self.out.write_all(bytes)
    }
}

/// Reads records back, in the order in which they were written.
pub(crate) struct RecordReader {
    from: BufReader<File>,
    sum: u32,
}

impl RecordReader {
    /// Begins with the line for people.
    pub(super) fn new(file: File) -> io::Result<(Self, String)> {
        let mut reader = Self { from: BufReader::new(file), sum: 0 };
        let mut title = Vec::new();
        reader.from.by_ref().take(TITLE_MAX).read_until(b'\n', &mut title)?;
        reader.sum = crc32c_append(reader.sum, &title);
        Ok((reader, String::from_utf8_lossy(&title).trim_end().into()))
    }

    /// One record.
    pub(crate) fn get<T: DeserializeOwned>(&mut self) -> Result<T, Unread> {
        let length = self.number()?;
        self.sum = crc32c_append(self.sum, &length.to_le_bytes());
        let mut bytes = Vec::new();
        // No more is made room for than there is.
        self.from.by_ref().take(length.into()).read_to_end(&mut bytes)?;
        self.sum = crc32c_append(self.sum, &bytes);
        match self.number()? == self.sum {
            true => Ok(postcard::from_bytes(&bytes)?),
            false => Err(Unread::Damaged),
        }
    }

    /// A list, one entry after another.
    pub(crate) fn get_each<T: DeserializeOwned>(
        &mut self,
        mut each: impl FnMut(T) -> Result<(), Unread>,
    ) -> Result<(), Unread> {
        let mut left: usize = self.get()?;
        while left > 0 {
            let batch: Vec<T> = self.get()?;
            left = left.checked_sub(batch.len().max(1)).ok_or(Unread::Damaged)?;
            batch.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// A list.
    pub(crate) fn get_list<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, Unread> {
        let mut list = Vec::new();
        self.get_each(|entry| {
            list.push(entry);
            Ok(())
        })?;
        Ok(list)
    }

    /// Whether all has been read.
    pub(super) fn finish(mut self) -> Result<(), Unread> {
        let end: String = self.get()?;
        let ends = end == END && self.from.fill_buf()?.is_empty();
        ends.then_some(()).ok_or(Unread::Damaged)
    }

    fn number(&mut self) -> Result<u32, Unread> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
