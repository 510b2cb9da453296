//! What a host does that was called to lead next, before it does: it replays what there is, and goes on with what comes; and connects
//! to all members, so that only a greeting has to pass.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_links::{Above, Cell, Events};
use holdall_log::etcd::Ahead;
use holdall_log::{Identity, Log, Opened, Record, Snapshot};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::stand_by::learn;
use crate::audit::{self, Audit};
use crate::clock::Clock;
use crate::cluster::greeter::Greeter;
use crate::cluster::{self, Known, Running};
use crate::config::Config;
use crate::containment::Containment;
use crate::directory::Directory;
use crate::history::Kept;
use crate::rights::Table;
use crate::service::Replaying;

/// How long it is waited for connections to all members: some may not be there.
const CONNECTED: Duration = Duration::from_secs(1);
/// How often it is looked whether they are made.
const LOOK: Duration = Duration::from_millis(2);

/// A log that is led, and what was done before it was.
pub(crate) struct Led {
    pub(crate) log: Box<dyn Log>,
    pub(crate) opened: Opened,
    pub(crate) prepared: Option<Prepared>,
}

impl From<(Box<dyn Log>, Opened)> for Led {
    fn from((log, opened): (Box<dyn Log>, Opened)) -> Self {
        Self { log, opened, prepared: None }
    }
}

/// Where a cell has come to by a log, and by its history; and what else its service needs.
pub(crate) struct Begun {
    pub(crate) kept: Option<Kept>,
    pub(crate) replaying: Replaying,
    pub(crate) audit: Audit,
    pub(crate) rights: Table,
    pub(crate) containment: Containment,
}

impl Begun {
    /// Begins with a snapshot of the log of this cell, or with nothing.
    ///
    /// # Errors
    /// If something in the directory cannot be used, or the configuration makes no sense.
    pub(crate) fn new(
        dir: &Arc<Directory>,
        config: &Config,
        identity: Identity,
        snapshot: Option<&Snapshot>,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let kept = Kept::open(dir.path(), &config.history, clock.wall());
        let mark = kept.as_ref().and_then(Kept::mark);
        Ok(Self {
            replaying: Replaying::new(identity, snapshot, mark)?,
            kept,
            audit: audit::open(dir.clone(), config.audit_bytes, config.audit_files)?,
            rights: Table::new(&config.rights)?,
            containment: Containment::find(config.cgroups, dir),
        })
    }
}

/// All that was done before it leads.
pub(crate) struct Prepared {
    pub(crate) begun: Begun,
    pub(crate) known: Known,
    pub(crate) connected: Connected,
}

/// Links that have connected to members, and greet nobody yet.
pub(crate) struct Connected {
    pub(crate) running: Running,
    pub(crate) events: Events,
    pub(crate) above: Arc<Later>,
}

/// Who is wanted is known when the links are opened.
#[derive(Default)]
pub(crate) struct Later(OnceLock<Arc<Greeter>>);

impl Later {
    /// From now on this one says so.
    pub(crate) fn is(&self, greeter: Arc<Greeter>) {
        let _ = self.0.set(greeter); // It is said once.
    }
}

impl Above for Later {
    fn greeting(&self, peer: &Cell) -> Vec<u8> {
        self.0.get().map(|greeter| greeter.greeting(peer)).unwrap_or_default()
    }

    fn welcome(&self, peer: &Cell, greeting: &[u8]) -> Result<(), String> {
        let greeter = self.0.get().ok_or("this host does not lead yet")?;
        greeter.welcome(peer, greeting)
    }

    fn client(&self, token: &str) -> Option<String> {
        self.0.get()?.client(token)
    }
}

/// A host that may be called to lead next.
pub(super) struct Preparing<'a> {
    dir: &'a Arc<Directory>,
    config: &'a Config,
    identity: Identity,
    prepared: Option<Prepared>,
    /// Who is told that it is ready, and since when it is made so.
    ready: Option<(oneshot::Sender<()>, Instant)>,
}

impl<'a> Preparing<'a> {
    pub(super) fn new(dir: &'a Arc<Directory>, config: &'a Config, identity: Identity) -> Self {
        Self { dir, config, identity, prepared: None, ready: None }
    }

    /// Takes in what was read ahead.
    pub(super) fn take(&mut self, ahead: Ahead) {
        let taken = match ahead {
            Ahead::Begun { snapshot, records, ready } => {
                self.ready = Some((ready, Instant::now()));
                self.begin(snapshot.as_ref(), &records)
            }
            Ahead::More(records) => match &mut self.prepared {
                Some(prepared) => prepared.begun.replaying.take(&records),
                None => Ok(()),
            },
            Ahead::Over => {
                (self.prepared, self.ready) = (None, None);
                Ok(())
            }
        };
        if let Err(why) = taken {
            warn!("this host cannot get ready to lead next: {why:#}");
            (self.prepared, self.ready) = (None, None);
        }
    }

    fn begin(&mut self, snapshot: Option<&Snapshot>, records: &[Record]) -> anyhow::Result<()> {
        learn(self.dir.path())?;
        let known =
            Known::read(self.dir.path(), self.config)?.context("it is no member any more")?;
        let above = Arc::<Later>::default();
        let (running, events) = cluster::prepare(&known, above.clone())?;
        let connected = Connected { running, events, above };
        let mut begun = Begun::new(self.dir, self.config, self.identity, snapshot, &Clock::new())?;
        begun.replaying.take(records)?;
        self.prepared = Some(Prepared { begun, known, connected });
        Ok(())
    }

    /// Waits until it is connected to all members, or has waited for that; and says that it is ready. Never ends.
    pub(super) async fn say_ready(&mut self) {
        loop {
            if let (Some(prepared), Some((_, since))) = (&self.prepared, &self.ready) {
                let links = &prepared.connected.running.links;
                let own = links.own().id;
                let others =
                    links.members().iter().filter(|(id, it)| *id != own && !it.removed).count();
                let is_connected = links.waiting() >= others;
                if is_connected || since.elapsed() > CONNECTED {
                    info!(members = links.waiting(), "ready to lead next");
                    let ready = self.ready.take();
                    ready.map(|(ready, _)| ready.send(()));
                }
            }
            match self.ready {
                Some(_) => tokio::time::sleep(LOOK).await,
                None => std::future::pending().await,
            }
        }
    }

    /// What was prepared, if all of it was that a log was opened with: `ahead` of that, more may have been told than was taken in.
    pub(super) fn done(
        mut self,
        ahead: &mut UnboundedReceiver<Ahead>,
        opened: &Opened,
    ) -> Option<Prepared> {
        while let Ok(news) = ahead.try_recv() {
            self.take(news);
        }
        self.prepared.filter(|prepared| prepared.begun.replaying.reaches(opened))
    }
}

#[cfg(test)]
mod tests {
    use holdall_log::Store as _;
    use holdall_log::memory::MemoryStore;
    use tokio::sync::mpsc;

    use super::*;
    use crate::hosted::cells;

    /// What was told between the last that was taken in and the moment when the log was opened counts: also that it is over.
    #[test]
    fn what_was_told_last_is_taken_in() {
        let data = tempfile::tempdir().expect("a directory");
        cluster::init(data.path(), Some("lab1"), "127.0.0.1:0").expect("a cluster");
        let dir = cells(data.path()).join("licences");
        std::fs::create_dir_all(cluster::directory(&dir)).expect("made");
        for file in std::fs::read_dir(cluster::directory(data.path())).expect("there") {
            let file = file.expect("readable");
            let to = cluster::directory(&dir).join(file.file_name());
            std::fs::copy(file.path(), to).expect("copied");
        }
        let dir = Arc::new(Directory::private(&dir).expect("ours"));
        let (identity, config) = (Identity(1), Config::parse("cgroups = false").expect("sensible"));
        let (_, opened) = MemoryStore::new(identity, holdall_log::Life(1)).open().expect("new");
        for is_over in [false, true] {
            let (tell, mut ahead) = mpsc::unbounded_channel();
            let mut preparing = Preparing::new(&dir, &config, identity);
            let (ready, _told) = oneshot::channel();
            preparing.take(Ahead::Begun { snapshot: None, records: Vec::new(), ready });
            assert!(preparing.prepared.is_some(), "it has begun");
            if is_over {
                tell.send(Ahead::Over).expect("it is heard");
            }
            assert_eq!(preparing.done(&mut ahead, &opened).is_none(), is_over);
        }
    }
}
