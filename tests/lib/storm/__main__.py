"""A storm of signals over clients and agents, judged by somebody who knows nothing of how they are run.

usage: storm [--seconds N] [--seed N] [--clients N] [--supervised] [--acts NAME,NAME] DIRECTORY

HOLDALL is the path of the command. Clients run section.py, which has a lock of its own for each unit and
remembers fences. The storm kills, stops and restarts what it has started, at random, and then lets everything end. It fails if

- two used one unit at the same time, or the fence of a unit did not grow;
- a run to which nothing was done did not end as its command did, or its command was not started exactly once;
- something is left: a grant, a request, a process, a cgroup, a file.

The choices come from the seed, their timing from the machine: another run with the seed is similar, not the same.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time

import acts
from agents import Agents
from clients import NEEDS, Reservation, Run
from processes import cgroups

# After this long whoever has not ended hangs.
PATIENCE = 90
# If no agent has answered for so long, they are left alone until one does.
SILENCE = 3


class Storm:
    def __init__(self, options):
        self.options, self.directory = options, options.directory
        self.rng = random.Random(options.seed)
        self.begun = time.monotonic()
        self.runs, self.holds, self.timers, self.known = [], [], [], {}
        self.over = []  # Runs that have ended and whose processes have not, perhaps.
        self.orphans = set()  # The numbers of holds that were killed.
        self.faults, self.count, self.done = [], 0, {}
        os.chmod(self.directory, 0o711)
        for name in ("units", "errors"):
            os.mkdir(os.path.join(self.directory, name))
        os.chmod(os.path.join(self.directory, "units"), 0o777)
        self.events = open(os.path.join(self.directory, "events"), "w+")
        os.chmod(self.events.name, 0o666)
        self.agents = Agents(os.environ["HOLDALL"], self.directory, options.supervised)
        self.revive_at, self.next_look = None, 0
        self.pulse, self.answered = None, time.monotonic()
        self.contained = self.agents.wait_for()["no_cgroups"] is None
        for words in (["board", "--units", "4"], ["rig", "--unit", "red", "--unit", "blue", "--unit", "green"]):
            self.agents.command("pool", "add", *words, check=True)

    def say(self, text):
        print(f"{time.monotonic() - self.begun:8.3f} {text}", flush=True)

    def wrong(self, text):
        self.say("WRONG: " + text)
        self.faults.append(text)

    # What acts need.

    def one_of(self, things):
        return self.rng.choice(things) if things else None

    def holding(self):
        return [run for run in self.runs if run.begun and not run.ended]

    def waiting(self):
        return [run for run in self.runs if not run.begun]

    def later(self, seconds, what):
        self.timers.append((time.monotonic() + seconds, what))

    def wake_up(self, agent, dies):
        agent.signal(signal.SIGKILL if dies else signal.SIGCONT)
        if dies:
            self.revive_soon()

    def revive_soon(self):
        """Somebody starts an agent after a while, if no command has done so by then."""
        self.revive_at = time.monotonic() + self.rng.choice([0, self.rng.uniform(0, 0.3), self.rng.uniform(0, 2)])

    # The course of things.

    def start_run(self, needs, part_of=None):
        self.count += 1
        run = Run(self.count, self, needs, part_of)
        self.runs.append(run)
        self.known[run.number] = run
        return run

    def start_clients(self):
        while len(self.runs) < self.options.clients:
            self.start_run(self.rng.choice(NEEDS))
        if len(self.holds) < 2:
            self.holds.append(Reservation(self))

    def hear(self):
        """Reads what commands have told."""
        while line := self.events.readline():
            what, number, pid, *words = line.split()
            run = self.known[int(number)]
            if what in ("overlap", "fence"):
                self.wrong(f"{what}: {' '.join(words)}; {run}")
            else:
                run.heard(what, int(pid), words)
                if run.processes and run not in self.runs + self.over:
                    self.over.append(run)

    def feel_pulse(self):
        """Asks again and again whether an agent answers."""
        if self.pulse and self.pulse.poll() == 0:
            self.answered = time.monotonic()
        if not self.pulse or self.pulse.poll() is not None:
            self.pulse = subprocess.Popen([self.agents.holdall, "agent", "status"], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def look(self):
        """Takes note of everything that has ended, and does what is due."""
        now = time.monotonic()
        due = [what for at, what in self.timers if at <= now]
        self.timers = [(at, what) for at, what in self.timers if at > now]
        for what in due:
            what()
        if self.revive_at and now >= self.revive_at:
            self.revive_at = None
            if not self.agents.present():
                self.agents.start()
        elif not self.revive_at and now >= self.next_look:
            # Whoever was told to stop may have taken its time.
            self.next_look = now + 1
            if not self.agents.present():
                self.revive_soon()
        ended = [run for run in self.runs if run.is_over()]
        self.hear()
        for run in ended:
            self.runs.remove(run)
            self.over.append(run)
            fault = run.judge()
            if fault:
                self.wrong(f"{run} {fault}: {run.told()}")
            run.forget()
        for run in self.runs + self.over:
            run.prune()
        self.over = [run for run in self.over if run.processes]
        self.holds = [hold for hold in self.holds if not hold.go_on()]
        for words, status, told in self.agents.answered():
            self.say(f"{words}: {status} {told}")
            # No agent is there any more, or the grant.
            if status not in (0, 65, 69):
                self.wrong(f"{words} ended with {status}: {told}")

    def release_orphans(self):
        """Gives back what holds have got that were killed before they could tell."""
        status = self.agents.status() if self.orphans else None
        for grant in status["grants"] if status else []:
            if grant["state"] == "reserved" and grant["who"]["pid"] in self.orphans:
                self.agents.begin("release", grant["request"])

    def rage(self):
        table = [act for act in acts.ACTS if act.__name__ in self.options.acts]
        weights = [acts.ACTS[act] for act in table]
        until, next_act = self.begun + self.options.seconds, 0
        while time.monotonic() < until:
            self.start_clients()
            self.look()
            if time.monotonic() >= next_act:
                self.feel_pulse()
                act = self.rng.choices(table, weights)[0]
                silent = act in acts.ON_AGENTS and time.monotonic() > self.answered + SILENCE
                done = None if silent else act(self)
                if done:
                    self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
                    told = ", ".join(map(str, done)) if isinstance(done, list) else done
                    self.say(f"{act.__name__}" if done is True else f"{act.__name__}: {told}")
                next_act = time.monotonic() + self.rng.choice([0, 0.1, 0.5]) * self.rng.random() * 2
            time.sleep(0.005)

    def calm_down(self):
        """Lets everything end by itself."""
        self.say("calm")
        until = time.monotonic() + PATIENCE
        next_look = 0
        while self.runs or self.holds or self.over or self.timers or self.agents.asked:
            self.look()
            # An agent that was stopped goes on when its time has come, not while it is waited for.
            if not self.timers and time.monotonic() > next_look:
                self.agents.wait_for()
                self.release_orphans()
                next_look = time.monotonic() + 2
            if time.monotonic() > until:
                for one in self.runs:
                    self.wrong(f"{one} hangs: {one.told()}")
                for one in self.over:
                    self.wrong(f"{one} has ended, its processes {[p.pid for p in one.processes]} have not")
                for one in self.holds:
                    self.wrong(f"hold {one.needs}, {one.grant}, hangs")
                return
            time.sleep(0.01)

    def look_for_leaks(self):
        """Nothing is held by nobody: everything can be had at once, and nothing is left of it afterwards."""
        self.agents.wait_for()
        self.release_orphans()
        words = ["run", "-w", "30s", "board:all", "rig:all", "x", "y", "z", "--", "true"]
        all_at_once = self.agents.command(*words)
        if all_at_once.returncode:
            self.wrong(f"not everything is free: {all_at_once.stderr} {self.agents.status()}")
        status = self.agents.status()
        if status["grants"] or status["waiting"]:
            self.wrong(f"something is left: {status}")
        data = os.path.join(self.directory, "data")
        # Segments of the log go with the next snapshot, whenever that is; what was being written has no meaning. The
        # history stays.
        known = {"agent.lock", "agent.log", "audit.jsonl", "doubt", "epoch", "lock", "opening", "http.key"}
        kept = ("history-", "segment-", "snapshot-", "snapshot.new")
        files = {name for name in os.listdir(data) if not name.startswith(kept)}
        if files - known:
            self.wrong(f"files are left: {files - known}")
        logs = [os.path.join(data, "agent.log"), os.path.join(self.directory, "agents.log")]
        for path in filter(os.path.exists, logs):
            with open(path) as log:
                for line in log:
                    if "panicked" in line or " ERROR " in line:
                        self.wrong(f"{path}: {line.strip()}")
        self.agents.command("agent", "stop")
        until = time.monotonic() + 30
        while (alive := [one.pid for one in self.agents.seen.values() if one.alive()]) and time.monotonic() < until:
            time.sleep(0.1)
        if alive:
            self.wrong(f"agents {alive} go on")
        if left := cgroups(data):
            self.wrong(f"cgroups are left: {left}")

    def end(self):
        """Ends what is still there, if something went wrong."""
        for run in self.runs + self.over:
            if not run.is_over():
                run.child.kill()
                run.child.wait()
            for process in run.processes:
                process.signal(signal.SIGKILL)
        for hold in self.holds:
            hold.child.kill()
        if self.pulse:
            self.pulse.kill()
            self.pulse.wait()
        self.agents.end()


def main():
    parser = argparse.ArgumentParser(prog="storm")
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--supervised", action="store_true", help="agents are handed a socket, and have a configuration")
    names = [act.__name__ for act in acts.ACTS]
    parser.add_argument("--acts", type=lambda text: text.split(","), default=names)
    options = parser.parse_args()
    os.environ.update(HOLDALL_AGENT=options.directory + "/agent.sock", HOLDALL_DATA=options.directory + "/data")
    if options.supervised:
        # Whoever starts an agent in the supervisor's place does so in another directory, and grants everything again.
        del os.environ["HOLDALL_DATA"]
    print(f"storm: seed {options.seed}, {options.seconds:.0f} s, {options.clients} clients")
    storm = Storm(options)
    try:
        storm.rage()
        storm.calm_down()
        storm.look_for_leaks()
    finally:
        storm.end()
    print(f"storm: {storm.count} runs;", ", ".join(f"{name} {count}" for name, count in storm.done.items()))
    for fault in storm.faults:
        print("storm: WRONG:", fault, file=sys.stderr)
    if storm.faults:
        sys.exit(f"storm: {len(storm.faults)} faults; seed {options.seed}")


main()
