//! A directory whose files nobody else can touch.
//!
//! It is opened once, and its files are opened by name inside it, so it makes no difference what
//! becomes of the path later. No link is followed, neither at the end of the path nor inside.
//!
//! # Invariants
//! - It belongs to this process's user. One that holds a socket may also belong to root, and be
//!   open to all with the sticky bit, as `/tmp` is.
//! - Every file that is opened in it is a regular file of this process's user.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

/// Why a directory or a file in it is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unsafe {
    /// It is somebody else's.
    #[error("{0} belongs to uid {1}, who could replace what is kept there; choose another place")]
    Foreign(PathBuf, u32),
    /// It is a link, or something else than a directory or file.
    #[error("{0} is a link or no {1}; name what it stands for, or remove it")]
    Odd(PathBuf, &'static str),
    /// Another program has bound it.
    #[error("{0} is the socket of a program that runs and does not listen; choose another place")]
    Bound(PathBuf),
    /// Others may write to it.
    #[error("others may write to {0}; `chmod go-w {0}`, or choose another place")]
    Writable(PathBuf),
    /// It cannot be opened, or written.
    #[error("cannot use {0}: {1}")]
    Io(PathBuf, io::Error),
}

impl Unsafe {
    /// Whether nothing is there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Io(_, error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// A directory that is open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// A directory for this user's files alone, made if need be where there is one above it.
    ///
    /// # Errors
    /// If it cannot be made, or others could write to it or replace it.
    pub fn private(path: &Path) -> Result<Self, Unsafe> {
        // What is above may be a link: the administrator's, or of whoever named the path.
        if let Some(above) = path.parent()
            && let Ok(found) = rustix::fs::stat(above)
        {
            only_ours_change(above, &found)?;
        }
        nobody_above(path)?;
        let dir = Self::open_or_make(path, 0o700)?;
        let stat = dir.stat()?;
        if stat.st_uid != own_uid() {
            return Err(Unsafe::Foreign(path.into(), stat.st_uid));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(Unsafe::Writable(path.into()));
        }
        Ok(dir)
    }

    /// A directory for a socket, made with a mode if need be where there is one above it.
    ///
    /// # Errors
    /// If it cannot be made, or others could replace what is in it.
    pub fn for_socket(path: &Path, mode: u32) -> Result<Self, Unsafe> {
        let dir = Self::open_or_make(path, mode)?;
        only_ours_change(path, &dir.stat()?)?;
        nobody_above(path)?;
        Ok(dir)
    }

    /// A directory for a socket that is there.
    ///
    /// # Errors
    /// If it is not, or others could replace what is in it.
    pub fn of_socket(path: &Path) -> Result<Self, Unsafe> {
        if !path.try_exists().map_err(|error| Unsafe::Io(path.into(), error))? {
            return Err(Unsafe::Io(path.into(), io::ErrorKind::NotFound.into()));
        }
        Self::for_socket(path, 0o700)
    }

    fn open_or_make(path: &Path, mode: u32) -> Result<Self, Unsafe> {
        let failed = |error: io::Error| Unsafe::Io(path.into(), error);
        let made = !path.try_exists().map_err(failed)?;
        let builder = std::fs::DirBuilder::new().mode(mode).create(path);
        builder.or_else(|error| match path.symlink_metadata() {
            Ok(_) => Ok(()), // If it is no directory, that is told below.
            Err(_) => Err(failed(error)),
        })?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return Err(Unsafe::Odd(path.into(), "directory"));
            }
            Err(error) => return Err(failed(error.into())),
        };
        let dir = Self { fd, path: path.into() };
        if made {
            dir.set_mode(mode)?; // Whatever the umask says.
        }
        Ok(dir)
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of one of its files, for people.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What tells it from all others: its device and its number there.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn identity(&self) -> Result<(u64, u64), Unsafe> {
        self.stat().map(|stat| (stat.st_dev, stat.st_ino))
    }

    /// Whether its path still leads to it.
    pub fn in_place(&self) -> bool {
        let there = rustix::fs::lstat(&self.path).map(|stat| (stat.st_dev, stat.st_ino));
        let here = rustix::fs::fstat(&self.fd).map(|stat| (stat.st_dev, stat.st_ino));
        there.is_ok() && there == here
    }

    /// Changes who may enter it.
    ///
    /// # Errors
    /// If that fails.
    pub fn set_mode(&self, mode: u32) -> Result<(), Unsafe> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode)).map_err(|e| self.failed("", e))
    }

    /// Opens a file to lock it. Nobody else may, since whoever can open a file can lock it.
    ///
    /// # Errors
    /// If that fails, or it is somebody else's.
    pub fn lock_file(&self, name: &str) -> Result<File, Unsafe> {
        let file = self.open(name, OFlags::CREATE | OFlags::RDWR, 0o600)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)).map_err(|e| self.failed(name, e))?;
        Ok(file)
    }

    /// Opens a file to read it, and so that whoever it is handed to can do no more.
    ///
    /// # Errors
    /// If that fails, or it is somebody else's.
    pub fn read_only(&self, name: &str) -> Result<File, Unsafe> {
        self.open(name, OFlags::RDONLY, 0)
    }

    /// The names of its files.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Unsafe> {
        let entries = rustix::fs::Dir::read_from(&self.fd).map_err(|e| self.failed("", e))?;
        let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect::<Result<_, _>>().map_err(|e| self.failed("", e))
    }

    /// Opens a file to write at its end; nobody else may read it.
    ///
    /// # Errors
    /// If that fails, or it is somebody else's.
    pub fn append(&self, name: &str) -> Result<File, Unsafe> {
        self.open(name, OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND, 0o600)
    }

    /// Makes an empty file for everybody to see.
    ///
    /// # Errors
    /// If that fails, or it is somebody else's.
    pub(crate) fn make_mark(&self, name: &str) -> Result<(), Unsafe> {
        let file = self.open(name, OFlags::CREATE | OFlags::WRONLY, 0o644)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(|e| self.failed(name, e))
    }

    /// The content of a file, if it is there.
    ///
    /// # Errors
    /// If it cannot be read, or is somebody else's.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Unsafe> {
        let mut file = match self.open(name, OFlags::RDONLY, 0) {
            Err(error) if error.is_absent() => return Ok(None),
            opened => opened?,
        };
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(|error| Unsafe::Io(self.path_of(name), error))?;
        Ok(Some(content))
    }

    /// Whether something of this name is there.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// What is known of a file, without following links.
    pub(crate) fn stat_of(&self, name: &str) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Whether a name leads to a file that was opened under it.
    pub(crate) fn leads_to(&self, name: &str, file: &File) -> bool {
        let there = self.stat_of(name).map(|stat| (stat.st_dev, stat.st_ino));
        let here = rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        matches!((there, here), (Ok(there), Ok(here)) if there == here)
    }

    /// Replaces a file so that after a crash it is either the old or the new one.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), Unsafe> {
        let (new, file) = self.write_new(name, content)?;
        file.sync_all().map_err(|error| Unsafe::Io(self.path_of(name), error))?;
        self.rename(&new, name)?;
        rustix::fs::fsync(&self.fd).map_err(|error| self.failed(name, error))
    }

    /// Replaces a file so that after the end of this process it is either the old or the new one,
    /// and leaves the new one open to write at its end.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn rewrite(&self, name: &str, content: &[u8]) -> Result<File, Unsafe> {
        let (new, file) = self.write_new(name, content)?;
        self.rename(&new, name)?;
        Ok(file)
    }

    /// Makes a file that has its content as soon as it is there. One that is there already stays.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn make_with(&self, name: &str, content: &[u8]) -> Result<(), Unsafe> {
        let (new, _) = self.write_new(name, content)?;
        match rustix::fs::linkat(&self.fd, &new, &self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.remove(&new),
            // Some file systems know no second names.
            Err(_) => self.rename(&new, name),
        }
    }

    fn write_new(&self, name: &str, content: &[u8]) -> Result<(String, File), Unsafe> {
        let new = format!("{name}.new");
        self.remove(&new)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND;
        let mut file = self.open(&new, flags, 0o600)?;
        file.write_all(content).map_err(|error| Unsafe::Io(self.path_of(name), error))?;
        Ok((new, file))
    }

    /// A file as it is, without following links, for calls that know only paths.
    pub(crate) fn handle_of(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?)
    }

    /// A path to a name in it that leads nowhere else, whatever becomes of the directories above.
    pub(crate) fn certain_path_of(&self, name: &str) -> PathBuf {
        path_of_handle(self.fd.as_fd()).join(name)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// If that fails.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), Unsafe> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(|error| self.failed(to, error))
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// If that fails.
    pub fn remove(&self, name: &str) -> Result<(), Unsafe> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    fn open(&self, name: &str, flags: OFlags, mode: u32) -> Result<File, Unsafe> {
        // Whatever waits for a writer or a reader is no file of ours; do not wait with it.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::LOOP) => return Err(Unsafe::Odd(self.path_of(name), "file")),
            Err(error) => return Err(self.failed(name, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| self.failed(name, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Unsafe::Odd(self.path_of(name), "file"));
        }
        if stat.st_uid != own_uid() {
            return Err(Unsafe::Foreign(self.path_of(name), stat.st_uid));
        }
        Ok(fd.into())
    }

    fn stat(&self) -> Result<Stat, Unsafe> {
        rustix::fs::fstat(self.fd.as_fd()).map_err(|error| self.failed("", error))
    }

    fn failed(&self, name: &str, error: rustix::io::Errno) -> Unsafe {
        let path = if name.is_empty() { self.path.clone() } else { self.path_of(name) };
        Unsafe::Io(path, error.into())
    }
}

/// A path that leads to what is open.
pub(crate) fn path_of_handle(handle: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", handle.as_raw_fd()).into()
}

/// Whether a path is free, or leads to a socket that an agent of this user has left.
///
/// # Errors
/// If it leads to anything else, which nobody may replace.
pub fn replaceable_socket(path: &Path) -> Result<(), Unsafe> {
    let Ok(found) = rustix::fs::lstat(path) else { return Ok(()) };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Unsafe::Odd(path.into(), "socket"));
    }
    if found.st_uid != own_uid() {
        return Err(Unsafe::Foreign(path.into(), found.st_uid));
    }
    // An agent binds under another name. Whoever is known by this one has bound it, and has not
    // begun to listen, or has stopped: it is a program that runs.
    let bound = std::fs::read(SOCKETS).unwrap_or_default();
    let name = path.as_os_str().as_bytes();
    let is_this =
        |line: &[u8]| line.strip_suffix(name).is_some_and(|before| before.ends_with(b" "));
    if bound.split(|byte| *byte == b'\n').any(is_this) {
        return Err(Unsafe::Bound(path.into()));
    }
    Ok(())
}

/// The sockets that are bound, by the paths that they were bound to.
const SOCKETS: &str = "/proc/net/unix";

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether only root and this user can replace what is in a directory.
fn only_ours_change(path: &Path, stat: &Stat) -> Result<(), Unsafe> {
    if stat.st_uid != own_uid() && stat.st_uid != 0 {
        return Err(Unsafe::Foreign(path.into(), stat.st_uid));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    let own_group = [0, rustix::process::getegid().as_raw()].contains(&stat.st_gid);
    let others = mode.contains(Mode::WOTH) || (mode.contains(Mode::WGRP) && !own_group);
    if others && !mode.contains(Mode::SVTX) {
        return Err(Unsafe::Writable(path.into()));
    }
    Ok(())
}

/// Whether nobody else owns a directory above, and could have another one take the place of this.
fn nobody_above(path: &Path) -> Result<(), Unsafe> {
    for above in path.ancestors().skip(1) {
        let Ok(found) = rustix::fs::stat(above) else { continue };
        let ours = [0, own_uid(), UNMAPPED].contains(&found.st_uid);
        if !ours {
            return Err(Unsafe::Foreign(above.into(), found.st_uid));
        }
    }
    Ok(())
}

/// Who owns, in a user namespace, whatever is owned by somebody outside: root, mostly.
const UNMAPPED: u32 = 65_534;

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn what_is_made_is_ours_alone_and_files_are_replaced_whole() {
        let work = tempfile::tempdir().expect("a directory");
        assert!(Directory::private(&work.path().join("a/b")).is_err_and(|e| e.is_absent()));
        assert!(Directory::of_socket(&work.path().join("a")).is_err_and(|e| e.is_absent()));
        assert!(!work.path().join("a").exists(), "what is misspelt is not made");
        let dir = Directory::private(&work.path().join("b")).expect("made");
        assert_eq!(fs::metadata(dir.path()).expect("there").permissions().mode() & 0o777, 0o700);
        assert_eq!(dir.read("x").expect("readable"), None);
        dir.replace("x", b"one").expect("writable");
        dir.replace("x", b"two").expect("writable");
        assert_eq!(dir.read("x").expect("readable").as_deref(), Some(&b"two"[..]));
        assert!(dir.in_place() && dir.has("x") && !dir.has("x.new"));
        fs::rename(dir.path(), work.path().join("elsewhere")).expect("renamed");
        assert!(!dir.in_place());
        dir.replace("x", b"three").expect("it is still open");
        assert_eq!(fs::read(work.path().join("elsewhere/x")).expect("there"), b"three");
    }

    #[test]
    fn no_link_is_followed() {
        let work = tempfile::tempdir().expect("a directory");
        let victim = work.path().join("victim");
        fs::write(&victim, "precious").expect("writable");
        let dir = Directory::private(&work.path().join("data")).expect("made");
        for name in ["x", "x.new", "log", "lock"] {
            symlink(&victim, dir.path_of(name)).expect("linked");
        }
        assert!(matches!(dir.read("x"), Err(Unsafe::Odd(..))));
        assert!(matches!(dir.append("log"), Err(Unsafe::Odd(..))));
        assert!(matches!(dir.lock_file("lock"), Err(Unsafe::Odd(..))));
        dir.replace("x", b"ours").expect("the links themselves are replaced");
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
        let link = work.path().join("link");
        symlink(dir.path(), &link).expect("linked");
        assert!(matches!(Directory::private(&link), Err(Unsafe::Odd(..))));
        assert!(matches!(Directory::for_socket(&link, 0o700), Err(Unsafe::Odd(..))));
        symlink(work.path().join("nowhere"), work.path().join("dangling")).expect("linked");
        assert!(Directory::private(&work.path().join("dangling")).is_err());
        assert!(!work.path().join("nowhere").exists());
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let work = tempfile::tempdir().expect("a directory");
        let open = work.path().join("open");
        fs::create_dir(&open).expect("made");
        mode(&open, 0o777);
        assert!(matches!(Directory::private(&open), Err(Unsafe::Writable(_))));
        assert!(matches!(Directory::private(&open.join("in")), Err(Unsafe::Writable(_))));
        assert!(matches!(Directory::for_socket(&open, 0o700), Err(Unsafe::Writable(_))));
        mode(&open, 0o1777);
        assert!(Directory::for_socket(&open, 0o700).is_ok());
        assert!(Directory::private(&open.join("in")).is_ok());
        let pipe = open.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).expect("a pipe");
        let dir = Directory::for_socket(&open, 0o700).expect("sticky");
        assert!(dir.append("pipe").is_err() && dir.read("pipe").is_err());
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        if own_uid() != 0 {
            return; // Only root can make something that belongs to another.
        }
        let work = tempfile::tempdir().expect("a directory");
        let theirs = work.path().join("theirs");
        fs::create_dir(&theirs).expect("made");
        std::os::unix::fs::chown(&theirs, Some(65_534), None).expect("root may");
        assert!(matches!(Directory::private(&theirs), Err(Unsafe::Foreign(_, 65_534))));
        assert!(matches!(Directory::private(&theirs.join("in")), Err(Unsafe::Foreign(..))));
        assert!(matches!(Directory::for_socket(&theirs, 0o700), Err(Unsafe::Foreign(..))));
        let group = work.path().join("group");
        fs::create_dir(&group).expect("made");
        std::os::unix::fs::chown(&group, None, Some(1234)).expect("root may");
        mode(&group, 0o775);
        assert!(matches!(Directory::for_socket(&group, 0o700), Err(Unsafe::Writable(_))));
        let ours_below = work.path().join("eve/ours/deeper");
        fs::create_dir_all(&ours_below).expect("made");
        std::os::unix::fs::chown(work.path().join("eve"), Some(1234), None).expect("root may");
        assert!(matches!(Directory::for_socket(&ours_below, 0o700), Err(Unsafe::Foreign(_, 1234))));
        assert!(matches!(Directory::private(&ours_below), Err(Unsafe::Foreign(_, 1234))));
        let dir = Directory::private(&work.path().join("ours")).expect("made");
        fs::write(dir.path_of("file"), "").expect("writable");
        std::os::unix::fs::chown(dir.path_of("file"), Some(65_534), None).expect("root may");
        assert!(matches!(dir.append("file"), Err(Unsafe::Foreign(..))));
    }
}
