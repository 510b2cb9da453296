//! Waiting for sockets and for a moment, whichever is first.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::{Nanos, SECOND};

/// The number of a socket.
pub(crate) type Token = u64;

/// The token of the timer.
const TIMER: Token = Token::MAX;

/// Sockets to wait for, and a timer: `epoll` itself counts in milliseconds only.
pub(crate) struct Poll {
    epoll: OwnedFd,
    timer: OwnedFd,
    set: Option<Nanos>,
    events: Vec<Event>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, timer, set: None, events: Vec::with_capacity(256) })
    }

    /// Waits for input from now on; for room to write as well, if that is wanted.
    pub(crate) fn add(&self, socket: impl AsFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Changes whether room to write is waited for.
    pub(crate) fn want(&self, socket: impl AsFd, token: Token, room: bool) -> io::Result<()> {
        let flags = if room { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(token), flags)?)
    }

    /// Waits until something can be done, or the moment has come. Returns the sockets.
    pub(crate) fn wait(&mut self, until: Option<Nanos>) -> io::Result<Vec<Token>> {
        if until != self.set {
            self.set_timer(until)?;
        }
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let tokens: Vec<Token> = self.events.iter().map(|event| event.data.u64()).collect();
        if tokens.contains(&TIMER) {
            self.set = None;
        }
        Ok(tokens.into_iter().filter(|token| *token != TIMER).collect())
    }

    fn set_timer(&mut self, until: Option<Nanos>) -> io::Result<()> {
        // A moment of zero would be none.
        let at = until.map_or(0, |at| at.max(1));
        let value = Timespec { tv_sec: (at / SECOND) as i64, tv_nsec: (at % SECOND) as _ };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.set = until;
        Ok(())
    }
}
