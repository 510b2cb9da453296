"""Writes a data directory as agents without a log did.

usage: former.py DATA PID

Pools `gpu` (four units, gpu/3 drained) and `seat` (red, blue); a reservation of gpu/0, gpu/2 and db, one that has run out,
and what process PID, leader of its group, still holds: gpu/1 and x. The epoch is 7.
"""
import json, os, sys, time

data, pid = sys.argv[1], int(sys.argv[2])
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
now = int(time.time() * 1000)


def grant(request, needs, until, **taken):
    number = 7 << 32 | int(request.split("-")[1]) + 1
    who = {"uid": os.getuid(), "user": "tester", "host": "here", "pid": pid,
           "from": {"command": "sleep", "name": None, "reason": "from before"}}
    taken = [{"name": name, "units": [[unit, number] for unit in units]} for name, units in taken.items()]
    return {"request": request, "who": who, "needs": needs, "taken": taken, "since": now - 5000, "until": until,
            "part_of": None}


state = {
    "schema": 3,
    "clock": {"boot": boot, "base": now - int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000), "ahead": 0},
    "pools": [{"Add": {"name": "gpu", "kind": {"Numbered": 4}}},
              {"Add": {"name": "seat", "kind": {"Named": ["red", "blue"]}}}],
    "drained": [{"Drain": {"name": "gpu/3", "drained": {"reason": "fan broken", "by": "tester", "until": None}}}],
    "reservations": [
        grant("7-1", ["gpu/0", "gpu/2", "db"], now + 3600_000, gpu=["gpu/0", "gpu/2"], db=["db"]),
        grant("7-3", ["y"], now - 1000, y=["y"]),
    ],
}
namespaces = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")}
holder = {"boot": boot, "cgroup": None, "leader": [{"pid": pid, "start": start}, True], "others": [], "wrapper": None,
          "namespaces": namespaces, "lock": None}
lines = [{"held": {"grant": grant("7-5", ["z"], None, z=["z"]), "holder": holder}},
         {"held": {"grant": grant("7-7", ["gpu/1", "x"], None, gpu=["gpu/1"], x=["x"]), "holder": holder}},
         {"over": "7-5"}]
os.mkdir(data, 0o700)
os.umask(0o077)
for name, text in [("epoch", "7\n"), ("agent.lock", ""), ("audit.jsonl", ""), ("state.json", json.dumps(state)),
                   ("holders.jsonl", "".join(json.dumps(line) + "\n" for line in lines))]:
    with open(os.path.join(data, name), "w") as file:
        file.write(text)
