//! Where a log in etcd runs: a thread of its own, which no owner waits for.

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdall_etcd::{Address, Client, Failure, Settings};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::copy::CellCopy;
use super::follow::{self, Following};
use super::heir::Ahead;
use super::lead::Place;
use super::log::{Core, Feed, open};
use super::options::{Options, Seen};
use super::queue::Heir;
use super::remove::Election;
use crate::{
    Entry, Error, Identity, Index, Log, OpenError, Opened, Record, Snapshot, SnapshotJob, Store,
    Watch,
};

/// How long a member of etcd may take to answer, at most, unless the lease is short.
const ANSWER: Duration = Duration::from_secs(2);
/// How often it is looked whether the last of a log is written.
const LOOK: Duration = Duration::from_millis(1);
/// The heir of a cell that nobody is to lead: no host is called like this.
const NOBODY: &str = "-";

/// A cell in an etcd.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    settings: Settings,
    options: Options,
}

/// What a log has, for whoever does not lead it.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Who leads, if somebody does.
    pub leader: Option<super::Leader>,
    /// The epoch in force.
    pub epoch: u32,
    /// Where to begin.
    pub snapshot: Option<Snapshot>,
    /// What happened since.
    pub records: Vec<Record>,
}

impl EtcdStore {
    /// A cell in the etcd at an address, whose prefix is the name of the cell if it has one.
    pub fn new(mut address: Address, mut options: Options) -> Self {
        if address.prefix.is_empty() {
            address.prefix.clone_from(&options.cell);
        } else {
            options.cell.clone_from(&address.prefix);
        }
        let timeout = ANSWER.min(options.lease / 3);
        Self { settings: Settings { address, timeout }, options }
    }

    /// What it is called where people read it.
    pub fn name(&self) -> String {
        self.settings.address.to_string()
    }

    /// Opens the log.
    ///
    /// # Errors
    /// If somebody else leads it (and this one shall not stand by), etcd cannot be reached, or what
    /// is there cannot be used.
    pub fn open_etcd(&self) -> Result<(EtcdLog, Opened), OpenError> {
        self.open_for(None)
    }

    /// The same, and tells what is read before, if this host is called to lead next.
    ///
    /// # Errors
    /// The same.
    pub fn open_ahead(
        &self,
        ahead: mpsc::UnboundedSender<Ahead>,
    ) -> Result<(EtcdLog, Opened), OpenError> {
        self.open_for(Some(ahead))
    }

    fn open_for(
        &self,
        ahead: Option<mpsc::UnboundedSender<Ahead>>,
    ) -> Result<(EtcdLog, Opened), OpenError> {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (name, options) = (self.name(), self.options.clone());
        let this = self.clone();
        let thread = on_a_thread(async move {
            let opened = match this.client() {
                Ok(client) => open(Arc::new(client), options, name, ahead.as_ref()).await,
                Err(error) => Err(error),
            };
            let core = opened.as_ref().ok().map(|(core, _)| Arc::clone(core));
            let opened = opened.map(|(core, opened)| (core, opened, Handle::current()));
            if tell.send(opened).is_err() {
                return; // Nobody waits for it any more.
            }
            let Some(core) = core else { return };
            tokio::select! {
                () = core.run() => {}
                _ = stopped => core.end(None).await,
            }
        });
        let thread = thread.map_err(|error| self.io(error))?;
        let ended = || self.io(std::io::Error::other("its thread has ended"));
        let (core, opened, handle) = told.recv().map_err(|_| ended())??;
        let feed = Feed::new(core);
        let (stop, thread, patience) = (Some(stop), Some(thread), self.options.lease);
        Ok((EtcdLog { feed, handle, stop, thread, patience }, opened))
    }

    /// Reads the log without leading it.
    ///
    /// # Errors
    /// If etcd cannot be reached, or what is there cannot be used.
    pub fn look(&self) -> Result<Contents, OpenError> {
        let read = self.at_place(async |place| place.read().await)?;
        Ok(Contents {
            leader: read.meta.leader,
            epoch: read.meta.epoch,
            snapshot: read.snapshot,
            records: read.records,
        })
    }

    /// Reads all of it, as it is now, without leading it.
    ///
    /// # Errors
    /// If etcd cannot be reached, or what is there cannot be used.
    pub fn copy(&self) -> Result<CellCopy, OpenError> {
        self.at_place(async |place| place.copy().await)
    }

    /// Puts a copy where nothing is. Nobody leads it before it was adopted ([`Options::adopt`]).
    ///
    /// # Errors
    /// If something is there, or etcd cannot be reached or refuses it.
    pub fn put_copy(&self, copy: CellCopy) -> Result<(), OpenError> {
        self.at_place(async move |place| place.put_copy(&copy).await)
    }

    /// Which cell is there, if one is.
    ///
    /// # Errors
    /// If etcd cannot be reached, or what is there cannot be used.
    pub fn identity(&self) -> Result<Option<Identity>, OpenError> {
        self.at_place(async |place| Ok(place.meta().await?.cell.map(|cell| cell.identity)))
    }

    /// Which election was the last one, to be told to [`EtcdStore::remove`].
    ///
    /// # Errors
    /// If etcd cannot be reached, or what is there cannot be used.
    pub fn last_election(&self) -> Result<Election, OpenError> {
        self.at_place(async |place| place.last_election().await)
    }

    /// Deletes all keys of a cell, if it is this one: while nobody leads it and nobody was elected `since`; or if none is said, whoever leads it.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if somebody leads it; or if somebody has led it since, it is another cell, or etcd cannot be reached or refuses it.
    pub fn remove(&self, cell: Identity, since: Option<Election>) -> Result<(), OpenError> {
        self.at_place(async move |place| place.remove(cell, since).await)
    }

    /// The highest epoch that may be in use, and who leads, if somebody does.
    ///
    /// # Errors
    /// If etcd cannot be reached, or what is there cannot be used.
    pub fn reign(&self) -> Result<(u32, Option<super::Leader>), OpenError> {
        self.at_place(async |place| place.meta().await.map(|meta| (meta.epoch, meta.leader)))
    }

    /// Does something with the store on a thread of its own, and waits for it.
    fn at_place<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(Place<Client>) -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        let (name, options, client) = (self.name(), self.options.clone(), self.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.io(error))?;
        let thread = std::thread::Builder::new().name("etcd".into()).spawn(move || {
            runtime.block_on(async move {
                work(Place::new(Arc::new(client.client()?), options, name)).await
            })
        });
        let done = thread.map_err(|error| self.io(error))?.join();
        done.unwrap_or_else(|_| Err(self.io(std::io::Error::other("its thread has ended"))))
    }

    /// Tells who leads, now and later.
    ///
    /// # Errors
    /// If files that the address names cannot be read.
    pub fn follow(&self) -> Result<Following, OpenError> {
        let (name, options, this) = (self.name(), self.options.clone(), self.clone());
        let (sender, following) = follow::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = on_a_thread(async move {
            let client = this.client();
            let place = client.map(|client| Place::new(Arc::new(client), options, name));
            let place = match place {
                Ok(place) => place,
                Err(error) => return drop(tell.send(Err(error))),
            };
            drop(tell.send(Ok(())));
            follow::run(&place, sender).await;
        });
        thread.map_err(|error| self.io(error))?;
        let ended = || self.io(std::io::Error::other("its thread has ended"));
        told.recv().map_err(|_| ended())??;
        Ok(following)
    }

    fn client(&self) -> Result<Client, OpenError> {
        Client::new(&self.settings)
            .map_err(|Failure { what, .. }| self.io(std::io::Error::other(what)))
    }

    fn io(&self, error: std::io::Error) -> OpenError {
        OpenError::Io { path: self.name().into(), error }
    }
}

/// Runs something on a thread of its own.
fn on_a_thread(work: impl Future<Output = ()> + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("etcd".into());
    thread.spawn(move || runtime.block_on(work))
}

impl Store for EtcdStore {
    fn open(&self) -> Result<(Box<dyn Log>, Opened), OpenError> {
        let (log, opened) = self.open_etcd()?;
        Ok((Box::new(log), opened))
    }
}

/// A log in etcd that is open: this host leads it. If it is dropped, it leads no longer.
pub struct EtcdLog {
    feed: Feed<Client>,
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// How long its end may take: after a lease another host may lead in any case.
    patience: Duration,
}

impl EtcdLog {
    /// What this host has seen of the store, to be kept for [`Options::seen`].
    pub fn seen(&self) -> Seen {
        self.feed.seen()
    }

    /// Writes everything, and lets another host lead: any of them, or the one that is named, for which the others wait.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room for that: then this one goes on leading. If it cannot for another reason, it leads no longer.
    pub fn resign(&mut self, heir: Option<&str>) -> Result<(), Error> {
        self.end_for(heir.map_or(Heir::Anybody, |heir| Heir::Named(heir.into())))
    }

    fn end_for(&mut self, heir: Heir) -> Result<(), Error> {
        self.feed.flush()?;
        let core = Arc::clone(&self.feed.core);
        let not_ready =
            |host: String| Error::NotReady { place: core.place.name.clone(), heir: host };
        let given_up = match &heir {
            Heir::Ready(ready) => not_ready(ready.called.host.clone()),
            _ => Error::Full(core.place.name.clone()),
        };
        core.seal(heir);
        // What became of it is told; whether it comes to an end depends on etcd.
        let begun = Instant::now();
        while !core.progress().has_ended() {
            if !core.is_ending() {
                let trouble = core.progress().trouble;
                return Err(trouble.filter(|it| matches!(it, Error::Full(_))).unwrap_or(given_up));
            }
            if begun.elapsed() > self.patience {
                self.stop();
                // Also if there is no room: this one does not go on.
                return Err(core.place.error(&Failure::unknown("it does not answer in time")));
            }
            std::thread::sleep(LOOK);
        }
        match core.progress().trouble {
            None | Some(Error::Closed(_)) => Ok(()),
            Some(trouble) => Err(trouble),
        }
    }

    /// Ends it; it may have ended by itself.
    fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for EtcdLog {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Log for EtcdLog {
    fn admit(&mut self, bytes: usize) -> Result<(), Error> {
        self.feed.admit(bytes)
    }

    fn append(&mut self, entry: Entry<'_>) -> Result<Index, Error> {
        self.feed.append(entry)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.feed.flush()
    }

    fn watch(&self) -> Watch {
        self.feed.core.watch()
    }

    fn keep_room(&mut self, _bytes: u64) {}

    fn raise_epoch(&mut self, to: u32) -> Result<(), Error> {
        self.feed.raise_epoch(to)
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotJob>, Error> {
        let (upto, token) = self.feed.begin_snapshot()?;
        let (core, handle) = (Arc::clone(&self.feed.core), self.handle.clone());
        Ok(Box::new(EtcdSnapshot { core, handle, upto, _token: token }))
    }

    fn seal(mut self: Box<Self>) -> Result<(), Error> {
        self.resign(None)
    }

    fn call(&mut self, heir: Option<&str>) {
        self.feed.core.call(heir.map(Into::into));
    }

    fn hand_over(&mut self, heir: &str) -> Result<(), Error> {
        let heir = self.feed.core.heir(heir)?;
        self.end_for(heir)
    }

    fn retire(&mut self) -> Result<(), Error> {
        self.resign(Some(NOBODY))
    }
}

struct EtcdSnapshot {
    core: Arc<Core<Client>>,
    handle: Handle,
    upto: Index,
    _token: Arc<()>,
}

impl EtcdSnapshot {
    /// Has something done on the thread of the log, and waits for it; none if the log was closed.
    fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = std::sync::mpsc::channel();
        self.handle.spawn(async move { drop(tell.send(work.await)) });
        told.recv().ok()
    }

    fn closed(&self) -> Error {
        Error::Closed(self.core.place.name.clone())
    }
}

impl SnapshotJob for EtcdSnapshot {
    fn upto(&self) -> Index {
        self.upto
    }

    fn history(&self) -> Result<(Option<Snapshot>, Vec<Record>), OpenError> {
        let (core, upto) = (Arc::clone(&self.core), self.upto);
        let read = self.wait_for(async move { core.keeper.history(upto).await });
        read.unwrap_or_else(|| {
            let error = std::io::Error::other(self.closed());
            Err(OpenError::Io { path: self.core.place.name.clone().into(), error })
        })
    }

    fn keep(self: Box<Self>, logic: u32, payload: &[u8]) -> Result<(), Error> {
        let (core, upto) = (Arc::clone(&self.core), self.upto);
        let payload = Bytes::copy_from_slice(payload);
        let kept = self.wait_for(async move { core.keeper.keep(upto, logic, payload).await });
        kept.unwrap_or_else(|| Err(self.closed()))
    }
}
