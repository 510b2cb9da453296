#!/usr/bin/env bash
# Reservations outlive the command and the agent; the audit log tells.
set -euo pipefail
. tests/lib/service.bash

"$HOLDALL" pool add gpu --units 2
# The grant alone goes to stdout.
grant=$("$HOLDALL" hold gpu lab --for 1h --reason 'night run' 2>"$work/told")
[[ "$grant" =~ ^[0-9]+-[0-9]+$ ]] || fail "not one line with the grant: $grant"
fence=$(sed -n 's/.* gpu\/0#\([0-9]*-[0-9]*\) .*/\1/p' "$work/told")
[ -n "$fence" ] || fail "does not tell units: $(cat "$work/told")"
expect 75 "lab is held by $grant" run -n lab -- true
expect 0 "reserved," status

# Another agent, after kill -9, knows it, with the same units and fences, and the pool.
kill -9 "$(agent_pid)"
expect 69 "gpu/0#$fence" status
expect 75 "lab is held by $grant" run -n lab -- true
expect 0 "gpu/0#$fence" status
expect 0 "gpu/1" run gpu -- sh -c 'echo $HOLDALL_UNITS_GPU'

expect 0 "$grant lasts until" renew "$grant" --for 2h
expect 0 "1h59m left" status lab
expect 65 "there is no 9-9" renew 9-9
expect 0 "" release "$grant"
expect 65 "$grant has ended" release "$grant"
expect 65 "released" explain "$grant"
expect 0 "" run -n lab gpu:2 -- true

# Until a time of day, and what a shell can read.
expect 64 "is no time" hold x --until soon
expect 64 "cannot be used with" hold x --until 18:00 --for 1h
(
    eval "$("$HOLDALL" hold gpu:2 db:shared --until 23:59 --export)"
    [ "$HOLDALL_UNITS_GPU $HOLDALL_UNITS_DB" = "gpu/0,gpu/1 db" ] || fail "exports $HOLDALL_UNITS_GPU"
    [ "$HOLDALL_GRANT_AGENT" = "$HOLDALL_AGENT" ] || fail "of $HOLDALL_GRANT_AGENT"
    expect 0 "" release "$HOLDALL_GRANT"
)
# Whoever watches is told before the end, and of the end.
"$HOLDALL" hold watched --for 2s --watch 2>"$work/watched"
grep -q "ends in" "$work/watched" || fail "was not told before: $(cat "$work/watched")"
grep -q "has ended" "$work/watched" || fail "was not told: $(cat "$work/watched")"
# One's own, by force, is noted as that.
grant=$("$HOLDALL" hold own 2>/dev/null)
expect 0 "" release --force "$grant"
own=$grant

# It runs out.
grant=$("$HOLDALL" hold short --for 300ms --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["grant"])')
expect 0 "" run -w 10s short -- true

# A grant in use needs --force; its command is stopped.
"$HOLDALL" run used -- sleep 100 2>"$work/err" &
holder=$!
eventually sh -c '"$HOLDALL" status used | grep -q "sleep 100"'
grant=$("$HOLDALL" status used --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["grants"][0]["request"])')
expect 65 "--force takes it away" release "$grant"
expect 65 "is no reservation" renew "$grant"
expect 0 "" release "$grant" --force
status=0
wait "$holder" || status=$?
[ "$status" -eq 70 ] || fail "status $status instead of 70 after a forced release: $(cat "$work/err")"
expect 0 "" run -w 10s used -- true

python3 - "$work/data/audit.jsonl" "$own" "$grant" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
whats = {line["what"] for line in lines}
missing = {"asked", "granted", "released", "forced", "expired", "renewed", "refused"} - whats
if missing:
    sys.exit(f"the audit log has no {missing}")
forced = [line for line in lines if line["what"] == "forced"]
assert [line["request"] for line in forced] == sys.argv[2:], forced
assert "forced by" in forced[0]["detail"] and forced[0]["who"]["user"], forced
END
echo "$script: ok"
