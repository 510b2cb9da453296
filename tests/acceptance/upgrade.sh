#!/usr/bin/env bash
# What agents of the version before have left is taken over as it was: pools, drained units, reservations, and what still
# runs. With HOLDALL_BEFORE, the path of that version's program, also under its commands while they run.
set -euo pipefail
. tests/lib/service.bash
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    clean_up
}
trap end_left EXIT
# What is held: request, and units with fences.
held() {
    "$HOLDALL" status --json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["grants"]:
    print(one["request"], *(f"{unit}#{fence & 0xffffffff}" for part in one["taken"] for unit, fence in part["units"]))'
}
as_it_was() {
    local now
    now=$(held | sort)
    [ "$now" = "$1" ] || fail "$2: held is $now"
}

setsid sleep 1000 &
left+=($!)
eventually sh -c "[ \"\$(ps -o pgid= -p $! | tr -d ' ')\" = $! ]"
python3 tests/lib/former.py "$HOLDALL_DATA" "${left[-1]}"
all=$'7-1 gpu/0#2 gpu/2#2 db#2\n7-7 gpu/1#8 x#8'
expect 0 "" run other -- true
as_it_was "$all" "after an upgrade"
expect 0 "fan broken" status gpu
expect 75 "gpu" run -n gpu -- true
expect 75 "x" run -n x -- true
expect 75 "db" run -n db -- true
expect 0 "" run -n y z seat:2 -- true
fence=$("$HOLDALL" run f -- sh -c 'echo "$HOLDALL_FENCE_F"')
[ "$fence" -gt $((8 << 32)) ] || fail "the fence $fence is not above those of the epoch before"
[ ! -e "$HOLDALL_DATA/state.json" ] && [ ! -e "$HOLDALL_DATA/holders.jsonl" ] || fail "what was taken over is still there: $(ls "$HOLDALL_DATA")"
# It is taken over once.
kill -9 "$(agent_pid)"
expect 0 "" run other -- true
as_it_was "$all" "killed after an upgrade"
expect 0 "" release 7-1
kill -9 "${left[-1]}"
expect 0 "" run -w 20s x db gpu:3 -- true
kill -9 "$(agent_pid)"
expect 0 "" run -n x db gpu:3 -- true
as_it_was "" "after everything was given back"
expect 0 "" agent stop

if [ -n "${HOLDALL_BEFORE:-}" ]; then
    new=$HOLDALL
    # A running wrapper, one that waits, and a reservation, of the version before; then the agent is the new one.
    rm -rf "$HOLDALL_DATA" "$HOLDALL_DATA.epoch"
    "$HOLDALL_BEFORE" run b -- sh -c 'echo $$ >"$0.begun"; while [ ! -e "$0" ]; do sleep 0.05; done; exit 4' "$work/go" 2>"$work/told" &
    runs=$!
    eventually test -s "$work/go.begun"
    "$HOLDALL_BEFORE" hold r --for 1h >/dev/null 2>&1
    kill -9 "$(HOLDALL=$HOLDALL_BEFORE agent_pid)"
    # That version's wrappers end with their agent, and nobody has anything of theirs before.
    expect 0 "" run -w 20s b -- sh -c 'case $(ps -o stat= -p "$0") in "" | Z*) ;; *) exit 9 ;; esac' "$(cat "$work/go.begun")"
    wait "$runs" || true
    expect 75 "r" run -n r -- true
    # Under the new agent they work as ever.
    HOLDALL=$HOLDALL_BEFORE
    expect 0 "" run -n c -- true
    expect 75 "r" run -n r -- true
    expect 5 "" run c -- sh -c 'exit 5'
    "$HOLDALL" run c -- sh -c 'touch "$0.2"; while [ ! -e "$0" ]; do sleep 0.05; done; exit 4' "$work/go" &
    runs=$!
    eventually test -e "$work/go.2"
    "$HOLDALL" run c -- sh -c 'exit 6' &
    waits=$!
    eventually sh -c "$new status c | grep -q 'held by'"
    touch "$work/go"
    wait "$runs" && fail "not 4" || [ $? -eq 4 ] || fail "a wrapper of the version before ended with $?"
    wait "$waits" && fail "not 6" || [ $? -eq 6 ] || fail "one that waited ended with $?"
    # Also when the agent is restarted under them: one that runs, and one that waits.
    rm "$work/go"
    "$HOLDALL" run c -- sh -c 'touch "$0.3"; while [ ! -e "$0" ]; do sleep 0.05; done; exit 4' "$work/go" 2>"$work/told" &
    runs=$!
    eventually test -e "$work/go.3"
    "$HOLDALL" run c -- sh -c 'exit 6' 2>>"$work/told" &
    waits=$!
    HOLDALL=$new
    eventually sh -c "$new status --json | python3 -c 'import json, sys; sys.exit(len(json.load(sys.stdin)[\"waiting\"]) != 1)'"
    expect 0 "" agent restart
    expect 0 "" agent restart
    touch "$work/go"
    wait "$runs" && fail "not 4" || [ $? -eq 4 ] || fail "a restart under a wrapper of the version before: $? $(cat "$work/told")"
    wait "$waits" && fail "not 6" || [ $? -eq 6 ] || fail "a restart under one that waited: $? $(cat "$work/told")"
    expect 0 "" agent stop
    # An older agent is seen and stopped by the new program, and says why it cannot be asked.
    rm -rf "$HOLDALL_DATA" "$HOLDALL_DATA.epoch" "$HOLDALL_AGENT".*
    rm -f "$work/go" "$work/go.2"
    "$HOLDALL_BEFORE" run c -- sh -c 'touch "$0.2"; while [ ! -e "$0" ]; do sleep 0.05; done; exit 4' "$work/go" &
    runs=$!
    eventually test -e "$work/go.2"
    expect 0 "files" agent status
    expect 0 "sh -c" status c
    expect 69 "holdall agent stop" run d -- true
    expect 69 "version 5" release 1-1
    "$HOLDALL" agent stop &
    stops=$!
    eventually sh -c "$new agent status | grep -q stopping"
    touch "$work/go"
    wait "$runs" && fail "not 4" || [ $? -eq 4 ] || fail "a command whose older agent is to stop ended with $?"
    wait "$stops" || fail "an older agent is stopped: $?"
    expect 0 "" run d -- true
    expect 0 "" agent stop
    # An older agent refuses what the new one has written.
    out=$(timeout 20 "$HOLDALL_BEFORE" agent 2>&1) && fail "an older agent has started" || [ $? -eq 71 ] || fail "an older agent: $out"
else
    # Nobody has it but who names it.
    echo "$script: NOT TRIED: the program of the version before, which HOLDALL_BEFORE names" >&2
fi
echo "$script: ok"
