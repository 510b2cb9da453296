#!/usr/bin/env bash
# Reservations count from their grant, and by the time since the machine started.
set -euo pipefail
. tests/lib/service.bash

# It waits longer than it lasts.
"$HOLDALL" hold q --for 1h >"$work/first"
"$HOLDALL" hold q --for 2h >"$work/second" &
waiter=$!
eventually sh -c '"$HOLDALL" status q | grep -q "held by"'
sleep 3
"$HOLDALL" release "$(head -1 "$work/first")"
wait "$waiter" || fail "it was not granted"
left=$("$HOLDALL" status q --json | python3 -c '
import json, sys, time
print(int(json.load(sys.stdin)["grants"][0]["until"] / 1000 - time.time()))')
[ "$left" -ge 7198 ] || fail "a reservation of two hours has $left s left after its grant"

# It goes on while no agent runs.
"$HOLDALL" hold long --for 5h >/dev/null
"$HOLDALL" hold short --for 2s >/dev/null
"$HOLDALL" agent stop
expect 69 "long" status
sleep 2.1
expect 0 "" run -n short -- true
expect 75 "long is held" run -n long -- true
expect 0 "4h59m left" status long

# A container that moves the clocks of its processes moves no reservation.
"$HOLDALL" agent stop
if unshare --time --boottime 86400 --fork true 2>/dev/null; then
    unshare --time --boottime 86400 --fork "$HOLDALL" agent 2>/dev/null &
    eventually "$HOLDALL" agent status
    expect 75 "long is held" run -n long -- true
    expect 0 "4h59m left" status long
else
    not_tried "time namespaces"
fi
echo "$script: ok"
