"""A stand-in for an agent that serves the page, with as many units and waiting requests as one likes.

It has the part of the HTTP interface that the page uses, a token (`secret`), and a clock of its own that keeps things moving.
"""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = Path(__file__).parents[2] / "crates/http/page"
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
USERS = ["anna", "ben", "ci", "dora", "emil", "farah", "lab"]
REASONS = ["train the large model", "night run", "boot test", "regression #4711", "demo on Friday", None, "bisect"]
COMMANDS = ["python train.py --size large", "make test", "hold", "pytest -n 4 tests/hw", "bash", "./flash.sh board"]

Json = dict[str, Any]


class World:
    """Pools, grants and a queue, served first come first served."""

    def __init__(self, pools: dict[str, int], waiting: int = 0, full: bool = False, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.pools = {name: [f"{name}/{n}" for n in range(units)] for name, units in pools.items()}
        self.drained: dict[str, Json] = {}
        self.grants: dict[str, Json] = {}
        #: Of each unit that is held, the grant.
        self.holder: dict[str, str] = {}
        self.waiting: dict[str, Json] = {}
        self.audit: list[Json] = []
        self.rights = ["view", "ask", "reserve", "pools", "force", "admin"]
        self.calls: list[tuple[str, str, Any]] = []
        self.readers: set[queue.Queue[tuple[str, Json]]] = set()
        self._number = 0
        self._past()
        if full:
            self._fill()
        for _ in range(waiting):
            self.ask(self._needs(), at=self.now() - self.random.randrange(1_000, 60_000), serve=False)
        self.audit.sort(key=lambda line: int(line["at"]))

    def now(self) -> int:
        return int(time.time() * 1000)

    def _past(self) -> None:
        """Some hours of history."""
        clock, start = 0, self.now() - 5 * 3_600_000
        ends: dict[str, int] = {}
        while start + clock < self.now() - 60_000:
            clock += self.random.randrange(60_000, 240_000)
            for number, at in sorted(ends.items(), key=lambda end: end[1]):
                if at <= start + clock:
                    self._end(number, "released", at)
                    del ends[number]
            self.ask(self._needs(), at=start + clock)
            for number in self.grants.keys() - ends.keys():
                ends[number] = start + clock + self.random.randrange(200_000, 2_000_000)
    def _fill(self) -> None:
        """Every unit is held by somebody, for some time now."""
        for pool in self.pools:
            for unit in self.free(pool):
                self._number += 1
                self._grant(f"3-{self._number}", {"needs": [unit], "who": self.who(), "until": None}, {pool: [unit]}, self.now() - 60_000)

    def _needs(self) -> list[str]:
        pools = self.random.sample(sorted(self.pools), k=min(len(self.pools), self.random.choice([1, 1, 2])))
        return [f"{pool}:{self.random.randrange(1, 1 + min(4, len(self.pools[pool])))}" for pool in pools]

    def who(self, **about: Any) -> Json:
        user = self.random.choice(USERS)
        said = {"command": self.random.choice(COMMANDS), "name": None, "reason": self.random.choice(REASONS)}
        uid = 1000 + USERS.index(user)
        return {"uid": uid, "user": user, "host": "lab1", "pid": self.random.randrange(1000, 60000), "from": said, **about}

    def free(self, pool: str) -> list[str]:
        return [unit for unit in self.pools[pool] if unit not in self.holder and unit not in self.drained]

    def ask(self, needs: list[str], at: int | None = None, who: Json | None = None, until: int | None = None, serve: bool = True) -> str:
        with self.lock:
            self._number += 1
            number = f"3-{self._number}"
            at = at or self.now()
            one = {"request": number, "needs": needs, "who": who or self.who(), "since": at, "within": None, "part_of": None}
            self.waiting[number] = {**one, "until": until}
            self.note("asked", at, request=number, who=one["who"], needs=needs)
            if serve:
                self._serve(at)
            return number

    def _serve(self, at: int) -> None:
        wanted: set[str] = set()
        free = {pool: self.free(pool) for pool in self.pools}
        for number, one in list(self.waiting.items()):
            needs = [(name, int(count or 1)) for name, _, count in (need.partition(":") for need in one["needs"])]
            fits = all(len(free[name]) >= count if name in free else name not in self.holder for name, count in needs)
            if not fits or any(name in wanted for name, _ in needs):
                wanted.update(name for name, _ in needs)
                continue
            del self.waiting[number]
            units = {name: free[name][:count] if name in free else [name] for name, count in needs}
            self._grant(number, one, units, at)
            free.update({name: self.free(name) for name in units if name in free})

    def _grant(self, number: str, one: Json, units: dict[str, list[str]], at: int) -> None:
        fence = (3 << 32) + self._number
        taken = [
            {"name": name, "units": [{"name": unit, "fence": str(fence)} for unit in some]} for name, some in units.items()
        ]
        state = "reserved" if one["until"] else "held"
        base = {"request": number, "within": None, "part_of": None, **one}
        self.grants[number] = {**base, "taken": taken, "since": at, "state": state, "pids": [one["who"]["pid"]], "parts": []}
        self.holder.update({unit: number for some in units.values() for unit in some})
        self.note("granted", at, request=number, who=one["who"], taken=taken)

    def _end(self, number: str, what: str, at: int | None = None, **more: Any) -> None:
        with self.lock:
            grant = self.grants.pop(number)
            self.holder = {unit: holder for unit, holder in self.holder.items() if holder != number}
            self.note(what, at or self.now(), request=number, who=grant["who"], **more)
            self._serve(at or self.now())

    def end(self, number: str, what: str = "released", **more: Any) -> None:
        with self.lock:
            before = set(self.waiting)
            self._end(number, what, **more)
            served = before - set(self.waiting)
            self.tell_change([number], sorted(served))

    def note(self, what: str, at: int, **more: Any) -> None:
        line = {"at": at, "what": what, **more}
        self.audit.append(line)
        self.tell("audit", line)

    # What is shown

    def pool_views(self) -> list[Json]:
        holders = self.holder
        waits: dict[str, int] = {}
        for one in self.waiting.values():
            for need in one["needs"]:
                name = need.partition(":")[0]
                waits[name] = waits.get(name, 0) + 1
        views = [
            {
                "name": name,
                "lock": False,
                "declared": True,
                "removed": False,
                "units": [
                    {"name": unit, "holder": holders.get(unit), "retiring": False, "drained": self.drained.get(unit)}
                    for unit in units
                ],
                "free": sum(unit not in holders and unit not in self.drained for unit in units),
                "holders": sorted({holders[unit] for unit in units if unit in holders}),
                "waiting": waits.get(name, 0),
            }
            for name, units in self.pools.items()
        ]
        locks = {name for name in holders if not any(name in units for units in self.pools.values())}
        for name in locks:
            view = {"name": name, "lock": True, "declared": False, "removed": False, "units": [], "free": 0}
            views.append({**view, "holders": [holders[name]], "waiting": waits.get(name, 0)})
        return sorted(views, key=lambda view: str(view["name"]))

    def wait_views(self, most: int | None = None) -> list[Json]:
        """Everybody, or the first, with what keeps it, as an agent tells it."""
        free = {name: len(self.free(name)) for name in self.pools}
        held: dict[str, list[str]] = {}
        for number, grant in self.grants.items():
            for taken in grant["taken"]:
                held.setdefault(taken["name"], []).append(number)
        ahead: dict[str, list[str]] = {}
        views = []
        for number, one in islice(self.waiting.items(), most):
            hindrances = []
            for need in one["needs"]:
                name, _, count = need.partition(":")
                front, holders = ahead.setdefault(name, []), held.get(name, [])
                if free.get(name, 0) >= int(count or 1) and not front:
                    front.append(number)
                    continue
                drained = [{"name": unit, "drained": why} for unit, why in self.drained.items() if unit.startswith(f"{name}/")]
                hindrances.append({
                    "need": need, "wanted": int(count or 1), "free": free.get(name, 0), "drained": drained[:2],
                    "holders": holders[:8], "holders_total": len(holders), "ahead": front[:8], "ahead_total": len(front),
                })  # fmt: skip
                front.append(number)
            views.append({key: value for key, value in one.items() if key != "until"} | {"hindrances": hindrances})
        return views

    def agent(self) -> Json:
        return {
            "version": "0.1.0", "pid": 1, "epoch": 3, "since": self.now(), "data": "/var/lib/holdall", "protocol": "house",
            "grants": len(self.grants), "waiting": len(self.waiting), "pools": len(self.pools), "memory": 1, "stopping": False,
            "no_cgroups": None, "you": "anna", "your_rights": self.rights, "rights": [], "ephemeral": True,
        }  # fmt: skip

    def status(self) -> Json:
        with self.lock:
            grants = list(self.grants.values())
            return {"at": self.now(), "pools": self.pool_views(), "grants": grants, "waiting": self.wait_views()}

    def explain(self, number: str) -> Json:
        with self.lock:
            views = {view["request"]: view for view in self.wait_views()}
            chain, todo, release = [], [number], {}
            while todo:
                one = views.get(todo.pop(0))
                if one is None or one in chain or len(chain) >= 64:
                    continue
                chain.append(one)
                for hindrance in one["hindrances"]:
                    release.update({held: self.grants[held] for held in hindrance["holders"]})
                    todo += hindrance["ahead"][-2:]
            at = self.now()
            outlook = {"made": at, "half": [at + 60_000, at + 120_000], "nine": [at, at + 3_600_000], "unknown": None}
            told = {"request": number, "held": number in self.grants, "chain": chain, "release": list(release.values())}
            return {**told, "circular": False, "left_out": 0, "outlook": outlook}

    # The stream

    def tell(self, kind: str, data: Json) -> None:
        for reader in list(self.readers):
            reader.put((kind, data))

    def tell_change(self, ended: list[str] = [], left: list[str] = []) -> None:
        """Tells who has ended, who has left the queue and so holds now, and who waits: the first, and the newest."""
        with self.lock:
            grants = [grant for number, grant in self.grants.items() if number in left]
            waiting = self.wait_views(200)
            if len(self.waiting) > len(waiting):
                waiting.append({**next(reversed(self.waiting.values())), "hindrances": []})
            change = {"at": self.now(), "pools": self.pool_views(), "gone_pools": [], "grants": grants, "ended": ended}
            self.tell("change", {**change, "waiting": waiting, "left": left, "order": None})

    def stir(self) -> None:
        """Somebody gives something back, and somebody else asks."""
        with self.lock:
            if self.grants:
                self.end(self.random.choice(list(self.grants)))
            before = set(self.grants)
            self.ask(self._needs())
            self.tell_change([], sorted(set(self.grants) - before))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, world: World, port: int = 0, token: str | None = "secret", forgets: bool = False) -> None:
        self.world, self.token = world, token
        self.over = threading.Event()
        #: Those who listen are told something as soon as this is set.
        self.talks = threading.Event()
        self.talks.set()
        #: Whether what they missed is not known any more.
        self.forgets = forgets
        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def stop(self) -> None:
        self.over.set()
        self.talks.set()
        for reader in list(self.world.readers):
            reader.put(("end", {}))
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # Browsers leave broken pipes.


class Problem(Exception):
    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.kind = status, kind


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        address = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        try:
            if not address.path.startswith("/v1/"):
                self._file(address.path)
                return
            if self.server.token and self.headers.get("authorization") != f"Bearer {self.server.token}":
                raise Problem(401, "unauthenticated", "a token is needed, and this is none")
            if address.path == "/v1/events":
                self._events()
                return
            if self.command != "GET":
                self.server.world.calls.append((self.command, self.path, body))
            parts = [unquote(part) for part in address.path.split("/")[2:]]
            query = {key: values[0] for key, values in parse_qs(address.query).items()}
            self._answer(200, self._call(parts, query, body))
        except Problem as problem:
            told = {"type": f"urn:holdall:problem:{problem.kind}", "detail": str(problem), "status": problem.status}
            self._answer(problem.status, told)

    do_GET = do_PUT = do_POST = do_DELETE = _handle

    def _answer(self, status: int, body: Any) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("content-security-policy", POLICY)
        self.end_headers()
        self.wfile.write(data)

    def _file(self, path: str) -> None:
        file = PAGE / (path.lstrip("/") or "index.html")
        if not file.is_file():
            raise Problem(404, "usage", "no such path")
        self._send(200, KINDS[file.suffix], file.read_bytes())

    def _events(self) -> None:
        world = self.server.world
        mine: queue.Queue[tuple[str, Json]] = queue.Queue()
        world.readers.add(mine)
        try:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.server.talks.wait()
            self._event("snapshot", {**world.status(), "agent": world.agent(), "missed": self.server.forgets})
            while not self.server.over.is_set():
                kind, data = mine.get()
                if kind == "end":
                    break
                self._event(kind, data)
        finally:
            world.readers.discard(mine)
            self.close_connection = True

    def _event(self, kind: str, data: Json) -> None:
        self.wfile.write(f"event: {kind}\nid: {time.time()}\ndata: {json.dumps(data)}\n\n".encode())

    def _call(self, parts: list[str], query: dict[str, str], body: Any) -> Any:
        world = self.server.world
        what, name = parts[0], parts[1] if len(parts) > 1 else ""
        if what == "agent":
            return world.agent()
        if what == "explain":
            return world.explain(name)
        if what == "audit":
            return self._audit(query)
        if what == "requests" and self.command == "PUT":
            return self._ask(name, body)
        if what == "grants" and name not in world.grants:
            raise Problem(404, "unknown", f"{name} is no grant")
        if what == "grants" and self.command == "DELETE":
            world.end(name, "forced" if "force" in query else "released", detail=query.get("reason"))
            return None
        if what == "grants":
            world.grants[name]["until"] = world.now() + body["reserve_ms"]
            world.tell_change(left=[name])
            return None
        if what == "drains":
            until = world.now() + body["for_ms"] if body and "for_ms" in body else None
            if self.command == "PUT":
                world.drained[name] = {"reason": body["reason"], "by": "anna", "until": until}
            else:
                world.drained.pop(name, None)
            world.tell_change()
            return None
        raise Problem(404, "usage", f"no such path: {self.path}")

    def _ask(self, id: str, body: Json) -> Json:
        world = self.server.world
        said = {"command": body["command"], "name": None, "reason": body.get("reason")}
        until = world.now() + body["reserve_ms"]
        number = world.ask(body["needs"], who=world.who(user="anna", **{"from": said}), until=until)
        if number not in world.grants and not body["queue"]:
            del world.waiting[number]
            raise Problem(409, "busy", f"not free: {' '.join(body['needs'])}")
        world.tell_change(left=[number] if number in world.grants else [])
        state = "granted" if number in world.grants else "waiting"
        return {"id": id, "state": state, "request": number, "ttl_ms": 30000, "taken": [], "limit_ms": None, "warnings": []}

    def _audit(self, query: dict[str, str]) -> Json:
        world = self.server.world
        with world.lock:
            lines = list(reversed(world.audit))
        since, text = int(query.get("since_ms", 0)), query.get("text", "").lower()
        start, limit = int(query.get("cursor") or 0), int(query.get("limit", 100))
        found = [
            line
            for line in lines
            if line["at"] >= since
            and (not text or text in json.dumps(line, ensure_ascii=False).lower())
            and ("user" not in query or line["who"]["user"] == query["user"])
            and ("pool" not in query or query["pool"] in json.dumps(line))
        ]
        more = str(start + limit) if start + limit < len(found) else None
        return {"lines": found[start : start + limit], "cursor": more}
