"""The agent that is meant, and what one can ask of it."""

from __future__ import annotations

import numbers
import os
import ssl
import sys
from typing import Any, Callable, Union
from urllib.parse import quote

from ._ask import Agent, Asking, Granted
from ._errors import HoldallError
from ._grant import Grant, OnLoss, current
from ._hold import Hold
from ._http import Abort, TcpTransport, UnixTransport
from ._place import meant

Path = Union[str, "os.PathLike[str]"]
DEFAULT_TTL = 30.0
#: The shortest and the longest lease, in seconds.
_TTL = (1, 3600)
#: Seconds that are as good as for ever.
_LONGEST = 1e10


class Client:
    """One agent: the one named, or the one that the command ``holdall`` would use.

    :param agent: the socket of an agent on this machine.
    :param url: instead of that, an agent over TCP, like ``https://lab1:7421`` (default: ``HOLDALL_URL``).
    :param token: for that (default: ``HOLDALL_TOKEN``).
    :param ssl_context: for ``https``, if the system's certificates do not do.
    """

    def __init__(
        self,
        agent: Path | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if agent is not None and url is not None:
            raise ValueError("agent= or url=, not both")
        if agent is None:
            url = url or os.environ.get("HOLDALL_URL")
        if url is not None:
            token = (token or os.environ.get("HOLDALL_TOKEN") or "").strip()
            if not (token.isascii() and token.isprintable()):
                raise ValueError("the token has characters that no token has")  # Which is not shown: it is a secret.
            self._agent = Agent(TcpTransport(url, token or None, ssl_context), None)
        else:
            place = meant(agent)
            self._agent = Agent(UnixTransport(place.http), place)

    def hold(
        self,
        *needs: str,
        wait: float | None = None,
        name: str | None = None,
        reason: str | None = None,
        ttl: float = DEFAULT_TTL,
        limit: float | None = None,
        on_loss: OnLoss = "raise",
    ) -> Hold:
        """As :func:`holdall.hold`."""
        if isinstance(on_loss, str) and on_loss not in ("raise", "interrupt"):
            raise ValueError(f"on_loss is 'raise', 'interrupt' or a function, not {on_loss!r}")
        called = None if isinstance(on_loss, str) else on_loss
        wish = self._wish(needs, name, reason, ttl, limit)
        return Hold(
            lambda abort: self._acquire(wish, wait, called, abort),
            ", ".join(map(repr, needs)),
            interrupts=on_loss == "interrupt",
        )

    def acquire(
        self,
        *needs: str,
        wait: float | None = None,
        name: str | None = None,
        reason: str | None = None,
        ttl: float = DEFAULT_TTL,
        limit: float | None = None,
        on_loss: Callable[[Grant], object] | None = None,
    ) -> Grant:
        """As :func:`holdall.acquire`."""
        return self._acquire(self._wish(needs, name, reason, ttl, limit), wait, on_loss, None)

    def reserve(
        self,
        *needs: str,
        duration: float,
        wait: float | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Reserves for so many seconds, whatever becomes of this program; the answer names the grant as ``request``."""
        wish = {**self._wish(needs, name, reason, DEFAULT_TTL, None), "reserve_ms": _millis("duration", duration)}
        return self._ask(wish, wait, None).answer

    def renew(self, number: str, duration: float) -> None:
        """A reservation shall last for so many seconds from now."""
        self._call("POST", f"/v1/grants/{quote(number, safe='')}/renew", {"reserve_ms": _millis("duration", duration)})

    def release(self, number: str, *, force: bool = False, reason: str | None = None) -> None:
        """A grant shall end, by its number; with ``force`` and a reason also somebody else's."""
        query = {"force": "true" if force else None, "reason": reason}
        self._agent.transport.call("DELETE", f"/v1/grants/{quote(number, safe='')}", query=query)

    def status(self, *pools: str) -> dict[str, Any]:
        """Pools, grants and who waits, in the order of service: everything, or what concerns these pools."""
        return self._dict(self._agent.transport.call("GET", "/v1/status", query={"pool": ",".join(pools) or None}).body)

    def explain(self, number: str) -> dict[str, Any]:
        """Why a request waits, and for whom."""
        return self._dict(self._call("GET", f"/v1/explain/{quote(number, safe='')}"))

    def agent(self) -> dict[str, Any]:
        """About the agent, and what one may do there."""
        return self._dict(self._call("GET", "/v1/agent"))

    def _acquire(
        self,
        wish: dict[str, Any],
        wait: float | None,
        called: Callable[[Grant], object] | None,
        abort: Abort | None,
    ) -> Grant:
        return Grant(self._agent, self._ask(wish, wait, abort), called)

    def _ask(self, wish: dict[str, Any], wait: float | None, abort: Abort | None) -> Granted:
        if wait is not None and not (_is_number(wait) and wait >= 0):
            raise ValueError(f"wait is a number of seconds, or None to wait for as long as it takes, not {wait!r}")
        seconds = None if wait is None else float(wait)
        return Asking(self._agent, {**wish, **self._within()}, seconds, abort).granted()

    def _wish(
        self,
        needs: tuple[str, ...],
        name: str | None,
        reason: str | None,
        ttl: float,
        limit: float | None,
    ) -> dict[str, Any]:
        if not needs:
            raise ValueError("name at least one thing, like 'gpu:2'")
        if not all(isinstance(need, str) for need in needs):
            raise TypeError(f"needs are texts like 'gpu:2', one argument each, not {needs!r}")
        for what, text in (("name", name), ("reason", reason)):
            if not isinstance(text, (str, type(None))):
                raise TypeError(f"{what} is a text, not {text!r}")
        if _is_number(ttl) and not _TTL[0] <= ttl <= _TTL[1]:
            raise ValueError(f"ttl is from {_TTL[0]} to {_TTL[1]} seconds, not {ttl!r}")
        wish: dict[str, Any] = {"needs": list(needs), "ttl_ms": _millis("ttl", ttl), "command": " ".join(sys.argv)[:1000]}
        optional = {"name": name, "reason": reason, "limit_ms": None if limit is None else _millis("limit", limit)}
        wish.update({key: value for key, value in optional.items() if value is not None})
        return wish

    def _within(self) -> dict[str, str]:
        """The grant inside which this is asked: that of a block around us, or of ``holdall run`` around the program."""
        outer = current.get()
        if outer is not None and outer.is_held and outer.is_of(self._agent):
            return {"within": outer.number}
        place, number = self._agent.place, os.environ.get("HOLDALL_GRANT")
        if place is None or not number or os.environ.get("HOLDALL_GRANT_AGENT") != str(place.socket):
            return {}
        return {"within": number}

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._agent.transport.call(method, path, body).body

    @staticmethod
    def _dict(body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise HoldallError("the answer is not what a holdall agent says")
        return body


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _millis(what: str, seconds: float) -> int:
    if not (_is_number(seconds) and 0 < seconds <= _LONGEST):
        raise ValueError(f"{what} is a number of seconds above 0 and below {_LONGEST:.0e}, not {seconds!r}")
    return max(1, int(round(seconds * 1000)))


def hold(
    *needs: str,
    wait: float | None = None,
    name: str | None = None,
    reason: str | None = None,
    ttl: float = DEFAULT_TTL,
    limit: float | None = None,
    on_loss: OnLoss = "raise",
    agent: Path | None = None,
    url: str | None = None,
    token: str | None = None,
) -> Hold:
    """Holds everything named while a block runs, all or nothing: for ``with`` and ``async with``.

    :param needs: as on the command line: ``"gpu:2"``, ``"db:shared"``, ``"board/front"``.
    :param wait: how many seconds to wait for it; 0 not at all, ``None`` as long as it takes.
    :param name: a name for the request.
    :param reason: what it is for; others see it.
    :param ttl: how many seconds it is kept when this program is not heard of any more.
    :param limit: after how many seconds it is taken away in any case.
    :param on_loss: what happens if it is lost while the block runs. ``"raise"``: the block ends with :class:`Lost`; in
        ``async with`` at once, otherwise when it comes to its end. ``"interrupt"``: at once, also there. A function: it is
        called with the grant, by the thread that renews, and the block ends as with ``"raise"``.
        ``grant.lost`` is set in any case.
    :raises NotGranted: if it was not granted in time.
    :raises NeverGranted: if it can never be granted.
    :raises Lost: at the end of the block, if it was not held to the end.
    :raises Unreachable: if there is no agent, and none can be started.
    """
    client = Client(agent, url=url, token=token)
    return client.hold(*needs, wait=wait, name=name, reason=reason, ttl=ttl, limit=limit, on_loss=on_loss)


def acquire(
    *needs: str,
    wait: float | None = None,
    name: str | None = None,
    reason: str | None = None,
    ttl: float = DEFAULT_TTL,
    limit: float | None = None,
    on_loss: Callable[[Grant], object] | None = None,
    agent: Path | None = None,
    url: str | None = None,
    token: str | None = None,
) -> Grant:
    """Holds everything named until ``release()``, as :func:`hold` does for a block.

    A grant that is forgotten is given back, with a :class:`ResourceWarning`; so is what is held when the program ends.
    """
    client = Client(agent, url=url, token=token)
    return client.acquire(*needs, wait=wait, name=name, reason=reason, ttl=ttl, limit=limit, on_loss=on_loss)
