//! The life of an agent: it takes its directory and its socket, serves, and ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use holdall_holders::Signals;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

use crate::config::Config;
use crate::data::Data;
use crate::directory::replaceable_socket;
use crate::metrics;
use crate::service::{Service, Shared, end_rounds, serve};
use crate::socket::{LastAgent, Socket};

/// How often it looks whether its files and its socket are still there.
const LOOK: Duration = Duration::from_secs(2);

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients reach it.
    pub socket: PathBuf,
    /// Where its files are.
    pub data: PathBuf,
    /// What its configuration file says.
    pub config: Config,
    /// Whether there is such a file: then commands cannot start it again by themselves.
    pub configured: bool,
    /// Where Prometheus reaches it.
    pub metrics: Option<SocketAddr>,
    /// After what time without pools, holders and waiters it ends by itself.
    pub idle_exit: Option<Duration>,
}

/// Runs an agent until it is stopped or has been idle for long enough.
///
/// # Errors
/// [`crate::InUse`] if an agent runs there already; otherwise if it cannot start.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    // Before anything is made: a wrong path leaves no traces. (What a supervisor hands over is bound.)
    if std::env::var_os("LISTEN_FDS").is_none() {
        replaceable_socket(&settings.socket)?;
    }
    let data = Data::open(&settings.data)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let lived = local.block_on(&runtime, live(settings, data));
    drop(local);
    // The name of a user may be asked for far away, where nobody answers.
    runtime.shutdown_background();
    lived
}

async fn live(settings: &Settings, data: Data) -> anyhow::Result<()> {
    // Before there are other threads, which they could go to.
    let mut signals = Signals::new(&[Signal::TERM, Signal::INT])?;
    raise_file_limit();
    holdall_holders::survive_file_limits();
    let access = settings.config.access()?;
    if let Some(addr) = settings.metrics {
        metrics::serve(addr)?;
    }
    let service = Service::new(data, settings.config.clone())?;
    tokio::task::spawn_local(end_rounds(Rc::downgrade(&service)));
    let last = LastAgent { data: settings.data.clone(), configured: settings.configured };
    let mut socket = Socket::open(&settings.socket, access, &last)?;
    info!(socket = %settings.socket.display(), "listening");
    let end = ending(service.clone(), settings.idle_exit);
    tokio::pin!(end);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tell_supervisor(NotifyState::Ready);
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok(stream) => drop(tokio::task::spawn_local(serve(service.clone(), stream))),
                Err(error) => {
                    warn!("cannot accept: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            caught = signals.next() => {
                if caught?.signal != Signal::CHILD {
                    asked_to_stop(&service);
                }
            }
            _ = look.tick() => look_around(&service, &mut socket),
            () = &mut end => break,
        }
    }
    info!("ending");
    tell_supervisor(NotifyState::Stopping);
    drop(socket);
    service.borrow_mut().end_round();
    service.borrow_mut().flush_audit();
    Ok(())
}

/// A supervisor, if there is one, knows how far we are.
fn tell_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("cannot tell the supervisor: {error}");
    }
}

/// Binds the socket again if it was removed. Without its files an agent cannot keep another from
/// starting, and so must not go on granting.
fn look_around(service: &Shared, socket: &mut Socket) {
    let mut service = service.borrow_mut();
    service.look_at_clock();
    if service.stopping {
        return;
    }
    let kept = if service.files_in_place() {
        socket.restore()
    } else {
        Err(anyhow::anyhow!("the data directory was removed or replaced"))
    };
    if let Err(error) = kept {
        error!("stopping: {error:#}");
        service.stop(false);
    }
}

/// The first signal drains, the second ends.
fn asked_to_stop(service: &Shared) {
    let mut service = service.borrow_mut();
    let again = service.stopping;
    info!(again, "asked to stop by a signal");
    service.stop(again);
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
        let idle = service.borrow().idle_for();
        let left = idle_exit.map(|exit| exit.saturating_sub(idle.unwrap_or_default()));
        if idle.is_some() && left == Some(Duration::ZERO) {
            info!("idle for long enough");
            return;
        }
        let left = left.filter(|left| !left.is_zero());
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

/// Each connection is an open file.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, fewer clients can connect.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
