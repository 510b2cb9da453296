"""The command of the storm's runs: uses what it was given, and tells if somebody else does so, too.

usage: section.py DIRECTORY RUN HABITS SECONDS STATUS

For each unit it takes a file lock of its own, which the kernel keeps as long as a process of this command lives:
so two that have one unit meet here, whatever the agent believes. The file has the last fence that was seen; the next
one must be higher. HABITS, joined by `+`, are what real commands do:

closes   closes all descriptors but its locks, as ssh and sudo do
deaf     ignores SIGTERM, SIGHUP and SIGINT
tree     starts processes that outlast it
setsid   works in a session of its own
daemon   forks twice, leaves its session, and ends at once
other    becomes another user
"""

import fcntl
import os
import signal
import sys
import time

directory, run, habits, seconds, status = sys.argv[1:6]
habits, seconds = habits.split("+"), float(seconds)


def note(what, *words):
    line = " ".join(map(str, [what, run, os.getpid(), *words])) + "\n"
    file = os.open(directory + "/events", os.O_WRONLY | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)


def units():
    """What was granted: the name of each unit, its fence, and whether it is shared."""
    shared = {need.split(":")[0] for need in os.environ["HOLDALL_NEEDS"].split() if need.endswith(":shared")}
    for variable, value in sorted(os.environ.items()):
        if variable.startswith("HOLDALL_UNITS_"):
            fences = os.environ[variable.replace("UNITS", "FENCE")].split(",")
            for unit, fence in zip(value.split(","), fences, strict=True):
                yield unit.replace("/", "_"), int(fence), unit in shared


def take(unit, fence, shared):
    """Locks a unit's file, and compares the fence in it with ours."""
    file = os.open(f"{directory}/units/{unit}", os.O_RDWR | os.O_CREAT, 0o666)
    grant = os.environ["HOLDALL_GRANT"]
    try:
        fcntl.flock(file, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
    except BlockingIOError:
        note("overlap", unit, "is granted as", grant, fence, "and in use by:", os.pread(file, 100, 0).decode().strip())
    last = int(os.pread(file, 20, 0) or 0)
    if fence < last or fence == last and not shared:
        note("fence", unit, "has", fence, "after", last, "as", grant)
    os.pwrite(file, f"{max(last, fence):020} run {run} pid {os.getpid()} grant {grant}".ljust(80).encode(), 0)
    return file


def fork_and(work):
    if os.fork() == 0:
        work()
        os._exit(0)


def linger(factor):
    note("descendant")
    time.sleep(seconds * factor)


def leave():
    os.setsid()
    fork_and(lambda: linger(1))


def work_apart():
    os.setsid()
    linger(1)


if "deaf" in habits:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
if "other" in habits:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.umask(0)
locks = [take(*unit) for unit in units()]
if "closes" in habits:
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in locks:
            try:
                os.close(number)
            except OSError:
                pass
note("begin", os.environ["HOLDALL_GRANT"])
if "daemon" in habits:
    fork_and(leave)
    os.wait()
elif "setsid" in habits:
    fork_and(work_apart)
    os.wait()
else:
    if "tree" in habits:
        for factor in (0.5, 1.5):
            fork_and(lambda: linger(factor))
    time.sleep(seconds)
note("end")
os._exit(int(status))
