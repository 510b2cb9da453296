//! Writes beside the thread that grants, while a sync is under way.
//!
//! A file system may let a `write` wait for a sync of the same file, or of another. So as long as one
//! is under way, writes are handed to a thread, and what rests on them leaves when it has done them;
//! otherwise they are done at once, where they come up.
//!
//! # Invariants
//! - Writes are done in the order in which they were put, whoever does them: none is done at once
//!   while another is in the queue.
//! - After a write has failed none is done any more; one that finds no room is tried again, and those
//!   after it wait.
//! - After the end of the log none is done: what it rests on may not be there.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Syncing;
use super::syncer::Shared as Syncer;
use crate::disk::{DiskFile, is_full};
use crate::{Error, Index};

/// How long a write that found no room waits for the next try.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// What is to be done after what was put before.
pub(super) enum Job {
    /// Bytes of a segment.
    Write {
        file: Arc<dyn DiskFile>,
        bytes: Vec<u8>,
        offset: u64,
        /// The last record in them, if they end a flush.
        flushed: Option<Index>,
        /// Whether somebody waits for it to be synced.
        sync: bool,
    },
    /// Nothing more is written to a segment.
    Finish { file: Arc<dyn DiskFile>, length: u64, upto: Index },
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Whether the first of them has found no room.
    stalled: bool,
    stop: bool,
}

/// What to do after a job.
#[derive(PartialEq, Eq)]
enum After {
    TheNext,
    /// The same again, in a while.
    TheSame,
    Nothing,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// How many jobs are in the queue or being done.
    outstanding: AtomicUsize,
    idle: Condvar,
    mode: Syncing,
    syncer: Arc<Syncer>,
}

/// The queue, and the thread that empties it.
pub(super) struct Backlog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    is_stopped: bool,
}

/// Waits for what is in the queue.
pub(super) struct Waiter(Arc<Shared>);

impl Backlog {
    pub(super) fn new(syncer: Arc<Syncer>, mode: Syncing) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            outstanding: AtomicUsize::new(0),
            idle: Condvar::new(),
            mode,
            syncer,
        });
        let thread = if mode == Syncing::Thread {
            let shared = shared.clone();
            let named = std::thread::Builder::new().name("log-write".into());
            Some(named.spawn(move || shared.work_until_stopped())?)
        } else {
            None
        };
        Ok(Self { shared, thread, is_stopped: false })
    }

    /// Does a job and gives it back, or has it done. If a write fails here it can be tried again.
    pub(super) fn put(&self, job: Job) -> Result<Option<Job>, (Job, io::Error)> {
        let shared = &self.shared;
        let is_idle = shared.is_idle() && !shared.syncer.is_busy();
        if is_idle || shared.mode == Syncing::Caller || self.is_stopped {
            return match shared.syncer.do_job(&job) {
                Ok(()) => Ok(Some(job)),
                Err(error) => Err((job, error)),
            };
        }
        shared.outstanding.fetch_add(1, Ordering::AcqRel);
        shared.lock().jobs.push_back(job);
        shared.wake.notify_one();
        Ok(None)
    }

    /// Whether nothing is in the queue.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }

    /// Does the next job, as a thread would.
    pub(super) fn work_here(&self) {
        self.shared.work_here();
    }

    pub(super) fn waiter(&self) -> Waiter {
        Waiter(self.shared.clone())
    }

    /// Ends the thread; what is in the queue is lost, and what comes is done at once.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Waiter {
    /// A sync has failed, and so the log is at its end.
    pub(super) fn fail(&self, error: io::Error) -> Error {
        self.0.syncer.fail_sync(error)
    }

    /// Waits until all that was put is done.
    ///
    /// # Errors
    /// If it will not be.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let shared = &self.0;
        if shared.mode == Syncing::Thread {
            let waits = |queue: &mut Queue| !queue.stop && !queue.stalled && !shared.is_idle();
            let waited = shared.idle.wait_while(shared.lock(), waits);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        } else {
            while shared.work_here() == Some(After::TheNext) {}
        }
        if shared.is_idle() { Ok(()) } else { Err(shared.syncer.trouble()) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) == 0
    }

    fn work_until_stopped(&self) {
        while let Some(job) = self.next() {
            match self.work(job) {
                After::TheNext => {}
                After::TheSame => {
                    let wait = |queue: &mut Queue| !queue.stop;
                    drop(self.wake.wait_timeout_while(self.lock(), TRY_AGAIN, wait));
                }
                After::Nothing => break,
            }
        }
        self.lock().stop = true;
        self.idle.notify_all();
    }

    /// Does the next job, if there is one.
    fn work_here(&self) -> Option<After> {
        let job = self.lock().jobs.pop_front()?;
        Some(self.work(job))
    }

    fn work(&self, job: Job) -> After {
        let done = match self.syncer.check_alive() {
            Ok(()) => self.syncer.do_job(&job),
            Err(_) => return After::Nothing,
        };
        // Under the lock, so that nobody begins to wait in between.
        let mut queue = self.lock();
        queue.stalled = false;
        let after = match done {
            Ok(()) => {
                self.outstanding.fetch_sub(1, Ordering::AcqRel);
                After::TheNext
            }
            Err(error) if is_full(&error) => {
                queue.jobs.push_front(job);
                queue.stalled = true;
                self.syncer.set_full();
                After::TheSame
            }
            Err(error) => {
                self.syncer.fail(error);
                After::Nothing
            }
        };
        self.idle.notify_all();
        after
    }

    fn next(&self) -> Option<Job> {
        let idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.stop;
        let woken = self.wake.wait_while(self.lock(), idle);
        let mut queue = woken.unwrap_or_else(PoisonError::into_inner);
        if queue.stop { None } else { queue.jobs.pop_front() }
    }
}
