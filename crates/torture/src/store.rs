//! What commands write to: it refuses fences that are behind, notes who uses what, and sees when a command is gone.
//!
//! One thread, one connection for each command. A command begins to use its units when its word is heard, and ends when it
//! says so, or when the kernel has closed its connection. Whoever begins after another has ended says so after that has closed its
//! connection: so before a beginning is noted, all that was closed by then is.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::journal::{Journal, RunNo, Unit, What};
use crate::process::Process;

/// What a command says, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// It begins to use what it was given.
    Begin {
        /// Its run.
        run: RunNo,
        /// What it was given.
        units: BTreeMap<String, Unit>,
    },
    /// It writes.
    Write {
        /// To which unit.
        unit: String,
        /// With which fence.
        fence: u64,
    },
    /// It will end.
    End,
}

/// What it is answered if its word was taken.
pub const TAKEN: &[u8] = b"taken\n";
/// What it is answered if its fence is behind.
pub const BEHIND: &[u8] = b"behind\n";

/// Somebody who uses something.
#[derive(Clone, Debug)]
pub struct User {
    /// The process of the command.
    pub process: Arc<Process>,
    /// What it uses, each unit with its cell.
    pub units: Vec<String>,
}

/// The commands that use something now.
pub type Users = Arc<Mutex<BTreeMap<RunNo, User>>>;

/// A store that runs.
pub struct Store {
    users: Users,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Starts it at a path.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn start(path: &Path, journal: Arc<Journal>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let (users, over) = (Users::default(), Arc::new(AtomicBool::new(false)));
        let mut keeper = Keeper {
            listener,
            journal,
            users: users.clone(),
            connections: Vec::new(),
            fences: BTreeMap::new(),
        };
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                keeper.go_on();
            }
        });
        Ok(Self { users, over, thread: Some(thread) })
    }

    /// The commands that use something now.
    pub fn users(&self) -> MutexGuard<'_, BTreeMap<RunNo, User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Connection {
    stream: UnixStream,
    process: Option<Arc<Process>>,
    pid: u32,
    run: Option<RunNo>,
    bytes: Vec<u8>,
    closed: bool,
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let pid = rustix::net::sockopt::socket_peercred(&stream)?.pid.as_raw_nonzero().get() as u32;
        // It waits for an answer before it does anything that could end it.
        let process = Process::of(pid).ok().map(Arc::new);
        Ok(Self { stream, process, pid, run: None, bytes: Vec::new(), closed: false })
    }

    /// Reads what is there.
    fn read(&mut self) {
        let mut room = [0; 4096];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => self.closed = true,
                Ok(count) => {
                    self.bytes.extend_from_slice(&room[..count]);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.closed = true,
            }
            return;
        }
    }

    /// The next word, if all of it is there.
    fn word(&mut self) -> Option<Word> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        let word = serde_json::from_slice(&line).ok();
        self.closed |= word.is_none();
        word
    }

    fn answer(&mut self, answer: &[u8]) {
        if self.stream.write_all(answer).is_err() {
            self.closed = true;
        }
    }
}

struct Keeper {
    listener: UnixListener,
    journal: Arc<Journal>,
    users: Users,
    connections: Vec<Connection>,
    /// The greatest fence that was accepted for each unit.
    fences: BTreeMap<String, u64>,
}

impl Keeper {
    fn go_on(&mut self) {
        self.wait();
        while let Ok((stream, _)) = self.listener.accept() {
            self.connections.extend(Connection::new(stream));
        }
        self.connections.iter_mut().for_each(Connection::read);
        let mut beginning = Vec::new();
        for at in 0..self.connections.len() {
            self.hear(at, &mut beginning);
        }
        if !beginning.is_empty() {
            // Whatever ended before these began is there to be seen by now.
            self.connections.iter_mut().for_each(Connection::read);
            for at in 0..self.connections.len() {
                if self.connections[at].run.is_some() {
                    self.hear(at, &mut Vec::new());
                }
            }
        }
        self.bury();
        for (pid, run, units) in beginning {
            self.begin(pid, run, units);
        }
    }

    fn wait(&self) {
        let fds = self.connections.iter().map(|connection| connection.stream.as_fd());
        let fds = fds.chain([self.listener.as_fd()]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // If it fails, the next look is a moment later.
        let _ = poll(&mut fds, Some(&tenth));
    }

    /// Takes the words of a connection; who begins is put aside.
    fn hear(&mut self, at: usize, beginning: &mut Vec<(u32, RunNo, BTreeMap<String, Unit>)>) {
        while let Some(word) = self.connections[at].word() {
            let connection = &mut self.connections[at];
            match (word, connection.run) {
                (Word::Begin { run, units }, None) => {
                    connection.run = Some(run);
                    beginning.push((connection.pid, run, units));
                    // It waits for its answer.
                    return;
                }
                (Word::Write { unit, fence }, Some(run)) => self.write(at, run, unit, fence),
                (Word::End, Some(run)) => {
                    self.journal.note(What::Ended { run });
                    self.connections[at].answer(TAKEN);
                }
                _ => connection.closed = true,
            }
        }
    }

    fn begin(&mut self, pid: u32, run: RunNo, units: BTreeMap<String, Unit>) {
        let is_its =
            |connection: &&mut Connection| connection.run == Some(run) && connection.pid == pid;
        let names: Vec<_> = units.keys().cloned().collect();
        self.journal.note(What::Began { run, pid, units });
        let Some(connection) = self.connections.iter_mut().find(is_its) else {
            return;
        };
        if let Some(process) = &connection.process {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.insert(run, User { process: process.clone(), units: names });
        }
        connection.answer(TAKEN);
    }

    fn write(&mut self, at: usize, run: RunNo, unit: String, fence: u64) {
        let last = self.fences.entry(unit.clone()).or_default();
        let accepted = fence >= *last;
        *last = fence.max(*last);
        self.journal.note(What::Wrote { run, unit, fence, accepted });
        self.connections[at].answer(if accepted { TAKEN } else { BEHIND });
    }

    /// Those who have closed their connections are gone.
    fn bury(&mut self) {
        for connection in self.connections.extract_if(.., |connection| connection.closed) {
            let Some(run) = connection.run else { continue };
            self.users.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
            self.journal.note(What::Gone { run });
        }
    }
}
