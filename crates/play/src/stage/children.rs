//! The processes of a play, as the stage has them.

use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use holdall_core::UserId;

use crate::channel::Channel;
use crate::signals::deaf;
use crate::words::{MARK, Part, Place, ToProcess};

/// How long a process may take to hear something.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) place: Place,
    pub(super) control: Channel<UnixStream>,
    /// The present user of a client, and how many rounds its lane has begun.
    pub(super) user: UserId,
    pub(super) rounds: u64,
    pub(super) port: Option<u16>,
    /// Who has yet to note where this one is, if it took the place of another.
    pub(super) awaits: Vec<Place>,
    pub(super) met: bool,
    pub(super) begun: bool,
    pub(super) last: bool,
    child: Child,
}

impl Member {
    /// Starts this very program again, with the same arguments and a mark, as a process of the play.
    pub(super) fn start(part: Part) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| OsString::from("holdall"));
        // The file that runs, even if another one has its name by now.
        let mut program = Command::new("/proc/self/exe");
        program
            .arg0(name)
            .args(arguments)
            .env(MARK, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .process_group(0);
        let child = deaf(|| program.spawn())?;
        let mut member = Self {
            place: part.place,
            control: Channel::new(ours),
            user: part.user,
            rounds: part.rounds,
            port: None,
            awaits: Vec::new(),
            met: false,
            begun: false,
            last: false,
            child,
        };
        member.tell(&ToProcess::Part(part))?;
        Ok(member)
    }

    /// Tells it something. That it is gone is seen elsewhere.
    pub(super) fn tell(&mut self, message: &ToProcess) -> io::Result<()> {
        self.control.push(message).map_err(io::Error::other)?;
        let until = Instant::now() + PATIENCE;
        while !self.control.flush().unwrap_or(true) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, now or soon.
    pub(super) fn is_gone_within(&mut self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    /// Tells it to go, and sees to it.
    pub(super) fn dismiss(mut self, until: Instant) -> io::Result<()> {
        self.control.stream().shutdown(Shutdown::Both)?;
        self.reap(until)?;
        Ok(())
    }

    /// Lets it end by itself, and makes it end if it does not in time.
    pub(super) fn reap(&mut self, until: Instant) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                self.child.kill()?;
                return self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Member {
    /// Whatever happened, nothing is left behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
