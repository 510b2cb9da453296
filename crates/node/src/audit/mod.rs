//! The audit log: who asked for, got, gave back and lost what, and when. One JSON object a line.
//!
//! A thread of its own puts lines into words and writes them, many at a time: no grant waits for it.
//! If the disk is so slow that more lines wait than there is room for, some are left out, and a line
//! says how many; never those that tell who has used a right over others.

mod file;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;

pub(crate) use self::file::Line;
use self::file::Log;
use crate::directory::Directory;

/// About how many bytes of lines may wait.
const ROOM: usize = 32 << 20;
/// How long lines are collected.
const COLLECT: Duration = Duration::from_millis(10);
/// What is never left out.
const KEPT: [&str; 2] = ["forced", "pool"];

/// Where lines go.
#[derive(Debug)]
pub(crate) struct Audit {
    pending: Vec<Line>,
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
}

/// Lines on their way to the thread that writes them.
#[derive(Debug, Default)]
struct Queue {
    lines: Mutex<Waiting>,
    /// There is something to write.
    filled: Condvar,
    /// Everything is written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<Line>,
    size: usize,
    left_out: usize,
    /// The thread waits for lines.
    idle: bool,
    /// Somebody waits for everything to be written.
    urgent: bool,
    closed: bool,
}

impl Waiting {
    fn add(&mut self, line: Line) {
        let size = line.size();
        if self.size + size > ROOM && !KEPT.contains(&line.what) {
            self.left_out += 1;
        } else {
            self.size += size;
            self.lines.push(line);
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines to write next, when there are some; none when there will be no more.
    fn next(&self) -> Option<(Vec<Line>, usize)> {
        let mut waiting = self.lock();
        while waiting.lines.is_empty() && waiting.left_out == 0 {
            if waiting.closed {
                return None;
            }
            waiting.idle = true;
            waiting.urgent = false;
            self.emptied.notify_all();
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.idle = false;
        let collecting = |waiting: &mut Waiting| !waiting.urgent && !waiting.closed;
        let collected = self.filled.wait_timeout_while(waiting, COLLECT, collecting);
        let (mut waiting, _) = collected.unwrap_or_else(PoisonError::into_inner);
        waiting.size = 0;
        Some((std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.left_out)))
    }
}

impl Audit {
    /// Opens or begins a log that is rotated at `max` bytes, with so many old ones kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn open(dir: Arc<Directory>, max: u64, files: u32) -> anyhow::Result<Self> {
        let log = Log::open(dir, max, files)?;
        let queue = Arc::<Queue>::default();
        let from = queue.clone();
        let writer =
            std::thread::Builder::new().name("audit".into()).spawn(move || write(&from, log))?;
        Ok(Self { pending: Vec::new(), queue, writer: Some(writer) })
    }

    /// Adds a line, which is written some time after [`Audit::hand_over`].
    pub(crate) fn add(&mut self, line: Line) {
        self.pending.push(line);
    }

    /// Hands over what was added.
    pub(crate) fn hand_over(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut waiting = self.queue.lock();
        for line in self.pending.drain(..) {
            waiting.add(line);
        }
        if waiting.idle {
            waiting.idle = false;
            self.queue.filled.notify_one();
        }
    }

    /// Waits until everything is written that was added.
    pub(crate) fn flush(&mut self) {
        self.hand_over();
        let mut waiting = self.queue.lock();
        waiting.urgent = true;
        self.queue.filled.notify_one();
        let unwritten = |waiting: &mut Waiting| waiting.urgent;
        drop(self.queue.emptied.wait_while(waiting, unwritten));
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.hand_over();
        self.queue.lock().closed = true;
        self.queue.filled.notify_one();
        // A writer that panicked has nothing more to write.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

fn write(queue: &Queue, mut log: Log) {
    while let Some((mut lines, left_out)) = queue.next() {
        if left_out > 0 {
            let text = format!("{left_out} lines: they came faster than they could be written");
            // There was no room because of the others.
            let at = lines.last().map_or(0, |line| line.at);
            lines.push(Line::new(at, "left-out").detail(Some(text)));
        }
        if let Err(error) = log.write(&lines) {
            error!("the audit log is incomplete: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_counted_and_what_matters_is_kept() {
        let mut waiting = Waiting::default();
        let long = || Some("x".repeat(1 << 20));
        for _ in 0..40 {
            waiting.add(Line::new(0, "asked").detail(long()));
        }
        assert_eq!((waiting.lines.len(), waiting.left_out), (31, 9));
        waiting.add(Line::new(0, "forced").detail(long()));
        waiting.add(Line::new(0, "pool"));
        assert_eq!((waiting.lines.len(), waiting.left_out), (33, 9));
    }

    #[test]
    fn everything_is_written_when_it_is_waited_for_and_in_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Arc::new(Directory::private(dir.path()).expect("ours"));
        let mut audit = Audit::open(own, 1 << 20, 1).expect("writable");
        let lines = || {
            let text = std::fs::read_to_string(dir.path().join("audit.jsonl"));
            text.expect("it is there").lines().count()
        };
        for n in 1..=100 {
            audit.add(Line::new(0, "asked"));
            audit.flush();
            assert_eq!(lines(), n);
        }
        audit.flush();
        audit.queue.lock().left_out = 3;
        audit.add(Line::new(0, "asked"));
        drop(audit);
        assert_eq!(lines(), 102, "also that some were left out");
    }
}
