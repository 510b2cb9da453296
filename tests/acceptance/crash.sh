#!/usr/bin/env bash
# kill -9 of wrappers, children, waiters and agents; SIGSTOP of a holder.
set -euo pipefail
. tests/lib/service.bash

# Killed at random under load: whoever is dead writes nothing after the next grant.
mkdir "$work/record"
ROUGH=1 STEPS=2 RECORD="$work/record" python3 tests/lib/load.py 16 1000 12 A B C D E F G H >"$work/out" &
load=$!
python3 tests/lib/killer.py 8 || fail "too few were killed"
# Then the agent, twice: nothing that the next one grants overlaps with what is left.
for _ in 1 2; do
    pid=$(agent_pid)
    [ -z "$pid" ] || kill -9 "$pid"
    sleep 1
done
wait "$load" || fail "the load failed: $(cat "$work/out")"
echo "$script: $(cat "$work/out")"
python3 tests/lib/verify.py "$work/record" 50
[ "$("$HOLDALL" agent status --json | sed -n 's/.*"epoch":\([0-9]*\).*/\1/p')" -ge 2 ] || fail "the agent was not started again"

# A killed wrapper: its child is killed before the unit is free, the waiter gets it.
"$HOLDALL" run x -- sh -c 'trap "" TERM HUP; while :; do echo alive >>"$0"; sleep 0.01; done' "$work/alive" &
wrapper=$!
eventually test -s "$work/alive"
"$HOLDALL" run x -- sh -c 'wc -l <"$0"; sleep 0.3; wc -l <"$0"' "$work/alive" >"$work/lines" &
next=$!
eventually sh -c '"$HOLDALL" status x | grep -q "held by"'
kill -9 "$wrapper"
wait "$next" || fail "the waiter did not get it"
[ "$(sort -u "$work/lines" | wc -l)" -eq 1 ] || fail "the child went on after the next grant"

# A killed waiter loses its place; the holder does not notice.
"$HOLDALL" run y -- sleep 100 &
holder=$!
eventually sh -c '"$HOLDALL" status y | grep -q "sleep 100"'
"$HOLDALL" run y -- true &
waiter=$!
eventually sh -c '"$HOLDALL" status y | grep -q "held by"'
kill -9 "$waiter"
eventually sh -c '! "$HOLDALL" status y | grep -q "held by"'
kill -0 "$holder" || fail "the holder noticed"

# A stopped holder still holds, and status says so.
kill -STOP "$holder"
eventually sh -c '"$HOLDALL" status y | grep -q "held (stopped)"'
expect 75 "y: held by" run -w 200ms y -- true
kill -CONT "$holder"
eventually sh -c '! "$HOLDALL" status y | grep -q "held (stopped)"'

# The agent is killed: its wrapper and its command go on, and hold under the next agent. So does a wrapper that is stopped
# meanwhile.
kill -9 "$(agent_pid)"
expect 0 "" run other -- true
expect 75 "y is held by" run -n y -- true
kill -STOP "$holder"
kill -9 "$(agent_pid)"
expect 0 "" run other -- true
expect 75 "y is held by" run -n y -- true
kill -CONT "$holder"
kill -TERM "$holder"
status=0
wait "$holder" || status=$?
[ "$status" -eq 143 ] || fail "status $status instead of 143 of a command whose agents were killed"
expect 0 "" run -w 10s y -- true

# An agent that is started from inside a grant of the one before does not wait for itself.
"$HOLDALL" run outer -- sh -c 'kill -9 "$0"; "$HOLDALL" run inner -- true' "$(agent_pid)" 2>/dev/null ||
    fail "a command that has started an agent ended with $?"
expect 0 "" run -w 20s outer -- true

# A stale socket is replaced; an agent that drains waits for who holds.
pid=$(agent_pid)
kill -9 "$pid"
eventually sh -c "! kill -0 $pid"
[ -S "$HOLDALL_AGENT" ] || fail "there is no stale socket to try"
expect 0 "" run a -- true
"$HOLDALL" run slow -- sleep 1 &
slow=$!
eventually sh -c '"$HOLDALL" status slow | grep -q "sleep 1"'
pid=$(agent_pid)
"$HOLDALL" agent stop --drain &
eventually sh -c '"$HOLDALL" agent status | grep -q stopping'
expect 69 "stopping" run a -- true
wait "$slow" || fail "draining did not wait for the holder"
eventually sh -c "! kill -0 $pid"

# It ends by itself when idle.
HOLDALL_IDLE_EXIT=200ms "$HOLDALL" run a -- true
eventually test ! -e "$HOLDALL_AGENT"
echo "$script: ok"
