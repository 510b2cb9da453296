//! What time it is.
//!
//! Within one boot of the machine, spans are measured by `CLOCK_BOOTTIME`: nobody can set it, and
//! it goes on while the machine sleeps. From one boot to the next there is only the clock on the
//! wall, which people and time servers set.
//!
//! So there are two times, both in milliseconds since 1970. **Steady** time is what the wall said
//! when the first agent of this boot started, and what `CLOCK_BOOTTIME` has added since; the
//! engine knows no other. **Wall** time is what people are shown.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What the clocks of the machine say, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    wall: i64,
    boottime: i64,
}

/// Where steady time stands, as it is kept for the next agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Anchor {
    boot: String,
    /// Steady time when the machine booted.
    base: i64,
    /// How far the wall was ahead of steady time when this was written.
    ahead: i64,
}

/// The clock of an agent.
pub(crate) struct Clock {
    base: i64,
    /// Which boot of the machine it is.
    boot: String,
    read: Box<dyn Fn() -> Reading>,
    /// What it says for the time being.
    held: Cell<Option<Reading>>,
}

impl Clock {
    /// Goes on from where the last agent was. Returns also how much is to be added to times that
    /// it kept.
    pub(crate) fn new(last: &Anchor) -> (Self, i64) {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let offset = boottime_offset(&std::fs::read_to_string(OFFSETS).unwrap_or_default());
        Self::reading(Box::new(move || machine(offset)), boot.trim().to_owned(), last)
    }

    fn reading(read: Box<dyn Fn() -> Reading>, boot: String, last: &Anchor) -> (Self, i64) {
        let (now, held) = (read(), Cell::new(None));
        if last.boot == boot && !boot.is_empty() {
            (Self { base: last.base, boot, read, held }, 0)
        } else {
            (Self { base: now.wall - now.boottime, boot, read, held }, last.ahead)
        }
    }

    /// Looks at the clocks once for what is done in a moment, until it is let go.
    pub(crate) fn hold(&self) {
        self.held.set(Some((self.read)()));
    }

    pub(crate) fn let_go(&self) {
        self.held.set(None);
    }

    fn reads(&self) -> Reading {
        self.held.get().unwrap_or_else(|| (self.read)())
    }

    /// Steady time.
    pub(crate) fn now(&self) -> u64 {
        clamp(self.reads().boottime.saturating_add(self.base))
    }

    /// The time on the wall.
    pub(crate) fn wall(&self) -> u64 {
        clamp(self.reads().wall)
    }

    /// What the wall shows at a steady time, as far as it can be known now.
    pub(crate) fn shown(&self, steady: u64) -> u64 {
        let now = (self.read)();
        clamp((steady as i64).saturating_add(self.ahead(now)))
    }

    /// How far the wall is ahead of steady time.
    fn ahead(&self, now: Reading) -> i64 {
        now.wall.saturating_sub(now.boottime.saturating_add(self.base))
    }

    /// What the next agent has to know.
    pub(crate) fn anchor(&self) -> Anchor {
        let now = (self.read)();
        let ahead = self.ahead(now);
        Anchor { ahead, base: self.base, boot: self.boot.clone() }
    }
}

impl Anchor {
    /// How far the wall was moved from one to the other, in milliseconds.
    pub(crate) fn drift(&self, other: &Self) -> u64 {
        self.ahead.abs_diff(other.ahead)
    }
}

/// A time that was kept, moved.
pub(crate) fn moved(time: u64, by: i64) -> u64 {
    clamp((time as i64).saturating_add(by))
}

fn clamp(time: i64) -> u64 {
    time.max(0).unsigned_abs()
}

/// By how much a container moves the clocks that nobody can set.
const OFFSETS: &str = "/proc/self/timens_offsets";

/// By how many milliseconds `CLOCK_BOOTTIME` is moved here.
fn boottime_offset(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map(str::parse::<i64>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    next() * 1000 + next() / 1_000_000
}

fn machine(offset: i64) -> Reading {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let boottime = clock_gettime(ClockId::Boottime);
    let boottime = boottime.tv_sec * 1000 + boottime.tv_nsec / 1_000_000;
    Reading { wall, boottime: boottime - offset }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const HOUR: i64 = 3_600_000;

    /// A machine whose clocks a test sets.
    #[derive(Clone)]
    struct Machine(Rc<Cell<Reading>>);

    impl Machine {
        fn new() -> Self {
            Self(Rc::new(Cell::new(Reading { wall: 1000 * HOUR, boottime: HOUR })))
        }

        fn clock(&self, boot: &str, last: &Anchor) -> (Clock, i64) {
            let own = self.0.clone();
            Clock::reading(Box::new(move || own.get()), boot.into(), last)
        }

        fn pass(&self, wall: i64, boottime: i64) {
            let now = self.0.get();
            let (wall, boottime) = (now.wall + wall, now.boottime + boottime);
            self.0.set(Reading { wall, boottime });
        }
    }

    #[test]
    fn within_a_boot_nobody_moves_time_by_setting_the_clock() {
        let machine = Machine::new();
        let (clock, _) = machine.clock("one", &Anchor::default());
        let until = clock.now() + HOUR as u64;
        machine.pass(10_000 * HOUR, 0);
        assert_eq!(until - clock.now(), HOUR as u64, "it does not run out");
        assert_eq!(clock.shown(until) - clock.wall(), HOUR as u64, "people see what is left");
        machine.pass(-10_900 * HOUR, HOUR / 2);
        assert_eq!(until - clock.now(), HOUR as u64 / 2, "it is not frozen either");
        let (next, shift) = machine.clock("one", &clock.anchor());
        assert_eq!((next.now(), shift), (clock.now(), 0), "the next agent goes on from there");
    }

    #[test]
    fn a_container_does_not_move_time_either() {
        let offsets = "monotonic           0         0\nboottime        7200 500000000\n";
        assert_eq!(boottime_offset(offsets), 7_200_500);
        assert_eq!(boottime_offset(""), 0);
    }

    #[test]
    fn across_boots_the_wall_decides() {
        let machine = Machine::new();
        let (clock, _) = machine.clock("one", &Anchor::default());
        let until = clock.now() + 2 * HOUR as u64;
        machine.pass(500 * HOUR, 0); // It was wrong, and is put right.
        let anchor = clock.anchor();
        machine.pass(HOUR, -HOUR);
        let (next, shift) = machine.clock("two", &anchor);
        assert_eq!(moved(until, shift) - next.now(), HOUR as u64);
        assert_eq!(next.now(), next.wall());
        assert_eq!(anchor.drift(&next.anchor()), 500 * HOUR as u64);
    }
}
