"""What becomes of grants when the program forks, is killed, is paused, or ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import holdall

from .conftest import Agent, is_free, until

Script = Callable[[str], "subprocess.Popen[str]"]
HOLDING = """
import sys, holdall
with holdall.hold("a", ttl=1) as grant:
    print("held", flush=True)
    sys.stdin.read()
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.strip(), err.strip()


def test_a_killed_program_loses_its_grant_with_its_lease(agent: Agent, script: Script) -> None:
    process = script(HOLDING)
    assert line(process) == "held" and not is_free("a")
    process.kill()
    until(lambda: is_free("a"), "the lease is over")


def test_a_paused_program_learns_that_it_has_lost(agent: Agent, script: Script) -> None:
    process = script(HOLDING)
    assert line(process) == "held"
    process.send_signal(signal.SIGSTOP)
    until(lambda: is_free("a"), "the lease is over")
    with holdall.hold("a"):
        process.send_signal(signal.SIGCONT)
        code, _, err = ended(process)
    assert code == 1 and "Lost" in err


def test_a_program_that_ends_gives_everything_back(agent: Agent, script: Script) -> None:
    process = script("import holdall\ngrant = holdall.acquire('a', ttl=600)\nprint('held')")
    assert ended(process) == (0, "held", "")
    assert is_free("a")


def test_nothing_is_printed(agent: Agent, script: Script) -> None:
    process = script("import holdall, sys\nwith holdall.hold('a'): print('held', flush=True); sys.stdin.readline()")
    assert line(process) == "held"
    agent.kill()
    assert ended(process) == (0, "", "")


def test_a_forked_child_leaves_its_parents_grant_alone(agent: Agent, script: Script) -> None:
    process = script("""
import os, sys, time, holdall
with holdall.hold("a", ttl=3) as grant:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        time.sleep(5)
        grant.check()
        try:
            holdall.acquire("a", wait=0)
        except holdall.NeverGranted:
            print("still held", flush=True)
if not child:
    with holdall.hold("b"):
        pass
""")
    code, out, err = ended(process)
    assert (code, out) == (0, "still held"), err
    assert is_free("a") and is_free("b")


def test_children_of_a_pool_hold_for_themselves(agent: Agent, script: Script) -> None:
    process = script("""
import multiprocessing, holdall
def work(n):
    with holdall.hold("gpu") as grant:
        return grant.units["gpu"][0]
with holdall.hold("b"), multiprocessing.get_context("fork").Pool(4) as pool:
    print(len(pool.map(work, range(20))))
""")
    code, out, err = ended(process)
    assert (code, out) == (0, "20"), err
    assert is_free("gpu:4")


def test_control_c_while_waiting_leaves_nothing_in_the_queue(agent: Agent, script: Script) -> None:
    with holdall.hold("a"):
        process = script("import holdall\nprint('asking', flush=True)\nholdall.acquire('a')")
        assert line(process) == "asking"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert code == -signal.SIGINT and "KeyboardInterrupt" in err
    assert is_free("a")
