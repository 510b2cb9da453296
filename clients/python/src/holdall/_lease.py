"""Keeping a grant: a thread of its own renews the lease, so that neither a blocked event loop nor a busy main thread
loses it, and says so when it is lost. Between two renewals it listens for that.

The lease counts from the moment before the last renewal that went through was sent, so it ends here before the agent gives
the units to anybody else, whatever either clock says. When an agent was killed, the next one begins every lease
anew: so to find the socket without a listener is as good as a renewal. Not of what other cells guard: they keep it for as long
as the agent has told, whatever becomes of it.

What was taken away is kept by the agent until its user says that it has stopped: that is told when the block ends, or whoever
has it gives it back or forgets it, and not before.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Mapping
from typing import Any, Callable

from . import _ending
from ._ask import Agent, Granted, log
from ._clock import clock
from ._errors import Failed, HoldallError, Lost
from ._fork import Deadline
from ._http import ANSWER_SECONDS, Abort, Aborted, AnswerLost, NobodyListens

#: What is held for a shorter time is not worth another call.
_SHORT_SECONDS = 0.3
#: The longest that one call listens.
_LISTEN_SECONDS = 60.0
#: With less time left nobody listens any more: what is left is for renewing.
_TIGHT_SECONDS = 1.0


class _Heard(enum.Enum):
    """What somebody who listens for the end of a grant has heard."""

    HELD = "it is held"
    TROUBLE = "a renewal is to find out whether the agent is gone"
    NOTHING = "it is over, or nobody can listen now"


class Lease:
    """What keeps one grant."""

    def __init__(self, agent: Agent, granted: Granted, on_lost: Callable[[Lost], None]) -> None:
        self.id = granted.id
        self.number = str(granted.answer["request"])
        #: Set when the grant is lost.
        self.lost = threading.Event()
        #: Why it is lost.
        self.why: Lost | None = None
        self._agent = agent
        self._on_lost = on_lost
        self._ttl = float(granted.answer["ttl_ms"]) / 1000
        limit = granted.answer.get("limit_ms")
        self._limit_at = None if limit is None else clock() + float(limit) / 1000
        self._lock = threading.Lock()
        #: Set when it is not kept any more: it is given back, or lost.
        self._ended = threading.Event()
        #: Set when nobody uses it any more, which is told to the agent.
        self._stopped = threading.Event()
        self._abort = Abort()
        #: Whether the agent tells when it is taken away; one of an earlier version does not.
        self._is_told = True
        #: Why the last renewal did not go through.
        self._trouble: Exception | None = None
        #: Whether somebody tells that who waits for the answer.
        self._is_awaited = False
        #: Set when nothing is left to be told to the agent.
        self._done = threading.Event()
        #: What children made by ``fork`` know of it.
        self.deadline = Deadline()
        self._valid = self._count(granted.asked_at, granted.answer)
        _ending.opened(self)
        self._thread = threading.Thread(target=self._keep, name=f"holdall {self.number}", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether it was given back, or somebody has noticed that it is lost."""
        return self._ended.is_set()

    def release(self) -> None:
        """Gives it back, or says that the use of what is lost has stopped. Raises :class:`Lost` if it was not ours to the
        end."""
        if self._stop(awaited=True):
            if self._end():
                self._abort.now()
                if self._thread is not threading.current_thread():
                    self._thread.join(ANSWER_SECONDS)
            try:
                self._tell_stopped()
            except Lost as lost:
                if self.why is None:
                    self.why = lost
                    self._tell_lost(lost)
            finally:
                self._is_done()
        if self.why is not None:
            raise self.why

    def abandon(self) -> None:
        """Lets the thread give it back, without waiting for that."""
        if self._stop() and self._end():
            self._abort.now()

    def finish(self) -> None:
        """The program ends: gives it back, or waits until whoever does so has done it."""
        with contextlib.suppress(Lost):
            self.release()
        self._done.wait(ANSWER_SECONDS)

    def _stop(self, awaited: bool = False) -> bool:
        """Nobody uses it any more. Says whether that is new."""
        with self._lock:
            if self._stopped.is_set():
                return False
            self._is_awaited = awaited
            self._stopped.set()
            return True

    def _end(self, why: Lost | None = None) -> bool:
        """It is not kept any more. Says whether that is new."""
        with self._lock:
            if self._ended.is_set():
                return False
            self.why = why
            self._ended.set()
            self.deadline.end()
            return True

    def _is_done(self) -> None:
        self._done.set()
        _ending.closed(self)

    def _count(self, asked_at: float, answer: Mapping[str, Any]) -> float:
        """Takes from an answer how long it is ours; returns for how many seconds it was when that was asked for."""
        # One that was asked for before the agent was upgraded has the time that was asked for, and is not told it.
        ttl, lent = answer["ttl_ms"], answer.get("lent_ms")
        if ttl is not None:
            self._ttl = min(self._ttl, float(ttl) / 1000)
        self._lent_until = None if lent is None else asked_at + float(lent) / 1000
        self._is_ours_until(asked_at + self._ttl)
        return self._ends_at - asked_at

    def _is_ours_until(self, at: float) -> None:
        self._ends_at = at if self._lent_until is None else min(at, self._lent_until)
        with self._lock:
            if not self._ended.is_set():
                self.deadline.set(self._last_moment())

    def _tell_stopped(self) -> None:
        try:
            self._agent.transport.call("DELETE", f"/v1/requests/{self.id}")
        except Lost:
            raise
        except HoldallError as error:
            log.warning("grant %s could not be given back, and ends with its lease: %s", self.number, error)

    def _keep(self) -> None:
        pause = self._valid / 3
        while not self._pause(max(0.0, min(pause, self._time_left()))):
            pause = self._renew()
        # What is lost may be used until whoever has it has noticed.
        self._stopped.wait()
        if self._is_awaited:
            return
        try:
            self._tell_stopped()
        except Lost:
            pass  # So it is not ours any more, which was wanted.
        finally:
            self._is_done()

    def _pause(self, seconds: float) -> bool:
        """Waits for so long, and says whether it has ended meanwhile."""
        until = clock() + seconds
        heard = _Heard.HELD if self._is_told else _Heard.NOTHING
        if self._ended.wait(min(seconds, _SHORT_SECONDS)):
            return True
        while heard is _Heard.HELD and until - clock() > 0.05 and self._time_left() > _TIGHT_SECONDS:
            heard = self._listen(min(until - clock(), _LISTEN_SECONDS))
        return self._ended.wait(0.0 if heard is _Heard.TROUBLE else max(0.0, until - clock()))

    def _listen(self, seconds: float) -> _Heard:
        """Listens for the end, for so long at most."""
        path, query = f"/v1/requests/{self.id}", {"wait_ms": int(seconds * 1000), "until": "ended"}
        timeout = min(seconds + min(1.0, self._ttl / 10), self._time_left())
        try:
            reply = self._agent.transport.call("GET", path, query=query, timeout=timeout, abort=self._abort)
        except Lost as lost:
            self._lose(lost)
        except Failed as error:
            self._is_told = error.status != 400
            log.debug("only renewals tell whether grant %s is lost: %s", self.number, error)
        except (NobodyListens, AnswerLost):
            return _Heard.TROUBLE
        except (HoldallError, Aborted) as error:
            log.debug("nobody listens for the end of grant %s now: %s", self.number, error)
        else:
            return _Heard.HELD if reply.body["state"] == "granted" else _Heard.TROUBLE
        return _Heard.NOTHING

    def _last_moment(self) -> float:
        return self._ends_at if self._limit_at is None else min(self._ends_at, self._limit_at)

    def _time_left(self) -> float:
        return self._last_moment() - clock()

    def _renew(self) -> float:
        """Renews once, and says how long to wait until the next time."""
        asked_at = clock()
        retry = min(1.0, self._ttl / 10)
        if self._limit_at is not None and asked_at >= self._limit_at:
            return self._lose(Lost(f"the time limit of grant {self.number} is over"))
        left = self._ends_at - asked_at
        if left <= 0:
            why = "" if self._trouble is None else f": {self._trouble}"
            return self._lose(Lost(f"grant {self.number} could not be renewed in time{why}"))
        try:
            path = f"/v1/requests/{self.id}/renew"
            reply = self._agent.transport.call("POST", path, timeout=min(left, ANSWER_SECONDS), abort=self._abort)
        except Lost as lost:
            return self._lose(lost)
        except NobodyListens:
            if self._agent.is_gone():
                self._is_ours_until(asked_at + self._ttl)
            self._agent.bring_back(within=self._time_left())
            return retry
        except (HoldallError, Aborted) as error:
            log.debug("grant %s is not renewed yet: %s", self.number, error)
            self._trouble = error
            return retry
        self._trouble = None
        self._valid = self._count(asked_at, reply.body)
        return self._valid / 3

    def _lose(self, lost: Lost) -> float:
        """It is lost: the agent says so, or our own clock. There is nothing to wait for."""
        if self._end(lost):
            self._tell_lost(lost)
        return 0.0

    def _tell_lost(self, lost: Lost) -> None:
        self.lost.set()
        self._on_lost(lost)
