//! The data directory of an agent.
//!
//! | file | what |
//! |---|---|
//! | `agent.lock` | locked by the agent as long as it lives: one agent a directory |
//! | `epoch` | how often an agent started here, synced before anything is numbered with it |
//! | `holders.jsonl` | what commands and programs hold, and how these are known, written before they start or are told |
//! | `client-N-N.lock` | a program that uses the client library keeps a shared lock on its own |
//! | `state.json` | pools made at run time, drained units and reservations, synced before they are told |
//! | `audit.jsonl` | the audit log |
//! | `agent.log` | the log of an agent in the background |
//! | `broken.json` | what was known when an invariant broke; while it is there no agent starts |

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use holdall_wire::{Change, GrantView, State};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::clock::{Anchor, Clock, moved};
use crate::directory::Directory;
use crate::engine::Reservation;

/// The form of `state.json`.
pub(crate) const SCHEMA: u32 = 3;

/// What outlives an agent besides its epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// The form of this file.
    pub(crate) schema: u32,
    /// What the times below mean.
    pub(crate) clock: Anchor,
    /// Pools declared at run time.
    pub(crate) pools: Vec<Change>,
    /// Units that are drained.
    pub(crate) drained: Vec<Change>,
    /// Reservations.
    pub(crate) reservations: Vec<Reservation>,
}

/// What is reserved in a data directory, as far as it can be read: for people, while no agent runs.
pub fn reserved(path: &Path) -> Vec<GrantView> {
    let content = std::fs::read(path.join("state.json")).unwrap_or_default();
    let Ok(kept) = serde_json::from_slice::<Kept>(&content) else { return Vec::new() };
    let (clock, shift) = Clock::new(&kept.clock);
    let shown = |time: u64| clock.shown(moved(time, shift));
    let view = |one: Reservation| GrantView {
        request: one.request,
        needs: one.needs,
        taken: one.taken,
        who: one.who,
        since: shown(one.since),
        until: one.until.map(shown),
        state: State::Reserved,
        pids: Vec::new(),
        part_of: None,
        parts: Vec::new(),
    };
    let now = clock.wall();
    let mut all: Vec<_> = kept.reservations.into_iter().map(view).collect();
    all.retain(|one| one.until.is_none_or(|until| until > now));
    all
}

/// Another agent has the directory.
#[derive(Debug, thiserror::Error)]
#[error("an agent runs already: it has {0} for itself")]
pub struct InUse(pub PathBuf);

/// A data directory that belongs to this process.
#[derive(Debug)]
pub(crate) struct Data {
    dir: Arc<Directory>,
    epoch: u32,
    lifetime: File,
}

impl Data {
    /// Takes a directory for this process, makes it if need be, and begins a new epoch.
    ///
    /// # Errors
    /// [`InUse`] if another agent has it; otherwise if it cannot be read or written, if others
    /// could write to it, or if the agent before stopped on a broken invariant.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let dir = Arc::new(Directory::private(path)?);
        let lifetime = dir.lock_file("agent.lock")?;
        if flock(&lifetime, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(InUse(path.into()));
        }
        if dir.has("broken.json") {
            bail!(
                "the last agent stopped because an invariant was broken; look at {}, and delete it \
                 to start again",
                dir.path_of("broken.json").display()
            );
        }
        let mut data = Self { dir, epoch: 0, lifetime };
        let epoch = data.read_epoch()?;
        let used = ["state.json", "holders.jsonl", "audit.jsonl"];
        if epoch == 0 && used.iter().any(|name| data.dir.has(name)) {
            bail!(
                "{} is missing, or 0, beside files of former agents, whose numbers and fences would \
                 come again; write a number there that is larger than the first part of all grants \
                 in audit.jsonl, or begin anew in an empty directory",
                data.dir.path_of("epoch").display()
            );
        }
        data.set_epoch(epoch + 1)?;
        Ok(data)
    }

    /// The present epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Arc<Directory> {
        &self.dir
    }

    fn read_epoch(&self) -> anyhow::Result<u32> {
        let Some(content) = self.dir.read("epoch")? else { return Ok(0) };
        let epoch = std::str::from_utf8(&content).ok().and_then(|text| text.trim().parse().ok());
        epoch.filter(|epoch| *epoch < u32::MAX).with_context(|| {
            let path = self.dir.path_of("epoch");
            format!(
                "{} does not hold an epoch, and fences could go back; write a number there that is \
                 larger than the first part of all grants in audit.jsonl",
                path.display()
            )
        })
    }

    /// Records, for good, that numbers of this epoch may be in use.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn set_epoch(&mut self, epoch: u32) -> anyhow::Result<()> {
        self.dir.replace("epoch", format!("{epoch}\n").as_bytes())?;
        self.epoch = epoch;
        Ok(())
    }

    /// What the last agent kept.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn kept(&self) -> anyhow::Result<Kept> {
        let Some(content) = self.dir.read("state.json")? else { return Ok(Kept::default()) };
        let path = self.dir.path_of("state.json");
        let kept: Kept = serde_json::from_slice(&content).with_context(|| {
            format!(
                "{} cannot be understood; mend it, or delete it, and with it reservations and \
                     pools that were made at run time",
                path.display()
            )
        })?;
        if kept.schema > SCHEMA {
            bail!("{} is of a newer holdall than this one; use that", path.display());
        }
        Ok(kept)
    }

    /// Keeps something, for good.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn keep(&self, kept: &Kept) -> anyhow::Result<()> {
        Ok(self.dir.replace("state.json", &serde_json::to_vec_pretty(kept)?)?)
    }

    /// Leaves a note of what was known when an invariant broke.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn dump(&self, text: &[u8]) -> anyhow::Result<()> {
        Ok(self.dir.replace("broken.json", text)?)
    }

    /// Whether another agent would find our lock where it looks for it.
    pub(crate) fn in_place(&self) -> bool {
        self.dir.in_place() && self.dir.leads_to("agent.lock", &self.lifetime)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        fs::remove_file(dir.path().join("epoch")).expect("it is there");
        fs::write(dir.path().join("audit.jsonl"), "").expect("writable");
        assert!(Data::open(dir.path()).is_err(), "fences might go back");
    }

    #[test]
    fn what_a_newer_agent_has_kept_is_left_to_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = Data::open(dir.path()).expect("free");
        data.keep(&Kept { schema: SCHEMA, ..Kept::default() }).expect("writable");
        assert!(data.kept().is_ok());
        data.keep(&Kept { schema: SCHEMA + 1, ..Kept::default() }).expect("writable");
        assert!(data.kept().is_err());
    }

    #[test]
    fn no_agent_starts_after_a_broken_invariant() {
        let dir = tempfile::tempdir().expect("a directory");
        Data::open(dir.path()).expect("free").dump(b"{}").expect("writable");
        assert!(Data::open(dir.path()).is_err());
    }
}
