//! The socket at which clients reach the agent.
//!
//! Whoever has the lock beside it may replace what a dead agent left. A supervisor may also have
//! made it and hand it over (`LISTEN_FDS`). If somebody removes it, it comes back.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Where it was to serve HTTP over TCP.
    #[serde(default)]
    pub http: Option<SocketAddr>,
    /// Where it was to serve metrics.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// After what time without work it was to end by itself.
    #[serde(default)]
    pub idle_exit: Option<Duration>,
}

impl LastAgent {
    /// Who was last at a socket, if that is noted.
    ///
    /// # Errors
    /// If the note cannot be read.
    pub fn at(socket: &Path) -> anyhow::Result<Option<Self>> {
        let (dir, name) = parts(socket)?;
        let dir = Directory::of_socket(dir)?;
        // It never is there without a note: one that says nothing is not taken for nobody's.
        let note = dir.read(&lock_name(name))?;
        note.map(|note| serde_json::from_slice(&note)).transpose().with_context(|| {
            let path = dir.path_of(&lock_name(name));
            format!(
                "{} does not tell which agent was here; start that as it was, or delete this file to \
                 begin anew",
                path.display()
            )
        })
    }

    fn note(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// The place of a socket that no other agent can take, before anybody is served there.
pub(crate) struct Claim {
    dir: Directory,
    name: String,
    access: Access,
    lock: File,
    found: Found,
}

/// Where the socket itself comes from.
enum Found {
    /// It is to be bound.
    Nothing,
    /// It was handed over, by a supervisor or by the program that was in this process before.
    Socket(std::os::unix::net::UnixListener, About),
}

impl Claim {
    /// Claims the place for an agent, with the socket that was handed over if there is one.
    ///
    /// # Errors
    /// [`InUse`] if another agent has it; otherwise if it cannot be had.
    pub(crate) fn new(
        path: &Path,
        access: Access,
        agent: &LastAgent,
        handed: Option<HandedSocket>,
    ) -> anyhow::Result<Self> {
        let mode = if access.for_others() { 0o755 } else { 0o700 };
        if let Some(HandedSocket { listener, lock, about }) = handed {
            let (dir, name) = locate(path, mode)?;
            return Ok(Self { dir, name, access, lock, found: Found::Socket(listener, about) });
        }
        let handed = ListenFd::from_env().take_unix_listener(0);
        let Some(listener) = handed.context("what the supervisor handed over is no socket")? else {
            let (dir, name) = locate(path, mode)?;
            let lock = lock(&dir, &name, &agent.note()?)?;
            return Ok(Self { dir, name, access, lock, found: Found::Nothing });
        };
        let bound = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
        if bound.as_deref() != Some(path) {
            anyhow::bail!("the supervisor handed over another socket than {}", path.display());
        }
        let (dir, name) = locate(path, 0o755)?;
        let lock = lock(&dir, &name, &agent.note()?)?;
        let found = dir.stat_of(&name).with_context(|| format!("no socket {}", path.display()))?;
        let access = Access { mode: found.st_mode & 0o777, group: Some(found.st_gid) };
        let about = About { place: (found.st_dev, found.st_ino), supervised: true };
        Ok(Self { dir, name, access, lock, found: Found::Socket(listener, about) })
    }

    /// Opens the socket, notes whose it is, and takes away the mark of an agent that was stopped.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub(crate) fn open(self, agent: &LastAgent) -> anyhow::Result<Socket> {
        let Self { dir, name, access, lock, found } = self;
        let (listener, about) = match found {
            Found::Socket(listener, about) => {
                listener.set_nonblocking(true)?;
                (UnixListener::from_std(listener)?, about)
            }
            Found::Nothing => {
                let (listener, place) = listen(&dir, &name, access)?;
                (listener, About { place, supervised: false })
            }
        };
        put_down(&lock, &agent.note()?)?;
        dir.remove(&stopped_name(&name))?;
        let About { place, supervised: handed_over } = about;
        Ok(Socket { listener, dir, name, access, lock, place, handed_over })
    }
}

/// Puts a note down in place of another. Whoever is killed meanwhile leaves one that can be read: the new one is
/// there, with blanks behind it, before it is cut to its length.
fn put_down(lock: &File, note: &[u8]) -> io::Result<()> {
    let length = usize::try_from(lock.metadata()?.len()).unwrap_or(usize::MAX);
    let mut before = vec![0; length.min(NOTE_MAX)];
    lock.read_exact_at(&mut before, 0)?;
    if before == note {
        return Ok(());
    }
    let mut padded = note.to_vec();
    padded.resize(before.len().max(note.len()), b' ');
    lock.write_all_at(&padded, 0)?;
    lock.set_len(note.len() as u64)
}

/// The longest note there may be.
const NOTE_MAX: usize = 1 << 16;

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
    /// Leaves a mark that the agent was stopped on purpose: whoever waits for it does not start another by
    /// itself, or have a supervisor do so.
    pub(crate) fn mark_stopped(&self) {
        let name = stopped_name(&self.name);
        if let Err(error) = self.dir.make_mark(&name) {
            warn!("cannot leave a mark that the agent was stopped: {error}");
        }
    }

    /// What another program needs to go on with it: the listener, the lock, and what is known of it.
    pub(crate) fn to_hand_over(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>, About) {
        let about = About { place: self.place, supervised: self.handed_over };
        (self.listener.as_fd(), self.lock.as_fd(), about)
    }

    /// Listens beside it, with the same access, for those who speak another language.
    ///
    /// # Errors
    /// If that cannot be bound.
    pub(crate) fn listen_beside(
        &self,
        name: &str,
    ) -> anyhow::Result<(std::os::unix::net::UnixListener, Beside)> {
        let mode = if self.access.for_others() { 0o755 } else { 0o700 };
        let dir = Directory::for_socket(self.dir.path(), mode)?;
        let (listener, place) = listen(&dir, name, self.access)?;
        Ok((listener.into_std()?, Beside { dir, name: name.to_owned(), place }))
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
            self.lock = lock(&dir, &self.name, &note)?;
            put_down(&self.lock, &note)?;
        }
        let (listener, place) = listen(&dir, &self.name, self.access)?;
        (self.listener, self.dir, self.place) = (listener, dir, place);
        self.handed_over = false;
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.handed_over {
            remove(&self.dir, &self.name, self.place);
        }
    }
}

/// Where a socket beside another one is; it goes when this does.
pub(crate) struct Beside {
    dir: Directory,
    name: String,
    place: (u64, u64),
}

impl Beside {
    /// Whether it is still there.
    pub(crate) fn in_place(&self) -> bool {
        let found = self.dir.stat_of(&self.name).map(|stat| (stat.st_dev, stat.st_ino));
        self.dir.in_place() && found.is_ok_and(|found| found == self.place)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        remove(&self.dir, &self.name, self.place);
    }
}

/// Removes a socket, if nobody has put another in its place.
fn remove(dir: &Directory, name: &str, place: (u64, u64)) {
    let found = dir.stat_of(name).map(|stat| (stat.st_dev, stat.st_ino));
    if found.is_ok_and(|found| found == place) {
        // If it stays, the next agent replaces it.
        let _ = dir.remove(name);
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

/// Takes the lock beside a socket; if it is not there it is made, with a note in it from the first moment on.
fn lock(dir: &Directory, name: &str, note: &[u8]) -> anyhow::Result<File> {
    let file = lock_name(name);
    if !dir.has(&file) {
        dir.make_with(&file, note)?;
    }
    let lock = dir.lock_file(&file)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_can_be_read_at_every_moment() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("s");
        assert_eq!(LastAgent::at(&socket).expect("nothing there"), None);
        let own = Directory::for_socket(dir.path(), 0o700).expect("ours");
        let short = LastAgent {
            data: "/b".into(),
            configured: false,
            http: None,
            metrics: None,
            idle_exit: None,
        };
        let long = LastAgent {
            data: "/a/long/way/to/go".into(),
            configured: true,
            http: Some(([127, 0, 0, 1], 7421).into()),
            metrics: Some(([127, 0, 0, 1], 9187).into()),
            idle_exit: Some(Duration::from_millis(2500)),
        };
        let lock = lock(&own, "s", &long.note().expect("words")).expect("free");
        assert_eq!(LastAgent::at(&socket).expect("noted"), Some(long.clone()));
        for next in [&short, &long, &long, &short] {
            put_down(&lock, &next.note().expect("words")).expect("writable");
            assert_eq!(LastAgent::at(&socket).expect("noted").as_ref(), Some(next));
        }
        // Killed before it was cut to its length.
        let note = [&short.note().expect("words")[..], b"      "].concat();
        lock.set_len(0).expect("writable");
        assert!(LastAgent::at(&socket).is_err(), "it does not say that nobody was here");
        lock.write_all_at(&note, 0).expect("writable");
        assert_eq!(LastAgent::at(&socket).expect("noted"), Some(short.clone()));
        // One of a former version.
        lock.set_len(0).expect("writable");
        lock.write_all_at(br#"{"data":"/b","configured":false}"#, 0).expect("writable");
        assert_eq!(LastAgent::at(&socket).expect("noted"), Some(short));
    }
}
