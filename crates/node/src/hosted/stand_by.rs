//! A host of a replicated cell until it leads it.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdall_links::Home;
use holdall_log::etcd::{Address, Ahead, EPOCHS_AHEAD, EtcdStore, Following, Options, Seen};
use holdall_log::{Identity, Life, Log, OpenError, Opened};
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{info, warn};

use super::prepared::{Led, Preparing};
use super::{Hosted, Sighting, Standing};
use crate::cluster;
use crate::cluster::forgotten::epoch_of_removed;
use crate::config::Config;
use crate::directory::Directory;

/// After what time it is tried again to stand by.
const AGAIN: Duration = Duration::from_secs(1);
/// Why a host does not stand that nobody would talk to.
const OVER: &str =
    "the certificate of this host is over; `holdall cell add` with the same hosts renews it";
/// How often it is noted how it stands.
const NOTE: Duration = Duration::from_secs(1);

/// Tells when the agent that has started this one is gone, or does not want it any more.
pub(crate) struct Leash(Arc<Notify>);

impl Leash {
    /// Nothing is ever said on the standard input; it ends.
    pub(crate) fn new() -> std::io::Result<Self> {
        let ended = Arc::new(Notify::new());
        let tell = Arc::clone(&ended);
        std::thread::Builder::new().name("leash".into()).spawn(move || {
            let mut byte = [0];
            while !matches!(std::io::stdin().read(&mut byte), Ok(0) | Err(_)) {}
            tell.notify_one();
        })?;
        Ok(Self(ended))
    }

    pub(crate) async fn ended(&self) {
        self.0.notified().await;
        self.0.notify_one(); // There may be others.
    }
}

/// Waits until this host leads a cell: its log, what is in it, and what was done before.
///
/// # Errors
/// If this can never be.
pub(crate) async fn lead(
    hosted: &Hosted,
    dir: &Arc<Directory>,
    config: &Config,
) -> anyhow::Result<Led> {
    // First of all: that it is of the cluster of this machine.
    learn(dir.path())?;
    let home = Home::open(&cluster::directory(dir.path()))?;
    let cell = home.cell().clone();
    let identity = Identity(cell.id.0);
    let mut options = options(hosted, dir, identity)?;
    // Where others of this name were removed, there were fewer elections since that was said.
    let removed = epoch_of_removed(&home.roster()?, &hosted.name);
    options.above = removed.map_or(0, |epoch| epoch.saturating_add(EPOCHS_AHEAD));
    let store = EtcdStore::new(Address::parse(&hosted.store)?, options);
    let following = store.follow()?;
    let mut trouble: Option<String> = None;
    loop {
        while home.is_over()? {
            note(dir, &following, Some(OVER));
            tokio::time::sleep(NOTE).await;
        }
        let (tell, mut ahead) = mpsc::unbounded_channel();
        let mut preparing = Preparing::new(dir, config, identity);
        let opening = open(store.clone(), tell);
        tokio::pin!(opening);
        let mut tick = tokio::time::interval(NOTE);
        let mut ticks = 0;
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened?,
                Some(news) = ahead.recv() => preparing.take(news),
                () = preparing.say_ready() => {}
                _ = tick.tick() => {
                    // What is wrong with the log itself shows at once.
                    if ticks > 0 {
                        trouble = None;
                    }
                    ticks += 1;
                    note(dir, &following, trouble.as_deref());
                }
            }
        };
        match opened {
            Ok((log, opened)) => {
                let prepared = preparing.done(&mut ahead, &opened);
                if prepared.is_none() {
                    if home.is_over()? {
                        log.seal()?; // Another host can be of use.
                        continue;
                    }
                    learn(dir.path())?;
                }
                info!(%cell, epoch = opened.epoch, prepared = prepared.is_some(), "this host leads");
                return Ok(Led { log, opened, prepared });
            }
            Err(error) => {
                let told = error.to_string();
                if trouble.as_ref() != Some(&told) {
                    warn!(%cell, "cannot stand by: {told}");
                }
                trouble = Some(told);
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn options(hosted: &Hosted, dir: &Directory, cell: Identity) -> anyhow::Result<Options> {
    let address = hosted.advertise.first().map_or("-", String::as_str);
    let mut options = Options::new(&hosted.name, &hosted.host, address);
    let Sighting { life, epoch, next } = Sighting::read(dir)?;
    let life = Life(u128::from_str_radix(&life, 16).unwrap_or_default());
    options.seen = Seen { life, revision: 0, epoch, next };
    options.identity = Some(cell);
    Ok(options)
}

/// Opens the log on a thread of its own: that takes until this host is elected.
async fn open(
    store: EtcdStore,
    ahead: mpsc::UnboundedSender<Ahead>,
) -> anyhow::Result<Result<(Box<dyn Log>, Opened), OpenError>> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name("standing by".into()).spawn(move || {
        let opened = store.open_ahead(ahead);
        let opened = opened.map(|(log, opened)| (Box::new(log) as Box<dyn Log>, opened));
        let _ = tell.send(opened); // If nobody wants it any more, others lead.
    })?;
    told.await.context("nobody stands by any more")
}

/// Notes how it stands while it does not lead.
fn note(dir: &Directory, following: &Following, trouble: Option<&str>) {
    let leader = following.leader();
    let epoch = leader.as_ref().map_or(0, |leader| leader.epoch);
    let unknown = following.trouble().map(|error| error.to_string());
    let trouble = trouble.map(str::to_owned).or(unknown);
    let leader = leader.map(|leader| leader.host);
    Standing { leader, epoch, trouble, ..Standing::default() }.note(dir);
}

/// The machine's own agent has listened to the other members all the time.
pub(super) fn learn(dir: &Path) -> anyhow::Result<()> {
    let data = dir.parent().and_then(Path::parent).context("it is below no agent's directory")?;
    let machine = Home::open(&cluster::directory(data))?;
    Ok(Home::open(&cluster::directory(dir))?.learn_from(&machine)?)
}
