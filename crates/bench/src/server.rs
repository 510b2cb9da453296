//! What is measured runs in a process of its own, in a directory of its own.
//!
//! The process is this program again, with the same arguments and a word in its environment.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use holdall_client::Client;
use holdall_node::{Config, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::case::Case;
use crate::crowd;
use crate::load;
use crate::process::Process;
use crate::target::yardstick;

/// What to serve, and in which directory.
const SERVE: &str = "HOLDALL_BENCH";
/// How long a server may take to begin.
const START: Duration = Duration::from_secs(20);

/// What is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Agent,
    Yardstick,
}

impl Kind {
    pub(crate) fn named(target: &str) -> Self {
        if target == "yardstick" { Self::Yardstick } else { Self::Agent }
    }
}

/// Where a process that shall serve does so.
pub(crate) struct Place {
    kind: Kind,
    dir: PathBuf,
}

/// Whether this process was started to serve.
pub(crate) fn asked_to_serve() -> Option<Place> {
    let word = std::env::var_os(SERVE)?;
    let bytes = word.as_bytes();
    let end = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
    let kind = if &bytes[..end] == b"yardstick" { Kind::Yardstick } else { Kind::Agent };
    let dir = OsStr::from_bytes(bytes.get(end + 1..).unwrap_or_default());
    Some(Place { kind, dir: dir.into() })
}

/// Serves until killed, or until whoever started it is gone.
pub(crate) fn serve(place: &Place) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let socket = place.dir.join("socket");
    match place.kind {
        Kind::Agent => holdall_node::run(&Settings {
            socket,
            data: place.dir.join("data"),
            adopt: false,
            config: Config::read(&place.dir.join("config"))?,
            configured: true,
            metrics: None,
            idle_exit: None,
            background: false,
            hosted: None,
        }),
        Kind::Yardstick => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            tokio::task::LocalSet::new().block_on(&runtime, yardstick::serve(&socket))
        }
    }
}

/// Lets this process and its children have many files open, as many as root may.
pub(crate) fn raise_file_limit() {
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most = most.and_then(|text| text.trim().parse().ok());
    let allowed = getrlimit(Resource::Nofile).maximum;
    for limit in [most, allowed] {
        // Without the rights for more, what is allowed; connecting says if that is not enough.
        if setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_ok() {
            return;
        }
    }
}

/// Whatever is measured.
pub(crate) struct Server {
    socket: PathBuf,
    pid: u32,
    /// Its directory goes with it.
    own: Option<(Child, tempfile::TempDir)>,
}

impl Server {
    /// Starts one of our own.
    pub(crate) fn start(kind: Kind, case: &Case) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("holdall-bench-").tempdir()?;
        write_config(dir.path(), case)?;
        let mut word = OsString::from(if kind == Kind::Agent { "agent:" } else { "yardstick:" });
        word.push(dir.path());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).env(SERVE, word);
        // Ctrl-C is ours to heed.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().context("cannot start a server")?;
        let (socket, pid) = (dir.path().join("socket"), child.id());
        let mut server = Self { socket, pid, own: Some((child, dir)) };
        server.wait_for_start()?;
        Ok(server)
    }

    /// One that runs already.
    pub(crate) async fn running(socket: &Path) -> anyhow::Result<Self> {
        let client = Client::connect(socket).await?;
        Ok(Self { socket: socket.into(), pid: client.agent().pid, own: None })
    }

    fn wait_for_start(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            let ended = self.own.as_mut().and_then(|(child, _)| child.try_wait().ok().flatten());
            load::heed()?;
            if let Some(status) = ended {
                bail!("the server has ended: {status}");
            } else if start.elapsed() > START {
                bail!("the server does not listen after {START:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn process(&self) -> Process {
        Process::new(self.pid)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.own {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Limits that leave room for the case.
fn write_config(dir: &Path, case: &Case) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(dir.join("config"))?;
    let connections = case.connections + crowd::CONNECTIONS + 16;
    let waiting = case.waiting.div_ceil(crowd::CONNECTIONS);
    let requests = case.clients.div_ceil(case.connections).max(waiting) + 16;
    let all = case.clients + case.waiting;
    let (sessions, all_waiting) = (connections.max(8192), (case.waiting + 1).max(1 << 17));
    let memory = (1_usize << 33).max(all.saturating_mul(1 << 14));
    writeln!(
        file,
        "[limits]\nconnections = {connections}\nsessions = {sessions}\nwaiting = {all_waiting}\nrequests = {requests}\nmemory_bytes = {memory}"
    )?;
    Ok(())
}
