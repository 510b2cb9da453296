"""A crowd that must not notice what becomes of the agent: 50 commands that run, 200 that wait in a line.

usage: crowd.py DIRECTORY, with HOLDALL, HOLDALL_AGENT and HOLDALL_DATA set

The agent is killed, restarted and stopped under them. Each time the same requests hold the same units with the same fences,
the same ones wait in the same order, and nobody has ended. How long nobody was granted anything is measured, beside, by
a client that asks again and again. Then all may go on: each ends well, in the order of the line.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

RUNNING, WAITING = 50, 200
HOLDALL = os.environ["HOLDALL"]
directory = sys.argv[1]
gate, order = os.path.join(directory, "gate"), os.path.join(directory, "order")
crowd = {}


def fail(text):
    for child in crowd.values():
        if child.poll() is None:
            child.kill()
    sys.exit(f"crowd.py: {text}")


def holdall(*words, may=(0,)):
    done = subprocess.run([HOLDALL, *words], capture_output=True, text=True, timeout=60)
    if done.returncode not in may:
        fail(f"{words} ended with {done.returncode}: {done.stderr}")
    return done


def start(name, needs, command):
    with open(os.path.join(directory, "told"), "a") as errors:
        words = [HOLDALL, "run", "--name", name, *needs, "--", "sh", "-c", command]
        crowd[name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)


def until(what, is_so):
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end:
            fail(f"never came true: {what}")
        time.sleep(0.05)


def told(*words):
    """What the agent tells, when it is there."""
    answers = []
    until("an agent is there", lambda: answers.append(holdall(*words, "--json", may=(0, 69))) or answers[-1].returncode == 0)
    return json.loads(answers[-1].stdout)


def picture():
    """Who holds what, and who waits, in order."""
    status = told("status")
    name = lambda one: one["who"]["from"]["name"]
    held = {name(one): (one["request"], one["taken"]) for one in status["grants"] if name(one) in crowd}
    return held, [(name(one), one["request"]) for one in status["waiting"] if name(one) in crowd]


def agent_pid():
    return told("agent", "status")["pid"]


class Pauses:
    """Asks for something free, again and again; the longest answer is how long nobody could be granted anything."""

    def __enter__(self):
        self.longest, self.over = 0, False
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()
        return self

    def ask(self):
        while not self.over:
            begun = time.monotonic()
            subprocess.run([HOLDALL, "run", "free", "--", "true"], capture_output=True, timeout=60)
            self.longest = max(self.longest, time.monotonic() - begun)

    def __exit__(self, *_):
        time.sleep(0.5)
        self.over = True
        self.thread.join()


def unnoticed(what, do, asks=True):
    """Does something to the agent: afterwards everything is as it was."""
    before = picture()
    if asks:
        with Pauses() as usual:
            pass
        with Pauses() as pauses:
            do()
        longest = f", nobody was granted anything for {pauses.longest:.3f} s (else {usual.longest:.3f} s)"
    else:
        longest = ""
        do()
    ended = [f"{name} with {child.returncode}" for name, child in crowd.items() if child.poll() is not None]
    if ended:
        fail(f"{what}: these have ended: {ended}; {open(os.path.join(directory, 'told')).read()[-2000:]}")
    after = picture()
    if after[0] != before[0]:
        fail(f"{what}: others hold other things: {before[0]}, then {after[0]}")
    if after[1] != before[1]:
        fail(f"{what}: the line is another one: {before[1]}, then {after[1]}")
    print(f"crowd.py: {what}: {len(after[0])} run, {len(after[1])} wait, as before{longest}", flush=True)


def kill():
    os.kill(agent_pid(), signal.SIGKILL)


def restart():
    pid = agent_pid()
    holdall("agent", "restart")
    if agent_pid() != pid:
        print("crowd.py: the next agent has another number", file=sys.stderr)


def stop():
    """No agent comes back by itself, however many wait for one; a new command starts it."""
    holdall("agent", "stop")
    time.sleep(2)
    if holdall("agent", "status", may=(0, 69)).returncode == 0:
        fail("an agent that was stopped is back, though nobody has started it")
    holdall("run", "free", "--", "true")


os.mkfifo(gate)
holdall("pool", "add", "slot", "--units", str(RUNNING))
for number in range(RUNNING):
    start(f"runs-{number}", ["slot"] + ["line"] * (number == 0), f"read x <{gate}; exit 0")
until("all run", lambda: len(picture()[0]) == RUNNING)
for number in range(WAITING):
    start(f"waits-{number}", ["line"], f"echo waits-{number} $HOLDALL_FENCE_LINE >>{order}")
until("all wait", lambda: len(picture()[1]) == WAITING)
line = [name for name, _ in picture()[1]]
unnoticed("killed", kill)
unnoticed("restarted", restart)
unnoticed("killed again", kill)
unnoticed("stopped, and started by a new command", stop, asks=False)
with open(gate, "w"):
    pass
for name, child in crowd.items():
    try:
        status = child.wait(120)
    except subprocess.TimeoutExpired:
        fail(f"{name} hangs")
    if status:
        fail(f"{name} ended with {status}: {open(os.path.join(directory, 'told')).read()[-2000:]}")
served = [words.split() for words in open(order)]
if [name for name, _ in served] != line:
    fail(f"served in another order: {served}, the line was {line}")
fences = [int(fence) for _, fence in served]
if fences != sorted(set(fences)):
    fail(f"fences do not grow: {fences}")
holdall("pool", "remove", "slot")
