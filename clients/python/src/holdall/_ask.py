"""Asking for things, and waiting for them through whatever happens to the agent meanwhile.

A request has an id of our own, so asking again after a lost answer is harmless: each step of the waiting is the same
``PUT``, with the time that is left. While such a call lasts the agent knows that we are there.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _ending
from ._clock import clock
from ._errors import HoldallError, Lost, Unreachable
from ._http import ANSWER_SECONDS, Abort, Aborted, AnswerLost, NobodyListens, Transport
from ._place import Place

#: The longest that one call waits.
_STEP_SECONDS = 60.0
#: How long an agent that has answered before may be away.
_AWAY_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
#: How often we ask again for what we have waited for, so that its lease begins anew.
_CONFIRMATIONS = 3
#: How long lies between two attempts to start one that is gone.
_START_PAUSE_SECONDS = 5.0

log = logging.getLogger("holdall")
# Without it, what nobody listens to would be printed.
log.addHandler(logging.NullHandler())


class Agent:
    """The way to an agent, and where it is if it is one of this machine."""

    def __init__(self, transport: Transport, place: Place | None) -> None:
        self.transport = transport
        self.place = place
        self._brought_back_at: float | None = None

    def is_gone(self) -> bool:
        """Whether no agent runs, so that nobody is given anything. One that has trouble with HTTP alone still grants."""
        return self.place is not None and not self.place.listens()

    def bring_back(self, within: float | None = None) -> None:
        """Starts an agent in place of one that was killed; not in place of one that somebody has stopped, nor of one
        that is its supervisor's to start. Takes so many seconds at most."""
        if self.place is None or self.place.is_machines or self.place.was_stopped():
            return
        if self._brought_back_at is not None and clock() - self._brought_back_at < _START_PAUSE_SECONDS:
            return
        self._brought_back_at = clock()
        try:
            self.place.start(within)
        except Unreachable as error:
            log.debug("%s", error)


@dataclass(frozen=True)
class Granted:
    """What was granted."""

    #: Our id of the request.
    id: str
    #: The agent's answer.
    answer: dict[str, Any]
    #: When that was asked: the lease counts from here at the earliest.
    asked_at: float


class Asking:
    """One request on its way."""

    def __init__(self, agent: Agent, wish: Mapping[str, Any], wait: float | None, abort: Abort | None) -> None:
        self._agent = agent
        self._wish = wish
        self._abort = Abort() if abort is None else abort
        self._done = threading.Event()
        #: Whether the program ends meanwhile.
        self._ends = False
        self._until = None if wait is None else clock() + wait
        self._ttl = float(wish["ttl_ms"]) / 1000
        self._id = uuid.uuid4().hex
        #: When the agent last said that we wait.
        self._heard: float | None = None
        #: Since when an agent that was there does not answer.
        self._away_since: float | None = None

    def granted(self) -> Granted:
        """Waits until it is granted. Whatever else happens, nothing of it stays behind."""
        _ending.opened(self)
        try:
            granted = self._wait()
            if self._ends:
                raise Aborted
            return granted
        except BaseException as error:
            # What the agent has refused is over there, too; what it has taken away it keeps until we say that we have stopped.
            if not isinstance(error, HoldallError) or isinstance(error, (Unreachable, Lost)):
                self.withdraw()
            if isinstance(error, Aborted) and self._ends:
                raise SystemExit from None
            raise
        finally:
            self._done.set()
            _ending.closed(self)

    def finish(self) -> None:
        """The program ends: it is not waited for any more."""
        self._ends = True
        self._abort.now()
        self._done.wait(ANSWER_SECONDS)

    def _wait(self) -> Granted:
        confirmations = 0
        while True:
            asked_at = clock()
            answer = self._step()
            if answer is not None and answer.get("state") == "granted":
                if clock() - asked_at > self._valid(answer) / 4 and confirmations < _CONFIRMATIONS:
                    # The lease counts from when we asked, and much of it is gone. Asked again it is told at once.
                    confirmations += 1
                    continue
                ttl = answer.get("ttl_ms") or self._wish["ttl_ms"]
                return Granted(self._id, {**answer, "ttl_ms": ttl}, asked_at)
            if answer is not None and answer.get("state") != "waiting":
                raise Lost(f"the request was taken out of the queue: {answer.get('state')}")

    def _valid(self, answer: Mapping[str, Any]) -> float:
        """For how many seconds something is granted."""
        told = answer.get("valid_ms")
        return self._ttl if told is None else min(self._ttl, float(told) / 1000)

    def withdraw(self) -> None:
        """Gives up what was asked for; if the agent cannot be told, the lease runs out by itself."""
        try:
            self._agent.transport.call("DELETE", f"/v1/requests/{self._id}")
        except HoldallError:
            pass

    def _step(self) -> dict[str, Any] | None:
        left = None if self._until is None else max(0.0, self._until - clock())
        wait = _STEP_SECONDS if left is None else min(left, _STEP_SECONDS)
        last = left is not None and left <= _STEP_SECONDS
        body = {**self._wish, "wait_ms": int(wait * 1000), "queue": not last}
        path = f"/v1/requests/{self._id}"
        if self._abort:
            raise Aborted
        try:
            reply = self._agent.transport.call("PUT", path, body, timeout=wait + ANSWER_SECONDS, abort=self._abort)
        except Unreachable as error:
            self._agent_is_away(error)
            return None
        except Lost:
            # Paused for longer than the lease, we have lost our place and ask for another; whoever
            # was taken out of the queue stays out.
            if self._heard is None or clock() - self._heard <= self._ttl:
                raise
            self._id = uuid.uuid4().hex
            return None
        self._heard, self._away_since = clock(), None
        answer: dict[str, Any] = reply.body
        return answer

    def _agent_is_away(self, error: Unreachable) -> None:
        """Brings an agent to life, or waits a moment for its return."""
        waits = self._heard is not None or self._away_since is not None
        if not waits and not isinstance(error, (NobodyListens, AnswerLost)):
            raise error
        self._away_since = self._away_since or clock()
        if clock() - self._away_since > _AWAY_SECONDS:
            raise error
        if isinstance(error, NobodyListens):
            if self._agent.place is not None and not waits:
                self._agent.place.start()
                return
            self._agent.bring_back()
        time.sleep(_PAUSE_SECONDS)
