//! Time since the machine booted, by `CLOCK_BOOTTIME`: nobody can set it, and it goes on while the machine sleeps.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;

use crate::raw;

/// By how much a container moves the clocks that nobody can set.
const OFFSETS: &str = "/proc/self/timens_offsets";
/// How often the clock is looked at if there is no descriptor left to wait with.
const LOOK: Duration = Duration::from_millis(100);

/// Milliseconds since the machine booted, the same in all containers.
pub fn boottime() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000 - offset()
}

/// Waits until so many milliseconds after the boot; not at all if that is over.
pub async fn until_boottime(millis: i64) {
    while boottime() < millis {
        let told =
            async { raw::watch(timer(millis)?, Interest::READABLE)?.readable().await.map(drop) };
        if told.await.is_err() {
            let left = u64::try_from(millis.saturating_sub(boottime())).unwrap_or(0);
            tokio::time::sleep(LOOK.min(Duration::from_millis(left))).await;
        }
    }
}

/// Becomes readable so many milliseconds after the boot.
fn timer(millis: i64) -> io::Result<File> {
    let millis = millis.saturating_add(offset());
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer: OwnedFd = timerfd_create(TimerfdClockId::Boottime, flags)?;
    let it_value = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
    Ok(timer.into())
}

/// By how many milliseconds the clock is moved here.
fn offset() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| told(&std::fs::read_to_string(OFFSETS).unwrap_or_default()))
}

fn told(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map(str::parse::<i64>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    next() * 1000 + next() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_may_move_the_clock() {
        let offsets = "monotonic           0         0\nboottime        7200 500000000\n";
        assert_eq!(told(offsets), 7_200_500);
        assert_eq!(told(""), 0);
    }

    #[tokio::test]
    async fn one_is_woken_when_it_is_time_and_not_before() {
        until_boottime(i64::MIN).await;
        let then = boottime() + 30;
        until_boottime(then).await;
        assert!(boottime() >= then);
    }
}
