//! Files that are either the old or the new one, and are known to be whole.
//!
//! A file is written beside its place, synced, and renamed; then the directory is synced. Whoever does that has
//! `lock` beside it locked: a host of a cell and the agent that it belongs to keep what they know in the same one. It is its
//! owner's alone, and no link is followed. What is kept as a value has a first line that says what it is and in which
//! version, and a checksum: a damaged file is refused, never read as something else.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest file that is read.
const FILE_MAX: u64 = 256 << 20;

/// Why something kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read or written.
    #[error("{file}: {why}", file = .0.display(), why = .1)]
    File(PathBuf, io::Error),
    /// It is not what was written.
    #[error("{file} is damaged ({1}): put back a copy, or move the directory away and join again with a token for this member", file = .0.display())]
    Damaged(PathBuf, &'static str),
}

/// Makes a directory of the owner's alone, if there is none.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| Error::File(dir.into(), error))
}

/// Replaces a file.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let new = path.with_added_extension("new");
    let _lock = lock(&path.with_file_name("lock"))?;
    let written = || {
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    written().map_err(|error| Error::File(path.into(), error))
}

/// All of a file; nothing if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let failed = |error| Error::File(path.into(), error);
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut content = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_MAX {
        return Err(Error::Damaged(path.into(), "it is far too long"));
    }
    Ok(Some(content))
}

/// Keeps a value. `first` is the file's first line.
pub(crate) fn keep<T: Serialize>(path: &Path, first: &str, value: &T) -> Result<(), Error> {
    let encoded = postcard::to_stdvec(value);
    let encoded = encoded.map_err(|error| Error::File(path.into(), io::Error::other(error)))?;
    let mut content = format!("{first}\n").into_bytes();
    content.extend(crc32c::crc32c(&encoded).to_le_bytes());
    content.extend(encoded);
    replace(path, &content)
}

/// A value that was kept; nothing if there is no such file.
pub(crate) fn kept<T: DeserializeOwned>(path: &Path, first: &str) -> Result<Option<T>, Error> {
    let Some(content) = read(path)? else { return Ok(None) };
    let damaged = |why| Error::Damaged(path.into(), why);
    let rest = content.strip_prefix(first.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n"));
    let rest = rest.ok_or_else(|| damaged("its first line is not the one of this version"))?;
    let (sum, encoded) = rest.split_first_chunk().ok_or_else(|| damaged("it is cut off"))?;
    if u32::from_le_bytes(*sum) != crc32c::crc32c(encoded) {
        return Err(damaged("its checksum is wrong"));
    }
    postcard::from_bytes(encoded).map(Some).map_err(|_| damaged("its content makes no sense"))
}

/// Waits until nobody else has this file locked, and has it until the answer is dropped.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    let locked = || {
        let file = private().create(true).truncate(false).open(path)?;
        file.lock()?;
        Ok(file)
    };
    locked().map_err(|error| Error::File(path.into(), error))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.write(true).mode(0o600).custom_flags(flags);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const FIRST: &str = "holdall test 1";

    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kept");
        (dir, path)
    }

    #[test]
    fn what_is_kept_comes_back_and_is_private() {
        let (_dir, path) = file();
        assert!(kept::<u64>(&path, FIRST).expect("readable").is_none());
        for value in [7u64, 8] {
            keep(&path, FIRST, &value).expect("kept");
            assert_eq!(kept(&path, FIRST).expect("readable"), Some(value));
        }
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let (_dir, path) = file();
        keep(&path, FIRST, &(1u64 << 40, "text")).expect("kept");
        let whole = std::fs::read(&path).expect("there");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).expect("written");
            let read = kept::<(u64, String)>(&path, FIRST);
            assert!(matches!(read, Err(Error::Damaged(..))), "byte {at}");
            std::fs::write(&path, &whole[..at]).expect("written");
            let read = kept::<(u64, String)>(&path, FIRST);
            assert!(matches!(read, Err(Error::Damaged(..))), "cut at {at}");
        }
    }

    #[test]
    fn two_replace_a_file_at_a_time() {
        let (_dir, path) = file();
        std::thread::scope(|scope| {
            for one in [b"one", b"two"] {
                let path = &path;
                scope.spawn(move || (0..100).for_each(|_| replace(path, one).expect("replaced")));
            }
        });
        let left = std::fs::read(&path).expect("there");
        assert!(left == b"one" || left == b"two");
    }

    #[test]
    fn links_are_not_followed() {
        let (dir, path) = file();
        let theirs = dir.path().join("theirs");
        std::fs::write(&theirs, "precious").expect("written");
        std::os::unix::fs::symlink(&theirs, path.with_added_extension("new")).expect("a link");
        replace(&path, b"ours").expect("in its place");
        assert_eq!(std::fs::read_to_string(&theirs).expect("there"), "precious");
        std::fs::remove_file(&path).expect("there");
        std::os::unix::fs::symlink(&theirs, &path).expect("a link");
        assert!(read(&path).is_err());
    }
}
