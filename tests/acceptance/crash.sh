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
[ "$(cat "$work/data/epoch")" -ge 2 ] || fail "the agent was not started again"

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

# The agent is killed: the wrapper stops its child at once, 70; and while an old child lives, the
# next agent grants nothing of what it holds.
kill -9 "$(agent_pid)"
status=0
wait "$holder" || status=$?
[ "$status" -eq 70 ] || fail "status $status instead of 70 after the agent was killed"
"$HOLDALL" run z -- sh -c 'trap "" TERM; echo $$ >"$0"; while :; do sleep 0.1; done' "$work/old" &
old=$!
eventually test -s "$work/old"
kill -STOP "$old" # So that it ends its command when we let it.
kill -9 "$(agent_pid)"
expect 0 "" run other -- kill -0 "$(cat "$work/old")"
expect 75 "z is held by" run -n z -- true
kill -CONT "$old"
expect 0 "" run z -- sh -c '! kill -0 "$0" 2>/dev/null' "$(cat "$work/old")"
wait "$old" || true

# An agent that is started from inside a grant of the one before does not wait for itself.
"$HOLDALL" run outer -- sh -c 'trap "" TERM; kill -9 "$0"; "$HOLDALL" run inner -- true; sleep 1' \
    "$(agent_pid)" 2>/dev/null || true
expect 0 "" run -w 20s outer -- true

# A stale socket is replaced; SIGTERM drains.
pid=$(agent_pid)
kill -9 "$pid"
eventually sh -c "! kill -0 $pid"
[ -S "$HOLDALL_AGENT" ] || fail "there is no stale socket to try"
expect 0 "" run a -- true
"$HOLDALL" run slow -- sleep 1 &
slow=$!
eventually sh -c '"$HOLDALL" status slow | grep -q "sleep 1"'
pid=$(agent_pid)
kill -TERM "$pid"
eventually sh -c '"$HOLDALL" agent status | grep -q stopping'
expect 69 "stopping" run a -- true
wait "$slow" || fail "draining did not wait for the holder"
eventually sh -c "! kill -0 $pid"

# It ends by itself when idle.
HOLDALL_IDLE_EXIT=200ms "$HOLDALL" run a -- true
eventually test ! -e "$HOLDALL_AGENT"
echo "$script: ok"
