"""The agent is killed and comes back: nobody who holds or waits notices."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest

import holdall

from .conftest import Agent, is_free, until


def test_who_holds_goes_on_holding(agent: Agent) -> None:
    with holdall.hold("a", ttl=3) as grant:
        agent.kill()
        time.sleep(5)
        assert grant.is_held, "nobody could have been given it"
        agent.start()
        time.sleep(5)
        assert grant.is_held and not is_free("a")
    assert is_free("a")


def test_who_waits_goes_on_waiting(agent: Agent) -> None:
    got = threading.Event()

    def wait() -> None:
        with holdall.hold("a", wait=60):
            got.set()

    with holdall.hold("a", ttl=5):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.5)
        agent.kill()
        time.sleep(0.5)
        agent.start()
        time.sleep(0.5)
        assert not got.is_set()
    assert got.wait(30)
    thread.join(30)


def test_what_cannot_be_renewed_is_lost_in_time(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise holdall.Unreachable("it does not answer")

    with pytest.raises(holdall.Lost, match="in time"), holdall.hold("a", ttl=1) as grant:
        monkeypatch.setattr("holdall._http.UnixTransport._exchange", silent)
        assert grant.lost.wait(30)
        monkeypatch.undo()
        monkeypatch.setenv("HOLDALL_AGENT", str(agent.socket))


def test_giving_back_without_an_agent_is_no_error(agent: Agent) -> None:
    with holdall.hold("a", ttl=1):
        agent.kill()


def test_an_agent_is_started_as_the_command_starts_it(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, real_program: str
) -> None:
    socket = f"{tmp_path}/agent.sock"
    monkeypatch.setenv("HOLDALL_PROGRAM", real_program)
    try:
        with holdall.hold("a", agent=socket) as grant:
            assert grant.number == "1-1"
    finally:
        stop = [real_program, "agent", "stop", "--now", "--agent", socket]
        subprocess.run(stop, check=False, timeout=60, stderr=subprocess.DEVNULL)
    until(lambda: subprocess.run([*stop], check=False, stderr=subprocess.DEVNULL).returncode == 69, "it has ended")
