#!/usr/bin/env bash
# `holdall run` as a user meets it: exit statuses, environment, waiting, nesting, nonsense.
set -euo pipefail
. tests/lib/service.bash

expect 69 "no agent listens" status
expect 0 "holding both" run a b -- echo "holding both"
expect 0 "running" agent status
expect 0 '"schema":1' agent status --json

# The child's own exit status.
expect 7 "" run a -- sh -c 'exit 7'
expect 143 "" run a -- sh -c 'kill -TERM $$'
expect 127 "cannot run no-such-command" run a -- no-such-command
expect 126 "cannot run /" run a -- /

# What the child sees.
"$HOLDALL" pool add gpu --units 4
"$HOLDALL" pool add seat --unit red --unit blue
out=$("$HOLDALL" run gpu:2 seat lic/maya-7 db:shared -- env | grep ^HOLDALL_ | sort)
for line in 'HOLDALL_NEEDS=gpu:2 seat lic/maya-7 db:shared' 'HOLDALL_UNITS_GPU=gpu/0,gpu/1' \
    'HOLDALL_UNITS_SEAT=red' 'HOLDALL_UNITS_LIC_MAYA_7=lic/maya-7' 'HOLDALL_UNITS_DB=db'; do
    grep -qxF "$line" <<<"$out" || fail "no $line in: $out"
done
grep -qE '^HOLDALL_FENCE_GPU=[0-9]+,[0-9]+$' <<<"$out" || fail "no fences: $out"
grep -qE '^HOLDALL_GRANT=1-[0-9]+$' <<<"$out" || fail "no grant: $out"
[ "$(echo through | "$HOLDALL" run a -- cat)" = through ] || fail "stdin does not get through"

# A holder, and others.
"$HOLDALL" run a --name night --reason 'a test' -- sleep 100 &
holder=$!
eventually "$HOLDALL" run -n b -- sh -c '"$HOLDALL" status a 2>/dev/null | grep -q night'
expect 75 "a is held by" run -n a -- true
expect 75 "not granted in time: a: held by" run -w 50ms a -- true
expect 9 "" run -n -E 9 a -- true
expect 9 "" run -w 0 -E 9 a b -- true
expect 0 "" run -n b c -- true
expect 0 "sleep 100" status
expect 0 "a test" status a
expect 0 '"reason":"a test"' status --json
# (A script has its background jobs ignore SIGINT, and what is ignored stays ignored.)
(trap - INT && exec "$HOLDALL" run a b -- true) &
waiter=$!
eventually sh -c '"$HOLDALL" status | grep -q "held by"'
request=$("$HOLDALL" status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["waiting"][0]["request"])')
expect 0 "would go on with the release of" explain "$request"
expect 0 '"release":[{"request"' explain "$request" --json
expect 65 "there is no" explain 99-1
# A signal while waiting, and a signal for the child.
kill -INT "$waiter" && status=0 && wait "$waiter" || status=$?
[ "$status" -eq 130 ] || fail "status $status instead of 130 after SIGINT while waiting"
kill -TERM "$holder" && status=0 && wait "$holder" || status=$?
[ "$status" -eq 143 ] || fail "status $status instead of 143 after SIGTERM"
expect 0 "" run -n a -- true

# What is left of a process group keeps the grant.
"$HOLDALL" run left -- sh -c 'sleep 0.5 >/dev/null 2>&1 &'
expect 75 "left is held" run -n left -- true
expect 0 "" run -w 10s left -- true

# Nesting.
expect 78 "would wait for itself" run a -- "$HOLDALL" run a b -- true
expect 0 "better ask for everything at once" run a -- "$HOLDALL" run b -- true
[ -z "$("$HOLDALL" run a -- "$HOLDALL" run -q b -- true 2>&1)" ] || fail "is not quiet"
expect 0 "Research:" --help
expect 0 "" run s:shared -- "$HOLDALL" run -n s:shared -- true

[ "$(env -u HOLDALL_AGENT "$HOLDALL" run --agent "$HOLDALL_AGENT" a -- printenv HOLDALL_AGENT)" = "$HOLDALL_AGENT" ] ||
    fail "the child does not know the agent"

# Pools change while units are held.
"$HOLDALL" run gpu:3 -- sleep 100 &
holder=$!
eventually sh -c '"$HOLDALL" status gpu | grep -q gpu/2='
"$HOLDALL" run gpu:4 -- true 2>"$work/hopeless" &
waiter=$!
eventually sh -c '"$HOLDALL" status gpu | grep -q gpu:4'
expect 65 "is held by" pool remove gpu
expect 0 "" pool resize gpu 2
wait "$waiter" && fail "granted what is not there" || [ $? -eq 78 ] || fail "the hopeless are not told"
grep -q "only 2 units from now on" "$work/hopeless" || fail "$(cat "$work/hopeless")"
expect 0 "(going)" pool list
kill -TERM "$holder"
wait "$holder" || true
expect 0 "gpu/0 gpu/1" pool list
expect 78 "has only 2 units" run gpu:3 -- true
expect 0 "" pool remove gpu
expect 65 "there is no pool 'gpu'" pool resize gpu 3

# Nonsense.
expect 64 "named twice" run a a -- true
expect 64 "rename one" run a-b a_b -- true
expect 64 "zero units" run a:0 -- true
expect 64 "after the colon" run a:-1 -- true
expect 64 "no pool has more than" run a:99999999999 -- true
expect 64 "cannot be part of the name" run 'a b' -- true
expect 64 "characters; at most" run "$(head -c 10000 /dev/zero | tr '\0' x)" -- true
# shellcheck disable=SC2046
expect 64 "10000 needs" run $(seq -f n%g 10000) -- true
expect 0 "" run $(seq -f n%g 1000) -- true
expect 78 "there is no pool 'nothing'" run nothing:2 -- true
expect 78 "is a pool, and its units are never shared" run seat:shared -- true
expect 64 "is no span of time" run -w soon a -- true
expect 64 "required" run a
expect 64 "put -- before the command" run a true
expect 64 "required" run -- true
expect 64 "is no request" explain x
expect 65 "no pool 'none'" pool remove none
expect 65 "already" pool add seat
expect 64 "at least one unit" pool add zero --units 0
expect 64 "is not in" pool add minus --units=-1
expect 64 "there is no command" man nothing
expect 0 "_holdall" completions bash
expect 0 ".TH" man
expect 0 "" man run

# What cannot be said, and what no program could be started with.
status=0 && "$HOLDALL" status >/dev/full 2>"$work/told" || status=$?
[ "$status" -eq 74 ] || fail "status $status instead of 74 on a full disk: $(cat "$work/told")"
"$HOLDALL" pool add big --units 20000
expect 78 "ask for fewer units at once" run big:all -- true
expect 0 "" run -n big:2000 -- true
expect 65 "is a unit of the pool 'seat'" pool add red --lock
expect 78 "is a unit of the pool 'seat'" run red -- true

# A terminal: job control and the live line.
timeout 60 python3 tests/lib/terminal.py || fail "on a terminal"

expect 0 "" agent stop
expect 69 "no agent listens" agent stop
echo "$script: ok"
