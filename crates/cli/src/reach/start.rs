//! How an agent comes to life in the background.
//!
//! Of many commands that find none at once, one has the lock beside the socket and starts one;
//! the others find it soon. Whatever goes wrong, the agent's own locks see to it that there is
//! only one.
//!
//! It belongs to nobody's session: it gets none of the environment of the command that happened
//! to come first (which may hold secrets, and marks by which CI systems find what to kill), and
//! once started leaves its session, limits and cgroup (`agent/background.rs`). In the place of one that was killed it
//! serves at the same addresses.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_client::{Client, Error, is_stopped};
use holdall_holders::Stream;
use holdall_node::{Directory, LastAgent};
use rustix::fs::{FlockOperation, flock};

use super::place::Place;
use super::reached;
use crate::failure::{Failure, NOT_NOW, UNAVAILABLE};

/// How long an agent may take to start.
const START: Duration = Duration::from_secs(20);
/// All that an agent in the background gets of the environment.
const PASSED_ON: [&str; 2] = ["HOLDALL_LOG", "HOLDALL_IDLE_EXIT"];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts an agent, unless somebody else does, and connects to it.
pub(super) async fn start(place: &Place) -> anyhow::Result<Client> {
    place.make_own_directory()?;
    let lock = lock_beside(&place.socket).map_err(|why| nobody_there(place, &why))?;
    start_with(place, &lock, false).await
}

/// Starts an agent that was there before, unless somebody else is about to. Of many who miss it, only one is
/// busy with it.
pub(super) async fn start_again(place: &Place) -> anyhow::Result<()> {
    let listens = match Stream::connect(&place.socket) {
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        Ok(_) => true,
    };
    if listens {
        return Ok(()); // It is there, or about to be.
    }
    let lock = lock_beside(&place.socket).map_err(|why| nobody_there(place, &why))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => start_with(place, &lock, true).await.map(drop),
        Err(_) => Ok(()),
    }
}

async fn start_with(place: &Place, lock: &File, mut mine: bool) -> anyhow::Result<Client> {
    same_as_before(place)?;
    let deadline = Instant::now() + START;
    let mut agent = None::<Child>;
    loop {
        match reached(place).await {
            Err(Error::NoAgent(_)) => {}
            answered => {
                LET_GO.lock().unwrap_or_else(PoisonError::into_inner).extend(agent);
                return Ok(answered?);
            }
        }
        mine = mine || flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let mut pause = Duration::from_millis(3);
        if let Some(code) = agent.as_mut().and_then(ended) {
            if code.is_some_and(|code| code != i32::from(NOT_NOW)) {
                return Err(not_started(place));
            }
            // It was killed, or nobody knows how it ended, or another agent is just coming or going there; look again.
            (agent, pause) = (None, Duration::from_millis(100));
        } else if mine && agent.is_none() {
            agent = Some(spawn(place)?);
        }
        if Instant::now() > deadline {
            return Err(not_started(place));
        }
        tokio::time::sleep(pause).await;
    }
}

/// The exit status of an agent that has ended, if it is known: whoever supervises a command waits for all
/// children, and may have waited for this one.
fn ended(agent: &mut Child) -> Option<Option<i32>> {
    agent.try_wait().map_or(Some(None), |status| Some(status?.code()))
}

/// Of these, those that nobody waits for any more.
static LET_GO: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Takes note that agents may have ended that this process has started: what nobody takes note of stays.
pub(crate) fn reap() {
    let mut let_go = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
    let_go.retain_mut(|agent| ended(agent).is_none());
}

/// The agents that this process has started. They are its children, and no command's.
static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The agents that this process has started.
pub(crate) fn started() -> Vec<u32> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The lock that whoever starts an agent has. It is not the agent's own, which begins later.
fn lock_beside(socket: &Path) -> anyhow::Result<File> {
    holdall_node::replaceable_socket(socket)?;
    let dir = socket.parent().context("the socket is in no directory")?;
    let name = socket.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} is no name for a socket", socket.display()))?;
    Ok(Directory::of_socket(dir)?.lock_file(&format!("{name}.start"))?)
}

fn nobody_there(place: &Place, why: &anyhow::Error) -> anyhow::Error {
    let socket = place.socket.display();
    Failure(UNAVAILABLE, format!("no agent listens at {socket}, and none can be started: {why}"))
        .into()
}

/// Another agent than the last one would know nothing of what that has granted.
pub(super) fn same_as_before(place: &Place) -> anyhow::Result<()> {
    let Some(last) = LastAgent::at(&place.socket)? else { return Ok(()) };
    if last.data == place.data && !last.configured {
        return Ok(());
    }
    let configured = if last.configured { " and a configuration" } else { "" };
    let text = format!(
        "no agent listens at {socket}, and the last one had its files in {}{configured}: start it \
         again as it was, or delete {socket}.lock to begin anew",
        last.data.display(),
        socket = place.socket.display(),
    );
    Err(Failure(UNAVAILABLE, text).into())
}

/// The options of the last agent, if nobody has stopped it: so it comes back at the addresses where others expect it. Who has
/// stopped one has closed them.
fn as_before(place: &Place) -> anyhow::Result<Vec<String>> {
    let last = LastAgent::at(&place.socket)?.filter(|_| !is_stopped(&place.socket));
    let Some(LastAgent { http, metrics, idle_exit, .. }) = last else { return Ok(Vec::new()) };
    let idle_exit = idle_exit.filter(|_| http.is_some() || metrics.is_some());
    let options = [
        ("--http", http.map(|at| at.to_string())),
        ("--metrics", metrics.map(|at| at.to_string())),
        ("--idle-exit", idle_exit.map(|span| format!("{}ms", span.as_millis()))),
    ];
    let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
    Ok(given.flatten().collect())
}

fn spawn(place: &Place) -> anyhow::Result<Child> {
    let data = Directory::private(&place.data).and_then(|data| data.append("agent.log"));
    let log = data.map_err(|why| nobody_there(place, &why.into()))?;
    let passed_on = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let agent = Command::new(std::env::current_exe()?)
        .args(["agent", "--background", "--socket"])
        .arg(&place.socket)
        .arg("--data")
        .arg(&place.data)
        .args(as_before(place)?)
        .env_clear()
        .env("PATH", PATH)
        .envs(passed_on)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start an agent")?;
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).push(agent.id());
    Ok(agent)
}

/// The last lines of a file, which may be long.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(4096);
    file.seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn not_started(place: &Place) -> anyhow::Error {
    let log = place.data.join("agent.log");
    let text = end_of(&log).unwrap_or_default();
    let last = text.lines().last().unwrap_or("it did not answer").trim_start_matches("holdall: ");
    Failure(UNAVAILABLE, format!("the agent did not start: {last} (see {})", log.display())).into()
}
