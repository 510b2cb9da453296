#!/usr/bin/env bash
# The checker as a user meets it. HOLDALL is the path of the binary.
set -euo pipefail
: "${HOLDALL:?is the path of the holdall binary}"

fail() {
    echo "check.sh: $*" >&2
    exit 1
}

# Runs a command, expects an exit status, and a text in what it prints.
expect() {
    local status=$1 text=$2 out got=0
    shift 2
    out=$("$HOLDALL" "$@" 2>&1) || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status: $*"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}

expect 0 "no-deadlock     promised      holds" check ordered --pools 1,1 --users '0+1/1+0'
expect 1 "nothing moves any more" check ordered --without sorted --pools 1,1 --users '0+1/1+0'
expect 0 "u0 is never satisfied" check coordinator:skip --pools 1,1 --users '0+1*/0*/1*'
expect 0 "no-starvation   promised      holds" check coordinator:reserve=1 --pools 1,1 --users '0+1*/0*/1*'
expect 0 "84 scopes" check ordered --all 3x3
expect 3 "cut off" check skeen --pools 1,1 --users '0+1/1+0' --max-states 10
expect 64 "did you mean 'ordered'" check orderd --pools 1 --users 0
expect 64 "'0/>x'" check ordered --pools 1 --users 0/x
expect 64 "--help tells more" check ordered --frobnicate
expect 0 "skeen" protocols
expect 0 "rule sorted" protocols ordered
expect 64 "did you mean" protocols skeem
expect 0 "Usage:" check --help
expect 0 "holdall" --version

# The same command prints the same.
[ "$("$HOLDALL" check skeen --without ties --pools 1,1 --users '0+1/1+0' --json)" = \
    "$("$HOLDALL" check skeen --without ties --pools 1,1 --users '0+1/1+0' --json --threads 1)" ] ||
    fail "two runs differ"

# A reader that has read enough (what was not looked at then is no success), and a full disk.
("$HOLDALL" check --suite quick --json 2>/dev/null || [ $? -eq 3 ]) | head -1 >/dev/null
if [ -w /dev/full ]; then
    status=0
    "$HOLDALL" protocols >/dev/full 2>/dev/null || status=$?
    [ "$status" -eq 74 ] || fail "status $status instead of 74 with a full disk"
fi
echo "check.sh: ok"
