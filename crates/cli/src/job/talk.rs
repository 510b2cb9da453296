//! What a runner, the processes that hold for it and the commands of people say to each other: lines
//! of JSON over the job's socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use holdall_jobs::{Cause, RequestIndex, TaskIndex};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

/// What is said to a runner: by holders, and by commands.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToRunner {
    /// Everything is granted for a request, asked for the so many-th time by a runner of this life.
    /// The variables tell which units.
    Holding { life: String, request: RequestIndex, ask: u32, variables: BTreeMap<String, String> },
    /// A task has ended that was run for the so many-th time, and everything in its process group.
    Ended { task: TaskIndex, attempt: u32, cause: Option<Cause> },
    /// A task is not wanted any more, or the whole job. This is answered.
    Cancel { task: Option<TaskIndex> },
}

/// What a runner says: to holders, and to commands. Without a runner, a holder ends everything and
/// goes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromRunner {
    /// Run a task.
    Start(Order),
    /// End a task: politely, or at once.
    Stop { task: TaskIndex, kill: bool },
    /// What was said is noted.
    Noted,
}

/// A task that is to be run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) task: TaskIndex,
    pub(super) attempt: u32,
    pub(super) words: Vec<String>,
    pub(super) dir: PathBuf,
    /// Variables of its own.
    pub(super) env: BTreeMap<String, String>,
    /// Variables that it does not see, as others of its group have what they name.
    pub(super) hidden: Vec<String>,
    pub(super) log: PathBuf,
    /// The file that is locked while it runs.
    pub(super) mark: PathBuf,
}

/// What comes in, line by line.
pub(super) struct Incoming(Lines<BufReader<OwnedReadHalf>>);

/// What goes out.
pub(super) struct Outgoing(OwnedWriteHalf);

/// The socket of a job, under a name that is short enough whatever the directory is called: a
/// socket's may have 107 bytes. It is good as long as the directory is open.
fn socket(dir: &Path) -> std::io::Result<(File, PathBuf)> {
    let open = File::open(dir)?;
    let path = format!("/proc/self/fd/{}/socket", open.as_raw_fd());
    Ok((open, path.into()))
}

/// Listens for holders and commands. Whoever did so before is gone, as the caller has the lock.
pub(super) fn listen(dir: &Path) -> std::io::Result<UnixListener> {
    let (_open, path) = socket(dir)?;
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path)
}

/// Speaks to the runner of a job, if there is one.
pub(super) async fn connect(dir: &Path) -> std::io::Result<(Incoming, Outgoing)> {
    let (_open, path) = socket(dir)?;
    loop {
        match UnixStream::connect(&path).await {
            // Many speak to it at once.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            stream => return Ok(split(stream?)),
        }
    }
}

pub(super) fn split(stream: UnixStream) -> (Incoming, Outgoing) {
    let (read, write) = stream.into_split();
    (Incoming(BufReader::new(read).lines()), Outgoing(write))
}

impl Incoming {
    /// The next message; nothing if the other side is gone or does not make sense.
    pub(super) async fn next<M: DeserializeOwned>(&mut self) -> Option<M> {
        let line = self.0.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }
}

impl Outgoing {
    pub(super) async fn send<M: Serialize>(&mut self, message: &M) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.0.write_all(&line).await
    }
}
