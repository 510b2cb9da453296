//! Who works under a number: refuses a number whose process is alive, or may be.
//!
//! Every process writes a claim under a random name, then looks at all claims of the number: of
//! two that start at once, at least one sees the other's and gives up. That needs no lock and no
//! exclusive create. A claim is dead if its process is gone from the very system that looks: the
//! same boot, the same name space of process ids. Of a process elsewhere nothing can be known,
//! and only a person can say: a machine id is copied with its machine, so that another boot under
//! the same id may be another machine that runs now.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::usage;

/// A process, wherever it runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    host: String,
    boot: String,
    /// The name space of its process id.
    space: String,
    pub(super) pid: u32,
    /// When it started, in clock ticks since the boot.
    start: u64,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Alive,
    Gone,
    /// It runs elsewhere, or did.
    Elsewhere,
}

impl Process {
    fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            host: read("/proc/sys/kernel/hostname"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            space: space.display().to_string(),
            pid: std::process::id(),
            start: started(std::process::id()).unwrap_or(0),
        }
    }

    pub(super) fn state(&self) -> State {
        let here = Self::this();
        if here.boot.is_empty() || (&self.boot, &self.space) != (&here.boot, &here.space) {
            State::Elsewhere
        } else if started(self.pid) == Some(self.start) {
            State::Alive
        } else {
            State::Gone
        }
    }
}

/// When a process started; `None` if there is none, or only its remains.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; state and start are fields 3 and 22.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// This process's claim; withdrawn when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
}

impl Claim {
    /// Claims a number.
    pub(super) fn make(store: &Path, worker: usize, take_over: bool) -> anyhow::Result<Self> {
        let name = format!("{}{:032x}", prefix(worker), random());
        let (path, new) = (store.join(&name), store.join(format!(".{name}")));
        let text = serde_json::to_string(&Process::this())?;
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(usage(format!(
                "worker {worker} was begun by another process at the same moment: use another \
                 number"
            )));
        }
        written.with_context(|| format!("cannot write to the store: {}", path.display()))?;
        // From here on the claim is withdrawn whatever happens.
        let claim = Self { path };
        for (file, other) in claims(store, worker)? {
            if file == claim.path {
                continue;
            }
            match other.state() {
                State::Gone => remove(&file),
                State::Elsewhere if take_over => remove(&file),
                State::Alive => {
                    return Err(usage(format!(
                        "worker {worker} is run by process {}: stop it first, or use another number",
                        other.pid
                    )));
                }
                State::Elsewhere => {
                    return Err(usage(format!(
                        "worker {worker} was run by process {} on {}, in another container, on \
                         another machine or before a restart: if you know that it is gone, add \
                         --take-over",
                        other.pid, other.host
                    )));
                }
            }
        }
        claim.sweep(store, worker)?;
        Ok(claim)
    }

    /// Removes claims that processes were about to make when they were killed. One that is about
    /// to do so now finds its file gone, and gives up.
    fn sweep(&self, store: &Path, worker: usize) -> anyhow::Result<()> {
        let unfinished = format!(".{}", prefix(worker));
        let cannot = || format!("cannot read the store {}", store.display());
        for entry in fs::read_dir(store).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if entry.file_name().to_string_lossy().starts_with(&unfinished) {
                remove(&entry.path());
            }
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Keyed at random by the operating system.
fn random() -> u128 {
    let draw = || u128::from(RandomState::new().hash_one(std::process::id()));
    draw() << 64 | draw()
}

/// A claim that stays is found dead by the next to look: no harm.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

fn prefix(worker: usize) -> String {
    format!("claim-{worker}-")
}

/// All claims of a number.
fn claims(store: &Path, worker: usize) -> anyhow::Result<Vec<(PathBuf, Process)>> {
    let mut claims = Vec::new();
    let cannot = || format!("cannot read the store {}", store.display());
    for entry in fs::read_dir(store).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        if !entry.file_name().to_string_lossy().starts_with(&prefix(worker)) {
            continue;
        }
        match fs::read_to_string(entry.path()) {
            Ok(text) => {
                let path = entry.path();
                let process = serde_json::from_str(&text);
                let process = process.with_context(|| format!("{} is damaged", path.display()))?;
                claims.push((path, process));
            }
            // Withdrawn meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(cannot),
        }
    }
    Ok(claims)
}

/// The process that works under a number, if one does or may.
pub(super) fn holder(store: &Path, worker: usize) -> anyhow::Result<Option<(Process, State)>> {
    let mut known = claims(store, worker)?.into_iter().map(|(_, process)| {
        let state = process.state();
        (process, state)
    });
    Ok(known.find(|(_, state)| *state != State::Gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &Path, name: &str, process: &Process) -> PathBuf {
        let path = store.join(name);
        fs::write(&path, serde_json::to_string(process).expect("JSON")).expect("written");
        path
    }

    /// Two name spaces of process ids may give the same id to processes that start in the same
    /// tick: the file of one must not look to the other like its own.
    #[test]
    fn a_twin_in_another_container_is_seen() {
        let store = tempfile::tempdir().expect("a directory");
        let this = Process::this();
        let name = format!("claim-0-{}-{}", this.pid, this.start);
        let twin = put(store.path(), &name, &Process { space: "pid:[1]".into(), ..this });
        let refused = Claim::make(store.path(), 0, false).expect_err("it may live").to_string();
        assert!(refused.contains("--take-over"), "{refused}");
        assert!(twin.exists());
        let claim = Claim::make(store.path(), 0, true).expect("a person's word");
        assert!(!twin.exists() && claim.path.exists());
    }

    #[test]
    fn another_boot_is_no_proof_of_death() {
        let store = tempfile::tempdir().expect("a directory");
        let other = Process { boot: "another".into(), ..Process::this() };
        assert_eq!(other.state(), State::Elsewhere);
        let file = put(store.path(), "claim-0-1", &other);
        assert!(Claim::make(store.path(), 0, false).is_err());
        assert!(file.exists(), "a claim that may be alive stays");
    }

    #[test]
    fn names_are_never_the_same_and_leftovers_go() {
        let store = tempfile::tempdir().expect("a directory");
        assert_ne!(random(), random());
        fs::write(store.path().join(".claim-0-77"), "cut sho").expect("written");
        put(store.path(), "claim-0-1", &Process { start: 1, ..Process::this() });
        let claim = Claim::make(store.path(), 0, false).expect("the other is gone");
        let names = fs::read_dir(store.path()).expect("there").count();
        assert_eq!(names, 1, "only our own is left");
        drop(claim);
        assert_eq!(holder(store.path(), 0).expect("readable"), None);
    }
}
