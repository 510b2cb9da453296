//! The life of an agent: it takes its directory and its socket, serves, and ends.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::config::Config;
use crate::data::{self, Data, InUse};
use crate::metrics;
use crate::service::{Service, Shared, serve};

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients reach it.
    pub socket: PathBuf,
    /// Where its files are.
    pub data: PathBuf,
    /// What its configuration file says.
    pub config: Config,
    /// Where Prometheus reaches it.
    pub metrics: Option<SocketAddr>,
    /// After what time without pools, holders and waiters it ends by itself.
    pub idle_exit: Option<Duration>,
}

/// Runs an agent until it is stopped or has been idle for long enough.
///
/// # Errors
/// [`InUse`] if an agent runs there already; otherwise if it cannot start.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let data = Data::open(&settings.data)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, live(settings, data))
}

async fn live(settings: &Settings, data: Data) -> anyhow::Result<()> {
    raise_file_limit();
    let mode = settings.config.mode()?;
    if let Some(addr) = settings.metrics {
        metrics::serve(addr)?;
    }
    if mode & 0o077 != 0 {
        data.open_to_others()?;
    }
    let service = Service::new(data, settings.config.clone())?;
    let socket = Socket::bind(&settings.socket, mode)?;
    info!(socket = %settings.socket.display(), "listening");
    tokio::task::spawn_local(start(service.clone()));
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let end = ending(service.clone(), settings.idle_exit);
    tokio::pin!(end);
    loop {
        tokio::select! {
            accepted = socket.listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::task::spawn_local(serve(service.clone(), stream))),
                Err(error) => {
                    warn!("cannot accept: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            _ = term.recv() => asked_to_stop(&service),
            _ = interrupt.recv() => asked_to_stop(&service),
            () = &mut end => break,
        }
    }
    info!("ending");
    drop(socket);
    service.borrow_mut().flush_audit();
    Ok(())
}

/// The first signal drains, the second ends.
fn asked_to_stop(service: &Shared) {
    let mut service = service.borrow_mut();
    let again = service.stopping;
    info!(again, "asked to stop by a signal");
    service.stop(again);
}

/// Lets the service grant as soon as no process uses what a former agent granted.
async fn start(service: Shared) {
    let mut told = false;
    while !service.borrow().no_old_holders() {
        if !told {
            info!("processes of a former agent still hold; waiting for their end");
            told = true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    service.borrow_mut().start();
}

/// Ends when the agent is to end. Meanwhile, reservations run out.
async fn ending(service: Shared, idle_exit: Option<Duration>) {
    let changed = service.borrow().changed.clone();
    loop {
        let next = service.borrow_mut().expire();
        if service.borrow().drained() {
            // Let the last replies leave.
            tokio::time::sleep(Duration::from_millis(20)).await;
            return;
        }
        // Work does not wake us: we look again when it could have been idle for long enough.
        let idle = service.borrow().idle_for().unwrap_or_default();
        let left = idle_exit.map(|exit| exit.saturating_sub(idle));
        if left == Some(Duration::ZERO) {
            info!("idle for long enough");
            return;
        }
        let soonest = left.into_iter().chain(next).min();
        let sleep = async {
            match soonest {
                Some(span) => tokio::time::sleep(span).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => {}
            () = sleep => {}
        }
    }
}

/// A socket that belongs to this process.
struct Socket {
    listener: UnixListener,
    path: PathBuf,
    _lock: std::fs::File,
}

impl Socket {
    /// Binds a socket. Whoever has the lock beside it may replace what a dead agent left.
    fn bind(path: &Path, mode: u32) -> anyhow::Result<Self> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            data::make_dir(dir)?;
        }
        let lock = data::open_file(&beside(path, "lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            anyhow::bail!(InUse(path.into()));
        }
        // Under another name first: whoever finds the socket finds somebody listening.
        let new = beside(path, "new");
        remove(&new)?;
        let listener = UnixListener::bind(&new)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        std::fs::set_permissions(&new, Permissions::from_mode(mode))?;
        std::fs::rename(&new, path)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        Ok(Self { listener, path: path.into(), _lock: lock })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If it stays, the next agent replaces it.
        let _ = remove(&self.path);
    }
}

/// A file beside the socket.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}.{suffix}", path.display()))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot replace {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Each connection is an open file.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, fewer clients can connect.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
