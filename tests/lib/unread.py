"""Nobody reads what `holdall run` and `hold` say: what is decided is done all the same.

Their standard error is a pipe that is full. In the end it is read, and what was said is there.
"""

import fcntl
import os
import signal
import subprocess
import sys

HOLDALL = os.environ["HOLDALL"]
F_SETPIPE_SZ = 1031
# Far longer than anything here takes, and shorter than anything would without an end of its own.
PATIENCE = 60


class Unread:
    """A pipe that is full."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, F_SETPIPE_SZ, 4096)
        os.set_blocking(self.writer, False)
        try:
            while True:
                os.write(self.writer, b"x" * 512)
        except BlockingIOError:
            pass
        os.set_blocking(self.writer, True)

    def run(self, *words, **more):
        return subprocess.Popen([HOLDALL, *words], stderr=self.writer, **more)


def ends(what, process, status):
    try:
        found = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit(f"{what}: it waits for whoever reads")
    if found != status:
        sys.exit(f"{what}: status {found} instead of {status}")


def grant():
    text = subprocess.run([HOLDALL, "hold", "busy"], capture_output=True, check=True, text=True)
    return text.stdout.strip()


unread = Unread()
busy = grant()
ends("-n", unread.run("run", "-n", "busy", "--", "true"), 75)
ends("-w", unread.run("run", "-w", "1s", "busy", "--", "true"), 75)
ends("--limit", unread.run("run", "--limit", "1s", "lim", "--", "sleep", "1000"), 124)
ends("what cannot be run", unread.run("run", "absent", "--", "no-such-command"), 127)
held = unread.run("hold", "other", stdout=subprocess.PIPE, text=True)
ends("hold", held, 0)
assert held.stdout.read().strip(), "what is asked for is printed"

# A signal reaches the command after its wrapper has said something.
warned = unread.run("run", "--in", busy, "busy", "--limit", "1s", "--", "sh", "-c", "trap '' TERM; sleep 1000")
ends("a command that ignores SIGTERM", warned, 124)
env = {**os.environ, "HOLDALL_GRANT": busy}
told = unread.run("run", "asked", "--", "sh", "-c", "echo begun; exec sleep 1000", env=env, stdout=subprocess.PIPE)
assert told.stdout.readline() == b"begun\n"
told.send_signal(signal.SIGTERM)
ends("SIGTERM", told, 128 + signal.SIGTERM)

# A grant that is taken away is given up.
lost = unread.run("run", "lost", "--", "sh", "-c", 'echo "$HOLDALL_GRANT"; exec sleep 1000', stdout=subprocess.PIPE, text=True)
taken = lost.stdout.readline().strip()
subprocess.run([HOLDALL, "release", "--force", taken], check=True)
ends("a lost grant", lost, 70)
