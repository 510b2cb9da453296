"""What is lost: when that is known, when the agent is told that its use has stopped, and what other cells guard."""

from __future__ import annotations

import contextvars
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdall
from holdall import _http
from holdall._clock import clock

from .conftest import Agent, is_free, until
from .mock_agent import MockAgent

Script = Callable[[str], "subprocess.Popen[str]"]
LONG = 600


def test_what_was_lost_is_kept_until_the_block_ends_and_no_longer(agent: Agent) -> None:
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=LONG) as grant:
        agent.force(grant.number)
        assert grant.lost.wait(30)
        assert not is_free("a"), "it may be used still"
    until(lambda: is_free("a"), "it is free, long before its lease is over")


def test_what_was_lost_is_kept_until_it_is_released(agent: Agent) -> None:
    grant = holdall.acquire("a", ttl=LONG)
    agent.force(grant.number)
    assert grant.lost.wait(30) and not is_free("a")
    for _ in range(2):
        with pytest.raises(holdall.Lost):
            grant.release()
    assert is_free("a")


def test_what_was_lost_is_kept_until_it_is_forgotten(agent: Agent) -> None:
    grant = holdall.acquire("a", ttl=LONG)
    agent.force(grant.number)
    assert grant.lost.wait(30) and not is_free("a")
    del grant
    until(lambda: is_free("a"), "it is free, long before its lease is over")


def test_what_was_lost_is_free_when_the_program_ends(agent: Agent, script: Script) -> None:
    process = script(f"""
import holdall
mine = holdall.acquire("a", ttl={LONG})
holdall.Client().release(mine.number, force=True)
print(mine.lost.wait(30))
""")
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("True\n", "", 0)
    assert is_free("a")


def test_who_gives_back_in_the_call_about_its_loss_has_stopped(agent: Agent) -> None:
    def stop(grant: holdall.Grant) -> None:
        with pytest.raises(holdall.Lost):
            grant.release()

    grant = holdall.acquire("a", ttl=LONG, on_loss=stop)
    agent.force(grant.number)
    until(lambda: is_free("a"), "it is free")


def test_a_loss_by_our_own_clock_says_nothing_to_the_agent_before_the_block_ends(
    mock: MockAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=3) as grant:
        monkeypatch.setattr("holdall._lease.clock", lambda: clock() + 60)
        assert grant.lost.wait(30)
        time.sleep(0.5)
        assert "DELETE" not in [method for method, _ in mock.calls], "its block runs"
    assert mock.calls[-1] == ("DELETE", "/v1/requests/ID")


def test_no_call_lasts_longer_than_what_is_held(mock: MockAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    now, late = [0.0], [-1.0]

    def look() -> float:
        now[0] = clock()
        return now[0]

    def silent(*args: Any) -> None:
        late.append(now[0] + float(args[5]) - lease._ends_at)
        raise holdall.Unreachable("it does not answer")

    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=4) as grant:
        lease = grant._lease
        monkeypatch.setattr("holdall._lease.clock", look)
        with monkeypatch.context() as cut:
            cut.setattr("holdall._http.UnixTransport._exchange", silent)
            assert grant.lost.wait(30)
    assert max(late) < 1e-6


def test_a_renewal_counts_from_when_it_was_sent(mock: MockAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, sent = [0.0], [0.0]
    exchange = _http.UnixTransport._exchange

    def look() -> float:
        return clock() + passed[0]

    def slow(*args: Any) -> Any:
        sent.append(look())
        reply = exchange(*args)
        passed[0] += 7.0
        return reply

    with holdall.hold("a", ttl=LONG) as grant:
        with monkeypatch.context() as late:
            late.setattr("holdall._lease.clock", look)
            late.setattr("holdall._http.UnixTransport._exchange", slow)
            grant._lease._renew()
            assert grant._lease._ends_at <= sent[-1] + LONG


def test_all_steps_of_a_call_share_its_time(mock: MockAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    connect = _http._connected

    def slow(*args: Any) -> Any:
        made = connect(*args)
        passed[0] += 7.0
        return made

    monkeypatch.setattr("holdall._http.clock", lambda: clock() + passed[0])
    monkeypatch.setattr("holdall._http._connected", slow)
    transport = _http.UnixTransport(mock.http)
    assert transport.call("GET", "/v1/agent", timeout=60).status == 200
    calls = len(mock.calls)
    with pytest.raises(holdall.Unreachable, match="does not answer"):
        transport.call("GET", "/v1/agent", timeout=7)
    assert len(mock.calls) == calls, "nothing is asked when the time is over"


def test_what_other_cells_guard_is_held_for_as_long_as_they_say(mock: MockAgent) -> None:
    mock.lent = lambda: 1.0
    with holdall.hold("a", ttl=LONG) as grant:
        time.sleep(3)
        assert grant.is_held, "each answer has moved it on"
    ends_at = clock() + 2
    mock.lent = lambda: ends_at - clock()
    with pytest.raises(holdall.Lost, match="in time"), holdall.hold("a", ttl=LONG) as grant:
        assert grant.lost.wait(30), "it is not moved on any more"
        lent_until = grant._lease._lent_until
        assert lent_until is not None and lent_until <= min(ends_at, clock())


def test_what_other_cells_guard_is_lost_when_the_agent_does_not_come_back(mock: MockAgent) -> None:
    ends_at = clock() + 3
    mock.lent = lambda: ends_at - clock()
    with pytest.raises(holdall.Lost, match="in time"), holdall.hold("a", ttl=LONG) as grant:
        mock.kill()
        assert grant.lost.wait(30), "others give it on, though nobody does here"


def test_what_other_cells_guard_and_was_waited_for_is_asked_for_again(mock: MockAgent) -> None:
    mock.lent = lambda: 2.0
    before = holdall.acquire("a", ttl=1)
    threading.Timer(3, before.release).start()
    grant = contextvars.Context().run(holdall.acquire, "a", ttl=LONG)
    assert grant.is_held, "what is left counts from when the last answer was asked for"
    grant.release()
