//! A log in memory: led by whoever opened it last, as one in a replicated store is.
//!
//! It outlives the logs that are opened on it, not the process. What is flushed is committed at
//! once, or when a test says so; and a commit can be made to fail in the ways that a store far away
//! fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::{
    Class, Entry, Error, Identity, Index, Life, Log, Memory, OpenError, Opened, PAYLOAD_MAX,
    Progress, Record, Snapshot, SnapshotJob, Store, Watch,
};

const PLACE: &str = "a store in memory";

/// What happens to commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commits {
    /// They are made at once.
    #[default]
    Prompt,
    /// They wait until they are prompt again.
    Held,
    /// The next one is made, and its leader is not told so.
    Unanswered,
    /// There is no room.
    Full,
}

/// Where logs in memory are kept.
#[derive(Clone)]
pub struct MemoryStore(Arc<Mutex<State>>);

struct State {
    identity: Identity,
    life: Life,
    snapshot: Option<Snapshot>,
    records: Vec<Record>,
    sealed: bool,
    epoch: u32,
    /// How often it was opened; the last one leads.
    term: u64,
    commits: Commits,
    /// What the leader has flushed and is not committed.
    flushed: Vec<Record>,
    progress: watch::Sender<Progress>,
}

impl MemoryStore {
    /// An empty one.
    pub fn new(identity: Identity, life: Life) -> Self {
        let nothing = Progress::new(Index(0), 0);
        Self(Arc::new(Mutex::new(State {
            identity,
            life,
            snapshot: None,
            records: Vec::new(),
            sealed: false,
            epoch: 0,
            term: 0,
            commits: Commits::Prompt,
            flushed: Vec::new(),
            progress: watch::Sender::new(nothing),
        })))
    }

    /// From now on this happens to commits.
    pub fn set_commits(&self, commits: Commits) {
        let mut state = self.lock();
        state.commits = commits;
        state.progress.send_modify(|progress| {
            if !progress.has_ended() {
                progress.trouble = (commits == Commits::Full).then(|| Error::Full(PLACE.into()));
            }
        });
        state.commit();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn last(&self) -> Index {
        let in_snapshot = self.snapshot.as_ref().map_or(Index(0), |snapshot| snapshot.upto);
        self.records.last().map_or(in_snapshot, |record| record.index)
    }

    /// Commits what was flushed, if commits are made.
    fn commit(&mut self) {
        if matches!(self.commits, Commits::Held | Commits::Full) {
            return;
        }
        self.records.append(&mut self.flushed);
        let last = self.last();
        let unanswered = self.commits == Commits::Unanswered;
        if unanswered {
            self.commits = Commits::Prompt;
        }
        self.progress.send_modify(|progress| {
            if unanswered {
                let error = Arc::new(std::io::ErrorKind::TimedOut.into());
                progress.trouble = Some(Error::Unknown { place: PLACE.into(), error });
            } else {
                (progress.may_leave, progress.synced) = (last, last);
            }
        });
    }
}

impl Store for MemoryStore {
    fn open(&self) -> Result<(Box<dyn Log>, Opened), OpenError> {
        let mut state = self.lock();
        let memory = if state.term == 0 { Memory::New } else { Memory::Kept };
        state.term += 1;
        state.epoch =
            state.epoch.checked_add(1).ok_or_else(|| OpenError::Exhausted(PLACE.into()))?;
        state.flushed.clear();
        let deposed =
            |progress: &mut Progress| progress.trouble = Some(Error::Deposed(PLACE.into()));
        state.progress.send_modify(deposed);
        let last = state.last();
        state.progress = watch::Sender::new(Progress::new(last, state.epoch));
        let log = MemoryLog {
            store: self.clone(),
            term: state.term,
            watch: Watch::new(state.progress.subscribe()),
            pending: Vec::new(),
            next: last.next(),
            snapshotting: std::sync::Weak::new(),
        };
        let opened = Opened {
            identity: state.identity,
            epoch: state.epoch,
            life: state.life,
            memory,
            cut: None,
            sealed: std::mem::take(&mut state.sealed),
            snapshot: state.snapshot.clone(),
            records: state.records.clone(),
        };
        Ok((Box::new(log), opened))
    }
}

struct MemoryLog {
    store: MemoryStore,
    term: u64,
    watch: Watch,
    pending: Vec<Record>,
    next: Index,
    snapshotting: std::sync::Weak<()>,
}

impl MemoryLog {
    /// The state, for the leader.
    fn lead(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.store.lock();
        if state.term != self.term {
            return Err(Error::Deposed(PLACE.into()));
        }
        let trouble = state.progress.borrow().trouble.clone();
        match trouble {
            Some(trouble) if !trouble.passes() => Err(trouble),
            _ => Ok(state),
        }
    }
}

impl Log for MemoryLog {
    fn admit(&mut self, _bytes: usize) -> Result<(), Error> {
        match self.lead()?.commits {
            Commits::Full => Err(Error::Full(PLACE.into())),
            _ => Ok(()),
        }
    }

    fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error> {
        if entry.payload.len() > PAYLOAD_MAX {
            return Err(Error::TooLong(entry.payload.len()));
        }
        match entry.class {
            Class::May => self.admit(entry.payload.len())?,
            Class::Must => drop(self.lead()?),
        }
        let index = self.next;
        let payload = entry.payload.to_vec().into();
        self.pending.push(Record { index, logic: entry.logic, payload });
        self.next = index.next();
        Ok(index)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut state = self.lead()?;
        state.flushed.append(&mut pending);
        state.commit();
        Ok(())
    }

    fn watch(&self) -> Watch {
        self.watch.clone()
    }

    fn keep_room(&mut self, _bytes: u64) {}

    fn raise_epoch(&mut self, to: u32) -> Result<(), Error> {
        let mut state = self.lead()?;
        state.epoch = state.epoch.max(to);
        let epoch = state.epoch;
        state.progress.send_modify(|progress| progress.epoch = epoch);
        Ok(())
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error> {
        if self.snapshotting.strong_count() > 0 {
            return Err(Error::Snapshotting(PLACE.into()));
        }
        self.flush()?;
        let token = Arc::new(());
        self.snapshotting = Arc::downgrade(&token);
        let (store, upto) = (self.store.clone(), self.next.before());
        Ok(Box::new(MemorySnapshot { store, term: self.term, upto, _token: token }))
    }

    fn seal(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()?;
        self.lead()?.sealed = true;
        Ok(())
    }
}

struct MemorySnapshot {
    store: MemoryStore,
    term: u64,
    upto: Index,
    _token: Arc<()>,
}

impl MemorySnapshot {
    /// A state that contains what is not committed could contain what never will be.
    fn check_committed(&self, state: &State) -> Result<(), Error> {
        if state.last() >= self.upto {
            return Ok(());
        }
        let what = format!("record {} is not committed yet; try again later", self.upto.0);
        Err(Error::Failed { place: PLACE.into(), error: Arc::new(std::io::Error::other(what)) })
    }
}

impl SnapshotJob for MemorySnapshot {
    fn upto(&self) -> Index {
        self.upto
    }

    fn history(&self) -> Result<(Option<Snapshot>, Vec<Record>), OpenError> {
        let state = self.store.lock();
        self.check_committed(&state).map_err(|error| OpenError::Io {
            path: PLACE.into(),
            error: std::io::Error::other(error),
        })?;
        let records = state.records.iter().filter(|record| record.index <= self.upto);
        Ok((state.snapshot.clone(), records.cloned().collect()))
    }

    fn keep(self: Box<Self>, logic: u32, payload: &[u8]) -> Result<(), Error> {
        let mut state = self.store.lock();
        if state.term != self.term {
            return Err(Error::Deposed(PLACE.into()));
        }
        if state.commits == Commits::Full {
            return Err(Error::Full(PLACE.into()));
        }
        self.check_committed(&state)?;
        let payload = payload.to_vec().into();
        state.snapshot = Some(Snapshot { upto: self.upto, logic, payload });
        state.records.retain(|record| record.index > self.upto);
        Ok(())
    }
}
