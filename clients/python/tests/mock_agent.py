"""A small stand-in for an agent: the part of its HTTP interface that the client uses, over a Unix socket.

Requests are served in the order of asking at each name; whoever is not heard of for its time to live loses its request. What is
taken away by force is kept until its client gives it back, or for that time.
What it knows survives ``kill`` and ``start``, and every lease begins anew then, as with a real agent.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

STATUS = {"usage": 400, "unknown": 404, "conflict": 409, "busy": 409, "timeout": 409, "lost": 410, "never": 422}


class Problem(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass
class Request:
    id: str
    number: str
    needs: list[str]
    ttl: float
    limit_ms: int | None
    within: str | None
    about: dict[str, Any]
    state: str = "waiting"
    #: For each name, its units and their fences.
    taken: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    heard: float = field(default_factory=time.monotonic)
    open_calls: int = 0
    #: Until when it is kept after it was taken away.
    kept_until: float | None = None
    #: An agent that was restarted keeps to it, and does not know it any more.
    knows_ttl: bool = True

    def _validity(self, lent: float | None) -> dict[str, Any]:
        if self.state != "granted":
            return {"valid_ms": None, "lent_ms": None}
        lent_ms = None if lent is None else int(max(0.0, lent) * 1000)
        known = [millis for millis in (int(self.ttl * 1000) if self.knows_ttl else None, lent_ms) if millis is not None]
        return {"valid_ms": min(known, default=None), "lent_ms": lent_ms}

    def view(self, lent: float | None) -> dict[str, Any]:
        taken = [
            {"name": name, "units": [{"name": unit, "fence": str(fence)} for unit, fence in units]}
            for name, units in self.taken.items()
        ]
        return {
            "id": self.id,
            "state": self.state,
            "request": self.number,
            "ttl_ms": int(self.ttl * 1000) if self.knows_ttl else None,
            **self._validity(lent),
            "taken": taken,
            "limit_ms": self.limit_ms,
            "warnings": [],
        }


class MockAgent:
    def __init__(self, socket: Path, pools: dict[str, int] | None = None) -> None:
        self.socket = socket
        self.http = socket.with_name("agent.http.sock")
        self.pools = pools or {}
        self.requests: dict[str, Request] = {}
        self.calls: list[tuple[str, str]] = []
        #: Whether one can wait for the end of a grant.
        self.tells_ends = True
        #: For how many seconds other cells keep what they guard here; none if they guard nothing.
        self.lent: Callable[[], float] | None = None
        #: So many answers are lost on their way, by method.
        self.lose_answers: dict[str, int] = {}
        self._fence = 1 << 53
        self._number = 0
        self._changed = threading.Condition()
        self._server: _Server | None = None
        self._over = False
        threading.Thread(target=self._expire, daemon=True).start()
        self.start()

    def start(self) -> None:
        self.http.unlink(missing_ok=True)
        with self._changed:
            for request in self.requests.values():
                request.heard, request.open_calls, request.knows_ttl = time.monotonic(), 0, False
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        """Ends as ``kill -9`` ends an agent: the socket stays, and nobody listens."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()
            server.drop_connections()

    def close(self) -> None:
        self.kill()
        self._over = True

    def force(self, number: str) -> None:
        """Takes a grant away."""
        with self._changed:
            for request in self.requests.values():
                if request.number == number and request.state == "granted":
                    request.state, request.kept_until = "lost", time.monotonic() + request.ttl
                    self._changed.notify_all()

    def held(self) -> set[str]:
        with self._changed:
            return {unit for request in self.requests.values() for units in request.taken.values() for unit, _ in units}

    def waiting(self) -> list[Request]:
        with self._changed:
            return [request for request in self.requests.values() if request.state == "waiting"]

    def _expire(self) -> None:
        while not self._over:
            time.sleep(0.02)
            with self._changed:
                now = time.monotonic()
                for request in self.requests.values():
                    silent = self._server is not None and not request.open_calls and now - request.heard > request.ttl
                    if request.state in ("waiting", "granted") and silent:
                        self._end(request, "lost")
                    elif request.kept_until is not None and now > request.kept_until:
                        self._end(request, "lost")

    def _end(self, request: Request, state: str) -> None:
        request.state, request.taken, request.kept_until = state, {}, None
        self._serve()

    def _serve(self) -> None:
        wanted: set[str] = set()
        for request in self.requests.values():
            if request.state != "waiting":
                continue
            names = {_split(need)[0] for need in request.needs}
            if not names & wanted and all(self._free(need) is not None for need in request.needs):
                self._fence += 1
                for need in request.needs:
                    units = self._free(need) or []
                    request.taken[_split(need)[0]] = [(unit, self._fence) for unit in units]
                request.state, request.heard = "granted", time.monotonic()
            else:
                wanted |= names
        self._changed.notify_all()

    def _free(self, need: str) -> list[str] | None:
        """The units that would meet a need now."""
        name, amount = _split(need)
        holders = [request for request in self.requests.values() if name in request.taken]
        if name not in self.pools:
            shared = amount == "shared" and all(f"{name}:shared" in holder.needs for holder in holders)
            return [name] if shared or not holders else None
        held = {unit for holder in holders for unit, _ in holder.taken[name]}
        free = [f"{name}/{unit}" for unit in range(self.pools[name]) if f"{name}/{unit}" not in held]
        count = int(amount or 1)
        return free[:count] if len(free) >= count else None

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.split("/")[2:]]
        if parts[:1] == ["requests"] and method == "PUT":
            return self._ask(parts[1], body)
        if parts[:1] == ["requests"]:
            return self._about(method, parts, query)
        if parts[:1] == ["grants"] and method == "DELETE":
            self.force(parts[1])
            return 204, None
        if parts == ["agent"]:
            return 200, {"version": "mock", "you": "tester", "your_rights": ["view", "ask"]}
        if parts == ["status"]:
            with self._changed:
                granted, waiting = (
                    [{"request": r.number, "who": r.about} for r in self.requests.values() if r.state == state]
                    for state in ("granted", "waiting")
                )
            return 200, {"pools": [], "grants": granted, "waiting": waiting, "left_out": 0}
        raise Problem("usage", f"no such path: {path}")

    def _ask(self, id: str, body: Any) -> tuple[int, Any]:
        for need in body["needs"]:
            name, amount = _split(need)
            if amount is not None and amount != "shared" and int(amount) > self.pools.get(name, 1):
                raise Problem("never", f"{name} has {self.pools.get(name, 1)} units, and {amount} are wanted")
        with self._changed:
            request = self.requests.get(id)
            if request is None:
                self._number += 1
                about = {key: body.get(key) for key in ("name", "reason", "command")}
                ttl = body["ttl_ms"] / 1000
                number = f"1-{self._number}"
                args = (id, number, body["needs"], ttl, body.get("limit_ms"), body.get("within"), about)
                request = self.requests[id] = Request(*args)
                if request.within is not None and self._waits_for_itself(request):
                    del self.requests[id]
                    raise Problem("never", "it would wait for itself")
                self._serve()
            elif request.needs != body["needs"]:
                raise Problem("conflict", "the same id for something else")
            self._wait(request, body.get("wait_ms", 0) / 1000)
            if request.state == "waiting" and not body.get("queue", False):
                self._end(request, "released")
                words = "timeout" if body.get("wait_ms") else "busy"
                raise Problem(words, f"not free: {' '.join(request.needs)}")
            return self._told(request)

    def _waits_for_itself(self, request: Request) -> bool:
        outer = next((other for other in self.requests.values() if other.number == request.within), None)
        return outer is not None and any(_split(need)[0] in outer.taken for need in request.needs)

    def _about(self, method: str, parts: list[str], query: dict[str, list[str]]) -> tuple[int, Any]:
        if "until" in query and not self.tells_ends:
            raise Problem("usage", "unknown field `until`")
        with self._changed:
            request = self.requests.get(parts[1])
            if request is None:
                raise Problem("lost", "not known any more")
            if query.get("until") == ["ended"]:
                millis = int(query["wait_ms"][0])
                if millis > 300_000:
                    raise Problem("usage", "wait_ms is 300000 at most")
                self._wait(request, millis / 1000, ("waiting", "granted"))
            if method == "DELETE" and request.state in ("waiting", "granted"):
                self._end(request, "released")
            elif method == "DELETE" and request.kept_until is not None:
                self._end(request, "lost")
            request.heard = time.monotonic()
            return self._told(request)

    def _wait(self, request: Request, seconds: float, while_it_is: tuple[str, ...] = ("waiting",)) -> None:
        server, until = self._server, time.monotonic() + seconds
        request.open_calls += 1
        while request.state in while_it_is and time.monotonic() < until and server is self._server:
            self._changed.wait(min(0.05, max(0.0, until - time.monotonic())))
        if server is not self._server:
            raise ConnectionAbortedError("killed meanwhile")
        request.open_calls -= 1
        request.heard = time.monotonic()

    def _told(self, request: Request) -> tuple[int, Any]:
        if request.state == "lost":
            raise Problem("lost", f"{request.number} is not held any more")
        return 202 if request.state == "waiting" else 200, request.view(self.lent and self.lent())


def _split(need: str) -> tuple[str, str | None]:
    name, _, amount = need.partition(":")
    return name, amount or None


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, agent: MockAgent) -> None:
        self.agent = agent
        self.open: set[socket.socket] = set()
        super().__init__(str(agent.http), _Handler)

    def drop_connections(self) -> None:
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # Clients that are killed leave broken pipes.


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.server.open.add(self.request)
        super().setup()

    def finish(self) -> None:
        self.server.open.discard(self.request)
        super().finish()

    def _handle(self) -> None:
        address = urlsplit(self.path)
        agent = self.server.agent
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        agent.calls.append((self.command, re.sub("[0-9a-f]{32}", "ID", self.path)))
        try:
            status, body = agent.answer(
                self.command, address.path, parse_qs(address.query), json.loads(data) if data else None
            )
        except Problem as problem:
            status = STATUS[problem.kind]
            body = {"type": f"urn:holdall:problem:{problem.kind}", "detail": str(problem), "status": status}
        if agent.lose_answers.get(self.command):
            agent.lose_answers[self.command] -= 1
            self.close_connection = True
            return
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = _handle

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        pass
