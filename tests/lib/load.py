"""Fifty processes that take random sets of names in random order, again and again.

usage: load.py PROCESSES ROUNDS SECONDS NAME...

Each process runs `holdall run` with section.sh. It ends after ROUNDS, or after SECONDS. Commands
that were killed or lost their grant are part of the game; any other failure ends the load with
status 1. Prints how many sections each process finished.
"""
import os, random, subprocess, sys, time

processes, rounds, seconds = map(int, sys.argv[1:4])
names = sys.argv[4:]
section = os.path.join(os.path.dirname(os.path.abspath(__file__)), "section.sh")
holdall = os.environ["HOLDALL"]
tolerated = {0, -9, 137, 70, 69, 143} if os.environ.get("ROUGH") else {0}


def work(seed):
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    done = 0
    for _ in range(rounds):
        if time.monotonic() > deadline or os.getppid() != parent:
            break
        some = rng.sample(names, rng.randint(1, min(4, len(names))))
        run = subprocess.run([holdall, "run", *some, "--", section], stderr=subprocess.PIPE)
        if run.returncode not in tolerated:
            sys.stderr.write(f"status {run.returncode}: {run.stderr.decode()}\n")
            os._exit(255)
        done += run.returncode == 0
    return done


parent = os.getpid()
children = []
for seed in range(processes):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.write(write, str(work(seed)).encode())
        os._exit(0)
    os.close(write)
    children.append((pid, read))
counts = []
for pid, read in children:
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"a process failed with status {status}")
    counts.append(int(os.read(read, 100)))
print("sections", sum(counts), "least", min(counts), "most", max(counts))
