"""Blocks that hold: what they get, when they are refused, and when they lose it."""

from __future__ import annotations

import contextvars
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

import holdall
from holdall._clock import clock

from .conftest import Agent, is_free, until
from .mock_agent import MockAgent

Script = Callable[[str], "subprocess.Popen[str]"]


def test_a_block_holds_all_of_it_and_gives_it_back(agent: Agent) -> None:
    with holdall.hold("gpu:2", "license/maya", wait=60, reason="train") as grant:
        assert grant.is_held and not grant.lost.is_set()
        assert len(grant.units["gpu"]) == 2 and set(grant.units["gpu"]) < {f"gpu/{n}" for n in range(4)}
        assert grant.units["license/maya"] == ["license/maya"]
        assert len(grant.fences["gpu"]) == 2 and all(isinstance(fence, int) for fence in grant.fences["gpu"])
        assert not is_free("license/maya") and not is_free("gpu:3") and is_free("gpu:2")
        found = grant.environment()
        assert found["HOLDALL_GRANT"] == grant.number and found["HOLDALL_UNITS_LICENSE_MAYA"] == "license/maya"
    assert not grant.is_held and not grant.lost.is_set()
    assert is_free("license/maya") and is_free("gpu:4")


def test_a_program_that_was_paused_finds_out_by_the_clock(mock: MockAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = holdall.acquire("a", ttl=60)
    # Nobody has told it yet, not even the thread that renews.
    with monkeypatch.context() as paused:
        paused.setattr("holdall._fork.clock", lambda: clock() + 61)
        assert not grant.is_held and not grant.lost.is_set()
        with pytest.raises(holdall.Lost):
            grant.check()
    assert grant.is_held
    grant.release()


def test_fences_grow_and_are_exact(agent: Agent) -> None:
    fences = []
    for _ in range(3):
        with holdall.hold("db") as grant:
            fences += grant.fences["db"]
    assert sorted(set(fences)) == fences


def test_not_granted_in_time(agent: Agent) -> None:
    with holdall.hold("gpu:3"):
        for wait in (0.0, 0.2):
            with pytest.raises(holdall.NotGranted):
                contextvars.Context().run(partial(holdall.acquire, "gpu:2", wait=wait))


def test_never_granted(agent: Agent) -> None:
    with pytest.raises(holdall.NeverGranted, match="gpu"):
        holdall.acquire("gpu:9")


def test_who_would_wait_for_itself_is_told(agent: Agent) -> None:
    with holdall.hold("a"), pytest.raises(holdall.NeverGranted):
        holdall.acquire("a")


def test_threads_take_turns(agent: Agent) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(5):
            with holdall.hold("turn"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most[0] == 1 and inside[0] == 0 and is_free("turn")


def test_sharing(agent: Agent) -> None:
    with holdall.hold("scope:shared"):
        assert is_free("scope:shared") and not is_free("scope")


def test_who_has_waited_for_longer_than_the_lease_holds(agent: Agent) -> None:
    before = holdall.acquire("db")
    threading.Timer(2.5, before.release).start()
    grant = contextvars.Context().run(partial(holdall.acquire, "db", ttl=1))
    try:
        assert grant.is_held and not grant.lost.is_set()
        time.sleep(1.5)
        assert grant.is_held and not is_free("db")
    finally:
        grant.release()


def test_it_is_renewed_while_the_main_thread_is_busy(agent: Agent) -> None:
    with holdall.hold("a", ttl=3) as grant:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            pass
        assert grant.is_held and not is_free("a")


def test_a_loss_is_raised_at_the_end_and_told_at_once(agent: Agent) -> None:
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=1) as grant:
        agent.force(grant.number)
        assert grant.lost.wait(30)
        with pytest.raises(holdall.Lost):
            grant.check()


def test_a_loss_is_told_long_before_the_next_renewal(agent: Agent) -> None:
    told = threading.Event()
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=3600, on_loss=lambda _: told.set()) as grant:
        agent.force(grant.number)
        assert grant.lost.wait(60) and told.wait(60) and not grant.is_held


def test_a_loss_that_is_not_told_is_found_out(mock: MockAgent) -> None:
    mock.tells_ends = False
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=3) as grant:
        mock.force(grant.number)
        assert grant.lost.wait(60)
    assert len([path for _, path in mock.calls if "until" in path]) == 1, "one that does not tell is not asked again"


def test_it_is_renewed_beside(mock: MockAgent) -> None:
    with holdall.hold("a", ttl=3) as grant:
        until(lambda: [method for method, _ in mock.calls].count("POST") >= 2, "it is renewed")
        assert grant.is_held


def test_a_loss_nobody_has_noticed_is_raised_at_the_end(agent: Agent) -> None:
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=60) as grant:
        agent.force(grant.number)


def test_an_error_of_the_block_says_more_than_a_loss(agent: Agent) -> None:
    with pytest.raises(ZeroDivisionError), holdall.hold("a", ttl=60) as grant:
        agent.force(grant.number)
        raise ZeroDivisionError


def test_a_loss_calls(agent: Agent) -> None:
    told: list[holdall.Grant] = []
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=1, on_loss=told.append) as grant:
        agent.force(grant.number)
        until(lambda: bool(told), "the function is called")
    assert told == [grant]


def test_a_loss_interrupts_the_main_thread(agent: Agent) -> None:
    with pytest.raises(holdall.Lost), holdall.hold("a", ttl=1, on_loss="interrupt") as grant:
        agent.force(grant.number)
        time.sleep(60)
        pytest.fail("nobody has interrupted")


@pytest.mark.parametrize("action", ["SIG_IGN", "SIG_DFL"])
def test_a_loss_interrupts_the_main_thread_also_where_sigint_does_not(agent: Agent, script: Script, action: str) -> None:
    process = script(f"""
import signal, time, holdall
signal.signal(signal.SIGINT, signal.{action})
def lose(*names):
    with holdall.hold(names[0], on_loss="interrupt") as grant:
        if names[1:]:
            lose(*names[1:])
        holdall.Client().release(grant.number, force=True)
        time.sleep(60)
for names in ("a",), ("a", "b"):
    try:
        lose(*names)
    except holdall.Lost:
        print(signal.getsignal(signal.SIGINT) == signal.{action})
with holdall.hold("a", on_loss="interrupt"):
    signal.raise_signal(signal.SIGINT)
    print("goes on")
""")
    out, err = process.communicate(timeout=100)
    ends = (-signal.SIGINT, "") if action == "SIG_DFL" else (0, "goes on\n")
    assert (process.returncode, out) == (ends[0], "True\nTrue\n" + ends[1]), err


def test_a_loss_interrupts_as_long_as_there_is_a_block_in_whatever_order_they_end(agent: Agent, script: Script) -> None:
    process = script("""
import signal, time, holdall
signal.signal(signal.SIGINT, signal.SIG_IGN)
first, second = (holdall.hold(name, on_loss="interrupt") for name in "ab")
first.__enter__()
grant = second.__enter__()
first.__exit__(None, None, None)
try:
    holdall.Client().release(grant.number, force=True)
    time.sleep(60)
except KeyboardInterrupt as error:
    try:
        second.__exit__(type(error), error, None)
    except holdall.Lost:
        print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)
""")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "True\n"), err


def test_what_is_lost_before_the_block_begins_leaves_nothing_behind(agent: Agent, script: Script) -> None:
    process = script("""
import signal, holdall
from holdall._grant import current
signal.signal(signal.SIGINT, signal.SIG_IGN)
hold = holdall.hold("a", on_loss="interrupt")
acquire = hold._acquire
def lost(abort):
    grant = acquire(abort)
    holdall.Client().release(grant.number, force=True)
    assert grant.lost.wait(60)
    return grant
hold._acquire = lost
try:
    with hold:
        print("it has begun")
except holdall.Lost:
    print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN, current.get())
""")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "True None\n"), err


def test_a_loss_interrupts_another_thread(agent: Agent) -> None:
    seen: list[BaseException] = []

    def work() -> None:
        try:
            with holdall.hold("a", ttl=1, on_loss="interrupt") as grant:
                agent.force(grant.number)
                while True:
                    time.sleep(0.01)
        except holdall.Lost as lost:
            seen.append(lost)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert len(seen) == 1


def test_a_time_limit(agent: Agent) -> None:
    with pytest.raises(holdall.Lost), holdall.hold("a", limit=1) as grant:
        assert grant.lost.wait(30)
    until(lambda: is_free("a"), "it is free")


def test_nonsense_is_refused_before_anything_is_asked(agent: Agent) -> None:
    with pytest.raises(ValueError, match="at least one"):
        holdall.hold()
    with pytest.raises(TypeError, match="texts"):
        holdall.hold(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_loss"):
        holdall.hold("a", on_loss="explode")
    with pytest.raises(ValueError, match="wait"):
        holdall.acquire("a", wait=-1)
    senseless: list[dict[str, Any]] = [
        *({"ttl": ttl} for ttl in (0, 0.5, 4000, float("inf"), "5")),
        *({"limit": limit} for limit in (-5, float("nan"), 1e300, True)),
        {"wait": "x"},
    ]
    for options in senseless:
        with pytest.raises(ValueError, match="seconds"):
            holdall.acquire("a", **options)
    with pytest.raises(TypeError, match="reason is a text"):
        holdall.acquire("a", reason=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="duration"):
        holdall.Client().reserve("a", duration=0)
    with pytest.raises(holdall.HoldallError):
        holdall.acquire("gpu:9999")


def test_numbers_of_any_kind(agent: Agent) -> None:
    class Seconds(int):
        """As numpy has them: a number by what it says, and nothing that is known to ``json``."""

    half: Any = Fraction(3, 2)
    for number in (half, Seconds(2), 2):
        with holdall.hold("a", wait=number, ttl=number, limit=number * 100) as grant:
            assert grant.is_held


def test_a_hold_is_for_one_block(agent: Agent) -> None:
    once = holdall.hold("a")
    with once:
        pass
    with pytest.raises(RuntimeError), once:
        pass


def test_a_hold_without_a_block_warns() -> None:
    with pytest.warns(RuntimeWarning, match="holds nothing"):
        holdall.hold("a", agent="/nowhere/agent.sock")


def test_a_forgotten_grant_warns_and_is_given_back(agent: Agent) -> None:
    with pytest.warns(ResourceWarning, match="never given back"):
        holdall.acquire("a")
    until(lambda: is_free("a"), "it is free")


def test_status_explain_and_reservations(agent: Agent) -> None:
    client = holdall.Client()
    with client.hold("gpu", reason="seen") as grant:
        assert grant.number in [row["request"] for row in client.status("gpu")["grants"]]
    assert client.agent()["your_rights"]


def test_an_answer_that_is_lost_is_asked_for_again(mock: MockAgent) -> None:
    mock.lose_answers["PUT"] = 1
    with holdall.hold("a", ttl=1):
        assert mock.held() == {"a"}
    assert len(mock.requests) == 1


def test_no_agent_and_no_way_to_start_one(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDALL_PROGRAM", "/nonexistent/holdall")
    with pytest.raises(holdall.Unreachable, match="none can be started"):
        holdall.acquire("a", agent=f"{tmp_path}/agent.sock")
