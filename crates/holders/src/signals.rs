//! Signals to this process, told one by one, with where they come from.

use std::io;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{Signal, getpid, kill_process};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::raw;

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Which one.
    pub signal: Signal,
    /// Whether the kernel sent it, as it does when somebody presses Ctrl-C: then everybody in
    /// the foreground has got it, too.
    pub from_kernel: bool,
}

/// Signals that do not do what they usually do, but are told. One that was ignored from the
/// start, as under `nohup`, stays ignored.
#[derive(Debug)]
pub struct Signals {
    watched: AsyncFd<SignalFd>,
    before: SigSet,
}

impl Signals {
    /// From now on these signals are told, and that children change.
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let mut mask = SigSet::empty();
        for signal in signals.iter().filter(|signal| !raw::ignores(**signal)) {
            mask.add(signal.as_raw().try_into()?);
        }
        // Whoever ignores it never hears of the end of a child.
        raw::reset(Signal::CHILD);
        mask.add(nix::sys::signal::Signal::SIGCHLD);
        let before = mask.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let file = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { watched: raw::watch(file, Interest::READABLE)?, before })
    }

    /// The signals that were blocked before, and shall be in a command that is started.
    pub fn mask_before(&self) -> SigSet {
        self.before
    }

    /// The next signal. May be dropped and called again.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub async fn next(&mut self) -> io::Result<Caught> {
        loop {
            let mut ready = self.watched.readable().await?;
            let Some(info) = ready.get_inner().read_signal()? else {
                ready.clear_ready();
                continue;
            };
            if let Some(signal) = Signal::from_named_raw(info.ssi_signo as i32) {
                return Ok(Caught { signal, from_kernel: info.ssi_code == libc::SI_KERNEL });
            }
        }
    }
}

/// From now on a write beyond a limit on the size of files is an error, and does not end us.
pub fn survive_file_limits() {
    raw::ignore(Signal::XFSZ);
}

/// Ends this process by a signal, so that a shell that waits for it knows that it was not just an
/// exit status. Returns if the signal does not end it.
pub fn end_by(signal: Signal) {
    raw::reset(signal);
    let mut mask = SigSet::empty();
    if let Ok(signal) = signal.as_raw().try_into() {
        mask.add(signal);
    }
    if mask.thread_unblock().is_ok() {
        // It ends us; or it does not, and the caller has an exit status ready.
        let _ = kill_process(getpid(), signal);
    }
}
