"""What is still open when the program ends: what is held, what is being given back, and what is waited for.

All of it is ended then, so that nobody waits for leases to run out. A child made by ``fork`` begins with nothing open; those of
``multiprocessing`` end without the ordinary end of a program, and are told otherwise.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any, Protocol


class Open(Protocol):
    """Something that is open."""

    def finish(self) -> None:
        """Ends it, and waits until that is done; not for long."""


_lock = threading.Lock()
_open: dict[int, Open] = {}
_multiprocessing_tells = False


def opened(what: Open) -> None:
    """It is open from now on."""
    _listen_to_multiprocessing()
    with _lock:
        _open[id(what)] = what


def closed(what: Open) -> None:
    """It is over."""
    with _lock:
        _open.pop(id(what), None)


def _finish_all() -> None:
    with _lock:
        left = list(_open.values())
    # The newest first: whoever waits is not to be given what another thread of ours gives back.
    for one in reversed(left):
        one.finish()


def _listen_to_multiprocessing() -> None:
    global _multiprocessing_tells
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None and not _multiprocessing_tells:
        _multiprocessing_tells = True
        util.Finalize(None, _finish_all, exitpriority=0)


def _begin_anew() -> None:
    """In a child: what was open is its parent's."""
    global _lock, _multiprocessing_tells
    _lock, _multiprocessing_tells = threading.Lock(), False
    _open.clear()


atexit.register(_finish_all)
os.register_at_fork(after_in_child=_begin_anew)
