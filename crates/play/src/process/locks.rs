//! A file for each unit, locked by whoever uses it: a check of exclusion that knows nothing of protocols.
//!
//! The kernel ends the lock (`flock`) of a process that dies, whatever way it dies. It may do so a moment
//! after it closed the sockets of that process, so a lock of a process that is exiting is waited for.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdall_core::{Needs, PoolId, RequestId};

/// How long to wait for what takes a moment: a name to be written, a process to be gone.
const MOMENT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(100);

/// The flag of a process in `/proc/PID/stat` that is exiting.
const PF_EXITING: u64 = 0x4;

/// Why units cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Overlap {
    #[error("exclusion is broken: {who} is granted {units} of pool {pool}, in use by {}", holders.join(" and "))]
    InUse { who: String, units: u32, pool: u64, holders: Vec<String> },
    #[error("cannot lock a file: {0}")]
    Io(#[from] io::Error),
}

/// What is written in a locked file.
#[derive(Debug)]
struct Name {
    pid: u32,
    /// Seconds since the play began.
    since: f64,
    request: String,
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.splitn(3, ' ');
        let (pid, since) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { pid, since, request: words.next()?.into() })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, since, request } = self;
        write!(f, "{request} (process {pid}, since {since:.6} s)")
    }
}

/// Units in use, until dropped.
#[derive(Debug)]
pub(super) struct Used(Vec<File>);

impl Drop for Used {
    fn drop(&mut self) {
        for file in &self.0 {
            // Whoever locks it next is not taken for this one before it has written its own name.
            let _ = file.set_len(0);
        }
    }
}

/// Makes a file for each unit, and one for each pool.
pub(crate) fn create(directory: &Path, pools: u32, units: u32) -> io::Result<()> {
    for pool in (0..pools.into()).map(PoolId) {
        File::create(turn(directory, pool))?;
        for unit in 0..units {
            File::create(file(directory, pool, unit))?;
        }
    }
    Ok(())
}

fn file(directory: &Path, pool: PoolId, unit: u32) -> PathBuf {
    directory.join(format!("pool-{}-unit-{unit}", pool.0))
}

/// Locked while somebody looks for free units, so that nobody takes one behind its back.
fn turn(directory: &Path, pool: PoolId) -> PathBuf {
    directory.join(format!("pool-{}", pool.0))
}

/// Begins the use of what a request needs: any units of each pool that are free.
pub(super) fn take(
    directory: &Path,
    capacity: u32,
    request: RequestId,
    needs: &Needs,
    since: f64,
) -> Result<Used, Overlap> {
    let name = Name { pid: std::process::id(), request: format!("{request:?}"), since };
    let mut used = Used(Vec::new());
    for need in needs.iter() {
        let turn = File::open(turn(directory, need.pool))?;
        turn.lock()?;
        let mut holders = Vec::new();
        let mut left = need.units;
        for unit in 0..capacity {
            if left == 0 {
                break;
            }
            match take_one(&file(directory, need.pool, unit), &name)? {
                Ok(file) => {
                    used.0.push(file);
                    left -= 1;
                }
                Err(holder) => holders.push(holder),
            }
        }
        if left > 0 {
            let (units, pool) = (need.units, need.pool.0);
            return Err(Overlap::InUse { who: name.to_string(), units, pool, holders });
        }
    }
    Ok(used)
}

/// The locked file, or who has locked it.
fn take_one(path: &Path, name: &Name) -> io::Result<Result<File, String>> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let deadline = Instant::now() + MOMENT;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        let holder = Name::parse(&text);
        let alive = holder.as_ref().is_some_and(|holder| !is_exiting(holder.pid));
        if alive || Instant::now() > deadline {
            return Ok(Err(holder.map_or_else(|| "somebody".into(), |name| name.to_string())));
        }
        sleep(PAUSE); // It has yet to write its name, or to be gone.
    }
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{} {} {}", name.pid, name.since, name.request)?;
    Ok(Ok(file))
}

/// Whether a process uses nothing any more.
fn is_exiting(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_whitespace();
    let state = fields.next();
    let flags: Option<u64> = fields.nth(5).and_then(|flags| flags.parse().ok());
    matches!(state, Some("Z" | "X")) || flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

#[cfg(test)]
mod tests {
    use holdall_core::{Need, UserId};

    use super::*;

    fn request(lane: u32) -> RequestId {
        RequestId { user: UserId::first(lane), seq: 1 }
    }

    fn needs(pool: u64, units: u32) -> Needs {
        Needs::new(vec![Need::any(PoolId(pool), units)]).expect("sensible")
    }

    #[test]
    fn a_full_pool_names_its_holders() {
        let directory = tempfile::tempdir().expect("a directory");
        create(directory.path(), 1, 2).expect("files");
        let take = |lane, units| take(directory.path(), 2, request(lane), &needs(0, units), 0.5);
        let one = take(1, 1).expect("free");
        let _two = take(2, 1).expect("free");
        let full = take(3, 1).expect_err("full").to_string();
        assert!(full.contains("u3#1") && full.contains("u1#1") && full.contains("u2#1"), "{full}");
        assert!(full.contains(&std::process::id().to_string()), "{full}");
        drop(one);
        take(3, 1).expect("free again");
        assert!(take(3, 2).is_err());
    }

    #[test]
    fn whoever_is_gone_is_known() {
        assert!(!is_exiting(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().expect("true");
        while !is_exiting(child.id()) {
            sleep(PAUSE);
        }
        child.wait().expect("ended");
        assert!(is_exiting(child.id()));
    }
}
