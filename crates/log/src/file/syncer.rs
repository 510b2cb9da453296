//! Syncs what was written, for all who wait for it at once, beside the thread that writes; and does
//! whatever else may take a while.
//!
//! # Invariants
//! - `synced` moves to an index only after every file with records up to it, and the name of that
//!   file, are synced.
//! - After a sync has failed nothing more is told: what the disk holds is not known, and asking it
//!   again would bring a wrong answer. What has ended the log is not forgotten for what comes after.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::backlog::Job;
use super::doubt::leave_doubt;
use super::open::announce;
use super::spare::{Order, Spare};
use super::writer::Origin;
use super::{Durability, Options, Syncing};
use crate::disk::{Disk, DiskFile, is_full};
use crate::epoch::Epochs;
use crate::{Error, Identity, Index, Progress};

/// How long an epoch that found no room waits for the next try.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// What there is to do.
#[derive(Default)]
struct Work {
    /// Records up to here are written, to these files or to files that are synced.
    upto: Index,
    files: Vec<Arc<dyn DiskFile>>,
    /// Whether a file is new.
    names: bool,
    /// Files that are not written any more, and how long they are.
    finished: Vec<(Arc<dyn DiskFile>, u64)>,
    epoch: Option<u32>,
    /// A segment that will be needed, and those that will not.
    spare: Option<Order>,
    discarded: Vec<String>,
    asked: bool,
    stop: bool,
}

/// What the thread and the log share.
pub(super) struct Shared {
    disk: Arc<dyn Disk>,
    identity: Identity,
    epochs: Epochs,
    durability: Durability,
    work: Mutex<Work>,
    wake: Condvar,
    /// Whether something is asked for or being done.
    busy: AtomicBool,
    progress: watch::Sender<Progress>,
    /// Whether it says that the log is at its end, which is asked for often.
    has_ended: AtomicBool,
    spare: Mutex<Option<Spare>>,
}

/// The thread, if there is one.
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn new(
        origin: &Origin,
        epochs: Epochs,
        options: Options,
        progress: Progress,
    ) -> io::Result<Self> {
        let has_ended = AtomicBool::new(progress.has_ended());
        let shared = Arc::new(Shared {
            disk: origin.disk.clone(),
            identity: origin.identity,
            epochs,
            durability: options.durability,
            work: Mutex::default(),
            wake: Condvar::new(),
            busy: AtomicBool::new(false),
            progress: watch::Sender::new(progress),
            has_ended,
            spare: Mutex::default(),
        });
        let thread = match options.syncing {
            Syncing::Caller | Syncing::Steps => None,
            Syncing::Thread => {
                let shared = shared.clone();
                let named = std::thread::Builder::new().name("log-sync".into());
                Some(named.spawn(move || shared.work_until_stopped())?)
            }
        };
        Ok(Self { shared, thread })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub(super) fn raise_epoch(&self, to: u32) {
        self.shared.ask(|work| work.epoch = work.epoch.max(Some(to)));
    }

    /// Has a segment made ahead.
    pub(super) fn order_spare(&self, order: Order) {
        self.shared.ask(|work| work.spare = Some(order));
    }

    /// The segment that was made ahead, if it is ready.
    pub(super) fn take_spare(&self) -> Option<Spare> {
        self.shared.lock_spare().take()
    }

    /// Has a blank segment removed.
    pub(super) fn discard(&self, name: String) {
        self.shared.ask(|work| work.discarded.push(name));
    }

    /// Does what there is to do, here.
    pub(super) fn work_here(&self) -> Result<(), Error> {
        let work = self.shared.lock().take();
        let done = self.shared.do_work(work);
        self.shared.rest();
        done
    }

    /// Ends the thread; what was asked for is left.
    pub(super) fn stop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }

    pub(super) fn progress(&self) -> &watch::Sender<Progress> {
        &self.shared.progress
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Work {
    fn add(&mut self, file: &Arc<dyn DiskFile>, upto: Index) {
        if !self.files.iter().any(|known| Arc::ptr_eq(known, file)) {
            self.files.push(file.clone());
        }
        self.upto = self.upto.max(upto);
    }

    /// All of it; whether to stop stays.
    fn take(&mut self) -> Self {
        let stop = self.stop;
        std::mem::replace(self, Self { stop, ..Self::default() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_spare(&self) -> MutexGuard<'_, Option<Spare>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a segment that was made ahead, and returns one that nobody has taken in time.
    pub(super) fn put_spare(&self, spare: Spare) -> Option<Spare> {
        self.lock_spare().replace(spare)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    fn work_until_stopped(&self) {
        loop {
            let idle = |work: &mut Work| !work.asked && !work.stop;
            let work = self.lock();
            let mut work = if work.epoch.is_some() {
                let woken = self.wake.wait_timeout_while(work, TRY_AGAIN, idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let woken = self.wake.wait_while(work, idle);
                woken.unwrap_or_else(PoisonError::into_inner)
            };
            if work.stop {
                return;
            }
            let taken = work.take();
            drop(work);
            if self.do_work(taken).is_err_and(|error| !error.passes()) {
                return;
            }
            self.rest();
        }
    }

    /// Asks for more to be done.
    fn ask(&self, more: impl FnOnce(&mut Work)) {
        let mut work = self.lock();
        more(&mut work);
        work.asked = true;
        self.busy.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// What was taken is done.
    fn rest(&self) {
        let work = self.lock();
        self.busy.store(work.asked, Ordering::Release);
    }

    /// Whether a sync is under way, or will be.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Does what a log has put into its backlog.
    pub(super) fn do_job(&self, job: &Job) -> io::Result<()> {
        match job {
            Job::Write { file, bytes, offset, flushed, sync } => {
                file.write_at(bytes, *offset)?;
                if let Some(upto) = flushed {
                    self.tell_written(file, *upto, *sync);
                }
            }
            Job::Finish { file, length, upto } => {
                self.ask(|work| {
                    work.add(file, *upto);
                    work.names = true;
                    work.finished.push((file.clone(), *length));
                });
            }
        }
        Ok(())
    }

    /// Records up to here are written, the newest of them to this file.
    fn tell_written(&self, file: &Arc<dyn DiskFile>, upto: Index, sync: bool) {
        let is_enough = self.durability == Durability::Written;
        self.progress.send_if_modified(|progress| {
            if progress.has_ended() {
                return false;
            }
            let cleared = progress.trouble.take_if(|trouble| trouble.passes()).is_some();
            let moves = is_enough && progress.may_leave < upto;
            if moves {
                progress.may_leave = upto;
            }
            moves || cleared
        });
        if sync || !is_enough {
            self.ask(|work| work.add(file, upto));
        }
    }

    /// The log is at its end.
    pub(super) fn fail(&self, error: io::Error) -> Error {
        let error = self.unknown(error);
        self.set_trouble(&error);
        error
    }

    /// A sync has failed, and the log is at its end: what the disk holds is not known.
    pub(super) fn fail_sync(&self, error: io::Error) -> Error {
        leave_doubt(&*self.disk);
        self.fail(error)
    }

    /// Something is wrong. What has ended the log stays.
    pub(super) fn set_trouble(&self, error: &Error) {
        self.progress.send_if_modified(|progress| {
            let goes_on = !progress.has_ended();
            if goes_on {
                progress.trouble = Some(error.clone());
                self.has_ended.store(progress.has_ended(), Ordering::Release);
            }
            goes_on
        });
    }

    /// There is no room.
    pub(super) fn set_full(&self) {
        self.set_trouble(&Error::Full(self.disk.path().display().to_string()));
    }

    /// What has ended the log.
    pub(super) fn trouble(&self) -> Error {
        let trouble = self.progress.borrow().trouble.clone();
        trouble.unwrap_or_else(|| Error::Closed(self.disk.path().display().to_string()))
    }

    /// Fails if the log is at its end.
    pub(super) fn check_alive(&self) -> Result<(), Error> {
        if self.has_ended.load(Ordering::Acquire) { Err(self.trouble()) } else { Ok(()) }
    }

    fn do_work(&self, work: Work) -> Result<(), Error> {
        self.check_alive()?;
        let done = self.sync(&work).and_then(|()| self.raise(work.epoch));
        if let Err(error) = &done {
            self.set_trouble(error);
        }
        if let Some(order) = work.spare.filter(|_| done.is_ok()) {
            self.make_spare(order);
        }
        for name in &work.discarded {
            drop(self.disk.remove(name)); // It is blank, and removed when the log is opened.
        }
        for (file, length) in work.finished {
            drop(file.cut(length)); // Only room is lost if it cannot be given back.
        }
        done
    }

    fn sync(&self, work: &Work) -> Result<(), Error> {
        let synced = work.files.iter().try_for_each(|file| file.sync());
        let synced = synced.and_then(|()| if work.names { self.disk.sync_names() } else { Ok(()) });
        synced.map_err(|error| self.fail_sync(error))?;
        self.progress.send_if_modified(|progress| {
            if progress.has_ended() {
                return false;
            }
            let moves = progress.synced < work.upto;
            progress.synced = progress.synced.max(work.upto);
            if self.durability == Durability::Synced {
                progress.may_leave = progress.may_leave.max(work.upto);
            }
            moves
        });
        Ok(())
    }

    fn raise(&self, epoch: Option<u32>) -> Result<(), Error> {
        let Some(epoch) = epoch.filter(|epoch| *epoch > self.progress.borrow().epoch) else {
            return Ok(());
        };
        // No segment has this epoch until the log is opened again.
        match announce(&*self.disk).and_then(|()| self.epochs.raise(epoch, self.identity)) {
            Ok(()) => self.progress.send_modify(|progress| progress.epoch = epoch),
            Err((path, error)) if is_full(&error) => {
                let mut work = self.lock();
                work.epoch = work.epoch.max(Some(epoch)); // Tried again soon.
                return Err(Error::Full(path.display().to_string()));
            }
            Err((_, error)) => return Err(self.unknown(error)),
        }
        Ok(())
    }

    fn unknown(&self, error: io::Error) -> Error {
        Error::Unknown { place: self.disk.path().display().to_string(), error: Arc::new(error) }
    }
}
