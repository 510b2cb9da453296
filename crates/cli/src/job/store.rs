//! Where a job is kept: a directory with its file, what was noted of it, and the logs of its tasks.
//!
//! | file | |
//! |---|---|
//! | `job.toml` | the file as it was submitted |
//! | `about.json` | what else was said then; a directory that has it is a job |
//! | `environ` | the variables of whoever submitted it |
//! | `records.jsonl` | what started and how it ended ([`journal`](super::journal)) |
//! | `units.jsonl` | which units each attempt had, for pictures |
//! | `over.json` | how it has ended, if it has |
//! | `lock` | locked by whoever runs it |
//! | `socket` | where that one listens |
//! | `running/LIFE/` | the [marks](super::mark) of what a runner of that life runs |
//! | `logs/` | what the tasks have written |
//! | `runner.log` | what runners in the background have written |

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_jobs::{Limits, Plan, Summary, TaskIndex};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::reach::own_state;

/// There is no such job.
const NO_SUCH: u8 = 65;
/// A directory cannot be used.
const CANNOT_CREATE: u8 = 73;
/// How the directory of a runner's life is called when it is over.
const PAST: char = '.';
/// How long somebody tries who wants to run a job. Others take the lock for moments only: to look
/// whether anybody has it, or to note that it is cancelled.
const LOCK_WITHIN: Duration = Duration::from_secs(10);

/// A job's directory.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) dir: PathBuf,
}

/// Whoever has it runs the job, or changes what was noted of it.
pub(super) struct Lock {
    _file: File,
}

/// What is known of a job beside its file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    /// What it is called if its file does not say.
    pub(super) name: String,
    /// Where its tasks run.
    pub(super) dir: PathBuf,
    /// Milliseconds since 1970.
    pub(super) submitted: u64,
    pub(super) agent: Option<PathBuf>,
    pub(super) ahead: usize,
    pub(super) jobs: usize,
    pub(super) umask: u32,
}

impl About {
    pub(super) fn limits(&self) -> Limits {
        Limits { ahead: self.ahead, jobs: self.jobs }
    }
}

/// How a job has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Over {
    pub(super) at: u64,
    pub(super) succeeded: bool,
    pub(super) cancelled: bool,
}

impl Over {
    pub(super) fn new(at: u64, summary: &Summary, cancelled: bool) -> Self {
        let succeeded = summary.failed == summary.tolerated && !cancelled;
        Self { at, succeeded, cancelled }
    }
}

/// Where all jobs of this user on this machine are.
pub(super) fn root() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("HOLDALL_JOBS").filter(|dir| !dir.is_empty());
    let dir = match named {
        Some(dir) => std::path::absolute(dir)?,
        None => own_state()?.join("jobs"),
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|error| {
        let text = format!("cannot make {}: {error}; HOLDALL_JOBS names another", dir.display());
        Failure(CANNOT_CREATE, text)
    })?;
    Ok(dir)
}

/// All jobs, those submitted first first.
pub(super) fn all() -> anyhow::Result<Vec<Store>> {
    let is_removed = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let entries = fs::read_dir(root()?)?.flatten().filter(|entry| !is_removed(entry));
    let dirs = entries.map(|entry| Store::at(entry.path()));
    let mut known: Vec<_> =
        dirs.filter_map(|store| Some((store.about().ok()?.submitted, store))).collect();
    known.sort_by(|a, b| (a.0, &a.1.dir).cmp(&(b.0, &b.1.dir)));
    Ok(known.into_iter().map(|(_, store)| store).collect())
}

/// The next number of a job. None is used twice, also if jobs are removed.
fn next_number(root: &Path) -> anyhow::Result<u64> {
    let path = root.join("last");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let number = text.trim().parse::<u64>().unwrap_or(0) + 1;
    file.rewind()?;
    file.set_len(0)?;
    writeln!(file, "{number}")?;
    Ok(number)
}

impl Store {
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The job of an id.
    pub(super) fn of(id: &str) -> anyhow::Result<Self> {
        let store = Self::at(root()?.join(id));
        let odd = id.is_empty() || id.contains('/') || id.starts_with('.');
        if odd || !store.dir.join("about.json").exists() {
            let text = format!("there is no job '{id}'; `holdall job list` tells which there are");
            return Err(Failure(NO_SUCH, text).into());
        }
        Ok(store)
    }

    /// A new one: named after the job, with a number. Nobody else runs it as long as the lock is kept.
    pub(super) fn create(name: &str, about: &About, text: &str) -> anyhow::Result<(Self, Lock)> {
        let root = root()?;
        let mut maker = fs::DirBuilder::new();
        maker.mode(0o700);
        let dir = loop {
            let dir = root.join(format!("{name}-{}", next_number(&root)?));
            match maker.create(&dir) {
                // The number was lost.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => {
                    made.with_context(|| format!("cannot make {}", dir.display()))?;
                    break dir;
                }
            }
        };
        let store = Self::at(dir);
        maker.create(store.dir.join("logs"))?;
        maker.create(store.dir.join("running"))?;
        store.put("job.toml", text.as_bytes())?;
        store.put("environ", &super::environment::own())?;
        let lock = store.lock()?.context("somebody has taken the new job")?;
        // What has it is a job.
        store.put("about.json", &serde_json::to_vec(about)?)?;
        sync_names(&root)?;
        Ok((store, lock))
    }

    pub(super) fn id(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Writes a file whole, or not at all.
    fn put(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let (path, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let write = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            options.create(true).write(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_names(&self.dir)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn about(&self) -> anyhow::Result<About> {
        let path = self.dir.join("about.json");
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let path = self.dir.join("job.toml");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        holdall_jobs::read(&text, &self.about()?.name).with_context(|| path.display().to_string())
    }

    /// How it has ended, if it has.
    pub(super) fn over(&self) -> Option<Over> {
        serde_json::from_slice(&fs::read(self.dir.join("over.json")).ok()?).ok()
    }

    pub(super) fn end(&self, over: &Over) -> anyhow::Result<()> {
        self.put("over.json", &serde_json::to_vec(over)?)
    }

    /// It goes on, although it had ended.
    pub(super) fn reopen(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.dir.join("over.json")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(sync_names(&self.dir)?),
        }
    }

    pub(super) fn log(&self, plan: &Plan, task: TaskIndex, attempt: u32) -> PathBuf {
        self.dir.join("logs").join(format!("{}.{attempt}.log", file_name(plan, task)))
    }

    /// What there is only while a runner of this life runs the job.
    pub(super) fn life(&self, life: &str) -> PathBuf {
        self.dir.join("running").join(life)
    }

    /// The lives of runners of which something is left.
    pub(super) fn lives(&self) -> anyhow::Result<Vec<String>> {
        let entries = fs::read_dir(self.dir.join("running"))?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| !name.starts_with(PAST)).collect())
    }

    /// Removes what there is of the lives of runners, all of which are over. Each goes at once, so that
    /// nobody who comes late finds a part of it.
    pub(super) fn forget_lives(&self) -> anyhow::Result<()> {
        for life in self.lives()? {
            fs::rename(self.life(&life), self.life(&format!("{PAST}{life}")))?;
        }
        for old in fs::read_dir(self.dir.join("running"))?.flatten() {
            // What is left now is found next time.
            let _ = fs::remove_dir_all(old.path());
        }
        Ok(())
    }

    /// Where messages of those who wait for a request go.
    pub(super) fn waiting_log(&self, life: &str, request: usize, ask: u32) -> PathBuf {
        self.life(life).join(format!("{request}.{ask}.log"))
    }

    /// The mark of an attempt.
    pub(super) fn mark(&self, life: &str, task: TaskIndex, attempt: u32) -> PathBuf {
        self.life(life).join(format!("{}.{attempt}", task.0))
    }

    pub(super) fn runner_log(&self) -> PathBuf {
        self.dir.join("runner.log")
    }

    /// The process of the runner, if there is one.
    pub(super) fn runner(&self) -> anyhow::Result<Option<u32>> {
        let file = self.lock_file()?;
        // Those who only look do not get in each other's way.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let text = fs::read_to_string(self.dir.join("lock"))?;
                Ok(Some(text.trim().parse().unwrap_or(0)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn lock_file(&self) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600).open(self.dir.join("lock"))
    }

    /// The lock of whoever runs the job, unless another runs it.
    pub(super) fn lock(&self) -> anyhow::Result<Option<Lock>> {
        let (mut file, begun) = (self.lock_file()?, Instant::now());
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() > LOCK_WITHIN => {
                    return Ok(None);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(error.into()),
            }
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Some(Lock { _file: file }))
    }
}

/// Sees to it that the names of new files are on disk.
pub(super) fn sync_names(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Part of the names of a task's logs: values of a matrix may be anything.
fn file_name(plan: &Plan, task: TaskIndex) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.[],".contains(c);
    let name = plan.task(task).name.chars().map(|c| if fine(c) { c } else { '_' });
    format!("{}-{}", task.0, name.take(120).collect::<String>())
}
