//! An agent that becomes another program in place: the same process, with its listening socket and its
//! locks kept open, so that nobody finds no agent, and no other starts meanwhile.
//!
//! To the log it is as if the process had been killed, which loses nothing. Clients lose their
//! connections and come back at once; until the program listens they wait in the queue of the socket. The
//! connections of those that know no sessions are kept open, too, since they would not come back.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_holders::{SigSet, inherited, set_mask};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use tracing::warn;

use crate::service::{HandedOver, ToHandOver};

/// The variable that tells the program which descriptors it has got, and in which process.
const HANDED: &str = "HOLDALL_HANDED";
/// How long a program may take to say that it can go on from a log.
const CHECK: Duration = Duration::from_secs(10);
/// How much of what it says is read.
const SAID_MAX: usize = 1 << 14;
/// What it says then: any program may end well.
pub const UNDERSTOOD: &str = "this holdall understands the log";

/// What was handed over.
pub(crate) struct Handed {
    pub(crate) socket: HandedSocket,
    /// The lock in the data directory.
    pub(crate) data: File,
    /// Connections.
    pub(crate) connections: Vec<(UnixStream, HandedOver)>,
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
    what_was_told().is_some()
}

/// What the agent in whose place this program is has told it. Whoever else inherits the variable has inherited
/// nothing else.
fn what_was_told() -> Option<String> {
    let text = std::env::var(HANDED).ok()?;
    let (process, rest) = text.split_once(' ')?;
    (process.parse() == Ok(std::process::id())).then(|| rest.to_owned())
}

fn numbers(told: &str) -> Option<([i32; 4], About)> {
    let all: Vec<u64> = told.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [listener, lock, data, connections, device, inode, supervised] = all[..] else {
        return None;
    };
    let number = |number: u64| i32::try_from(number).ok();
    let numbers = [number(listener)?, number(lock)?, number(data)?, number(connections)?];
    Some((numbers, About { place: (device, inode), supervised: supervised != 0 }))
}

impl Handed {
    /// What the agent in whose place this program is has handed over.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub(crate) fn take() -> anyhow::Result<Option<Self>> {
        let Some(told) = what_was_told() else { return Ok(None) };
        let ([listener, lock, data, connections], about) = numbers(&told).with_context(|| {
            format!(
                "the agent before was another version, and what it hands over ({HANDED}) is not \
                 understood; start the agent again"
            )
        })?;
        let opened = |number| inherited(number).context(HANDED);
        let (listener, lock) = (opened(listener)?.into(), opened(lock)?.into());
        let socket = HandedSocket { listener, lock, about };
        let connections = connections_in(opened(connections)?.into());
        Ok(Some(Self { socket, data: opened(data)?.into(), connections }))
    }
}

/// Asks a program whether it can go on from here. It is asked as it will be started.
///
/// # Errors
/// If it says no, or nothing in time.
pub(crate) async fn check(exe: &Path, data: &Path) -> anyhow::Result<()> {
    check_within(CHECK, exe, data).await
}

/// The same for whoever does nothing else meanwhile.
///
/// # Errors
/// Likewise.
pub(crate) fn check_now(exe: &Path, data: &Path) -> anyhow::Result<()> {
    let checked = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let checked = runtime.block_on(check(exe, data));
        runtime.shutdown_background(); // To start a program may take as long as that likes.
        checked
    };
    let checked = std::thread::scope(|scope| scope.spawn(checked).join());
    checked.unwrap_or_else(|_| anyhow::bail!("{} cannot be asked", exe.display()))
}

async fn check_within(span: Duration, exe: &Path, data: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + span;
    let silent = || format!("{} does not say whether it understands the log", exe.display());
    let (program, dir) = (exe.to_owned(), data.to_owned());
    // To start a program from a disk far away may take as long as that likes.
    let start = tokio::task::spawn_blocking(move || Asked::start(&program, &dir));
    let started = tokio::time::timeout(span, start).await.with_context(silent)?;
    let mut asked = started?.with_context(|| format!("cannot run {}", exe.display()))?;
    while !asked.has_ended()? {
        anyhow::ensure!(Instant::now() < deadline, silent());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (fine, said) = asked.said()?;
    let last = said.lines().last().unwrap_or("it does not say why");
    anyhow::ensure!(fine, "{} cannot go on: {last}", exe.display());
    Ok(())
}

/// A program that is asked something. Neither it nor what it has started outlives the question.
struct Asked {
    child: Child,
    is_over: bool,
    /// What it says, on standard output and otherwise. Nobody has to wait for the end of a file.
    output: [File; 2],
}

impl Asked {
    fn start(exe: &Path, data: &Path) -> io::Result<Self> {
        let file = || Ok::<_, io::Error>(File::from(memfd_create("said", MemfdFlags::CLOEXEC)?));
        let output = [file()?, file()?];
        let child = Command::new(exe)
            .args(std::env::args_os().skip(1))
            .arg("--check-log")
            .arg(data)
            .env_remove(HANDED)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output[0].try_clone()?)
            .stderr(output[1].try_clone()?)
            .spawn()?;
        Ok(Self { child, is_over: false, output })
    }

    /// Whether it has ended. Its number stays its own.
    fn has_ended(&self) -> io::Result<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(pid) = self.pid() else { return Ok(true) };
        Ok(waitid(WaitId::Pid(pid), look)?.is_some())
    }

    /// Whether it says yes, and what else it says.
    fn said(&mut self) -> io::Result<(bool, String)> {
        let status = self.end()?;
        let [output, errors] = self.output.each_ref().map(text_of);
        Ok((status.success() && output?.trim_end() == UNDERSTOOD, errors?))
    }

    /// Kills what is left, and does not wait for it: that may be slow, or not be ours to kill by now.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(group) = self.pid().filter(|_| !std::mem::replace(&mut self.is_over, true)) {
            // Nobody may be left, and it may have gone to another group.
            let _ = self.child.kill();
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.child.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // It is killed: there is nothing to learn from it, and only its number to be freed.
        let is_slow = self.end().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if let Some(pid) = self.pid().filter(|_| is_slow) {
            let wait = move || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            let _ = std::thread::Builder::new().spawn(wait);
        }
    }
}

/// What is in a file, as far as anybody wants to know.
fn text_of(file: &File) -> io::Result<String> {
    let mut text = vec![0; SAID_MAX];
    let read = file.read_at(&mut text, 0)?;
    Ok(String::from_utf8_lossy(&text[..read]).into_owned())
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

/// The connections that were handed over, as a file tells of them; none if it is not understood: there is
/// no way back, and everybody else goes on.
fn connections_in(list: File) -> Vec<(UnixStream, HandedOver)> {
    read_connections(list).unwrap_or_else(|error| {
        warn!("the agent before was another version; clients without sessions are lost: {error:#}");
        Vec::new()
    })
}

fn read_connections(mut list: File) -> anyhow::Result<Vec<(UnixStream, HandedOver)>> {
    list.rewind()?;
    let all: Vec<HandedOver> = serde_json::from_reader(BufReader::new(list)).context(HANDED)?;
    let opened = all.into_iter().map(|one| Ok((inherited(one.number)?.into(), one)));
    opened.collect::<io::Result<_>>().context(HANDED)
}

fn write_connections(connections: &[ToHandOver]) -> io::Result<File> {
    let all: Vec<&HandedOver> = connections.iter().map(|one| &one.told).collect();
    let list = File::from(memfd_create("connections", MemfdFlags::CLOEXEC)?);
    let mut out = BufWriter::new(&list);
    serde_json::to_writer(&mut out, &all)?;
    out.flush()?;
    drop(out);
    Ok(list)
}

/// Becomes a program. Returns only if that fails, and then everything is as before.
pub(crate) fn become_program(
    exe: &Path,
    kept: [BorrowedFd<'_>; 3],
    connections: &[ToHandOver],
    about: About,
) -> anyhow::Error {
    let failed = |error: io::Error| {
        anyhow::Error::from(error).context(format!("cannot become {}", exe.display()))
    };
    // A signal that comes meanwhile is for the program.
    let blocked = match SigSet::thread_get_mask() {
        Ok(blocked) => blocked,
        Err(error) => return failed(error.into()),
    };
    let list = match write_connections(connections) {
        Ok(list) => list,
        Err(error) => return failed(error),
    };
    let [listener, lock, data] = kept;
    let kept = [listener, lock, data, list.as_fd()];
    let keep = |flags: FdFlags| {
        let all = kept.into_iter().chain(connections.iter().map(AsFd::as_fd));
        all.into_iter().try_for_each(|fd| fcntl_setfd(fd, flags))
    };
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
fn told(kept: [BorrowedFd<'_>; 4], about: About) -> String {
    let About { place: (device, inode), supervised } = about;
    let [listener, lock, data, connections] = kept.map(|fd| fd.as_raw_fd());
    let (process, supervised) = (std::process::id(), u8::from(supervised));
    format!("{process} {listener} {lock} {data} {connections} {device} {inode} {supervised}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that does something, and where it leaves the numbers of its processes.
    fn program(dir: &Path, text: &str) -> (PathBuf, PathBuf) {
        let (exe, pids) = (dir.join("program"), dir.join("pids"));
        let text = format!("#!/bin/sh\necho $$ > {pids}\n{text}", pids = pids.display());
        std::fs::write(&exe, text).expect("writable");
        std::fs::set_permissions(&exe, PermissionsExt::from_mode(0o755)).expect("ours");
        (exe, pids)
    }

    /// Waits until all that have left their number are gone.
    async fn until_gone(pids: &Path) {
        for pid in std::fs::read_to_string(pids).expect("it ran").split_whitespace() {
            while Path::new(&format!("/proc/{pid}/exe")).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    const HANGS: &str = "sleep 1000 & echo $! >> $(dirname $0)/pids\nwait\n";

    #[tokio::test]
    async fn a_program_that_does_not_answer_is_ended_with_all_it_started() {
        let dir = tempfile::tempdir().expect("a directory");
        let (exe, pids) = program(dir.path(), HANGS);
        let told = check_within(Duration::from_millis(300), &exe, dir.path()).await;
        assert!(told.expect_err("silence").to_string().contains("does not say"));
        tokio::time::timeout(Duration::from_secs(30), until_gone(&pids)).await.expect("it lives");
    }

    #[tokio::test]
    async fn a_question_that_is_dropped_leaves_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let (exe, pids) = program(dir.path(), HANGS);
        let asked = async {
            tokio::select! {
                told = check(&exe, dir.path()) => panic!("{told:?}"),
                () = async {
                    while std::fs::read_to_string(&pids).unwrap_or_default().lines().count() < 2 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                } => {}
            }
            until_gone(&pids).await;
        };
        tokio::time::timeout(Duration::from_secs(30), asked).await.expect("it lives");
    }

    #[tokio::test]
    async fn a_program_that_has_left_its_group_holds_up_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = "import os, time\nos.setpgid(0, os.getpgid(os.getppid()))\n\
                      open('left', 'w')\ntime.sleep(20)\nopen('done', 'w')\n";
        std::fs::write(dir.path().join("script.py"), script).expect("writable");
        let (exe, pids) = program(dir.path(), "cd $(dirname $0)\nexec python3 script.py\n");
        let asked = Asked::start(&exe, dir.path()).expect("it runs");
        while !dir.path().join("left").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(asked);
        tokio::time::timeout(Duration::from_secs(30), until_gone(&pids)).await.expect("it lives");
        assert!(!dir.path().join("done").exists(), "it was waited for");
    }

    #[test]
    fn what_is_handed_over_is_told_and_understood() {
        let file = File::from(memfd_create("any", MemfdFlags::CLOEXEC).expect("a file"));
        let about = About { place: (3, 4), supervised: true };
        let told = told([file.as_fd(); 4], about);
        let (process, rest) = told.split_once(' ').expect("a process first");
        assert_eq!(process, std::process::id().to_string());
        assert_eq!(numbers(rest), Some(([file.as_raw_fd(); 4], about)));
        assert_eq!(numbers("1 2 3 4 5 6"), None, "of a version that told less");
    }

    #[test]
    fn a_list_of_connections_that_is_not_understood_is_as_good_as_none() {
        let list = write_connections(&[]).expect("written");
        assert_eq!(read_connections(list).expect("read").len(), 0);
        for text in ["", "[{}]", "[{\"number\":"] {
            let mut list = File::from(memfd_create("list", MemfdFlags::CLOEXEC).expect("a file"));
            list.write_all(text.as_bytes()).expect("written");
            assert!(connections_in(list).is_empty(), "{text}");
        }
    }

    #[tokio::test]
    async fn only_a_program_that_says_yes_is_believed_whatever_it_leaves_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let (exe, pids) = program(dir.path(), &format!("sleep 1000 &\necho '{UNDERSTOOD}'\n"));
        check(&exe, dir.path()).await.expect("it says so");
        until_gone(&pids).await;
        for (text, why) in [("exit 0", "does not say why"), ("echo no >&2; exit 3", "no")] {
            let (exe, _) = program(dir.path(), text);
            let told = check(&exe, dir.path()).await.expect_err("it does not say so").to_string();
            assert!(told.contains(why), "{told}");
        }
        assert!(check(&dir.path().join("none"), dir.path()).await.is_err());
    }
}
