"""Agents to test against: a stand-in in this process, and a real one where there is one.

The real one is ``$HOLDALL_PROGRAM``, or the ``holdall`` that was built in this repository.
"""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import holdall

from .mock_agent import MockAgent

pytest_plugins = ["pytester"]
BUILT = Path(__file__).parents[3] / "target"


class Agent(Protocol):
    socket: Path

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def force(self, number: str) -> None: ...
    def close(self) -> None: ...


class RealAgent:
    """A real agent, in a directory of its own."""

    def __init__(self, program: str, directory: Path, pools: dict[str, int]) -> None:
        self.socket = directory / "agent.sock"
        self._directory, self._program, self._pools = directory, program, pools
        self._process: subprocess.Popen[bytes] | None = None
        config = "".join(f"[pools.{name}]\nunits = {units}\n" for name, units in pools.items())
        (directory / "holdall.toml").write_text(config)
        self.start()

    def start(self) -> None:
        files = ["--config", f"{self._directory}/holdall.toml", "--data", f"{self._directory}/data"]
        with open(self._directory / "agent.log", "ab") as log:
            self._process = subprocess.Popen(
                [self._program, "agent", "--socket", str(self.socket), *files], stdout=log, stderr=log
            )
        until(lambda: self._answers(), "the agent answers")

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the agent has ended"
        try:
            return bool(holdall.Client(self.socket).agent())
        except holdall.Unreachable:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def force(self, number: str) -> None:
        holdall.Client(self.socket).release(number, force=True, reason="a test")

    close = kill


def _real_program() -> str | None:
    named = os.environ.get("HOLDALL_PROGRAM")
    found = [named] if named else [str(BUILT / kind / "holdall") for kind in ("release", "debug")]
    return next((program for program in found if os.access(program, os.X_OK)), None)


REAL = _real_program()
POOLS = {"gpu": 4, "board": 2}


@pytest.fixture(params=["mock", "real"])
def agent(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    made: Agent
    if request.param == "mock":
        made = MockAgent(tmp_path / "agent.sock", POOLS)
    elif REAL is not None:
        made = RealAgent(REAL, tmp_path, POOLS)
    else:
        pytest.skip("no agent here: build one, or name one with HOLDALL_PROGRAM")
    for name in ("HOLDALL_GRANT", "HOLDALL_GRANT_AGENT", "HOLDALL_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDALL_AGENT", str(made.socket))
    # An agent that a test has killed is started again by the test alone.
    monkeypatch.setenv("HOLDALL_PROGRAM", "/nonexistent/holdall")
    yield made
    made.close()


@pytest.fixture
def real_program(tmp_path: Path) -> str:
    if REAL is None:
        pytest.skip("no agent here: build one, or name one with HOLDALL_PROGRAM")
    return REAL


@pytest.fixture
def mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MockAgent]:
    made = MockAgent(tmp_path / "agent.sock", POOLS)
    monkeypatch.setenv("HOLDALL_AGENT", str(made.socket))
    monkeypatch.setenv("HOLDALL_PROGRAM", "/nonexistent/holdall")
    for name in ("HOLDALL_GRANT", "HOLDALL_GRANT_AGENT", "HOLDALL_URL"):
        monkeypatch.delenv(name, raising=False)
    yield made
    made.close()


@pytest.fixture
def script() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Runs a program in a process of its own, which is ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def run(text: str, **options: Any) -> subprocess.Popen[str]:
        python = [sys.executable, "-W", "always", "-c", text]
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        running.append(subprocess.Popen(python, text=True, **options))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def until(done: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Waits for something that has to happen."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not in {seconds} seconds: {what}"
        time.sleep(0.01)


def is_free(need: str) -> bool:
    """Whether somebody who holds nothing could have that now."""
    try:
        contextvars.Context().run(lambda: holdall.acquire(need, wait=0).release())
    except holdall.NotGranted:
        return False
    return True
