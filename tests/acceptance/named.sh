#!/usr/bin/env bash
# Units by name: certain ones and others beside them, all or nothing; units that are drained; what a command sees.
set -euo pipefail
. tests/lib/service.bash

cat >"$work/config.toml" <<'END'
[pools.board]
units = 4
[pools.gpu]
units = 4
export = "CUDA_VISIBLE_DEVICES"
[pools.tpu]
units = 2
export = "CUDA_VISIBLE_DEVICES"
[pools.lab]
units = 1
limit = "1h"
[pools.scope.units.red]
SERIAL = "/dev/ttyUSB0"
[pools.scope.units.blue]
SERIAL = "/dev/ttyUSB1"
[pools.bench]
units = 1
limit = "1s"
END
start() {
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}
start
units='echo "$HOLDALL_UNITS_BOARD"'
expect 0 "board/2" run board/2 -- sh -c "$units"
expect 0 "board/0,board/2" run board/2 board/0 -- sh -c "$units"
expect 0 "board/0,board/3" run board/3 board:1 -- sh -c "$units"
expect 0 "board/3 board:1" run board/3 board:1 -- printenv HOLDALL_NEEDS
expect 0 "board/0,board/1,board/2,board/3" run board:all -- sh -c "$units"
expect 78 "has no such unit" run board/4 -- true
expect 78 "is one unit" run board/1:2 -- true
expect 78 "has only 4 units" run board/0 board:4 -- true
expect 64 "named twice" run board/0 board/0 -- true
expect 78 "there is no cell 'lab'" run board@lab -- true
expect 78 "ask for 'scope/red'" run red -- true

# What is held is not granted beside all of it, nor all of it beside that.
"$HOLDALL" run board/2 -- sleep 100 &
holder=$!
eventually sh -c '"$HOLDALL" status board/2 | grep -q "sleep 100"'
expect 75 "board/2 is held by" run -n board/2 -- true
expect 75 "is held by" run -n board:all -- true
expect 75 "board/2 is held by" run -n x board/2 board:1 -- true
expect 0 "board/0,board/1,board/3" run -n board:3 -- sh -c "$units"
"$HOLDALL" run x board/2 board:1 -- sh -c "$units" >"$work/waited" &
waiter=$!
eventually sh -c '"$HOLDALL" status | grep -q "board/2: held by"'
kill "$holder" && wait "$holder" || true
wait "$waiter"
grep -qx "board/0,board/2" "$work/waited" || fail "got $(cat "$work/waited")"

# A slip of the pen makes a lock, with a warning; where nothing is made on first use it is refused.
expect 0 "is 'board' meant?" run baord -- true
expect 0 "ephemeral = true" agent status

# A reservation has the same units after the agent was killed.
grant=$("$HOLDALL" hold scope/blue board/1 board:1 2>/dev/null)
kill -9 "$agent" && wait "$agent" 2>/dev/null || true
start
expect 0 "board/0#" status board
expect 75 "board/1 is held by $grant" run -n board/1 -- true
expect 75 "scope/blue is held by $grant" run -n scope/blue -- true
expect 0 "" run -n scope/red board/2 board/3 -- true
expect 0 "" release "$grant"

# What is drained is given to nobody, and that is shown, also by the next agent.
"$HOLDALL" run board/3 -- sleep 100 &
holder=$!
eventually sh -c '"$HOLDALL" status board/3 | grep -q "sleep 100"'
expect 64 "required" pool drain board/3
expect 65 "no such unit" pool drain board/9 --reason x
expect 65 "there is no pool" pool drain baord --reason x
expect 0 "" pool drain board/3 --reason "fan $(printf '\033')[31mbroken"
expect 0 "" pool drain board/2 --reason repair --until 1h
expect 0 "drained by" pool list
expect 0 "59m" pool list
expect 0 "sleep 100" status board/3
kill "$holder" && wait "$holder" || true
expect 75 "board/3 is drained: fan  [31mbroken" run -n board/3 -- true
expect 75 "is drained" run -n board:3 -- true
expect 0 "board/0,board/1" run -n board:2 -- sh -c "$units"
kill -9 "$agent" && wait "$agent" 2>/dev/null || true
start
expect 75 "board/3 is drained" run -n board/3 -- true
"$HOLDALL" run x board/3 -- sh -c "$units" >"$work/waited" &
waiter=$!
eventually sh -c '"$HOLDALL" status | grep -q "board/3 is drained by"'
expect 0 "" run -n x -- true # It waits and keeps nothing idle.
expect 0 "" pool undrain board
wait "$waiter"
grep -qx "board/3" "$work/waited" || fail "got $(cat "$work/waited")"
expect 0 "" pool drain board --reason short --until 300ms
expect 0 "board/0" run -w 10s board/0 -- sh -c "$units"

# What the administrator wants a command to see.
expect 0 "1,3" run gpu/3 gpu/1 -- printenv CUDA_VISIBLE_DEVICES
expect 0 "3,1" run gpu/3 tpu/1 -- printenv CUDA_VISIBLE_DEVICES
expect 0 "/dev/ttyUSB0" run scope/red -- printenv SERIAL
expect 0 "/dev/ttyUSB1,/dev/ttyUSB0" run scope:all -- printenv SERIAL

# Time limits: told before, SIGTERM, then SIGKILL.
status=0 && out=$("$HOLDALL" run --limit 1s x -- sh -c 'trap "echo told" TERM; sleep 100 & wait; exit 3' 2>&1) || status=$?
[ "$status" -eq 124 ] || fail "status $status instead of 124: $out"
for text in "told" "is stopped in a moment" "the time limit is over"; do
    grep -q "$text" <<<"$out" || fail "does not say '$text': $out"
done
expect 124 "the command is stopped after 1s" run --limit 1h bench -- sleep 100
expect 78 "for longer than 1 seconds" hold bench --for 1h
grant=$("$HOLDALL" hold lab --for 30m 2>/dev/null)
expect 0 "lasts" renew "$grant" --for 50m
expect 65 "for longer than 3600 seconds" renew "$grant" --for 1h # It has had some of it already.
expect 0 "" release "$grant"
expect 0 "" run --limit 1h x -- true
"$HOLDALL" run --limit 1h x -- sleep 100 &
eventually sh -c '"$HOLDALL" status x | grep -q "held, 59m"'
kill "$agent"
echo "$script: ok"
