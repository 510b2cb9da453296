//! The mark of an attempt: a file that is locked as long as anything of the attempt runs.
//!
//! The [holder](super::holder) makes and locks it before the task starts, and notes in it how the task
//! has ended before it tells anybody. Whatever the task starts inherits the open file, and the lock
//! with it. So whoever gets the lock knows that nothing of the attempt is left, and finds in the file
//! how it ended, if that is known. Numbers of processes would not do: others get them later.
//!
//! A holder may come late: it was told to start a task, but nobody waits for that any more. So whoever
//! gets the lock of an empty mark closes it, and makes it for that if it is not there: an attempt whose
//! mark is not empty does not begin. Marks lie in a directory for each life of a runner, which the next
//! one moves away when it has closed them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use holdall_holders::Process;
use holdall_jobs::Cause;
use rustix::fs::{FlockOperation, flock};
use rustix::io::FdFlags;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// How long what is left may take to end, before it is killed: its holder or the agent may be about to
/// end it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked again.
const LOOK: Duration = Duration::from_millis(20);
/// What is in the mark of an attempt that does not begin any more.
const CLOSED: &[u8] = b"closed";

/// How an attempt has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Why it did not end well, if so.
    pub(super) cause: Option<Cause>,
}

/// The mark of an attempt that runs.
#[derive(Debug)]
pub(super) struct Mark(File);

impl Mark {
    pub(super) fn set(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        if file.metadata()?.len() > 0 {
            return Err(io::Error::other("the attempt was given up before it began"));
        }
        Ok(Self(file))
    }

    /// Starts something that inherits it. Nothing else may be started meanwhile.
    pub(super) fn inherited<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        rustix::io::fcntl_setfd(&self.0, FdFlags::empty())?;
        let started = start();
        rustix::io::fcntl_setfd(&self.0, FdFlags::CLOEXEC)?;
        Ok(started)
    }

    /// Notes the end, and lets go.
    pub(super) fn note(mut self, end: &End) -> io::Result<()> {
        self.0.write_all(&serde_json::to_vec(end)?)
    }
}

/// How an attempt has ended, if it is noted.
pub(super) fn end(path: &Path) -> Option<End> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Waits until nothing is left of attempts, and ends what does not end; none of them begins later. Tells
/// how each has ended, if that is known.
pub(super) fn clear(paths: &[impl AsRef<Path>]) -> io::Result<Vec<Option<End>>> {
    let begun = Instant::now();
    let mut ends = Vec::new();
    for path in paths {
        ends.push(loop {
            if let Some(end) = try_clear(path.as_ref())? {
                break end;
            }
            if begun.elapsed() > PATIENCE {
                users(path.as_ref())?.iter().for_each(|process| process.signal(Signal::KILL));
            }
            std::thread::sleep(LOOK);
        });
    }
    Ok(ends)
}

/// How an attempt has ended, if that is known; nothing while something of it is left.
fn try_clear(path: &Path) -> io::Result<Option<Option<End>>> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).write(true).truncate(false).mode(0o600);
    let mut file = match options.open(path) {
        // Without its directory it cannot be made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(None)),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    if text.is_empty() {
        file.write_all(CLOSED)?;
    }
    Ok(Some(serde_json::from_slice(&text).ok()))
}

/// The processes that have a file open, but for this one.
fn users(path: &Path) -> io::Result<Vec<Process>> {
    let wanted = fs::metadata(path)?;
    let is_it = |open: &fs::DirEntry| {
        let found = fs::metadata(open.path());
        found.is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else { continue };
        // First the process, then what it has open: so that it is not another's by then.
        let Ok(Some(process)) = Process::open(pid) else { continue };
        let Ok(open) = fs::read_dir(entry.path().join("fd")) else { continue };
        if open.flatten().any(|open| is_it(&open)) {
            users.push(process);
        }
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_attempt_that_was_given_up_does_not_begin() {
        let dir = tempfile::tempdir().expect("a directory");
        let (early, late) = (dir.path().join("1.1"), dir.path().join("gone/1.1"));
        assert_eq!(clear(&[&early, &late]).expect("cleared"), [None, None]);
        for path in [early, late] {
            assert!(Mark::set(&path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn what_was_started_under_a_mark_is_gone_when_it_is_clear() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("1.1");
        let mark = Mark::set(&path).expect("marked");
        // The shell is in a group of its own, and what it leaves behind in another session.
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 1000 & echo $!"]).stdout(Stdio::piped());
        let started = mark.inherited(|| command.spawn().expect("started"));
        let mut child = started.expect("inherited");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).expect("a line");
        child.wait().expect("ended");
        drop(mark);
        assert_eq!(clear(&[&path]).expect("cleared"), [None]);
        let left = Process::open(line.trim().parse().expect("a number")).expect("told");
        assert!(left.is_none_or(|process| process.ended()));
    }

    #[test]
    fn an_end_that_is_noted_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("1.1");
        assert_eq!(end(&path), None, "there is none");
        let noted = End { cause: Some(Cause::Exit(3)) };
        Mark::set(&path).expect("marked").note(&noted).expect("noted");
        assert_eq!(end(&path), Some(noted.clone()));
        assert_eq!(clear(&[&path]).expect("cleared"), [Some(noted)]);
    }
}
