"""A grant, as a child made by ``fork`` sees it: memory that both share says until when it is held.

The child does not ask the agent: that would renew the lease, and keep what a parent that was killed has held.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading

from ._clock import clock

_DEADLINE = struct.Struct("d")
_OVER = 0.0
#: How often a child looks.
_LOOK_SECONDS = 0.2


class Deadline:
    """Until when something is held, for those who have forked, too."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _DEADLINE.size)

    def set(self, at: float) -> None:
        """It is held until then, or longer."""
        _DEADLINE.pack_into(self._memory, 0, at)

    def end(self) -> None:
        """It is not held any more."""
        self.set(_OVER)

    @property
    def is_over(self) -> bool:
        """Whether it is not held any more."""
        at: float = _DEADLINE.unpack_from(self._memory, 0)[0]
        return clock() >= at


class Watch:
    """Looks whether a grant of the parent is held, in a thread of the child."""

    def __init__(self, deadline: Deadline) -> None:
        self.pid = os.getpid()
        #: Set when it is not held any more.
        self.lost = threading.Event()
        self._deadline = deadline
        threading.Thread(target=self._look, name="holdall parent", daemon=True).start()

    def _look(self) -> None:
        while not self._deadline.is_over:
            self.lost.wait(_LOOK_SECONDS)
        self.lost.set()
