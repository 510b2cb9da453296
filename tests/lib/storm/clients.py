"""The clients of the storm: runs and reservations, and what must have become of each."""

import os
import signal
import subprocess
import sys

from processes import Process, identified

SECTION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "section.py")
NEEDS = ["board", "board:2", "board/1", "board/0 board", "board:all", "rig", "rig:2", "rig/red x", "rig/blue board",
         "x", "x y", "y x", "x y z", "z", "z:shared", "z:shared", "y z:shared", "board rig z:shared"]


class Run:
    """One `holdall run`. `done` is what the storm has done to it; if that is nothing, nothing may have happened."""

    def __init__(self, number, storm, needs, part_of=None):
        rng = storm.rng
        self.number, self.part_of = number, part_of
        self.status = rng.choice([0, 0, 0, 7])
        self.leftovers = rng.choice(["wait", "wait", "wait", "kill", "warn"])
        self.patience = rng.choice([None] * 10 + ["-n", "-w1s"])
        self.habits = self.choose_habits(rng, storm)
        self.done, self.grant, self.begun, self.ended = set(), None, 0, False
        self.processes = []  # Of its command: all that were told of and live.
        words = ["run", "-q", "--leftovers", self.leftovers, "--name", f"run-{number}"]
        words += [self.patience] if self.patience else []
        words += ["--in", part_of] if part_of else []
        words += [*needs.split(), "--", sys.executable, "-SE", SECTION, storm.directory, str(number)]
        words += ["+".join(self.habits) or "plain", f"{rng.uniform(0.02, 0.6):.3f}", str(self.status)]
        self.words = words
        self.errors = os.path.join(storm.directory, "errors", str(number))
        with open(self.errors, "w") as errors:
            self.child = subprocess.Popen([storm.agents.holdall, *words], stdin=subprocess.DEVNULL,
                                          stdout=errors, stderr=errors, cwd="/")
        self.wrapper = Process(self.child.pid)

    def choose_habits(self, rng, storm):
        habits = {habit for habit in ("closes", "deaf") if rng.random() < 0.4}
        if self.leftovers != "warn":  # What is left is not held for then, and may overlap.
            habits |= {rng.choice(["", "", "tree", "setsid", "daemon"])} - {""}
        if os.getuid() == 0 and rng.random() < 0.2:
            habits.add("other")
        return habits

    def can_lose_wrapper(self, contained):
        """Whether holdall promises to find all of its command if its wrapper is killed."""
        return contained or not self.habits & {"setsid", "daemon"}

    def heard(self, what, pid, words):
        """A process of the command has told something."""
        if what == "begin":
            self.begun += 1
            self.grant = words[0]
        elif what == "end":
            self.ended = True
        if what in ("begin", "descendant"):
            process = identified(pid, SECTION, str(self.number))
            if process:
                self.processes.append(process)

    def prune(self):
        """Forgets processes that have ended."""
        for process in [one for one in self.processes if not one.alive()]:
            process.close()
            self.processes.remove(process)

    def is_over(self):
        return self.child.poll() is not None

    def judge(self):
        """What is wrong with how it has ended, if anything."""
        status, may = self.child.returncode, {self.status}
        if "wrapper killed" in self.done:
            may.add(-signal.SIGKILL)
        if "command killed" in self.done:
            may.add(128 + signal.SIGKILL)
        if "terminated" in self.done:
            may |= {128 + signal.SIGTERM, -signal.SIGTERM}  # The latter before it has begun to look for signals.
        if "taken away" in self.done:
            may |= {70}
        if self.part_of and "taken away" in self.done:
            may |= {65, 78}  # It may have come too late.
        if self.patience:
            may |= {75, 69}
        if status not in may:
            return f"ended with {status} instead of {sorted(may)}"
        if self.begun > 1:
            return f"its command was started {self.begun} times"
        if status == self.status and not (self.begun and self.ended):
            return f"ended with {status}, though its command has not ended"
        return None

    def told(self):
        with open(self.errors) as file:
            return file.read().strip()

    def forget(self):
        self.wrapper.close()
        os.unlink(self.errors)

    def __str__(self):
        done = ", ".join(sorted(self.done)) or "nothing"
        return f"run {self.number} ({self.grant}; {' '.join(self.words[1:self.words.index('--')])}; " \
               f"{'+'.join(self.habits)}; done to it: {done})"


class Reservation:
    """A `holdall hold`, some runs inside of it, and a `holdall release`."""

    def __init__(self, storm):
        self.storm, self.grant, self.done = storm, None, set()
        self.needs = storm.rng.choice(["board:2", "rig:2", "board rig", "x y"])
        self.parts, self.left = [], storm.rng.randrange(1, 5)
        self.child = subprocess.Popen([storm.agents.holdall, "hold", "--for", "1h", *self.needs.split()], text=True,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.wrapper = Process(self.child.pid)
        self.releasing, self.again = None, False

    def go_on(self):
        """Does what comes next. True when it is over."""
        if self.releasing:
            return self.release()
        if not self.grant:
            if self.child.poll() is None:
                return False
            return not self.granted()
        self.parts = [part for part in self.parts if not part.is_over()]
        if self.left and len(self.parts) < 2:
            self.left -= 1
            need = self.storm.rng.choice(self.needs.split()).split(":")[0]
            self.parts.append(self.storm.start_run(need, self.grant))
        elif not self.left and (not self.parts or self.storm.rng.random() < 0.02):
            for part in self.parts:
                part.done.add("taken away")
            return self.release()
        return False

    def granted(self):
        out, errors = self.child.communicate()
        self.wrapper.close()
        if self.child.returncode == 0:
            self.grant = out.strip()
        elif not self.done:
            self.storm.wrong(f"hold {self.needs} ended with {self.child.returncode}: {errors}")
        return self.grant

    def release(self):
        if not self.releasing:
            self.releasing = subprocess.Popen([self.storm.agents.holdall, "release", self.grant], text=True,
                                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.releasing.poll() is None:
            return False
        out, errors = self.releasing.communicate()
        if self.releasing.returncode == 69:  # No agent: once more.
            self.releasing, self.again = None, True
            return False
        if self.releasing.returncode and not (self.again and self.releasing.returncode == 65):
            self.storm.wrong(f"release {self.grant} ended with {self.releasing.returncode}: {errors}")
        return True
