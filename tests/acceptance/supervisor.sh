#!/usr/bin/env bash
# An agent under a supervisor that listens for it: ready when it says so, and a restart turns nobody
# away.
set -euo pipefail
. tests/lib/service.bash

coproc supervisor { timeout 60 python3 tests/lib/supervisor.py "$HOLDALL_AGENT" "$HOLDALL" agent 2>"$work/log"; }
read -r pid <&"${supervisor[0]}"
[ "$(agent_pid)" = "$pid" ] || fail "the socket leads to another agent"
[ "$(stat -c %a "$HOLDALL_AGENT")" = 600 ] || fail "the supervisor's socket was changed"
expect 0 "" run a -- true

# Restarted, again and again: whoever asks meanwhile waits for it, and is served by it.
for i in $(seq 5); do
    kill -9 "$pid"
    expect 0 "" run a -- true
    read -r next <&"${supervisor[0]}"
    [ "$next" != "$pid" ] && [ "$(agent_pid)" = "$next" ] || fail "served by another agent in round $i"
    pid=$next
done

# A socket that somebody removes comes back also here.
rm "$HOLDALL_AGENT"
expect 0 "" run a -- true
[ "$(agent_pid)" = "$pid" ] || fail "another agent was started beside it"

# It ends in order, and leaves the socket to its supervisor.
end=${supervisor[1]}
exec {end}>&-
eventually sh -c "! kill -0 $pid"
echo "$script: ok"
