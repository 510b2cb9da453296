"""The clock by which leases count."""

from __future__ import annotations

import time


def clock() -> float:
    """Seconds that nobody can set, and that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
