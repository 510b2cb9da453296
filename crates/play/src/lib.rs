//! The world in which everything is real: any protocol, its roles in processes of their own, messages as
//! frames over TCP on loopback, times by the clock, clients that die by SIGKILL. `docs/play.md` says what
//! is played and what the figures mean.
//!
//! A [`Cast`] is a protocol, of any registry; [`Settings`] are the system, its clients and what happens to
//! them; an [`Outcome`] is what came of it, beside what the simulator says. [`main`] is a whole program
//! around one protocol.
//!
//! # Processes
//! [`play`] starts the running program again, with the same arguments and a mark in its environment, once
//! for each node that has managers and once for each client. Whoever is started like that becomes one of
//! these processes when it comes to [`play`] itself, so what leads there must not depend on anything but
//! the arguments. The processes are told what they are, and tell what they see, on their standard input,
//! a socket. If the program that started them ends, however it does, they end.

#![forbid(unsafe_code)]

mod bill;
mod cast;
mod channel;
mod clock;
mod options;
mod poll;
mod printer;
mod process;
mod report;
mod roles;
mod settings;
mod signals;
mod stage;
mod table;
mod words;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Signal, set_parent_process_death_signal};

pub use self::bill::Bill;
pub use self::cast::{Cast, NoCast};
pub use self::options::{Options, exit, main, run, say};
pub use self::report::{Figures, Outcome};
pub use self::settings::{BadPlay, Settings};
pub use self::stage::Failure;

use self::channel::Channel;
use self::process::{Failed, Process};
use self::signals::Signals;
use self::stage::{Stage, cannot};
use self::words::{MARK, Part, ToProcess};

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings make no sense.
    #[error(transparent)]
    Bad(#[from] BadPlay),
    /// The protocol cannot serve such a system.
    #[error(transparent)]
    Unsupported(#[from] holdall_core::Unsupported),
    /// Something went wrong.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// What came of it cannot be told.
    #[error("cannot write the result: {0}")]
    Output(io::Error),
}

impl Error {
    /// The exit status that says so: as in `sysexits.h`, except for a play that went wrong.
    pub fn status(&self) -> u8 {
        match self {
            Self::Bad(_) | Self::Unsupported(_) => USAGE,
            Self::Failure(_) => 1,
            Self::Output(_) => IO_ERROR,
        }
    }
}

const USAGE: u8 = 64;
const IO_ERROR: u8 = 74;

/// Who watches plays.
pub trait Audience {
    /// What share of the time of a protocol has passed, and how many requests were granted so far.
    fn progress(&mut self, protocol: &str, share: f64, grants: u64);

    /// What came of one protocol.
    ///
    /// # Errors
    /// If nobody can be told: then nothing more is played.
    fn played(&mut self, outcome: &Outcome) -> io::Result<()>;
}

/// Plays one protocol after another, until a signal comes (Ctrl-C, SIGTERM, SIGHUP): whatever is done at
/// that moment, it ends early, and that is no error.
///
/// In a process that was started by this function it never returns.
///
/// # Errors
/// If the settings make no sense, a protocol does not support them, or something goes wrong: an invariant
/// of a role is broken, exclusion is, a process ends that should not. The audience was told of what was
/// played before.
pub fn play(casts: &[Cast], settings: &Settings, audience: &mut dyn Audience) -> Result<(), Error> {
    if is_a_process() {
        be_a_process(casts, settings);
    }
    let mut signals = Signals::new().map_err(cannot("wait for signals"))?;
    for cast in casts {
        settings.validate(cast)?;
    }
    for (number, cast) in casts.iter().enumerate() {
        let nodes: BTreeSet<_> =
            cast.assemble(&settings.topology(cast))?.managers().into_iter().collect();
        let mut tell = |share, grants| audience.progress(cast.name(), share, grants);
        let stage = Stage::new(number, cast, settings, &mut signals)?;
        let Some(seen) = stage.play(&nodes, &mut tell)? else { break };
        let outcome = report::outcome(cast, settings, &seen, &mut signals);
        audience.played(&outcome).map_err(Error::Output)?;
        if signals.came() > 0 {
            break;
        }
    }
    Ok(())
}

/// Whether this program was started to be one of the processes of a play.
fn is_a_process() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Is one of the processes of a play, to the end.
fn be_a_process(casts: &[Cast], settings: &Settings) -> ! {
    // The end of standard input says the same, but not to a process that was stopped or is busy for ever.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    match join(casts, settings) {
        Ok(()) => std::process::exit(0),
        Err(error) if is_the_end(&error) => std::process::exit(0),
        Err(error) => {
            eprintln!("holdall: {MARK} is set, but this is no process of a play: {error}");
            std::process::exit(USAGE.into())
        }
    }
}

/// Whether whoever started this process is gone.
fn is_the_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn join(casts: &[Cast], settings: &Settings) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(false)?;
    let mut control = Channel::new(socket);
    let part = receive_part(&mut control)?;
    control.stream().set_nonblocking(true)?;
    let cast = casts.get(part.cast).ok_or(io::ErrorKind::InvalidData)?;
    let roles = cast.assemble(&settings.topology(cast)).map_err(io::Error::other)?;

    let last_words = Arc::new(Mutex::new(String::new()));
    let panicked = Arc::clone(&last_words);
    std::panic::set_hook(Box::new(move |info| {
        *panicked.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let mut process = Process::new(&part, roles, cast.about(), settings, control)?;
    let failed = match catch_unwind(AssertUnwindSafe(|| process.run())) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failed)) => failed,
        Err(_) => {
            let what = last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let role = process.handling().map(|role| format!("{role:?}"));
            Failed { who: role.unwrap_or_else(|| part.place.to_string()), what }
        }
    };
    process.fail(failed);
    Ok(())
}

/// What this process is to be.
fn receive_part(control: &mut Channel<UnixStream>) -> io::Result<Part> {
    loop {
        match control.take::<ToProcess>().map_err(io::Error::other)? {
            Some(ToProcess::Part(part)) => return Ok(part),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None if control.fill()? => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
