#!/bin/sh
# Protocols over TCP as a user meets them. HOLDALL is the path of the binary.
set -eu
: "${HOLDALL:?is the path of the holdall binary}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export TMPDIR="$work/tmp"

fail() {
    echo "play.sh: $*" >&2
    exit 1
}

# Ends with this status and one line on stderr that contains a text.
says() {
    expected=$1
    text=$2
    shift 2
    status=0
    "$HOLDALL" play "$@" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" -eq "$expected" ] || fail "status $status instead of $expected: play $*"
    [ ! -s "$work/out" ] || fail "prints on stdout: play $*"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "not one line: play $*"
    grep -qF -- "$text" "$work/err" || fail "does not say '$text': play $*: $(cat "$work/err")"
}

few="--nodes 2 --clients 4 --pools 4"

# A table for people, a line of JSON for programs.
"$HOLDALL" play house --seconds 1 $few >"$work/out" || fail "house"
grep -q 'grants a second .*[0-9].*[0-9]' "$work/out" || fail "no grants: $(cat "$work/out")"
"$HOLDALL" play ordered,chandy-misra --seconds 0.5 --json $few >"$work/out" || fail "a list"
[ "$(grep -c '"predicted":{"grants":' "$work/out")" -eq 2 ] || fail "no JSON: $(cat "$work/out")"

# Clients that leave, and processes that die.
"$HOLDALL" play house --seconds 2 $few --leave waiting:0.2 --stop using:0.2 --json >"$work/out" || fail "faults"
grep -q '"left":0\|"stopped":0' "$work/out" && fail "nobody leaves or dies: $(cat "$work/out")"

# A sound protocol without a rule that it needs.
says 1 'exclusion is broken' coordinator:skip --without room --seconds 30 $few

# Ctrl-C ends it with what was seen.
"$HOLDALL" play skeen --seconds 600 --json $few >"$work/out" 2>"$work/err" &
play=$!
until [ -n "$(find "$work/tmp" -name 'pool-*-unit-*' -size +0)" ]; do sleep 0.05; done
kill -TERM "$play"
wait "$play" || fail "status $? after SIGTERM: $(cat "$work/err")"
grep -q '"early":true' "$work/out" || fail "no result after SIGTERM"
[ -z "$(ls "$work/tmp")" ] || fail "files are left: $(ls "$work/tmp")"

# What can be played like that is.
"$HOLDALL" play all,skeen --seconds 0.05 --stop using:0.1 --json $few >"$work/out" 2>"$work/err" || fail "all"
tail -1 "$work/out" | grep -q '"protocol":"skeen"' || fail "named and not last: $(cat "$work/out")"
grep -q 'left out: .*chandy-misra.*nobody leaves' "$work/err" || fail "not told who cannot: $(cat "$work/err")"

# A full disk, and a reader that has read enough.
if [ -w /dev/full ]; then
    status=0
    "$HOLDALL" play ordered --seconds 0.1 $few >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 74 ] || fail "status $status instead of 74 with a full disk"
fi
"$HOLDALL" play ordered,skeen --seconds 0.1 --json $few 2>"$work/err" | true
[ ! -s "$work/err" ] || fail "complains about a closed pipe: $(cat "$work/err")"

says 64 "did you mean 'ordered'" orderd
says 64 'at least 1' ordered --clients 0
says 64 'at most as many nodes as pools' ordered --nodes 5 --pools 4
says 64 'nobody leaves' chandy-misra --stop using:0.1
echo "play.sh: ok"
