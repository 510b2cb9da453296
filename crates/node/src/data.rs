//! The data directory of an agent.
//!
//! | file | what |
//! |---|---|
//! | `lock`, `segment-*`, `snapshot-*`, `epoch`, `doubt` | the log of the cell (`docs/log.md`); a twin of `epoch` is beside the directory |
//! | `known-as`, `known-as.lost` | which member of a cluster this is; a twin of the first is beside the directory (`docs/cluster.md`) |
//! | `behind.json` | that another member has known more of this one than its log tells (`docs/cluster.md`) |
//! | `agent.lock` | locked by the agent as long as it lives: those without a log look at it |
//! | `audit.jsonl` | the audit log |
//! | `history-*.jsonl` | the history (`docs/history.md`) |
//! | `http.key`, `tokens.json` | of the gateway of HTTP (`docs/http.md`) |
//! | `agent.log` | what an agent in the background says |
//! | `broken.json` | what was known when an invariant broke; the next agent gives it another name |
//! | `state.json`, `holders.jsonl` | of an agent without a log; what is in them is taken over once |

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use holdall_cell::session::{CallNo, SessionId};
use holdall_log::disk::{Disk, RealDisk};
use holdall_log::epoch::{NAME as EPOCH, Place};
use holdall_log::file::{Durability, FileStore, Options};
use holdall_log::{Log, OpenError, Opened, Store};
use holdall_wire::Status;
use rustix::fs::{FlockOperation, flock};
use tracing::{error, warn};

use crate::cluster::identity::{self, Loss};
use crate::directory::{Directory, Unsafe};

/// Locked by the agent as long as it lives.
const LOCK: &str = "agent.lock";
const BROKEN: &str = "broken.json";
/// How many notes of former agents that broke are kept.
const DUMPS: usize = 8;

/// Another agent has the directory.
#[derive(Debug, thiserror::Error)]
#[error("an agent runs already: it has {0} for itself")]
pub struct InUse(pub PathBuf);

/// What an agent that broke has left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    /// The call that broke it, if it was one.
    pub(crate) culprit: Option<(SessionId, CallNo)>,
}

/// A data directory that belongs to this process.
#[derive(Debug)]
pub(crate) struct Data {
    dir: Arc<Directory>,
    lifetime: File,
    adopt: bool,
}

impl Data {
    /// Takes a directory for this process, and makes it if need be; with the lock that the program before
    /// this one in the same process has handed over, if there was one. A copy is taken only if it is to be
    /// adopted: its original may be in use.
    ///
    /// # Errors
    /// [`InUse`] if another agent has it; otherwise if it cannot be read or written, or if others
    /// could write to it.
    pub(crate) fn open(path: &Path, handed: Option<File>, adopt: bool) -> anyhow::Result<Self> {
        let data = Self::take(path, handed, adopt)?;
        data.check_epoch()?;
        Ok(data)
    }

    /// The same for one whose log is elsewhere, and numbers and epochs with it.
    ///
    /// # Errors
    /// [`InUse`] if another agent has it; otherwise if it cannot be used.
    pub(crate) fn of_hosted(path: &Path) -> anyhow::Result<Self> {
        Self::take(path, None, false)
    }

    fn take(path: &Path, handed: Option<File>, adopt: bool) -> anyhow::Result<Self> {
        let dir = Arc::new(Directory::private(path)?);
        let lifetime = match handed.filter(|lock| dir.leads_to(LOCK, lock)) {
            Some(lock) => lock,
            None => dir.lock_file(LOCK)?,
        };
        if flock(&lifetime, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(InUse(path.into()));
        }
        Ok(Self { dir, lifetime, adopt })
    }

    /// The lock that keeps others out.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lifetime.as_fd()
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Arc<Directory> {
        &self.dir
    }

    /// Numbers must not begin anew beside what former agents have left.
    fn check_epoch(&self) -> anyhow::Result<()> {
        let used = ["state.json", "holders.jsonl", "audit.jsonl"];
        let names = self.dir.names()?;
        let has_log = names.iter().any(|name| name.starts_with("segment-") || name == "epoch");
        let twin = twin_of(self.dir.path(), EPOCH);
        let has_twin = twin.is_some_and(|(dir, name)| dir.join(name).exists());
        if !has_log && !has_twin && used.iter().any(|name| self.dir.has(name)) {
            bail!(
                "{} is missing beside files of former agents, whose numbers and fences would come \
                 again; write `epoch N` there, with an N larger than the first part of all grants in \
                 audit.jsonl, or begin anew in an empty directory",
                self.dir.path_of("epoch").display()
            );
        }
        Ok(())
    }

    /// A twin of a file: beside the directory or, where that cannot be written, beside the socket.
    fn beside(&self, socket: &Path, file: &str) -> anyhow::Result<Option<(PathBuf, String)>> {
        for beside in [self.dir.path(), socket] {
            let Some((above, name)) = twin_of(beside, file) else { continue };
            let path = above.join(&name);
            if let Ok(found) = rustix::fs::lstat(&path) {
                let own = rustix::process::geteuid().as_raw();
                anyhow::ensure!(found.st_uid == own, Unsafe::Foreign(path, found.st_uid));
            }
            if rustix::fs::access(&above, rustix::fs::Access::WRITE_OK).is_ok() {
                return Ok(Some((above, name)));
            }
        }
        warn!("'{file}' has no twin: there is no place beside the data directory or the socket");
        Ok(None)
    }

    fn twin(&self, socket: &Path) -> anyhow::Result<Option<Place>> {
        let Some((above, name)) = self.beside(socket, EPOCH)? else { return Ok(None) };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&above)?);
        Ok(Some(Place::new(disk, &name)))
    }

    /// Where it is kept who this member is, for whoever loses the directory.
    ///
    /// # Errors
    /// If somebody else has it.
    pub(crate) fn beside_as_member(&self, socket: &Path) -> anyhow::Result<Option<PathBuf>> {
        let place = self.beside(socket, identity::FILE)?;
        Ok(place.map(|(above, name)| above.join(name)))
    }

    /// A member that has lost its directory has granted nothing since; as a member again it begins with nothing but what others say.
    fn forget_what_followed_a_loss(&self, socket: &Path) -> anyhow::Result<()> {
        let Some(twin) = self.beside_as_member(socket)? else { return Ok(()) };
        let is_log = |name: &String| name.starts_with("segment-") || name.starts_with("snapshot-");
        let log: Vec<_> = self.dir.names()?.into_iter().filter(is_log).collect();
        if Loss::look_for(&self.dir, &twin, !log.is_empty())? {
            log.iter().try_for_each(|name| self.dir.remove(name))?;
        }
        Ok(())
    }

    /// Opens the log.
    ///
    /// # Errors
    /// [`InUse`] if another agent has it; otherwise if it is damaged, or cannot be read or written.
    pub(crate) fn open_log(
        &self,
        sync: bool,
        socket: &Path,
    ) -> anyhow::Result<(Box<dyn Log>, Opened)> {
        self.forget_what_followed_a_loss(socket)?;
        let durability = if sync { Durability::Synced } else { Durability::Written };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(self.dir.path())?);
        let options = Options { durability, adopt: self.adopt, ..Options::default() };
        match FileStore::new(disk, self.twin(socket)?, options).open() {
            Err(OpenError::InUse(path)) => bail!(InUse(path)),
            opened => Ok(opened?),
        }
    }

    /// Whether the agent before left a note that it broke, and the call that did it, if one did. The note
    /// gets another name; the last few are kept.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn take_dump(&self, epoch: u32) -> anyhow::Result<Option<Dump>> {
        let Some(content) = self.dir.read(BROKEN)? else { return Ok(None) };
        let dump: serde_json::Value = serde_json::from_slice(&content).unwrap_or_default();
        let kept = format!("broken-{epoch}.json");
        self.dir.rename(BROKEN, &kept)?;
        self.forget_dumps()?;
        error!(
            "the last agent ended because an invariant was broken: {}; {} tells more",
            dump["broken"],
            self.dir.path_of(&kept).display()
        );
        let session = dump["session"].as_str();
        let session = session.and_then(|text| u128::from_str_radix(text, 16).ok()).map(SessionId);
        let culprit = session.zip(dump["call"].as_u64().map(CallNo));
        Ok(Some(Dump { culprit }))
    }

    fn forget_dumps(&self) -> anyhow::Result<()> {
        let number = |name: String| -> Option<u32> {
            name.strip_prefix("broken-")?.strip_suffix(".json")?.parse().ok()
        };
        let mut all: Vec<_> = self.dir.names()?.into_iter().filter_map(number).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        for epoch in all.into_iter().skip(DUMPS) {
            self.dir.remove(&format!("broken-{epoch}.json"))?;
        }
        Ok(())
    }

    /// Notes something for people who look for defects.
    pub(crate) fn report(&self, name: &str, text: &str) {
        if let Err(error) = self.dir.replace(name, text.as_bytes()) {
            error!("cannot leave a report: {error}");
        }
    }

    /// What was taken over gets another name.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn put_aside(&self, name: &str) -> anyhow::Result<()> {
        if self.dir.has(name) {
            self.dir.rename(name, &format!("{name}.imported")).context("what was taken over")?;
        }
        Ok(())
    }

    /// Whether another agent would find our lock where it looks for it.
    pub(crate) fn in_place(&self) -> bool {
        self.dir.in_place() && self.dir.leads_to(LOCK, &self.lifetime)
    }
}

/// Leaves a note of what was known when an agent broke, and of the call that did it.
///
/// # Errors
/// If the disk does not take it.
pub(crate) fn leave_dump(
    dir: &Directory,
    broken: &str,
    culprit: Option<(SessionId, CallNo)>,
    status: &Status,
) -> anyhow::Result<()> {
    let (session, call) = culprit.unzip();
    let dump = serde_json::json!({
        "broken": broken,
        "session": session.map(|session| format!("{:032x}", { session.0 })),
        "call": call.map(|call| call.0),
        "status": status,
    });
    Ok(dir.replace(BROKEN, dump.to_string().as_bytes())?)
}

/// Where a twin of a file is beside something: the directory, and its name there.
pub(crate) fn twin_of(path: &Path, file: &str) -> Option<(PathBuf, String)> {
    let path = std::path::absolute(path).ok()?;
    let name = format!("{}.{file}", path.file_name()?.to_str()?);
    Some((std::fs::canonicalize(path.parent()?).ok()?, name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_has_one_agent_and_its_epoch_grows() {
        let above = tempfile::tempdir().expect("a directory");
        let (dir, socket) = (above.path().join("data"), above.path().join("sock"));
        let first = Data::open(&dir, None, false).expect("free");
        assert!(Data::open(&dir, None, false).expect_err("taken").is::<InUse>());
        let (log, opened) = first.open_log(false, &socket).expect("new");
        assert_eq!(opened.epoch, 1);
        assert!(first.open_log(false, &socket).err().is_some_and(|error| error.is::<InUse>()));
        drop((first, log));
        let again = Data::open(&dir, None, false).expect("free again");
        assert_eq!(again.open_log(false, &socket).expect("kept").1.epoch, 2);
        drop(again);
        fs::remove_dir_all(&dir).expect("ours");
        let deleted = Data::open(&dir, None, false).expect("free");
        assert_eq!(
            deleted.open_log(false, &socket).expect("missing").1.epoch,
            3,
            "fences do not go back"
        );
        fs::write(dir.join("epoch"), "x").expect("writable");
        drop(deleted);
        let odd = Data::open(&dir, None, false).expect("free");
        assert!(odd.open_log(false, &socket).is_err(), "fences might go back");
        drop(odd);
        fs::remove_dir_all(&dir).expect("ours");
        fs::remove_file(above.path().join("data.epoch")).expect("the twin");
        fs::create_dir(&dir).expect("writable");
        fs::write(dir.join("audit.jsonl"), "").expect("writable");
        assert!(Data::open(&dir, None, false).is_err(), "fences might go back");
    }

    #[test]
    fn that_the_last_agent_broke_is_told_once() {
        let above = tempfile::tempdir().expect("a directory");
        let data = Data::open(&above.path().join("data"), None, false).expect("free");
        let leave = |what, culprit| leave_dump(data.dir(), what, culprit, &Status::default());
        let culprit = Some((SessionId(u128::MAX - 1), CallNo(7)));
        leave("B1", culprit).expect("written");
        assert_eq!(data.take_dump(3).expect("readable"), Some(Dump { culprit }));
        assert_eq!(data.take_dump(4).expect("nothing there"), None);
        assert!(data.dir().has("broken-3.json"));
        for epoch in 5..25 {
            leave("a timer", None).expect("written");
            assert_eq!(data.take_dump(epoch).expect("readable"), Some(Dump { culprit: None }));
        }
        let kept = data.dir().names().expect("ours").into_iter();
        assert_eq!(kept.filter(|name| name.starts_with("broken-")).count(), DUMPS);
        assert!(data.dir().has("broken-24.json") && !data.dir().has("broken-3.json"));
    }
}
