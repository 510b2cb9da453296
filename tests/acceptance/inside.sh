#!/usr/bin/env bash
# Inside a reservation: commands use parts of it, side by side, and what becomes of them when it ends.
set -euo pipefail
. tests/lib/service.bash

printf '[pools.gpu]\nunits = 4\n[limits]\novertime_minutes = 1\n' >"$work/config.toml"
"$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
agent=$!
eventually "$HOLDALL" agent status
units='echo "$HOLDALL_UNITS_GPU"'
grant=$("$HOLDALL" hold gpu:3 db 2>/dev/null)
expect 0 "gpu/0,gpu/1" run --in "$grant" gpu:2 -- sh -c "$units"
expect 0 "gpu/2" run --in "$grant" gpu/2 db -- sh -c "$units"
expect 78 "not all that is wanted" run --in "$grant" gpu:4 -- true
expect 78 "is no part of" run --in "$grant" x -- true
expect 65 "is no grant" run --in 9-9 gpu -- true
expect 64 "required" run --at-end stop gpu -- true

# Several at a time, all or nothing; others wait, and outside of it nothing changes.
"$HOLDALL" run --in "$grant" gpu:2 -- sleep 100 &
first=$!
eventually sh -c '"$HOLDALL" status gpu | grep -q "in '"$grant"'"'
expect 0 "gpu/2" run --in "$grant" gpu -- sh -c "$units"
expect 75 "gpu is held by" run -n --in "$grant" gpu:2 -- true
expect 0 "gpu/3" run gpu -- sh -c "$units"
"$HOLDALL" run --in "$grant" gpu:3 -- sh -c "$units" >"$work/waited" &
waiter=$!
eventually sh -c '"$HOLDALL" status | grep -q "gpu:3.*held by"'
kill "$first" && wait "$first" || true
wait "$waiter"
grep -qx "gpu/0,gpu/1,gpu/2" "$work/waited" || fail "got $(cat "$work/waited")"

# When it ends under a command, that is stopped, or goes on and holds it meanwhile.
"$HOLDALL" run --in "$grant" gpu/0 -- sleep 100 2>"$work/stopped" &
stopped=$!
eventually sh -c '"$HOLDALL" status gpu/0 | grep -q "sleep 100"'
touch "$work/on"
"$HOLDALL" run --in "$grant" --at-end keep-until-done gpu/1 -- sh -c 'while [ -e "$0" ]; do sleep 0.05; done' "$work/on" &
kept=$!
eventually sh -c '"$HOLDALL" status gpu/1 | grep -q "while"'
expect 0 "" release "$grant"
status=0 && wait "$stopped" || status=$?
[ "$status" -eq 70 ] || fail "status $status instead of 70: $(cat "$work/stopped")"
expect 0 "ending, waits for" status gpu
expect 75 "is held by" run -n gpu:4 -- true
expect 65 "is ending" run --in "$grant" gpu -- true
expect 65 "is ending" renew "$grant"
rm "$work/on"
wait "$kept" || fail "it did not end in order"
expect 0 "" run -w 10s gpu:4 db -- true

# Whoever takes a grant away by force takes all of it, whatever its parts were told.
grant=$("$HOLDALL" hold gpu:2 --for 10m 2>/dev/null)
"$HOLDALL" run --in "$grant" --at-end keep-until-done gpu -- sleep 100 2> "$work/forced" &
forced=$!
eventually sh -c '"$HOLDALL" status gpu | grep -q "sleep 100"'
expect 0 "" release "$grant" --force
status=0 && wait "$forced" || status=$?
[ "$status" -eq 70 ] || fail "status $status instead of 70: $(cat "$work/forced")"
expect 0 "" run -w 10s gpu:4 -- true

# Of a killed agent, what runs inside goes on holding, and the reservation is there again.
grant=$("$HOLDALL" hold gpu:3 2>/dev/null)
"$HOLDALL" run --in "$grant" gpu/1 -- sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$0"' "$work/pid" 2>/dev/null
left=$(cat "$work/pid")
kill -9 "$agent" && wait "$agent" 2>/dev/null || true
"$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
agent=$!
eventually "$HOLDALL" agent status
expect 0 "in $grant" status gpu
expect 75 "gpu/1 is held by" run -n --in "$grant" gpu/1 -- true
expect 0 "gpu/0,gpu/2" run -n --in "$grant" gpu:2 -- sh -c "$units"
kill -9 "$left"
expect 0 "gpu/1" run -w 10s --in "$grant" gpu/1 -- sh -c "$units"
expect 0 "" release "$grant"
expect 0 "" run -w 10s gpu:4 -- true
kill "$agent"
echo "$script: ok"
