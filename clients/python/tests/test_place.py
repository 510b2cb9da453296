"""Which agent is meant, and what it says when it cannot be reached."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

import holdall
from holdall import _place
from holdall._http import Reply, TcpTransport, problem


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_place, "_INSTALLED", (tmp_path / "run", tmp_path / "etc"))
    monkeypatch.delenv("HOLDALL_AGENT", raising=False)


def test_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDALL_AGENT", str(tmp_path / "b.sock"))
    assert _place.meant(tmp_path / "a.sock").socket == tmp_path / "a.sock"
    assert _place.meant().socket == tmp_path / "b.sock"
    assert _place.meant().http == tmp_path / "b.http.sock"


def test_the_machines_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "etc").touch()
    assert _place.meant().is_machines and _place.meant().http == Path("/run/holdall/agent.http.sock")
    with pytest.raises(holdall.Unreachable, match="systemctl"):
        _place.meant().start()


def test_the_machines_is_woken_where_commands_knock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = _place.Place(tmp_path / "agent.sock")
    monkeypatch.setattr(_place, "MACHINE_SOCKET", place.socket)
    with socket.socket(socket.AF_UNIX) as supervisor, socket.socket(socket.AF_UNIX) as agent:
        supervisor.bind(str(place.socket))
        supervisor.listen()

        def serve() -> None:
            supervisor.accept()[0].close()
            agent.bind(str(place.http))
            agent.listen()

        thread = threading.Thread(target=serve)
        thread.start()
        place.start()
        thread.join()


def test_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere/else")
    own = _place.meant().socket
    assert own.name == "agent.sock" and "/.local/state/holdall/" in str(own)
    assert not str(own).startswith("/somewhere/else")


def test_ones_own_is_started_as_commands_start_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They make its directory, and know where its files are; one that is named has them elsewhere."""
    program = tmp_path / "holdall"
    program.write_text(f'#!/bin/sh\necho "$@" "$HOLDALL_AGENT" >{tmp_path}/said\n')
    program.chmod(0o700)
    monkeypatch.setenv("HOLDALL_PROGRAM", str(program))
    monkeypatch.setattr(_place, "_own_home", lambda: tmp_path)
    _place.meant().start()
    assert (tmp_path / "said").read_text() == "agent start \n"
    monkeypatch.setenv("HOLDALL_AGENT", str(tmp_path / "b.sock"))
    for named in None, tmp_path / "b.sock":
        _place.meant(named).start()
        assert (tmp_path / "said").read_text() == f"agent start --agent {tmp_path}/b.sock \n"


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("lab1:7421", "ftp://lab1", "https://lab1/v1"):
        with pytest.raises(ValueError, match="address"):
            holdall.Client(url=bad)
    with pytest.raises(ValueError, match="not both"):
        holdall.Client("/a.sock", url="http://lab1")
    assert TcpTransport("https://lab1:1", "t", None).name == "https://lab1:1"
    with pytest.raises(holdall.Unreachable, match="http://127.0.0.1:1"):
        holdall.Client(url="http://127.0.0.1:1").agent()


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("busy", 409, holdall.NotGranted),
        ("timeout", 409, holdall.NotGranted),
        ("never", 422, holdall.NeverGranted),
        ("lost", 410, holdall.Lost),
        ("denied", 403, holdall.Denied),
        ("unauthenticated", 401, holdall.Denied),
        ("unreachable", 503, holdall.Unreachable),
        ("limit", 429, holdall.Unreachable),
        ("conflict", 409, holdall.Failed),
        ("usage", 400, holdall.Failed),
    ],
)
def test_problems_by_kind(kind: str, status: int, error: type[Exception]) -> None:
    told = problem(Reply(status, {"type": f"urn:holdall:problem:{kind}", "detail": "the agent's words"}))
    assert type(told) is error and str(told) == "the agent's words"


def test_problems_of_somebody_else() -> None:
    assert isinstance(problem(Reply(502, {"detail": "<html>"})), holdall.Unreachable)
    assert isinstance(problem(Reply(500, None)), holdall.Failed)
