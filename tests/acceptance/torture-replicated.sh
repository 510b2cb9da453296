#!/usr/bin/env bash
# Real agents under faults that host a cell whose log is in etcd, of which members are killed and stopped, too; and nothing is left of it. For longer, or
# as it was: TORTURE_SECONDS=60 TORTURE_CLIENTS=50 TORTURE_SEED=7 tests/acceptance/torture-replicated.sh
set -euo pipefail
. tests/lib/service.bash
. tests/lib/etcd.bash
need_etcd
seed=${TORTURE_SEED:-$((RANDOM * 32768 + RANDOM))}
words=(--replicated --cells 3 --clients "${TORTURE_CLIENTS:-12}" --seed "$seed" --dir "$work" --json)

tortured() {
    "$HOLDALL" torture "${words[@]}" "$@" >"$work/told" 2>"$work/said" || {
        cat "$work/told" "$work/said" >&2
        tail -n 40 "$work"/torture-*/c?/log >&2 || true
        fail "found something, with TORTURE_SEED=$seed: $*"
    }
    grep -q '"clean":true' "$work/told" || fail "ended with 0, and says: $(cat "$work/told")"
    [ -z "$(ls -d "$work"/torture-* 2>/dev/null)" ] || fail "its directory is left"
}
tortured --seconds "${TORTURE_SECONDS:-20}"

# In network namespaces, where the links are set down, a host is cut off from etcd, too.
try="holdall-try-$$"
if ip netns add "$try" 2>/dev/null && ip -n "$try" link add bridge type bridge 2>/dev/null; then
    tortured --namespaces --seconds "${TORTURE_SECONDS:-10}"
else
    not_tried 'network namespaces: need root, and ip of iproute2'
fi
ip netns del "$try" 2>/dev/null || true
echo "$script: ok"
