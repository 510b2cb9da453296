"""Verifies the record of critical sections, knowing nothing of how it came about.

usage: verify.py DIRECTORY [LEAST]

For each name: the lines of one grant stand together (nobody else writes in between, and nobody
writes after the next has begun), and the fences of successive grants grow. LEAST is how many
sections there must be in all.
"""
import os, sys

total = finished = 0
for name in sorted(os.listdir(sys.argv[1])):
    present, last, over = None, -1, set()
    with open(os.path.join(sys.argv[1], name)) as record:
        for number, line in enumerate(record, 1):
            where = f"{name}:{number}: {line.strip()}"
            kind, grant, *fence = line.split()
            if kind == "+":
                if grant in over or grant == present:
                    sys.exit(f"{where}: begins twice")
                if int(fence[0]) <= last:
                    sys.exit(f"{where}: the fence does not grow from {last}")
                if present is not None:
                    over.add(present)
                present, last = grant, int(fence[0])
                total += 1
            elif grant != present:
                sys.exit(f"{where}: written while {present} holds it")
            elif kind == "-":
                over.add(grant)
                present = None
                finished += 1
least = int(sys.argv[2]) if len(sys.argv) > 2 else 1
if total < least:
    sys.exit(f"only {total} sections, {least} expected")
print(f"{total} sections, {finished} finished, no overlap, fences grow")
