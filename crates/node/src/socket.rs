//! The socket at which clients reach the agent.
//!
//! Whoever has the lock beside it may replace what a dead agent left. A supervisor may also have
//! made it and hand it over (`LISTEN_FDS`). If somebody removes it, it comes back.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use holdall_holders::Stream;
use listenfd::ListenFd;
use rustix::fs::{FileType, FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tracing::warn;

use crate::data::InUse;
use crate::directory::{Directory, path_of_handle, replaceable_socket};
use crate::handover::{About, HandedSocket};

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The mode of the socket.
    pub(crate) mode: u32,
    /// Its group, if it is not the agent's own.
    pub(crate) group: Option<u32>,
}

impl Access {
    /// Whether anybody but the owner may connect.
    pub(crate) fn for_others(self) -> bool {
        self.mode & 0o077 != 0
    }
}

/// The last agent at a socket, as it is noted in the lock beside it: so that nobody starts another
/// one in its place, which would know nothing of what it has granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAgent {
    /// Where its files are.
    pub data: PathBuf,
    /// Whether it has a configuration, without which it cannot be started again.
    pub configured: bool,
}

impl LastAgent {
    /// Who was last at a socket, if that is noted.
    ///
    /// # Errors
    /// If the note cannot be read.
    pub fn at(socket: &Path) -> anyhow::Result<Option<Self>> {
        let (dir, name) = parts(socket)?;
        let dir = Directory::of_socket(dir)?;
        let note = dir.read(&lock_name(name))?.filter(|note| !note.is_empty());
        note.map(|note| serde_json::from_slice(&note)).transpose().with_context(|| {
            let path = dir.path_of(&lock_name(name));
            format!("{} cannot be understood; delete it to begin anew", path.display())
        })
    }
}

/// A socket that belongs to this process.
pub(crate) struct Socket {
    listener: UnixListener,
    dir: Directory,
    name: String,
    access: Access,
    lock: File,
    /// The device and number of what is at the path.
    place: (u64, u64),
    /// Whether a supervisor made it, and keeps it when we end.
    handed_over: bool,
}

impl Socket {
    /// Takes the socket that a supervisor hands over, or binds one.
    ///
    /// # Errors
    /// [`InUse`] if another agent listens there; otherwise if it cannot be bound.
    pub(crate) fn open(
        path: &Path,
        access: Access,
        last: &LastAgent,
        handed: Option<HandedSocket>,
    ) -> anyhow::Result<Self> {
        let mut socket = match handed {
            Some(handed) => Self::go_on(handed, path, access)?,
            None => {
                let handed = ListenFd::from_env().take_unix_listener(0);
                match handed.context("what the supervisor handed over is no socket")? {
                    Some(listener) => Self::take_over(listener, path)?,
                    None => Self::bind(path, access)?,
                }
            }
        };
        socket.lock.set_len(0)?;
        socket.lock.rewind()?;
        socket.lock.write_all(serde_json::to_string(last)?.as_bytes())?;
        socket.dir.remove(&stopped_name(&socket.name))?;
        Ok(socket)
    }

    /// Leaves a mark that the agent was stopped on purpose: whoever waits for it does not start another by
    /// itself, or have a supervisor do so.
    pub(crate) fn mark_stopped(&self) {
        let name = stopped_name(&self.name);
        if let Err(error) = self.dir.make_mark(&name) {
            warn!("cannot leave a mark that the agent was stopped: {error}");
        }
    }

    /// Goes on with the socket of the program that was in this process before.
    fn go_on(handed: HandedSocket, path: &Path, access: Access) -> anyhow::Result<Self> {
        let HandedSocket { listener, lock, about } = handed;
        let (dir, name) = locate(path, if access.for_others() { 0o755 } else { 0o700 })?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let About { place, supervised: handed_over } = about;
        Ok(Self { listener, dir, name, access, lock, place, handed_over })
    }

    fn take_over(listener: std::os::unix::net::UnixListener, path: &Path) -> anyhow::Result<Self> {
        let bound = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
        if bound.as_deref() != Some(path) {
            anyhow::bail!("the supervisor handed over another socket than {}", path.display());
        }
        let (dir, name) = locate(path, 0o755)?;
        let lock = lock(&dir, &name)?;
        let found = dir.stat_of(&name).with_context(|| format!("no socket {}", path.display()))?;
        let access = Access { mode: found.st_mode & 0o777, group: Some(found.st_gid) };
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let place = (found.st_dev, found.st_ino);
        Ok(Self { listener, dir, name, access, lock, place, handed_over: true })
    }

    fn bind(path: &Path, access: Access) -> anyhow::Result<Self> {
        let (dir, name) = locate(path, if access.for_others() { 0o755 } else { 0o700 })?;
        let lock = lock(&dir, &name)?;
        let (listener, place) = listen(&dir, &name, access)?;
        Ok(Self { listener, dir, name, access, lock, place, handed_over: false })
    }

    /// What another program needs to go on with it: the listener, the lock, and what is known of it.
    pub(crate) fn to_hand_over(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>, About) {
        let about = About { place: self.place, supervised: self.handed_over };
        (self.listener.as_fd(), self.lock.as_fd(), about)
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        let (stream, _) = self.listener.accept().await?;
        Stream::new(stream.into_std()?)
    }

    /// If the socket has been removed, binds it again.
    ///
    /// # Errors
    /// [`InUse`] if another agent has taken its place meanwhile; otherwise if it cannot be bound.
    pub(crate) fn restore(&mut self) -> anyhow::Result<()> {
        let found = self.dir.stat_of(&self.name).map(|stat| (stat.st_dev, stat.st_ino));
        if self.dir.in_place() && found.is_ok_and(|found| found == self.place) {
            return Ok(());
        }
        warn!(socket = %self.dir.path_of(&self.name).display(), "the socket was removed; binding it again");
        let mode = if self.access.for_others() { 0o755 } else { 0o700 };
        let dir = Directory::for_socket(self.dir.path(), mode)?;
        if !dir.leads_to(&lock_name(&self.name), &self.lock) {
            let mut note = Vec::new();
            self.lock.rewind()?;
            self.lock.read_to_end(&mut note)?;
            self.lock = lock(&dir, &self.name)?;
            self.lock.write_all(&note)?;
        }
        let (listener, place) = listen(&dir, &self.name, self.access)?;
        (self.listener, self.dir, self.place) = (listener, dir, place);
        self.handed_over = false;
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let found = self.dir.stat_of(&self.name).map(|stat| (stat.st_dev, stat.st_ino));
        if !self.handed_over && found.is_ok_and(|found| found == self.place) {
            // If it stays, the next agent replaces it.
            let _ = self.dir.remove(&self.name);
        }
    }
}

fn locate(path: &Path, mode: u32) -> anyhow::Result<(Directory, String)> {
    let (dir, name) = parts(path)?;
    Ok((Directory::for_socket(dir, mode)?, name.to_owned()))
}

/// The directory of a socket, and its name there.
fn parts(path: &Path) -> anyhow::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} is no name for a socket", path.display()))?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    Ok((dir.unwrap_or_else(|| Path::new(".")), name))
}

/// The mark of an agent that was stopped on purpose.
fn stopped_name(name: &str) -> String {
    format!("{name}.stopped")
}

fn lock_name(name: &str) -> String {
    format!("{name}.lock")
}

fn lock(dir: &Directory, name: &str) -> anyhow::Result<File> {
    let lock = dir.lock_file(&lock_name(name))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        anyhow::bail!(InUse(dir.path_of(name)));
    }
    Ok(lock)
}

/// Binds under another name first: whoever finds the socket finds somebody listening, and with
/// the right access.
fn listen(
    dir: &Directory,
    name: &str,
    access: Access,
) -> anyhow::Result<(UnixListener, (u64, u64))> {
    let new = format!("{name}.new");
    replaceable_socket(&dir.path_of(name))?;
    replaceable_socket(&dir.path_of(&new))?;
    dir.remove(&new)?;
    let told = || format!("cannot listen at {}", dir.path_of(name).display());
    let listener = UnixListener::bind(dir.certain_path_of(&new)).with_context(told)?;
    holdall_holders::take_no_descriptors(&listener);
    // What is there now, and nothing that somebody puts in its place.
    let handle = dir.handle_of(&new).with_context(told)?;
    let found = rustix::fs::fstat(&handle).with_context(told)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    anyhow::ensure!(is_socket, "{}: somebody has replaced the new socket", told());
    let path = path_of_handle(handle.as_fd());
    chown(&path, None, access.group).with_context(told)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(access.mode)).with_context(told)?;
    dir.rename(&new, name)?;
    Ok((listener, (found.st_dev, found.st_ino)))
}
