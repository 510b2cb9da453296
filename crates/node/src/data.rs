//! The data directory of an agent.
//!
//! | file | what |
//! |---|---|
//! | `agent.lock` | locked by the agent as long as it lives: one agent a directory |
//! | `epoch` | how often an agent started here, synced before anything is numbered with it |
//! | `holders.lock` | every holder keeps a shared lock on it and lets its child inherit that; a new agent grants nothing before it had it for itself |
//! | `state.json` | pools made at run time and reservations, synced before they are told |
//! | `audit.jsonl` | the audit log |
//! | `agent.log` | the log of an agent in the background |
//! | `broken.json` | what was known when an invariant broke; while it is there no agent starts |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use holdall_wire::Change;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::engine::Reservation;

/// What outlives an agent besides its epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// The form of this file.
    pub(crate) schema: u32,
    /// Pools declared at run time.
    pub(crate) pools: Vec<Change>,
    /// Reservations.
    pub(crate) reservations: Vec<Reservation>,
}

/// Another agent has the directory.
#[derive(Debug, thiserror::Error)]
#[error("an agent runs already with the data directory {0}")]
pub struct InUse(pub PathBuf);

/// A data directory that belongs to this process.
#[derive(Debug)]
pub(crate) struct Data {
    dir: PathBuf,
    epoch: u32,
    _lifetime: File,
    _holders: File,
}

impl Data {
    /// Takes a directory for this process, makes it if need be, and begins a new epoch.
    ///
    /// # Errors
    /// [`InUse`] if another agent has it; otherwise if it cannot be read or written, or if the
    /// agent before stopped on a broken invariant.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        make_dir(dir)?;
        let lifetime = open_file(&dir.join("agent.lock"))?;
        if flock(&lifetime, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(InUse(dir.into()));
        }
        let broken = dir.join("broken.json");
        if broken.exists() {
            bail!(
                "the last agent stopped because an invariant was broken; look at {}, and delete it \
                 to start again",
                broken.display()
            );
        }
        let holders = open_file(&dir.join("holders.lock"))?;
        let mut data = Self { dir: dir.into(), epoch: 0, _lifetime: lifetime, _holders: holders };
        let epoch = data.read_epoch()?;
        data.set_epoch(epoch + 1)?;
        Ok(data)
    }

    /// Lets other users reach the file of holders, and nothing else.
    pub(crate) fn open_to_others(&self) -> anyhow::Result<()> {
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o711))
            .with_context(|| format!("cannot open {} to other users", self.dir.display()))
    }

    /// The present epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// A file of the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn read_epoch(&self) -> anyhow::Result<u32> {
        let path = self.path("epoch");
        match fs::read_to_string(&path) {
            Ok(text) => {
                text.trim().parse().ok().filter(|epoch| *epoch < u32::MAX).with_context(|| {
                    format!("{} does not hold an epoch; fences could go back", path.display())
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Records, for good, that numbers of this epoch may be in use.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn set_epoch(&mut self, epoch: u32) -> anyhow::Result<()> {
        self.replace("epoch", format!("{epoch}\n").as_bytes())?;
        self.epoch = epoch;
        Ok(())
    }

    /// What the last agent kept.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn kept(&self) -> anyhow::Result<Kept> {
        let path = self.path("state.json");
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} cannot be understood", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Keeps something, for good.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn keep(&self, kept: &Kept) -> anyhow::Result<()> {
        self.replace("state.json", &serde_json::to_vec_pretty(kept)?)
    }

    /// Leaves a note of what was known when an invariant broke.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn dump(&self, text: &[u8]) -> anyhow::Result<()> {
        self.replace("broken.json", text)
    }

    /// Whether no process of a former agent's holders is left.
    pub(crate) fn no_old_holders(&self) -> bool {
        let Ok(file) = open_file(&self.path("holders.lock")) else { return false };
        // Closing the file gives the lock back.
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Replaces a file so that after a crash it is either the old or the new one.
    fn replace(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let (new, path) = (self.path(&format!("{name}.new")), self.path(name));
        let write = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Makes a directory for this user alone, and those above it.
///
/// # Errors
/// If that fails.
pub(crate) fn make_dir(dir: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("cannot make the directory {}", dir.display()))
}

/// Opens a file to lock it.
///
/// # Errors
/// If that fails.
pub(crate) fn open_file(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o644).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_agent_and_its_epoch_grows() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Data::open(dir.path()).expect("free");
        assert_eq!(first.epoch(), 1);
        assert!(Data::open(dir.path()).expect_err("taken").is::<InUse>());
        drop(first);
        assert_eq!(Data::open(dir.path()).expect("free again").epoch(), 2);
        fs::write(dir.path().join("epoch"), "x").expect("writable");
        assert!(Data::open(dir.path()).is_err(), "fences might go back");
    }

    #[test]
    fn no_agent_starts_after_a_broken_invariant() {
        let dir = tempfile::tempdir().expect("a directory");
        Data::open(dir.path()).expect("free").dump(b"{}").expect("writable");
        assert!(Data::open(dir.path()).is_err());
    }

    #[test]
    fn old_holders_are_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = Data::open(dir.path()).expect("free");
        let holder = File::open(data.path("holders.lock")).expect("it is there");
        flock(&holder, FlockOperation::LockShared).expect("nobody has it");
        assert!(!data.no_old_holders());
        drop(holder);
        assert!(data.no_old_holders());
    }
}
