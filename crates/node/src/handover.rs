//! An agent that becomes another program in place: the same process, with its listening socket and its
//! locks kept open, so that nobody finds no agent, and no other starts meanwhile.
//!
//! To the log it is as if the process had been killed, which loses nothing. Clients lose their
//! connections and come back at once; until the program listens they wait in the queue of the socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_holders::{SigSet, inherited, set_mask};
use rustix::io::{FdFlags, fcntl_setfd};

/// The variable that tells the program which descriptors it has got, and in which process.
const HANDED: &str = "HOLDALL_HANDED";
/// How long a program may take to say that it can go on from a log.
const CHECK: Duration = Duration::from_secs(20);
/// What it says then: any program may end well.
pub const UNDERSTOOD: &str = "this holdall understands the log";

/// What was handed over.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) socket: HandedSocket,
    /// The lock in the data directory.
    pub(crate) data: File,
}

/// A socket that was handed over.
#[derive(Debug)]
pub(crate) struct HandedSocket {
    pub(crate) listener: UnixListener,
    /// The lock beside it.
    pub(crate) lock: File,
    pub(crate) about: About,
}

/// What is to be known of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The device and number of what is at its path.
    pub(crate) place: (u64, u64),
    /// Whether a supervisor made it.
    pub(crate) supervised: bool,
}

/// Whether this program has taken the place of an agent.
pub fn is_handed_over() -> bool {
    numbers().is_some()
}

fn numbers() -> Option<([i32; 3], About)> {
    let text = std::env::var(HANDED).ok()?;
    let all: Vec<u64> = text.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [process, listener, lock, data, device, inode, supervised] = all[..] else { return None };
    let number = |number: u64| i32::try_from(number).ok();
    let numbers = [number(listener)?, number(lock)?, number(data)?];
    let about = About { place: (device, inode), supervised: supervised != 0 };
    // Whoever inherits the variable has inherited nothing else.
    (process == u64::from(std::process::id())).then_some((numbers, about))
}

impl Handed {
    /// What the agent in whose place this program is has handed over.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub(crate) fn take() -> anyhow::Result<Option<Self>> {
        let Some(([listener, lock, data], about)) = numbers() else { return Ok(None) };
        let opened = |number| inherited(number).context(HANDED);
        let (listener, lock) = (opened(listener)?.into(), opened(lock)?.into());
        let socket = HandedSocket { listener, lock, about };
        Ok(Some(Self { socket, data: opened(data)?.into() }))
    }
}

/// Asks a program whether it can go on from here. It is asked as it will be started.
///
/// # Errors
/// If it says no, or nothing in time.
pub(crate) fn check(exe: &Path, data: &Path) -> anyhow::Result<()> {
    let mut child = Command::new(exe)
        .args(std::env::args_os().skip(1))
        .arg("--check-log")
        .arg(data)
        .env_remove(HANDED)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", exe.display()))?;
    let deadline = Instant::now() + CHECK;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("{} does not say whether it understands the log", exe.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let last = told.lines().last().unwrap_or("it does not say why");
    let understood = String::from_utf8_lossy(&output.stdout).trim_end() == UNDERSTOOD;
    anyhow::ensure!(
        output.status.success() && understood,
        "{} cannot go on: {last}",
        exe.display()
    );
    Ok(())
}

/// The program that this process was started from, as it is now at its place.
///
/// # Errors
/// If that cannot be told.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let replaced = exe.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map_or_else(|| exe.clone(), PathBuf::from))
}

/// Becomes a program. Returns only if that fails, and then everything is as before.
pub(crate) fn become_program(exe: &Path, kept: [BorrowedFd<'_>; 3], about: About) -> anyhow::Error {
    let failed = |error: io::Error| {
        anyhow::Error::from(error).context(format!("cannot become {}", exe.display()))
    };
    // A signal that comes meanwhile is for the program.
    let blocked = match SigSet::thread_get_mask() {
        Ok(blocked) => blocked,
        Err(error) => return failed(error.into()),
    };
    let keep = |flags: FdFlags| kept.iter().try_for_each(|fd| fcntl_setfd(fd.as_fd(), flags));
    if let Err(error) = keep(FdFlags::empty()) {
        return failed(error.into());
    }
    let mut command = Command::new(exe);
    command.args(std::env::args_os().skip(1)).env(HANDED, told(kept, about));
    set_mask(&mut command, blocked);
    let error = command.exec();
    let _ = keep(FdFlags::CLOEXEC);
    let _ = blocked.thread_set_mask();
    failed(error)
}

/// Which descriptors are handed over, in words.
fn told(kept: [BorrowedFd<'_>; 3], about: About) -> String {
    let About { place: (device, inode), supervised } = about;
    let [listener, lock, data] = kept.map(|fd| fd.as_raw_fd());
    let process = std::process::id();
    format!("{process} {listener} {lock} {data} {device} {inode} {}", u8::from(supervised))
}
