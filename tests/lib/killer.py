"""Kills wrappers, children and waiters of the agent at random, for some SECONDS.

Only processes that the agent itself shows as its clients, or as users of their grants, are killed.
"""
import json, os, random, signal, subprocess, sys, time

end = time.monotonic() + float(sys.argv[1])
killed = {"wrapper": 0, "child": 0, "waiter": 0}
while time.monotonic() < end:
    shown = subprocess.run([os.environ["HOLDALL"], "status", "--json"], capture_output=True)
    if shown.returncode:
        continue
    status = json.loads(shown.stdout)
    targets = [("wrapper", grant["who"]["pid"]) for grant in status["grants"]]
    targets += [("child", pid) for grant in status["grants"] for pid in grant["pids"]]
    targets += [("waiter", wait["who"]["pid"]) for wait in status["waiting"]]
    kinds = sorted({kind for kind, _ in targets})
    if kinds:
        kind = random.choice(kinds)
        target = random.choice([target for other, target in targets if other == kind])
        try:
            os.kill(target, signal.SIGKILL)
            killed[kind] += 1
        except ProcessLookupError:
            pass
    time.sleep(0.02)
print("killed", killed)
sys.exit(min(killed.values()) < 5)
