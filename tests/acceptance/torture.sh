#!/usr/bin/env bash
# Real agents of three cells under faults, for some seconds; and nothing is left of it, also if it is interrupted. For longer, or as it was:
# TORTURE_SECONDS=60 TORTURE_CLIENTS=50 TORTURE_SEED=7 tests/acceptance/torture.sh
set -euo pipefail
. tests/lib/service.bash
seed=${TORTURE_SEED:-$((RANDOM * 32768 + RANDOM))}
words=(--cells 3 --clients "${TORTURE_CLIENTS:-12}" --seed "$seed" --dir "$work")

# The processes that know of a directory; whoever looks is not among them.
known() {
    local files=(/proc/[0-9]*/cmdline)
    grep -lsF -- "$1" "${files[@]}" || true
}

"$HOLDALL" torture "${words[@]}" --seconds "${TORTURE_SECONDS:-20}" --json >"$work/told" 2>"$work/said" || {
    cat "$work/told" "$work/said" >&2
    tail -n 40 "$work"/torture-*/c?/log >&2 || true
    fail "found something, with TORTURE_SEED=$seed"
}
grep -q '"clean":true' "$work/told" || fail "ended with 0, and says: $(cat "$work/told")"
[ -z "$(ls -d "$work"/torture-* 2>/dev/null)" ] || fail "its directory is left"

# The same in network namespaces, whose links are set down.
try="holdall-try-$$"
if ip netns add "$try" 2>/dev/null && ip -n "$try" link add bridge type bridge 2>/dev/null; then
    "$HOLDALL" torture "${words[@]}" --namespaces --seconds 8 --json >"$work/told" 2>"$work/said" &
    torture=$!
    wait "$torture" || {
        cat "$work/told" "$work/said" >&2
        fail "found something in namespaces, with TORTURE_SEED=$seed"
    }
    ! ip netns list | grep -q "^holdall-$torture-" || fail "namespaces are left: $(ip netns list)"
else
    not_tried 'network namespaces: need root, and ip of iproute2'
fi
ip netns del "$try" 2>/dev/null || true

"$HOLDALL" torture "${words[@]}" --seconds 600 >/dev/null 2>"$work/interrupted" &
torture=$!
eventually grep -q 'things go wrong' "$work/interrupted"
directory=$(echo "$work"/torture-*)
# Each of them may just have been killed.
seen() { [ -n "$(known "$directory/c")" ]; }
eventually seen
kill -INT "$torture"
status=0
wait "$torture" || status=$?
[ "$status" -eq 130 ] || fail "interrupted, it ends with $status: $(cat "$work/interrupted")"
[ ! -e "$directory" ] || fail "interrupted, it leaves its directory"
gone() { [ -z "$(known "$directory")" ]; }
eventually gone
echo "$script: ok"
