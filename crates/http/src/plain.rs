//! Plain files. The directory may be somebody else's than ours, who may have put anything there: no link is followed, and
//! nobody is waited for, as at a FIFO.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The longest file that is read.
const LONGEST: u64 = 1 << 24;

/// Opens a plain file.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.custom_flags(careful.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("it is a link, and none is followed; move it away"),
        Some(Errno::NXIO) => no_plain_file(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_plain_file()) }
}

/// What is in a plain file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    all_of(open(OpenOptions::new().read(true), path)?)
}

/// What is in a plain file that the administrator has named: a link is followed.
pub(crate) fn read_named(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { all_of(file) } else { Err(no_plain_file()) }
}

fn all_of(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes; move it away")));
    }
    Ok(bytes)
}

fn no_plain_file() -> io::Error {
    io::Error::other("it is no plain file; move it away")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_file_is_told_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), mode).expect("a FIFO");
        std::fs::write(at("plain"), "words").expect("written");
        std::os::unix::fs::symlink("plain", at("link")).expect("a link");
        File::create(at("long")).and_then(|long| long.set_len(1 << 40)).expect("a hole");
        assert_eq!(read(&at("plain")).expect("read"), b"words");
        assert_eq!(read(&at("none")).expect_err("none").kind(), io::ErrorKind::NotFound);
        let refused = |name: &str| read(&at(name)).expect_err("refused").to_string();
        assert!(
            refused("fifo").contains("no plain file") && refused(".").contains("no plain file")
        );
        assert!(refused("link").contains("a link") && refused("long").contains("longer than"));
        let written = open(OpenOptions::new().write(true), &at("fifo"));
        assert!(written.expect_err("refused").to_string().contains("no plain file"));
    }
}
