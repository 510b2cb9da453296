//! The terminal: whose it is, and handing it to and fro.

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal of this command, if it is one that the child may get: both ends are terminals
/// (a pipeline shares its terminal with others), and it is ours now.
pub(super) fn is_ours() -> bool {
    isatty(stdin()) && isatty(stdout()) && tcgetpgrp(stdin()).ok() == Some(getpgrp())
}

/// Makes a process group the one in the foreground.
pub(super) fn give_to(group: Pid) {
    // Whoever is in the background and takes the terminal would be stopped, unless it blocks this.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    if blocked.thread_block().is_ok() {
        // If it fails, the child gets along without the terminal, or is stopped by it.
        let _ = tcsetpgrp(stdin(), group);
        let _ = blocked.thread_unblock();
    }
}

/// Takes the terminal back.
pub(super) fn take_back() {
    give_to(getpgrp());
}
