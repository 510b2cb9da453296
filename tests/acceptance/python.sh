#!/usr/bin/env bash
# The Python client: its types, its packages in a fresh environment, and what it does, with a stand-in for an agent and with this one.
set -euo pipefail
. tests/lib/service.bash
. tests/lib/python.bash
unset HOLDALL_AGENT HOLDALL_DATA
python_for_tests || {
    not_tried "the Python client: its tools cannot be installed (tests/lib/requirements.txt)"
    exit 0
}
HOLDALL_PROGRAM=$(realpath "$HOLDALL")
export HOLDALL_PROGRAM
clients/python/run-tests || fail "the tests"

# One's own agent is the same one for programs and for commands, whoever starts it first and again.
own() {
    mkdir -p ~/.local
    mount -t tmpfs none ~/.local
    mount -t tmpfs none /run
    PYTHONPATH=clients/python/src "$python" -c '
import os, signal, subprocess, holdall
def command(*words):
    done = subprocess.run([os.environ["HOLDALL_PROGRAM"], *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout
def kill():
    os.kill(holdall.Client().agent()["pid"], signal.SIGKILL)
try:
    with holdall.hold("a", ttl=600) as grant:
        kill()
        assert command("run", "-n", "a", "--", "true")[0] == 75, "it is held"
        assert grant.is_held
    with holdall.hold("b", ttl=600) as grant:
        kill()
        with holdall.Client().hold("c"):
            assert command("run", "-n", "b", "--", "true")[0] == 75, "it is held"
    assert command("status", "--json")[1].count("taken") == 0
finally:
    command("agent", "stop", "--now")
'
}
export -f own
export python
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
    unshare -m bash -euc own || fail "one's own agent"
else
    not_tried "one's own agent: that needs a home directory of the test's own"
fi
echo "$script: ok"
