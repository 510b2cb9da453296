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

mod cast;
mod channel;
mod clock;
mod options;
mod poll;
mod process;
mod report;
mod roles;
mod settings;
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

pub use self::cast::{Cast, NoCast};
pub use self::options::{Options, exit, main, run};
pub use self::report::{Figures, Outcome};
pub use self::settings::{BadPlay, Settings};
pub use self::stage::Failure;
pub use self::table::table;

use self::channel::Channel;
use self::process::{Failed, Process};
use self::stage::Stage;
use self::words::{Cue, MARK, Part};

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
}

impl Error {
    /// Whether a person asked for what cannot be, rather than that something went wrong.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Failure(_))
    }
}

/// Plays one protocol after another. `progress` is told which one, what share of its time has passed, and
/// how many requests were granted so far; what came of each is added to `outcomes`.
///
/// In a process that was started by this function it never returns.
///
/// # Errors
/// If the settings make no sense, a protocol does not support them, or something goes wrong: an invariant
/// of a role is broken, exclusion is, a process ends that should not.
pub fn play(
    casts: &[Cast],
    settings: &Settings,
    progress: &mut dyn FnMut(&str, f64, u64),
    outcomes: &mut Vec<Outcome>,
) -> Result<(), Error> {
    if std::env::var_os(MARK).is_some() {
        be_a_process(casts, settings);
    }
    for cast in casts {
        settings.validate(cast)?;
    }
    for (number, cast) in casts.iter().enumerate() {
        let nodes: BTreeSet<_> =
            cast.assemble(&settings.topology(cast))?.managers().into_iter().collect();
        let mut tell = |share, grants| progress(cast.name(), share, grants);
        let seen = match Stage::new(number, cast, settings)?.play(&nodes, &mut tell) {
            Err(Failure::Interrupted) if !outcomes.is_empty() => break,
            seen => seen?,
        };
        outcomes.push(report::outcome(cast, settings, &seen));
        if seen.early {
            break;
        }
    }
    Ok(())
}

/// Is one of the processes of a play, to the end.
fn be_a_process(casts: &[Cast], settings: &Settings) -> ! {
    // The end of standard input says the same, but not to a process that was stopped or is busy for ever.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    match join(casts, settings) {
        Ok(()) => std::process::exit(0),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => std::process::exit(0),
        Err(error) => {
            eprintln!("holdall: {MARK} is set, but this is no process of a play: {error}");
            std::process::exit(64)
        }
    }
}

fn join(casts: &[Cast], settings: &Settings) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(false)?;
    let mut control = Channel::new(socket);
    let part = receive_part(&mut control)?;
    control.stream().set_nonblocking(true)?;
    let cast = casts.get(part.cast).ok_or(io::ErrorKind::InvalidData)?;
    let roles = cast.assemble(&settings.topology(cast)).map_err(io::Error::other)?;
    let departures = cast.about().assumes.departures;

    let last_words = Arc::new(Mutex::new(String::new()));
    let panicked = Arc::clone(&last_words);
    std::panic::set_hook(Box::new(move |info| {
        *panicked.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let mut process = Process::new(&part, roles, departures, settings, control)?;
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
        match control.take::<Cue>().map_err(io::Error::other)? {
            Some(Cue::Part(part)) => return Ok(part),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None if control.fill()? => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
