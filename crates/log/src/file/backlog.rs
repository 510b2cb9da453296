//! Writes beside the thread that grants, while a sync is under way.
//!
//! A file system may let a `write` wait for a sync of the same file, or of another. So as long as one
//! is under way, writes are handed to a thread, and what rests on them leaves when it has done them;
//! otherwise they are done at once, where they come up.
//!
//! # Invariants
//! - Writes are done in the order in which they were put, whoever does them: none is done at once
//!   while another is in the queue.
//! - After a write has failed none is done any more.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::syncer::Shared as Syncing;
use crate::disk::DiskFile;
use crate::{Error, Index};

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
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// How many jobs are in the queue or being done.
    outstanding: AtomicUsize,
    idle: Condvar,
    syncing: Arc<Syncing>,
}

/// The queue, and the thread that empties it.
pub(super) struct Backlog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Waits for what is in the queue.
pub(super) struct Waiter(Arc<Shared>);

impl Backlog {
    pub(super) fn new(syncing: Arc<Syncing>, has_thread: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            outstanding: AtomicUsize::new(0),
            idle: Condvar::new(),
            syncing,
        });
        let thread = if has_thread {
            let shared = shared.clone();
            let named = std::thread::Builder::new().name("log-write".into());
            Some(named.spawn(move || shared.work_until_stopped())?)
        } else {
            None
        };
        Ok(Self { shared, thread })
    }

    /// Does a job and gives it back, or has it done. If a write fails here it can be tried again.
    pub(super) fn put(&self, job: Job) -> Result<Option<Job>, (Job, io::Error)> {
        let shared = &self.shared;
        let is_idle = shared.outstanding.load(Ordering::Acquire) == 0;
        if self.thread.is_none() || (is_idle && !shared.syncing.is_busy()) {
            return match shared.syncing.do_job(&job) {
                Ok(()) => Ok(Some(job)),
                Err(error) => Err((job, error)),
            };
        }
        shared.outstanding.fetch_add(1, Ordering::AcqRel);
        shared.lock().jobs.push_back(job);
        shared.wake.notify_one();
        Ok(None)
    }

    pub(super) fn waiter(&self) -> Waiter {
        Waiter(self.shared.clone())
    }

    /// Ends the thread; what is in the queue is lost.
    pub(super) fn stop(&mut self) {
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
    /// Waits until all that was put is done.
    ///
    /// # Errors
    /// If it will not be.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let shared = &self.0;
        let waits =
            |queue: &mut Queue| !queue.stop && shared.outstanding.load(Ordering::Acquire) > 0;
        let waited = shared.idle.wait_while(shared.lock(), waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        match shared.outstanding.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(shared.syncing.trouble()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_until_stopped(&self) {
        while let Some(job) = self.next() {
            if let Err(error) = self.syncing.do_job(&job) {
                self.syncing.fail(error);
                break;
            }
            // Under the lock, so that nobody begins to wait in between.
            let queue = self.lock();
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
            self.idle.notify_all();
            drop(queue);
        }
        self.lock().stop = true;
        self.idle.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.stop;
        let woken = self.wake.wait_while(self.lock(), idle);
        let mut queue = woken.unwrap_or_else(PoisonError::into_inner);
        if queue.stop { None } else { queue.jobs.pop_front() }
    }
}
