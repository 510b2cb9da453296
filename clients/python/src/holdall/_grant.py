"""A grant, for whoever holds it."""

from __future__ import annotations

import os
import re
import threading
import warnings
import weakref
from contextvars import ContextVar
from types import TracebackType
from typing import Callable, Union

from ._ask import Agent, Granted, log
from ._errors import Lost
from ._fork import Watch
from ._lease import Lease

#: What happens when a grant is lost: ``"raise"``, ``"interrupt"``, or what is called with the grant.
OnLoss = Union[str, Callable[["Grant"], object]]

#: The grant inside which we are: who asks for more there and would wait for itself is refused.
current: ContextVar[Grant | None] = ContextVar("holdall_grant", default=None)


class Grant:
    """What is held, until it is given back or lost.

    Only the process that was granted it gives it back: a child made by ``fork`` may use it as long as its
    parent holds it, and leaves it alone at its own end.
    """

    def __init__(self, agent: Agent, granted: Granted, called: Callable[[Grant], object] | None = None) -> None:
        answer = granted.answer
        self._pid = os.getpid()
        self._agent = agent
        #: Its number, as in ``holdall status``: ``3-17``.
        self.number = str(answer["request"])
        #: For each pool and lock, the units that are held, like ``gpu/0``.
        self.units: dict[str, list[str]] = {}
        #: For each pool and lock, the fences of these units, in the same order. They only ever grow.
        self.fences: dict[str, list[int]] = {}
        for taken in answer["taken"]:
            self.units[taken["name"]] = [unit["name"] for unit in taken["units"]]
            self.fences[taken["name"]] = [int(unit["fence"]) for unit in taken["units"]]
        #: What the agent wanted to be known, a name that looks misspelt for example.
        self.warnings: list[str] = list(answer.get("warnings") or [])
        self._interrupt: Callable[[], None] | None = None
        self._interrupting = threading.Lock()
        self._watch: Watch | None = None
        self._lease = Lease(agent, granted, _tell(weakref.ref(self), called))

    @property
    def lost(self) -> threading.Event:
        """Set as soon as the grant is lost; in a child made by ``fork`` also when its parent has given it back."""
        if self._is_ours:
            return self._lease.lost
        if self._watch is None or self._watch.pid != os.getpid():
            self._watch = Watch(self._lease.deadline)
        return self._watch.lost

    @property
    def is_held(self) -> bool:
        """Whether it is neither given back nor lost, by what the agent has told and by the clock: a program that was paused
        for too long finds out here at once."""
        return not self._lease.deadline.is_over

    def check(self) -> None:
        """Raises :class:`Lost` if the grant is lost."""
        if self._lease.why is not None:
            raise self._lease.why
        if self.is_held or (self._is_ours and self._lease.has_ended):
            return
        whose = "" if self._is_ours else " of the parent of this process"
        raise Lost(f"grant {self.number}{whose} is not held any more")

    @property
    def _is_ours(self) -> bool:
        """Whether it is a grant of this process, and not of one that has forked it."""
        return os.getpid() == self._pid

    def release(self) -> None:
        """Gives it back; harmless twice. Raises :class:`Lost` if it was not held to the end."""
        if self._is_ours:
            self._lease.release()

    def environment(self) -> dict[str, str]:
        """What a command of ``holdall run`` would find in its environment, for ``subprocess``."""
        needs = " ".join(self.units)
        found = {"HOLDALL_GRANT": self.number, "HOLDALL_NEEDS": needs}
        if self._agent.place is not None:
            found["HOLDALL_GRANT_AGENT"] = str(self._agent.place.socket)
        for name, units in self.units.items():
            variable = re.sub("[^A-Z0-9]", "_", name.upper())
            found[f"HOLDALL_UNITS_{variable}"] = ",".join(units)
            found[f"HOLDALL_FENCE_{variable}"] = ",".join(str(fence) for fence in self.fences[name])
        return found

    def is_of(self, agent: Agent) -> bool:
        """Whether it is a grant of that agent."""
        return self._agent.transport.name == agent.transport.name

    def interrupt_with(self, interrupt: Callable[[], None] | None) -> None:
        """What to do at a loss, from now on: nothing any more once this has returned with ``None``."""
        if not self._is_ours:
            return  # Only the process that was granted it is told by a thread, which may have had the lock at the fork.
        with self._interrupting:
            self._interrupt = interrupt
            if interrupt is not None and self.lost.is_set():
                interrupt()

    def _was_lost(self) -> None:
        with self._interrupting:
            if self._interrupt is not None:
                self._interrupt()

    def __enter__(self) -> Grant:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except Lost:
            if error is None:
                raise

    def __del__(self) -> None:
        lease = getattr(self, "_lease", None)
        if lease is None or not self._is_ours:
            return
        if not lease.has_ended:
            text = f"grant {self.number} was never given back; use `with`, or release()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        lease.abandon()

    def __repr__(self) -> str:
        state = "held" if self.is_held else "released" if self._lease.why is None else "lost"
        return f"<holdall.Grant {self.number} {state}: {' '.join(unit for units in self.units.values() for unit in units)}>"


def _tell(grant: weakref.ref[Grant], called: Callable[[Grant], object] | None) -> Callable[[Lost], None]:
    """The thread that renews must not keep a forgotten grant alive."""

    def tell(lost: Lost) -> None:
        there = grant()
        if there is None:
            return
        there._was_lost()
        if called is not None:
            try:
                called(there)
            except Exception:
                log.exception("what was to be called at the loss of grant %s has failed", there.number)

    return tell
