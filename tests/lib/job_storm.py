"""Jobs in a storm, judged by somebody who knows nothing of how they are run.

task    is what their tasks run. It notes its begin and its end in a file, and in between takes file
        locks for itself and for each of its units: the kernel knows whether two ever overlap.
storm   kills runners, tasks, the processes between them and the agent at random for some seconds.
verify  looks at what was noted, at what `holdall job list --json` says, and at which attempts have ended
        well according to the records.
"""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time

HOLDALL = os.environ["HOLDALL"]
# What each task of storm.toml comes after.
AFTER = {"a": [], "b": ["a"], "c[1]": ["a"], "c[2]": ["a"], "d": ["b", "c[1]", "c[2]"], "e": [], "f": ["e"]}


def note(*words):
    line = " ".join(map(str, words)) + "\n"
    with open("noted", "ab", buffering=0) as file:
        file.write(line.encode())


def task():
    job, name, attempt = (os.environ["HOLDALL_" + key] for key in ("JOB", "TASK", "ATTEMPT"))
    units = [os.environ.get("HOLDALL_UNITS_" + pool, "").split(",") for pool in ("BOARD", "RIG")]

    def locked(thing, how):
        lock = open("locks/" + thing.replace("/", "_"), "w")
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            note("overlap", job, name, thing)
        return lock

    # Nothing is left of what it comes after, however that has ended.
    for before in AFTER[name]:
        locked(f"{job}.{before}", fcntl.LOCK_SH).close()
    locks = []
    for thing in [f"{job}.{name}"] + [unit for pool in units for unit in pool if unit]:
        lock = locked(thing, fcntl.LOCK_EX)
        locks.append(lock)
        os.set_inheritable(lock.fileno(), True)
    note("begin", job, name, attempt, os.getpid())
    # A child has the locks, too, and outlives its parent if that is killed.
    subprocess.run(["sleep", str(random.uniform(0.05, 0.3))], close_fds=False, check=True)
    note("end", job, name, attempt, os.getpid())


def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])


def is_a(pid, word):
    """Whether a number is still that of such a process."""
    return word in open(f"/proc/{pid}/cmdline").read().split("\0")


def one_to_kill(what):
    """The number of a task, its holder, or the process that asked for what it needs, if there is one."""
    begun = [line.split() for line in open("noted") if line.startswith("begin")][-10:]
    for line in random.sample(begun, len(begun)):
        pid = int(line[4])
        try:
            if not is_a(pid, __file__):
                continue
            if what != "task":
                pid = parent(pid)
            if what == "asker":
                pid = parent(pid)
            if what == "task" or is_a(pid, {"holder": "holder", "asker": "ask"}[what]):
                return pid
        except OSError:
            pass
    return None


def killed(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def jobs():
    text = subprocess.run([HOLDALL, "job", "list", "--json"], capture_output=True, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def storm(seconds):
    kills = {"runner": 0, "task": 0, "agent": 0, "holder": 0, "asker": 0}
    until = time.monotonic() + seconds
    turns = []
    while time.monotonic() < until:
        turns = turns or random.sample(["runner", "runner", "task", "task", "holder", "asker", "agent"], 7)
        what = turns.pop()
        pid = None
        if what == "runner":
            running = [job["runner"] for job in jobs() if job["runner"]]
            pid = random.choice(running) if running else None
        elif what == "agent":
            status = subprocess.run([HOLDALL, "agent", "status", "--json"], capture_output=True)
            pid = json.loads(status.stdout)["pid"] if status.returncode == 0 else None
        else:
            tries = iter(range(20))
            while not (pid := one_to_kill(what)) and next(tries, None) is not None:
                time.sleep(0.05)
        if pid and killed(pid):
            kills[what] += 1
        time.sleep(random.uniform(0.1, 0.5))
    print("job_storm.py: killed", ", ".join(f"{n} {what}s" for what, n in kills.items()))
    if not all(kills.values()):
        sys.exit("job_storm.py: there was nobody to kill")


def succeeded(job):
    """The attempts of a job that are noted as having ended well, by task."""
    names, attempts, well = [task["task"] for task in job["tasks"]], {}, {}
    for line in open(os.path.join(os.environ["HOLDALL_JOBS"], job["id"], "records.jsonl")):
        (what, record), = json.loads(line).items()
        if what == "started":
            attempts[record["task"]] = record["attempt"]
        elif what == "attempted" and record["cause"] is None:
            well[job["id"], names[record["task"]]] = attempts[record["task"]]
    return well


def verify(count):
    begun, ended, wrong, all_jobs = {}, {}, [], jobs()
    well = {key: attempt for job in all_jobs for key, attempt in succeeded(job).items()}
    for line in open("noted"):
        what, job, name, *rest = line.split()
        key = (job, name)
        if what == "overlap":
            wrong.append(f"{job}: {name} ran while another had {rest[0]}")
        elif what == "begin":
            # One that came to its end may have been killed before anybody knew.
            if int(rest[0]) > well.get(key, int(rest[0])):
                wrong.append(f"{job}: {name} ran again although it had ended well")
            for before in AFTER[name]:
                if name != "d" and not ended.get((job, before)):
                    wrong.append(f"{job}: {name} ran before {before} had ended")
            begun[key] = begun.get(key, 0) + 1
        elif what == "end":
            ended[key] = ended.get(key, 0) + 1
    if len(all_jobs) != count:
        wrong.append(f"{len(all_jobs)} jobs instead of {count}")
    for job in all_jobs:
        states = {task["task"]: task["state"] for task in job["tasks"]}
        if job["over"] is None or any(state in ("waiting", "running") for state in states.values()):
            wrong.append(f"{job['id']} has not ended: {states}")
        for name, state in states.items():
            if state == "succeeded" and not ended.get((job["id"], name)):
                wrong.append(f"{job['id']}: {name} has succeeded, but never came to its end")
            if state == "skipped" and begun.get((job["id"], name)):
                wrong.append(f"{job['id']}: {name} is skipped, but was run")
    tasks = sum(begun.values())
    lost = sum(task["state"] == "failed" for job in all_jobs for task in job["tasks"])
    print(f"job_storm.py: {len(all_jobs)} jobs, {tasks} runs of tasks, {lost} tasks failed or lost")
    for line in wrong:
        print("job_storm.py:", line, file=sys.stderr)
    sys.exit(bool(wrong))


{"task": task, "storm": storm, "verify": verify}[sys.argv[1]](*map(int, sys.argv[2:]))
