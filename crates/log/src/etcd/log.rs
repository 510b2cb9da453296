//! The log itself: what its owner appends is handed to the writer, which runs elsewhere.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::watch;

use super::call::Wanted;
use super::heir::Audience;
use super::kv::Kv;
use super::lead::{Elected, Place};
use super::options::{Options, Seen};
use super::queue::{Heir, Queue};
use super::snapshot::Keeper;
use super::writer::Writer;
use crate::{Class, Entry, Error, Index, OpenError, Opened, PAYLOAD_MAX, Progress, Record, Watch};

/// How much may wait to be written before nothing new is let in.
const WAITING_MAX: usize = 64 << 20;

/// A log in etcd that is led.
pub(super) struct Core<K> {
    pub(super) place: Place<K>,
    pub(super) elected: Arc<Elected>,
    pub(super) keeper: Keeper<K>,
    queue: Queue,
    /// Who is to lead next.
    wanted: watch::Sender<Wanted>,
}

/// Becomes leader, and reads what there is.
pub(super) async fn open<K: Kv>(
    kv: Arc<K>,
    options: Options,
    name: String,
    audience: Option<&Audience>,
) -> Result<(Arc<Core<K>>, Opened), OpenError> {
    let place = Place::new(kv, options, name);
    let (elected, read) = place.campaign(audience).await?;
    let elected = Arc::new(elected);
    let read = async {
        if let Some(read) = read {
            return Ok(read);
        }
        let read = place.read().await?;
        if read.meta.is_led_by(elected.term) {
            Ok(read)
        } else {
            Err(OpenError::InUse(place.name.clone().into()))
        }
    };
    let read = tokio::select! {
        biased;
        _deposed = place.keep_leading(&elected) => Err(OpenError::InUse(place.name.clone().into())),
        read = read => read,
    };
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            place.give_up(elected.lease).await;
            return Err(error);
        }
    };
    let opened = Opened {
        identity: elected.cell.identity,
        epoch: elected.epoch,
        life: elected.cell.life,
        memory: elected.memory,
        cut: None,
        sealed: elected.sealed,
        snapshot: read.snapshot,
        records: read.records,
    };
    let keeper = Keeper::new(place.clone(), Arc::clone(&elected));
    let (queue, wanted) = (Queue::default(), watch::Sender::new(None));
    Ok((Arc::new(Core { place, elected, keeper, queue, wanted }), opened))
}

impl<K: Kv> Core<K> {
    /// Writes and leads until the log is sealed, or does not count any more.
    pub(super) async fn run(&self) {
        let writer = Writer::new(&self.place, &self.elected, &self.queue);
        let ended = tokio::select! {
            biased;
            deposed = self.place.keep_leading(&self.elected) => Err(deposed),
            written = writer.run() => written,
            () = self.place.ask_leader(&self.elected) => Ok(()),
            () = self.place.call_heirs(&self.elected, self.wanted.subscribe()) => Ok(()),
        };
        self.end(ended.err()).await;
    }

    /// Tells nothing more, and lets others lead.
    pub(super) async fn end(&self, error: Option<Error>) {
        let closed = || Error::Closed(self.place.name.clone());
        self.elected.told.end(error.unwrap_or_else(closed));
        self.place.give_up(self.elected.lease).await;
    }

    pub(super) fn progress(&self) -> Progress {
        self.elected.told.progress()
    }

    pub(super) fn watch(&self) -> Watch {
        self.elected.told.watch()
    }

    /// When all is written, this one leads no longer; unless there is no room for that, or the heir is not ready any more.
    pub(super) fn seal(&self, heir: Heir) {
        self.queue.seal(heir);
    }

    /// Calls the host that is to lead next, so that it gets ready, if one is.
    pub(super) fn call(&self, heir: Wanted) {
        self.wanted.send_if_modified(|wanted| {
            let is_news = *wanted != heir;
            *wanted = heir;
            if is_news {
                self.elected.told.ready(None);
            }
            is_news
        });
    }

    /// That one, if it is ready.
    pub(super) fn heir(&self, host: &str) -> Result<Heir, Error> {
        let ready = self.elected.told.who_is_ready().filter(|ready| ready.called.host == host);
        // There is an epoch for it.
        let ready = ready.filter(|_| self.progress().epoch.max(self.queue.lock().epoch) < u32::MAX);
        let not_ready =
            || Error::NotReady { place: self.place.name.clone(), heir: host.to_owned() };
        ready.map(Heir::Ready).ok_or_else(not_ready)
    }

    /// Whether it is to be the end when all is written, still.
    pub(super) fn is_ending(&self) -> bool {
        self.queue.is_ending()
    }
}

/// The owner's end of a log.
pub(super) struct Feed<K> {
    pub(super) core: Arc<Core<K>>,
    /// What was appended and not handed over.
    pending: Vec<Record>,
    pub(super) next: Index,
    snapshotting: Weak<()>,
}

impl<K: Kv> Feed<K> {
    pub(super) fn new(core: Arc<Core<K>>) -> Self {
        let next = core.progress().may_leave.next();
        Self { core, pending: Vec::new(), next, snapshotting: Weak::new() }
    }

    fn lead(&self) -> Result<Progress, Error> {
        let progress = self.core.progress();
        match &progress.trouble {
            Some(trouble) if progress.has_ended() => Err(trouble.clone()),
            _ => Ok(progress),
        }
    }

    pub(super) fn admit(&self, bytes: usize) -> Result<(), Error> {
        let trouble = self.lead()?.trouble;
        let pending: usize = self.pending.iter().map(|record| record.payload.len()).sum();
        if self.core.queue.bytes() + pending + bytes > WAITING_MAX {
            return Err(Error::Full(self.core.place.name.clone()));
        }
        trouble.map_or(Ok(()), Err)
    }

    pub(super) fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error> {
        if entry.payload.len() > PAYLOAD_MAX {
            return Err(Error::TooLong(entry.payload.len()));
        }
        match entry.class {
            Class::May => self.admit(entry.payload.len())?,
            Class::Must => drop(self.lead()?),
        }
        let index = self.next;
        let payload = Bytes::copy_from_slice(entry.payload);
        self.pending.push(Record { index, logic: entry.logic, payload });
        self.next = index.next();
        Ok(index)
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.lead()?;
        if !self.pending.is_empty() {
            self.core.queue.push(self.pending.drain(..));
        }
        Ok(())
    }

    pub(super) fn raise_epoch(&self, to: u32) -> Result<(), Error> {
        self.lead()?;
        self.core.queue.raise_epoch(to);
        Ok(())
    }

    /// Begins a snapshot: up to where, and what is kept as long as it is being made.
    pub(super) fn begin_snapshot(&mut self) -> Result<(Index, Arc<()>), Error> {
        if self.snapshotting.strong_count() > 0 {
            return Err(Error::Snapshotting(self.core.place.name.clone()));
        }
        self.flush()?;
        let token = Arc::new(());
        self.snapshotting = Arc::downgrade(&token);
        Ok((self.next.before(), token))
    }

    /// What this host has seen of the store.
    pub(super) fn seen(&self) -> Seen {
        let progress = self.core.progress();
        let revision = self.core.elected.meta.revision;
        let life = self.core.elected.cell.life;
        Seen { life, revision, epoch: progress.epoch, next: progress.may_leave.next().0 }
    }
}
