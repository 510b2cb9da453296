//! The life of an agent: it takes its directory and its socket, serves, and ends.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use holdall_holders::Signals;
use holdall_wire::Shutdown;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

use crate::cluster::Known;
use crate::config::{Config, Durability};
use crate::data::Data;
use crate::directory::replaceable_socket;
use crate::handover::{Handed, HandedSocket, become_program};
use crate::hosted::Hosted;
use crate::hosted::prepared::{Led, Prepared};
use crate::hosted::stand_by::{Leash, lead};
use crate::http::{Http, Said};
use crate::metrics;
use crate::service::{
    End, HandedOver, Service, Shared, begin_links, end_rounds, go_on_with, let_leave, serve,
    serve_guest,
};
use crate::socket::{Claim, LastAgent, Socket};

/// How often it looks whether its files and its socket are still there.
const LOOK: Duration = Duration::from_secs(2);
/// After what time it looks again whether everybody is told, if the log does not move.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long it waits in the end until everybody is told what it has to tell.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the links have to say what is left when another host leads.
const FAREWELL: Duration = Duration::from_millis(50);

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients reach it.
    pub socket: PathBuf,
    /// Where its files are.
    pub data: PathBuf,
    /// Whether these may be a copy, whose original is in use nowhere.
    pub adopt: bool,
    /// What its configuration file says.
    pub config: Config,
    /// Whether there is such a file: then commands cannot start it again by themselves.
    pub configured: bool,
    /// Where Prometheus reaches it.
    pub metrics: Option<SocketAddr>,
    /// After what time without pools, holders and waiters it ends by itself.
    pub idle_exit: Option<Duration>,
    /// Whether a command has started it, in the place of one that was there before or of none: whoever holds something is served
    /// although an address cannot be had.
    pub background: bool,
    /// The replicated cell that it hosts, if it is not a machine's own.
    pub hosted: Option<Hosted>,
}

/// Runs an agent until it is stopped or has been idle for long enough.
///
/// # Errors
/// [`crate::InUse`] if an agent runs there already; otherwise if it cannot start, or not go on.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    // Before anything is made: a wrong path leaves no traces. (What a supervisor hands over is bound.)
    let handed = Handed::take()?;
    if handed.is_none() && std::env::var_os("LISTEN_FDS").is_none() {
        replaceable_socket(&settings.socket)?;
    }
    let (socket, lock, connections) = match handed {
        Some(Handed { socket, data, connections }) => (Some(socket), Some(data), connections),
        None => (None, None, Vec::new()),
    };
    let data = match &settings.hosted {
        Some(_) => Data::of_hosted(&settings.data)?,
        None => Data::open(&settings.data, lock, settings.adopt)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let lived = local.block_on(&runtime, live(settings, data, socket, connections));
    drop(local);
    // The name of a user may be asked for far away, where nobody answers.
    runtime.shutdown_background();
    lived
}

async fn live(
    settings: &Settings,
    data: Data,
    handed: Option<HandedSocket>,
    mut connections: Vec<(UnixStream, HandedOver)>,
) -> anyhow::Result<()> {
    // Before there are other threads, which they could go to.
    let mut signals = Signals::new(&[Signal::TERM, Signal::INT])?;
    raise_file_limit();
    holdall_holders::survive_file_limits();
    let access = settings.config.access()?;
    match settings.metrics.map(metrics::serve) {
        Some(Err(error)) if settings.background => error!("no metrics: {error:#}"),
        served => served.transpose().map(drop)?,
    }
    let last = LastAgent {
        data: settings.data.clone(),
        configured: settings.configured,
        http: settings.config.http.listen,
        metrics: settings.metrics,
        idle_exit: settings.idle_exit,
    };
    // Before anything is done about what the log says: another agent may be there.
    let claim = Claim::new(&settings.socket, access, &last, handed)?;
    // Whoever is not understood any more ends, and what it held lasts as long as its process.
    connections.retain(|(_, handed)| handed.is_spoken());
    let sessions = connections.iter().filter_map(|(_, handed)| handed.session()).collect();
    let leash = settings.hosted.as_ref().map(|_| Leash::new()).transpose()?;
    let Some(led) = open_log(settings, &data, leash.as_ref(), &mut signals).await? else {
        info!("ending without having led");
        return Ok(());
    };
    let Led { log, opened, prepared } = led;
    let (known, begun, connected) = match prepared {
        Some(Prepared { known, begun, connected }) => (Some(known), Some(begun), Some(connected)),
        None => (Known::read(&settings.data, &settings.config)?, None, None),
    };
    let (config, known, log) = (settings.config.clone(), known.as_ref(), (log, opened, begun));
    let (socket_path, hosted) = (&settings.socket, settings.hosted.clone());
    let service = Service::new(data, log, config, socket_path, sessions, known, hosted).await?;
    go_on_with(&service, connections);
    tokio::task::spawn_local(end_rounds(Rc::downgrade(&service)));
    tokio::task::spawn_local(let_leave(Rc::downgrade(&service)));
    if let Some(known) = known {
        begin_links(&service, known, connected).await?;
    }
    let mut socket = claim.open(&last)?;
    info!(socket = %settings.socket.display(), "listening");
    let mut http = Http::start(settings, &socket, service.borrow().happened.clone())?;
    service.borrow_mut().no_http = http.missing();
    tell_supervisor(NotifyState::Ready);
    let serving =
        Serving { service: &service, leash: leash.as_ref(), idle_exit: settings.idle_exit };
    let end = loop {
        match serving.until_end(&mut socket, &mut http, &mut signals).await? {
            Some(End::Restarted(exe)) => {
                // What hosts a cell here would not know its parent again.
                service.borrow_mut().children.end();
                service.borrow_mut().listen(false);
                say_last_words(&service).await;
                service.borrow_mut().flush_history();
                // It may have been stopped meanwhile.
                if matches!(service.borrow().ends(), Some(End::Restarted(_))) {
                    let why = hand_over(&service.borrow(), &socket, &exe);
                    service.borrow_mut().go_on(&why);
                }
                service.borrow_mut().listen(true);
            }
            Some(End::HandedOver(heir)) => {
                let end = service.borrow_mut().end_by_handing_over(heir);
                if end.is_some() {
                    break end;
                }
            }
            end => break end,
        }
    };
    info!("ending");
    tell_supervisor(NotifyState::Stopping);
    finish(&service, socket, end).await
}

/// Becomes another program. Returns only if that fails.
fn hand_over(service: &Service, socket: &Socket, exe: &Path) -> anyhow::Error {
    let (listener, lock, about) = socket.to_hand_over();
    let connections = service.to_hand_over();
    become_program(exe, [listener, lock, service.data_lock()], &connections, about)
}

/// Opens the log, in the directory or elsewhere; waits until it may be. None if it is to end before.
async fn open_log(
    settings: &Settings,
    data: &Data,
    leash: Option<&Leash>,
    signals: &mut Signals,
) -> anyhow::Result<Option<Led>> {
    let (Some(hosted), Some(leash)) = (&settings.hosted, leash) else {
        let sync = settings.config.durability == Durability::Sync;
        return data.open_log(sync, &settings.socket).map(|log| Some(log.into()));
    };
    tokio::select! {
        led = lead(hosted, data.dir(), &settings.config) => led.map(Some),
        () = leash.ended() => Ok(None),
        caught = signals.next() => caught.map(|_| None).map_err(Into::into),
    }
}

/// An agent that serves.
struct Serving<'a> {
    service: &'a Shared,
    leash: Option<&'a Leash>,
    idle_exit: Option<Duration>,
}

impl Serving<'_> {
    /// Serves until the agent is to end; says how, or none if it was idle for long enough.
    async fn until_end(
        &self,
        socket: &mut Socket,
        http: &mut Http,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<End>> {
        let service = self.service;
        let end = ending(service.clone(), self.idle_exit);
        tokio::pin!(end);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok(stream) => drop(tokio::task::spawn_local(serve(service.clone(), stream))),
                    Err(error) => {
                        warn!("cannot accept: {error}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                said = http.said() => match said {
                    Said::Guest(stream, peer) => {
                        tokio::task::spawn_local(serve_guest(service.clone(), stream, peer));
                    }
                    Said::Tokens(good) => service.borrow_mut().withdraw_for_all_but(&good),
                },
                caught = signals.next() => {
                    if caught?.signal != Signal::CHILD {
                        info!("asked to stop by a signal");
                        service.borrow_mut().stop(Shutdown::AtOnce);
                    }
                }
                _ = look.tick() => {
                    look_around(service, socket);
                    http.restore(socket);
                    service.borrow_mut().no_http = http.missing();
                }
                () = self.parent_ended(), if service.borrow().end.is_none() => {
                    info!("the agent of this machine has ended, or ends this");
                    service.borrow_mut().stop(Shutdown::AtOnce);
                }
                end = &mut end => return Ok(end),
            }
        }
    }

    async fn parent_ended(&self) {
        match self.leash {
            Some(leash) => leash.ended().await,
            None => std::future::pending().await,
        }
    }
}

/// Tells everybody what is left to tell.
async fn say_last_words(service: &Shared) {
    let deadline = tokio::time::Instant::now() + LAST_WORDS;
    let mut log = service.borrow().log();
    service.borrow_mut().end_round();
    while !service.borrow().has_told_all() && tokio::time::Instant::now() < deadline {
        // What waits for something else is looked at again, too.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK_AGAIN, log.changed()).await {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        service.borrow_mut().end_round();
    }
}

/// Tells everybody what is left to tell, and closes the log. Whoever is connected learns of it by the end
/// of the connection.
async fn finish(service: &Shared, socket: Socket, end: Option<End>) -> anyhow::Result<()> {
    if let Some(End::Broken(why)) = end {
        service.borrow_mut().flush_history();
        anyhow::bail!("{why}");
    }
    if end.is_some() {
        socket.mark_stopped();
    }
    service.borrow_mut().tell_drainers();
    match &end {
        // Another host leads by now: nobody waits for this.
        Some(End::HandedOver(_)) => {
            service.borrow_mut().tell_the_rest();
            tokio::time::sleep(FAREWELL).await;
        }
        _ => say_last_words(service).await,
    }
    drop(socket);
    let mut service = service.borrow_mut();
    service.flush_history();
    service.children.end();
    match end {
        Some(End::HandedOver(_)) => Ok(()),
        Some(End::Closed) => service.retire().context("nobody is to lead, and that is not noted"),
        _ => service.seal(),
    }
}

/// A supervisor, if there is one, knows how far we are.
fn tell_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("cannot tell the supervisor: {error}");
    }
}

/// Looks whether its files are there, and binds the socket again if it was removed.
fn look_around(service: &Shared, socket: &mut Socket) {
    let mut service = service.borrow_mut();
    service.look_at_clock();
    service.look_at_files();
    service.look_at_hosted();
    if service.draining || service.end.is_some() {
        return;
    }
    if let Err(error) = socket.restore() {
        error!("stopping: {error:#}");
        service.stop(Shutdown::AtOnce);
    }
}

/// Ends when the agent is to end, and says how; none if it was idle for long enough. Meanwhile, it looks
/// after deadlines.
async fn ending(service: Shared, idle_exit: Option<Duration>) -> Option<End> {
    let changed = service.borrow().changed.clone();
    loop {
        let next = service.borrow_mut().look_at_deadlines();
        let cells = service.borrow_mut().look_at_cells();
        if let Some(end) = service.borrow().ends() {
            return Some(end);
        }
        // Work does not wake us: we look again when it could have been idle for long enough.
        let idle = service.borrow().idle_for();
        let left = idle_exit.map(|exit| exit.saturating_sub(idle.unwrap_or_default()));
        if idle.is_some() && left == Some(Duration::ZERO) {
            info!("idle for long enough");
            return None;
        }
        let left = left.filter(|left| !left.is_zero());
        let soonest = left.into_iter().chain(next).chain(cells).min();
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
