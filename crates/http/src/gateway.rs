//! The gateway as a whole: what all calls share, and the thread it runs on.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use holdall_wire::Right;
use tokio::sync::{Semaphore, oneshot};

use crate::audit::{Audit, Reader};
use crate::caller::{Peer, Service};
use crate::config::{Config, Tcp};
use crate::feed::Feed;
use crate::lease::Leases;
use crate::looks::Looks;
use crate::released::Released;
use crate::rooms::Rooms;
use crate::token::Tokens;
use crate::unread::Unread;
use crate::view::Agent;
use crate::{door, plain, routes};

/// The name of its threads.
pub const THREAD: &str = "http";
/// How long calls may go on when it is to end.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How many calls there may be at a time: as many as connections through both doors.
const CALLS: usize = 2 * door::CONNECTIONS;
/// How many may listen to what happens; one user is a quarter of them ([`Rooms`]).
const LISTENERS: usize = 256;

/// What a gateway needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of the agent's files: its audit log, the tokens.
    pub data: PathBuf,
    /// What the configuration says.
    pub config: Config,
    /// How many bytes of answers a user may leave unread; all of them, four times that.
    pub unread_bytes: usize,
    /// The right that one needs to see everybody's past.
    pub everybodys_past: Right,
}

/// Where the gateway listens.
#[derive(Debug)]
pub struct Doors {
    /// The Unix socket.
    pub unix: Option<UnixListener>,
    /// TCP, if it is wanted.
    pub tcp: Option<Tcp>,
}

/// A gateway that runs, until this is dropped.
#[derive(Debug)]
pub struct Gateway {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a gateway on a thread of its own.
///
/// # Errors
/// If it cannot start.
pub fn start(
    settings: &Settings,
    doors: Doors,
    service: Arc<dyn Service>,
) -> anyhow::Result<Gateway> {
    let shared = Arc::new(Shared::new(settings, service)?);
    let app = routes::all(shared.clone());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().thread_name(THREAD).build()?;
    let (stop, stopped) = oneshot::channel();
    let serve = async move {
        let unix = async {
            match doors.unix {
                Some(listener) => door::unix(listener, app.clone(), shared.service.clone()).await,
                None => std::future::pending().await,
            }
        };
        let tcp = async {
            match doors.tcp {
                Some(Tcp { listener, tls }) => door::tcp(listener, app.clone(), tls).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = unix => ended,
            ended = tcp => ended,
            () = shared.tokens.tell(|good| shared.service.tokens(good)) => Ok(()),
            _ = stopped => Ok(()),
        }?;
        let idle = shared.calls.acquire_many(CALLS as u32);
        // Whoever is not told by then learns it by the end of the connection.
        let _ = tokio::time::timeout(LAST_WORDS, idle).await;
        Ok::<_, io::Error>(())
    };
    let run = move || {
        if let Err(error) = runtime.block_on(serve) {
            tracing::error!("HTTP is not served any more: {error}");
        }
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name(THREAD.into()).spawn(run)?;
    Ok(Gateway { stop: Some(stop), thread: Some(thread) })
}

impl Gateway {
    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // If it has ended by itself, nobody is there to be told.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What all calls share.
pub(crate) struct Shared {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) leases: Leases,
    pub(crate) tokens: Tokens,
    pub(crate) audit: Audit,
    everybodys_past: Right,
    pub(crate) feed: Arc<Feed>,
    /// The gateway itself, which only looks.
    pub(crate) own: Peer,
    /// The names by which it may be reached.
    pub(crate) names: Vec<String>,
    /// What tells the calls of this start from those of others.
    pub(crate) start_number: u32,
    /// Each call has one of these.
    pub(crate) calls: Semaphore,
    /// Whose turn it is to look at everything.
    pub(crate) looks: Looks,
    /// How many listen to what happens.
    pub(crate) listeners: Rooms<u32>,
    /// How many wait for the end of what they hold, of each user, and over TCP from each address.
    pub(crate) endings: Rooms<u32>,
    pub(crate) endings_from: Rooms<IpAddr>,
    /// What was answered and is not read.
    pub(crate) unread: Unread,
    /// What was given back a short time ago.
    pub(crate) released: Released,
}

impl Shared {
    fn new(settings: &Settings, service: Arc<dyn Service>) -> anyhow::Result<Self> {
        let data = &settings.data;
        let audit = Audit::new(data);
        let own = Peer {
            uid: rustix::process::geteuid().as_raw(),
            pid: std::process::id(),
            name: Some("http".into()),
            may: Some(vec![Right::View]),
            ..Peer::default()
        };
        let mut number = [0; 4];
        getrandom::fill(&mut number)?;
        Ok(Self {
            leases: Leases::new(service.clone(), key(data)?),
            tokens: Tokens::new(data),
            feed: Arc::new(Feed::new(service.clone(), own.clone(), audit.clone())),
            audit,
            everybodys_past: settings.everybodys_past,
            own,
            service,
            names: settings.config.names.clone(),
            start_number: u32::from_le_bytes(number),
            calls: Semaphore::new(CALLS),
            looks: Looks::new(),
            listeners: Rooms::new(LISTENERS),
            endings: Rooms::new(door::connections() / 2),
            endings_from: Rooms::new(door::connections() / 2),
            unread: Unread::new(settings.unread_bytes.saturating_mul(4)),
            released: Released::default(),
        })
    }
}

impl Shared {
    /// What somebody may see of the audit log.
    pub(crate) fn reader(&self, peer: &Peer, agent: &Agent) -> Reader {
        if agent.may(self.everybodys_past) {
            return Reader::OfAll;
        }
        Reader::OfOwn { uid: peer.uid, user: agent.you.clone() }
    }
}

/// The key from which the numbers of sessions are made. It outlives the agent.
fn key(data: &Path) -> anyhow::Result<[u8; 32]> {
    let path = data.join("http.key");
    let told = || path.display().to_string();
    match plain::read(&path) {
        Ok(kept) => kept.try_into().map_err(|_| {
            anyhow::anyhow!("{}: it should hold 32 bytes; delete it to begin anew", told())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut key = [0; 32];
            getrandom::fill(&mut key)?;
            // It is there as a whole, or not at all.
            let new = data.join("http.key.new");
            let _ = std::fs::remove_file(&new);
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
            file.and_then(|mut file| file.write_all(&key).and_then(|()| file.sync_all()))
                .and_then(|()| std::fs::rename(&new, &path))
                .with_context(told)?;
            Ok(key)
        }
        Err(error) => Err(error).with_context(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_outlives_the_gateway_and_what_is_no_key_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("http.key.new"), "cut off").expect("written");
        let first = key(dir.path()).expect("made");
        assert_eq!(key(dir.path()).expect("kept"), first);
        std::fs::write(dir.path().join("http.key"), "short").expect("written");
        let told = key(dir.path()).expect_err("it is no key").to_string();
        assert!(told.contains("http.key: it should hold 32 bytes"), "{told}");
    }
}
