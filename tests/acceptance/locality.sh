#!/usr/bin/env bash
# How far a crash is felt, as a user asks. HOLDALL is the path of the binary.
set -euo pipefail
: "${HOLDALL:?is the path of the holdall binary}"

fail() {
    echo "locality.sh: $*" >&2
    exit 1
}

# Runs a command, expects an exit status, and a text in what it prints.
expect() {
    local status=$1 text=$2 out got=0
    shift 2
    out=$("$HOLDALL" locality "$@" 2>&1) || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status: $*"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}

path=(--pools 1,1 --users '0/0+1/1')
expect 0 "failure locality: 2" ordered "${path[@]}"
expect 0 "nothing satisfies u0" ordered "${path[@]}"
expect 0 "failure locality: 1" house "${path[@]}" --timers quiet --detector suspect
expect 0 "failure locality: 0" house "${path[@]}" --timers quiet --detector reclaim
expect 0 '"locality":0' ordered "${path[@]}" --detector departed --json
expect 3 "at least" house "${path[@]}" --max-states 200
expect 64 "the users are 0 to 2" ordered "${path[@]}" --crash 3
expect 64 "leave out its '!'" ordered --pools 1 --users '0!/0'
echo "locality.sh: ok"
