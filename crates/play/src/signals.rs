//! The signals that end a play: Ctrl-C, SIGTERM, SIGHUP.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// Signals as input, from when this is made until it is dropped.
pub(crate) struct Signals {
    input: UnixStream,
    registered: Vec<signal_hook::SigId>,
    came: usize,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let (input, output) = UnixStream::pair()?;
        input.set_nonblocking(true)?;
        let mut registered = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            registered.push(pipe::register(signal, output.try_clone()?)?);
        }
        Ok(Self { input, registered, came: 0 })
    }

    /// How many came so far; several at once may count as one.
    pub(crate) fn came(&mut self) -> usize {
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = self.input.read(&mut bytes) {
            self.came += read;
        }
        self.came
    }

    /// What is readable when one has come.
    pub(crate) fn input(&self) -> impl AsFd {
        &self.input
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
    }
}

/// Starts something that never hears of these signals, not even in its first moment: whoever starts it
/// ends it. A terminal sends Ctrl-C to both.
pub(crate) fn deaf<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let started = start();
    before.thread_set_mask()?;
    started
}
