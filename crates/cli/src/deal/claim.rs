//! Who works under a number: refuses a number whose process is alive.
//!
//! Every process writes a claim of its own, then looks at all claims of the number: of two that
//! start at once, at least one sees the other's and gives up. That needs no lock and no exclusive
//! create. A claim is dead if its process is gone from this machine, or this machine has started
//! anew since; of a process elsewhere nothing can be known, and only a person can say.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::usage;

/// A process, wherever it runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    machine: String,
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
            machine: read("/etc/machine-id"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            space: space.display().to_string(),
            pid: std::process::id(),
            start: started(std::process::id()).unwrap_or(0),
        }
    }

    pub(super) fn state(&self) -> State {
        let here = Self::this();
        if self.boot != here.boot {
            let same = !self.machine.is_empty() && self.machine == here.machine;
            return if same { State::Gone } else { State::Elsewhere };
        }
        if self.space != here.space {
            return State::Elsewhere;
        }
        if started(self.pid) == Some(self.start) { State::Alive } else { State::Gone }
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
        let this = Process::this();
        let path = store.join(format!("{}{}-{}", prefix(worker), this.pid, this.start));
        let new = store.join(format!(".claim-{worker}.{}", this.pid));
        let text = serde_json::to_string(&this)?;
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
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
                        "worker {worker} was run by process {} elsewhere: if you know that it is \
                         gone, add --take-over",
                        other.pid
                    )));
                }
            }
        }
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        remove(&self.path);
    }
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
