"""HTTP to an agent: over its Unix socket, or over TCP with a token. One connection a call; nothing is retried here."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from ._clock import clock
from ._errors import Denied, Failed, HoldallError, Lost, NeverGranted, NotGranted, Unreachable

#: How long an agent may take to answer what it answers at once.
ANSWER_SECONDS = 10.0
#: Where an agent listens if nothing is said.
_PORT = 7421
#: How a connection breaks.
_BROKEN = (ConnectionResetError, BrokenPipeError, http.client.IncompleteRead)


class NobodyListens(Unreachable):
    """There is no agent: nobody has the socket open."""


class AnswerLost(Unreachable):
    """The agent was there, and the connection broke before it had answered: perhaps it has done what it was asked."""


class Aborted(Exception):
    """Whoever waits for the answer no longer wants it."""


class Abort:
    """Lets one thread end the call in which another one waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._wanted = False

    def __bool__(self) -> bool:
        return self._wanted

    def now(self) -> None:
        """Ends the call that is being made, and all later ones."""
        with self._lock:
            self._wanted = True
            if self._socket is not None:
                _shut(self._socket)

    def watch(self, using: socket.socket | None) -> None:
        """Says which socket is in use."""
        with self._lock:
            self._socket = using
            if self._wanted and using is not None:
                _shut(using)


def _shut(used: socket.socket) -> None:
    try:
        used.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It has ended by itself.


@dataclass(frozen=True)
class Reply:
    """What an agent has answered."""

    status: int
    body: Any


class _Time:
    """The time that there is for all of a call."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = clock() + seconds

    def limit(self, used: socket.socket) -> None:
        """What is done next with a socket takes no longer than what is left."""
        left = self._ends_at - clock()
        if left <= 0:
            raise socket.timeout("timed out")
        used.settimeout(left)


class Transport:
    """The way to one agent."""

    #: How the agent is called in messages.
    name: str

    def __init__(self, token: str | None) -> None:
        self._token = token

    #: The host, and the port if it is to be named, as the agent is told them.
    _host: str = "localhost"
    _port: int | None = None

    def _connect(self, time: _Time) -> socket.socket:
        raise NotImplementedError

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        timeout: float = ANSWER_SECONDS,
        abort: Abort | None = None,
    ) -> Reply:
        """Makes one call, which takes so many seconds at most. Problems that the agent tells are raised as what they are."""
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        if asked:
            path = f"{path}?{urlencode(asked, doseq=True)}"
        headers: dict[str, str] = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        reply = self._exchange(method, path, data, headers, timeout, abort)
        if reply.status >= 400:
            raise problem(reply)
        return reply

    def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
        timeout: float,
        abort: Abort | None,
    ) -> Reply:
        connection = http.client.HTTPConnection(self._host, self._port)
        time = _Time(timeout)
        try:
            connection.sock = used = self._connect(time)
            if abort is not None:
                abort.watch(used)
            time.limit(used)
            connection.request(method, path, data, headers)
            time.limit(used)
            response = connection.getresponse()
            time.limit(used)
            return Reply(response.status, _read(response))
        except (OSError, http.client.HTTPException) as error:
            if abort:
                raise Aborted from error
            raise self._unreachable(error) from error
        finally:
            if abort is not None:
                abort.watch(None)
            connection.close()

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, (socket.timeout, TimeoutError)):
            return Unreachable(f"the agent at {self.name} does not answer; its process may be stopped or overloaded")
        text = f"cannot reach the agent at {self.name}: {error or type(error).__name__}"
        return AnswerLost(text) if isinstance(error, _BROKEN) else Unreachable(text)


class UnixTransport(Transport):
    """Over the socket of an agent on this machine, which knows its users."""

    def __init__(self, path: Path) -> None:
        super().__init__(token=None)
        self.path = path
        self.name = str(path)

    def _connect(self, time: _Time) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        return _connected(made, str(self.path), time)

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return NobodyListens(f"no agent listens at {self.name}")
        return super()._unreachable(error)


class TcpTransport(Transport):
    """Over ``http://`` or ``https://``, with a token."""

    def __init__(self, url: str, token: str | None, context: ssl.SSLContext | None) -> None:
        super().__init__(token)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None or parts.path not in ("", "/"):
            raise ValueError(f"{url!r} is no address of an agent; one looks like https://host:7421")
        self.name = url
        self._host, self._port = parts.hostname, parts.port or _PORT
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._context = context or ssl.create_default_context()

    def _connect(self, time: _Time) -> socket.socket:
        failed = OSError(f"{self._host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
            try:
                made = _connected(socket.socket(family, kind, protocol), address, time)
            except OSError as error:
                failed = error
                continue
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made if self._context is None else self._secured(made, self._context, time)
        raise failed

    def _secured(self, made: socket.socket, context: ssl.SSLContext, time: _Time) -> ssl.SSLSocket:
        try:
            time.limit(made)
            return context.wrap_socket(made, server_hostname=self._host)
        except BaseException:
            made.close()
            raise


def _connected(made: socket.socket, address: Any, time: _Time) -> socket.socket:
    try:
        time.limit(made)
        made.connect(address)
        return made
    except BaseException:
        made.close()
        raise


def _read(response: http.client.HTTPResponse) -> Any:
    data = response.read()
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        if response.status >= 400:
            return {"detail": data.decode(errors="replace")[:1000]}
        raise http.client.HTTPException("the answer is no JSON; is that a holdall agent?") from None


_KINDS: Mapping[str, type[HoldallError]] = {
    "busy": NotGranted,
    "timeout": NotGranted,
    "never": NeverGranted,
    "lost": Lost,
    "denied": Denied,
    "unauthenticated": Denied,
    "unreachable": Unreachable,
    "limit": Unreachable,
}


def problem(reply: Reply) -> HoldallError:
    """What an answer says has gone wrong (RFC 9457), in the agent's words."""
    told = reply.body if isinstance(reply.body, dict) else {}
    detail = str(told.get("detail") or told.get("title") or f"the agent answered with status {reply.status}")
    kind = _KINDS.get(str(told.get("type", "")).rpartition(":")[2])
    if kind is not None:
        return kind(detail)
    if reply.status in (502, 503, 504) and "type" not in told:
        return Unreachable(f"something before the agent answered with status {reply.status}: {detail}")
    return Failed(detail, reply.status)
