#!/usr/bin/env bash
# Many processes at once: no overlap, no deadlock, nobody starved, one agent.
set -euo pipefail
. tests/lib/service.bash

# Fifty first commands at once from no agent: one agent, and every command runs.
started=()
for i in $(seq 50); do
    "$HOLDALL" run "first-$((i % 5))" -- true &
    started+=($!)
done
for pid in "${started[@]}"; do
    wait "$pid" || fail "one of fifty first commands failed"
done
[ "$(grep -c ' listening ' "$work/data/agent.log")" -eq 1 ] || fail "more than one agent listened"
grep -q "^epoch 1 " "$work/data/epoch" || fail "more than one agent started"

# Fifty processes, random sets of eight names in random order.
mkdir "$work/record"
out=$(RECORD="$work/record" python3 tests/lib/load.py 50 40 300 A B C D E F G H) || fail "the load failed"
echo "$script: $out"
grep -q 'least 40' <<<"$out" || fail "somebody did not finish its rounds: $out"
python3 tests/lib/verify.py "$work/record" 2000

# Two that name the same in opposite order.
for i in 1 2; do
    names="a b"
    [ "$i" -eq 1 ] || names="b a"
    for _ in $(seq 50); do
        # shellcheck disable=SC2086
        "$HOLDALL" run $names -- true || exit 1
    done &
    started[$i]=$!
done
wait "${started[1]}" "${started[2]}" || fail "opposite orders"

# The philosophers' ring of 64, each three times.
ring=()
for i in $(seq 0 63); do
    for _ in 1 2 3; do
        "$HOLDALL" run "fork-$i" "fork-$(((i + 1) % 64))" -- true || exit 1
    done &
    ring+=($!)
done
for pid in "${ring[@]}"; do
    wait "$pid" || fail "a philosopher starved"
done

expect 0 "nothing is held" status
echo "$script: ok"
