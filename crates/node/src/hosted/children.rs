//! The children of an agent that host replicated cells: each is started, and started again when it has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::{STANDING, Standing, all, clear};
use crate::directory::Directory;
use crate::handover::own_program;

/// How long to wait before a child is started again that has ended.
const PAUSE: Duration = Duration::from_millis(300);
/// And at most, if it ends again and again.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long one has run that did not fail at its start.
const LASTED: Duration = Duration::from_secs(10);
/// How long a child may take to let others lead.
const LAST_WORDS: Duration = Duration::from_secs(4);

/// The children of an agent.
pub(crate) struct Children {
    data: PathBuf,
    /// How long leases between cells last.
    lease_seconds: u64,
    kept: BTreeMap<PathBuf, Kept>,
}

/// A child that is kept.
struct Kept {
    leash: Arc<Leash>,
    thread: JoinHandle<()>,
}

/// What a child runs on: it ends when its end of the pipe does.
#[derive(Default)]
struct Leash {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pipe: Option<ChildStdin>,
    is_over: bool,
    /// Where its directory is that is to be cleared when it has ended.
    away: Option<PathBuf>,
}

impl Children {
    /// Of the agent with this directory.
    pub(crate) fn new(data: &Path, lease_seconds: u64) -> Self {
        Self { data: data.into(), lease_seconds, kept: BTreeMap::new() }
    }

    /// Starts what is hosted and does not run.
    pub(crate) fn look(&mut self) {
        for (dir, hosted) in all(&self.data) {
            if self.kept.contains_key(&dir) {
                continue;
            }
            info!(cell = hosted.name, "hosting");
            let leash = Arc::new(Leash::default());
            let (held, place, lease) = (Arc::clone(&leash), dir.clone(), self.lease_seconds);
            let thread = std::thread::Builder::new().name("hosted".into());
            match thread.spawn(move || keep(&held, &place, lease)) {
                Ok(thread) => drop(self.kept.insert(dir, Kept { leash, thread })),
                Err(error) => warn!("a cell is not hosted: {error}"),
            }
        }
    }

    /// Ends the one in a directory that was put away, and clears that then.
    pub(crate) fn remove(&mut self, dir: &Path, away: PathBuf) {
        match self.kept.remove(dir) {
            // Its thread ends by itself.
            Some(kept) => kept.leash.remove(away),
            None => clear(&away),
        }
    }

    /// Ends all of them, so that others lead.
    pub(crate) fn end(&mut self) {
        for kept in self.kept.values() {
            kept.leash.cut();
        }
        for (_, kept) in std::mem::take(&mut self.kept) {
            let _ = kept.thread.join(); // It says itself what went wrong.
        }
    }
}

impl Leash {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) {
        let mut state = self.state();
        (state.pipe, state.is_over) = (None, true);
        drop(state);
        self.changed.notify_all();
    }

    fn remove(&self, away: PathBuf) {
        self.state().away = Some(away);
        self.cut();
    }

    fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Puts a child on it, unless it was cut.
    fn hold(&self, pipe: Option<ChildStdin>) {
        let mut state = self.state();
        if !state.is_over {
            state.pipe = pipe;
        }
    }

    /// What ran on it stands no more, and the next one says how it does; until then, what is wrong.
    fn note(&self, dir: &Path, trouble: Option<String>) {
        let state = self.state();
        if state.away.is_some() {
            return; // The directory may be another cell's by now.
        }
        match Directory::private(dir) {
            Ok(own) if trouble.is_some() => Standing { trouble, ..Standing::default() }.note(&own),
            _ => drop(std::fs::remove_file(dir.join(STANDING))),
        }
    }

    /// Waits, but not beyond its end.
    fn wait(&self, span: Duration) {
        let state = self.state();
        if !state.is_over {
            drop(self.changed.wait_timeout_while(state, span, |state| !state.is_over));
        }
    }
}

/// Keeps a child until its leash is cut.
fn keep(leash: &Leash, dir: &Path, lease_seconds: u64) {
    let mut pause = PAUSE;
    while !leash.is_over() {
        let begun = Instant::now();
        let trouble = match start(dir, lease_seconds) {
            Ok(mut child) => {
                leash.hold(child.stdin.take());
                let ended = attend(leash, &mut child);
                leash.hold(None);
                ended
            }
            Err(error) => {
                warn!("{} is not hosted: {error}", dir.display());
                Some(format!("its host cannot be started: {error}"))
            }
        };
        // Who has handed over has not failed, however soon that was.
        let is_well = trouble.is_none() || begun.elapsed() > LASTED;
        leash.note(dir, trouble);
        pause = if is_well { PAUSE } else { (2 * pause).min(PAUSE_MAX) };
        leash.wait(pause);
    }
    let away = leash.state().away.take();
    away.into_iter().for_each(|away| clear(&away));
}

fn start(dir: &Path, lease_seconds: u64) -> std::io::Result<Child> {
    let mut command = Command::new(own_program()?);
    command.arg("agent").arg("--hosted").arg(dir).arg("--lease-seconds");
    command.arg(lease_seconds.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
    // These are for its parent alone.
    for name in ["LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "HOLDALL_HANDED", "HOLDALL_GRANT"] {
        command.env_remove(name);
    }
    command.spawn()
}

/// Waits until a child has ended, and tells how if that was not on purpose. One that does not although it should is killed: then its lease in etcd ends by itself.
fn attend(leash: &Leash, child: &mut Child) -> Option<String> {
    let mut deadline = None;
    loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                info!(pid = child.id(), "what hosts a cell has ended: {status}");
                let why = "its host has ended and is started again; the agent's log tells why";
                return (!status.success()).then(|| format!("{why} ({status})"));
            }
            Err(error) => {
                warn!("a child is lost: {error}");
                return Some(format!("its host is lost: {error}"));
            }
        }
        if leash.is_over() {
            let until = *deadline.get_or_insert_with(|| Instant::now() + LAST_WORDS);
            if Instant::now() > until {
                let _ = child.kill(); // It may just have ended.
            }
            std::thread::sleep(Duration::from_millis(10));
        } else {
            leash.wait(Duration::from_millis(200));
        }
    }
}
