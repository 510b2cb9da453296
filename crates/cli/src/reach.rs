//! Where the agent is, and how it comes to life.
//!
//! A command that finds no agent starts one in the background. Of many that do so at once, one
//! has the lock beside the socket; the others wait for it, and then find the agent that it
//! started. Whatever goes wrong, the agent's own locks see to it that there is only one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_client::{Client, Error};
use rustix::fs::{FlockOperation, flock};

use crate::failure::{Failure, NOT_NOW, UNAVAILABLE};

/// The agent of the machine, if there is one.
const MACHINE: &str = "/run/holdall/agent.sock";
/// How long an agent may take to start.
const START: Duration = Duration::from_secs(20);

/// Which agent to talk to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Reach {
    /// The agent's socket [default: $HOLDALL_AGENT, the machine's, or your own]
    #[arg(long = "agent", value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}

/// Where an agent is, or would be.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) data: PathBuf,
}

impl Reach {
    /// The socket named by an option or in the environment.
    fn named(&self) -> Option<PathBuf> {
        self.socket.clone().or_else(|| variable("HOLDALL_AGENT"))
    }

    /// Where to look first, and whether an agent may be started there.
    fn places(&self) -> anyhow::Result<Vec<(Place, bool)>> {
        if self.named().is_some() {
            return Ok(vec![(place(self.named(), None)?, true)]);
        }
        let machine = Place { socket: MACHINE.into(), data: PathBuf::new() };
        Ok(vec![(machine, false), (place(None, None)?, true)])
    }

    /// Connects to an agent that runs.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let mut last = None;
        for (place, own) in self.places()? {
            match Client::connect(&place.socket).await {
                Ok(client) => return Ok(client),
                Err(error @ Error::NoAgent(_)) => last = Some(error),
                Err(Error::Unreachable(..)) if !own => {} // The machine's agent may be for others.
                Err(error) => return Err(error.into()),
            }
        }
        let none = last.map_or_else(|| "no agent".into(), |error| error.to_string());
        Err(Failure(UNAVAILABLE, format!("{none}; `holdall run` starts one")).into())
    }

    /// Connects to an agent, and starts one if none runs.
    pub(crate) async fn connect_or_start(&self) -> anyhow::Result<Client> {
        for (place, startable) in self.places()? {
            match Client::connect(&place.socket).await {
                Ok(client) => return Ok(client),
                Err(Error::NoAgent(_)) if startable => return start(&place).await,
                // The machine's agent may be for others.
                Err(Error::NoAgent(_) | Error::Unreachable(..)) if !startable => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure(UNAVAILABLE, "no agent can be reached".into()).into())
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where an agent is whose socket or data directory may be named.
pub(crate) fn place(socket: Option<PathBuf>, data: Option<PathBuf>) -> anyhow::Result<Place> {
    let named = socket.or_else(|| variable("HOLDALL_AGENT"));
    let own = named.is_none();
    let socket = match named {
        Some(socket) => std::path::absolute(socket)?,
        None => own_directory()?.join("agent.sock"),
    };
    let data = match data.or_else(|| variable("HOLDALL_DATA")) {
        Some(data) => std::path::absolute(data)?,
        None if own => own_data()?,
        None => PathBuf::from(format!("{}.data", socket.display())),
    };
    Ok(Place { socket, data })
}

/// A directory for sockets that nobody else can write.
fn own_directory() -> anyhow::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let dir = match variable("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("holdall"),
        None => PathBuf::from(format!("/tmp/holdall-{uid}")),
    };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.with_context(|| format!("cannot make {}", dir.display()))?;
    let meta = std::fs::symlink_metadata(&dir)?;
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o022 != 0 {
        let text = format!("{} is not a directory that only you can write", dir.display());
        return Err(Failure(UNAVAILABLE, format!("{text}; remove it, or set HOLDALL_AGENT")).into());
    }
    Ok(dir)
}

/// Fences must outlive the machine's restarts, so they are not beside the socket. Each machine
/// has its own, since home directories are shared between machines.
fn own_data() -> anyhow::Result<PathBuf> {
    let state = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .context("neither HOME nor XDG_STATE_HOME is set; set HOLDALL_DATA")?;
    Ok(state.join("holdall").join(rustix::system::uname().nodename().to_string_lossy().as_ref()))
}

async fn start(place: &Place) -> anyhow::Result<Client> {
    let dir = place.socket.parent().context("the socket is in no directory")?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("cannot make {}", dir.display()))?;
    let lock = lock_beside(&place.socket)?;
    let deadline = Instant::now() + START;
    let mut agent: Option<Child> = None;
    loop {
        match Client::connect(&place.socket).await {
            Ok(client) => {
                drop(lock);
                return Ok(client);
            }
            Err(Error::NoAgent(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let (mut ended, mut pause) = (agent.is_none(), Duration::from_millis(3));
        if let Some(status) = agent.as_mut().map_or(Ok(None), Child::try_wait)? {
            if status.code() != Some(NOT_NOW.into()) {
                return Err(not_started(place));
            }
            // Another agent is just coming or going there; look again.
            (ended, pause) = (true, Duration::from_millis(100));
        }
        if Instant::now() > deadline {
            return Err(not_started(place));
        }
        if ended {
            agent = Some(spawn(place)?);
        }
        tokio::time::sleep(pause).await;
    }
}

/// The lock that whoever starts an agent has. It is not the agent's own, which begins later.
fn lock_beside(socket: &Path) -> anyhow::Result<File> {
    let path = PathBuf::from(format!("{}.start", socket.display()));
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn log_path(place: &Place) -> PathBuf {
    place.data.join("agent.log")
}

fn spawn(place: &Place) -> anyhow::Result<Child> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place.data);
    made.with_context(|| format!("cannot make {}", place.data.display()))?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log_path(place));
    let log = log.with_context(|| format!("cannot write {}", log_path(place).display()))?;
    Command::new(std::env::current_exe()?)
        .args(["agent", "--background", "--socket"])
        .arg(&place.socket)
        .arg("--data")
        .arg(&place.data)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start an agent")
}

fn not_started(place: &Place) -> anyhow::Error {
    let log = log_path(place);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let last = text.lines().last().unwrap_or("it did not answer").trim_start_matches("holdall: ");
    Failure(UNAVAILABLE, format!("the agent did not start: {last} (see {})", log.display())).into()
}

/// Runs something asynchronous to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}
