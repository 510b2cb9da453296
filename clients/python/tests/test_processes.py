"""What becomes of grants when the program forks, is killed, is paused, or ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import pytest

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


ENDINGS = {
    "a grant that was forgotten": "grant = holdall.acquire('a', ttl=600); del grant",
    "a block in a thread that is a daemon": """
def work():
    with holdall.hold('a', ttl=600):
        held.set()
        time.sleep(600)
threading.Thread(target=work, daemon=True).start()
held.wait()
""",
    "who waits in a thread that is a daemon": """
mine = holdall.acquire('a', ttl=600)
threading.Thread(target=lambda: holdall.acquire('a', ttl=600), daemon=True).start()
while not holdall.Client().status()['waiting']:
    time.sleep(0.01)
""",
    "a task that nobody has waited for": """
async def work():
    async with holdall.hold('a', ttl=600):
        held.set()
        await asyncio.sleep(600)
async def main():
    asyncio.create_task(work())
    while not held.is_set():
        await asyncio.sleep(0.01)
asyncio.run(main())
""",
    "a child of multiprocessing": """
def work():
    work.grant = holdall.acquire('a', ttl=600)
child = multiprocessing.get_context('fork').Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
""",
    "a program that fails": "mine = holdall.acquire('a', ttl=600); sys.exit(0)",
}


@pytest.mark.parametrize("what", ENDINGS)
def test_nothing_is_left_behind_at_the_end(agent: Agent, script: Script, what: str) -> None:
    begin = "import asyncio, multiprocessing, sys, threading, time, warnings, holdall\nheld = threading.Event()\n"
    quiet = "warnings.simplefilter('ignore')\n"
    assert ended(script(begin + quiet + ENDINGS[what])) == (0, "", "")
    assert is_free("a"), "at once, long before the lease is over"
    assert not holdall.Client().status()["waiting"]


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


WITH_A_CHILD = """
import os, sys, holdall
grant = holdall.acquire("a", ttl=1)
if os.fork() == 0:
    grant.check()
    print("child" if grant.is_held and not grant.lost.is_set() else "nothing", flush=True)
    told = grant.lost.wait(30) and not grant.is_held
    try:
        grant.check()
    except holdall.Lost:
        print("lost" if told else "late", flush=True)
    print("not told", flush=True)
    os._exit(0)
else:
    sys.stdin.readline()
    grant.release()
    sys.stdin.readline()
"""


def test_a_forked_child_learns_that_its_parent_has_given_it_back(agent: Agent, script: Script) -> None:
    process = script(WITH_A_CHILD)
    assert line(process) == "child"
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert line(process) == "lost"


def test_a_forked_child_learns_that_its_parent_has_lost_it(agent: Agent, script: Script) -> None:
    process = script(WITH_A_CHILD)
    assert line(process) == "child"
    number = holdall.Client().status("a")["grants"][0]["request"]
    agent.force(number)
    assert line(process) == "lost"


def test_a_forked_child_does_not_keep_what_its_killed_parent_has_held(agent: Agent, script: Script) -> None:
    process = script(WITH_A_CHILD)
    assert line(process) == "child"
    process.kill()
    until(lambda: is_free("a"), "the lease is over")
    assert line(process) == "lost"


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
        process = script("""
import signal, holdall
signal.signal(signal.SIGINT, signal.default_int_handler)  # It is ignored where a script has begun the tests with &.
print("asking", flush=True)
holdall.acquire("a")
""")
        assert line(process) == "asking"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert code == -signal.SIGINT and "KeyboardInterrupt" in err
    assert is_free("a")
