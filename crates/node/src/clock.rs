//! What time it is.
//!
//! Within one boot of the machine, spans are measured by `CLOCK_BOOTTIME`: nobody can set it, and
//! it goes on while the machine sleeps. From one boot to the next there is only the clock on the
//! wall, which people and time servers set.
//!
//! So there are two times, both in milliseconds. **Steady** time is that of the cell: what
//! `CLOCK_BOOTTIME` says, and how far the cell had come when the machine booted, which the cell keeps
//! ([`holdall_cell::facts::Clock`]). **Wall** time, since 1970, is what people are shown.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the clocks of the machine say, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) wall: i64,
    pub(crate) boottime: i64,
}

/// The clock of an agent.
pub(crate) struct Clock {
    /// Steady time when the machine booted.
    base: i64,
    read: Box<dyn Fn() -> Reading>,
    /// What it says for the time being.
    held: Cell<Option<Reading>>,
}

impl Clock {
    /// The clocks of this machine; steady time counts from the boot until it is set.
    pub(crate) fn new() -> Self {
        Self::reading(Box::new(machine))
    }

    fn reading(read: Box<dyn Fn() -> Reading>) -> Self {
        Self { base: 0, read, held: Cell::new(None) }
    }

    /// Steady time goes on from where the cell had come to when the machine booted.
    pub(crate) fn set(&mut self, base: i64) {
        self.base = base;
    }

    /// Looks at the clocks once for what is done in a moment, until it is let go.
    pub(crate) fn hold(&self) {
        self.held.set(Some((self.read)()));
    }

    pub(crate) fn let_go(&self) {
        self.held.set(None);
    }

    /// What the machine says.
    pub(crate) fn reads(&self) -> Reading {
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
        clamp((steady as i64).saturating_add(self.ahead()))
    }

    /// How far the wall is ahead of steady time.
    pub(crate) fn ahead(&self) -> i64 {
        let now = self.reads();
        now.wall.saturating_sub(now.boottime.saturating_add(self.base))
    }
}

/// A time is not before the first one.
pub(crate) fn clamp(time: i64) -> u64 {
    time.max(0).unsigned_abs()
}

/// The time since the boot as the kernel tells it at this moment.
pub(crate) fn boottime() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let millis = u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + millis
}

fn machine() -> Reading {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    Reading { wall, boottime: holdall_holders::boottime() }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn within_a_boot_nobody_moves_time_by_setting_the_clock() {
        let machine = Rc::new(Cell::new(Reading { wall: 1000 * HOUR, boottime: HOUR }));
        let pass = |wall, boottime| {
            let now = machine.get();
            machine.set(Reading { wall: now.wall + wall, boottime: now.boottime + boottime });
        };
        let own = machine.clone();
        let mut clock = Clock::reading(Box::new(move || own.get()));
        clock.set(500 * HOUR);
        let until = clock.now() + HOUR as u64;
        pass(10_000 * HOUR, 0);
        assert_eq!(until - clock.now(), HOUR as u64, "it does not run out");
        assert_eq!(clock.shown(until) - clock.wall(), HOUR as u64, "people see what is left");
        pass(-10_900 * HOUR, HOUR / 2);
        assert_eq!(until - clock.now(), HOUR as u64 / 2, "it is not frozen either");
    }
}
