#!/bin/sh
# The simulator as a user meets it. HOLDALL is the path of the binary.
set -eu
: "${HOLDALL:?is the path of the holdall binary}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "sim.sh: $*" >&2
    exit 1
}

# Succeeds, with nothing on stderr.
works() {
    "$HOLDALL" sim "$@" >"$work/out" 2>"$work/err" || fail "failed: sim $*: $(cat "$work/err")"
    [ ! -s "$work/err" ] || fail "talks on stderr: sim $*"
}

# Ends with status 64, says so on stderr and nothing on stdout.
refused() {
    status=0
    "$HOLDALL" sim "$@" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" -eq 64 ] || fail "status $status instead of 64: sim $*"
    [ ! -s "$work/out" ] || fail "prints on stdout: sim $*"
    [ -s "$work/err" ] || fail "says nothing: sim $*"
}

# Is refused in one line that contains a text.
refused_saying() {
    text=$1
    shift
    refused "$@"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "not one line: sim $*"
    grep -qF -- "$text" "$work/err" || fail "does not say '$text': sim $*: $(cat "$work/err")"
}

quick="--ticks 10000"

# Every protocol, as a table and as JSON.
all=ordered,skeen,coordinator:fifo,coordinator:skip,coordinator:reserve=2,oracle
works $all $quick
grep -q 'users 100, pools 100' "$work/out" || fail "no headline"
grep -q 'messages a grant' "$work/out" || fail "no figures"
works $all $quick --json
[ "$(wc -l <"$work/out")" -eq 6 ] || fail "not one object a line"
for field in protocol grants response mean ci95 p50 p99 max unfinished unfinished_longest \
    messages_per_grant utilisation degree overtaken_max jain violations events little; do
    [ "$(grep -c "\"$field\":" "$work/out")" -eq 6 ] || fail "no field $field"
done
! grep -q events_per_second "$work/out" || fail "timing without being asked"

# The same command prints the same, another seed does not.
works $all $quick --graphs 3 --json
cp "$work/out" "$work/first"
works $all $quick --graphs 3 --json
cmp -s "$work/out" "$work/first" || fail "two runs differ"
RAYON_NUM_THREADS=1 "$HOLDALL" sim $all $quick --graphs 3 --json >"$work/out"
cmp -s "$work/out" "$work/first" || fail "the number of threads matters"
works $all $quick --graphs 3 --json --seed 2
! cmp -s "$work/out" "$work/first" || fail "the seed does not matter"

# Settings of a protocol are no protocols.
works ordered,house:reserve=1,passes=2,oracle $quick --json
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "settings are taken for protocols"

# Timing on request, and not on stdout unless with JSON.
"$HOLDALL" sim ordered $quick --timing >"$work/out" 2>"$work/err"
grep -q 'events a second' "$work/err" || fail "no timing on stderr"
! grep -q 'events a second' "$work/out" || fail "timing on stdout"
works ordered $quick --timing --json
grep -q '"events_per_second":' "$work/out" || fail "no timing in JSON"

# The commands of docs/simulation.md.
works ordered,oracle $quick --unequal --sets fresh --per-request 4
works ordered $quick --workload ring --users 50
works ordered $quick --workload hot
works ordered $quick --workload mix --sets fresh
works ordered $quick --units 2 --resources 50 --per-request 5 --nodes 4
works ordered $quick --one-per-tick
works house,ordered $quick --apart --told 0.5:2
works $all $quick --leave waiting:0.1 --stop using:0.05 --detect 500 --spikes 0.01:20

# With nothing to report.
works ordered --ticks 1 --json
grep -q '"mean":null' "$work/out" || fail "a mean of nothing"
works ordered --ticks 1
grep -q ' -$' "$work/out" || fail "a figure of nothing"

# A reader that has read enough.
"$HOLDALL" sim $all $quick 2>"$work/err" | true
[ ! -s "$work/err" ] || fail "complains about a closed pipe: $(cat "$work/err")"

# A full disk.
if [ -w /dev/full ]; then
    status=0
    "$HOLDALL" sim ordered $quick >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 74 ] || fail "status $status instead of 74 with a full disk"
    grep -q 'cannot write' "$work/err" || fail "does not say that it cannot write"
    status=0
    "$HOLDALL" sim ordered $quick --samples /dev/full >"$work/out" 2>"$work/err" || status=$?
    [ "$status" -eq 74 ] || fail "status $status instead of 74 with samples to a full disk"
    grep -q 'messages a grant' "$work/out" || fail "the table is lost with the samples"
fi

# Bad input.
refused_saying "did you mean 'ordered'" orderd
refused_saying "no variant 'fast'" coordinator:fast
refused_saying "users is 0" ordered --users 0
refused_saying "users is 16777216" ordered --users 16777216
refused_saying "resources is 0" ordered --resources 0
refused_saying "resources is 4294967295" ordered --resources 4294967295
refused_saying "per-request is 0" ordered --per-request 0
refused_saying "per-request is 5" ordered --per-request 5 --resources 4
refused_saying "units is 0" ordered --units 0
refused_saying "nodes is 0" ordered --nodes 0
refused_saying "graphs is 0" ordered --graphs 0
refused_saying "ticks is 0" ordered --ticks 0
refused_saying "ticks is 18446744073709551615" ordered --ticks 18446744073709551615
refused_saying "time would stand still" oracle --think 0 --service 0
refused_saying "unequal sizes" ordered --unequal --workload mix
refused_saying "fresh sets" ordered --sets fresh --workload ring
refused_saying "1.5 is no probability" ordered --leave asking:1.5
refused_saying "-1 is no probability" ordered --stop using:-1
refused_saying "no probability" ordered --spikes nan:2
refused_saying "can say 0 times" ordered --told 0
refused_saying "is not a number" ordered --told x
refused_saying "the factor of spikes is 0" ordered --spikes 0.5:0
refused
refused ordered --users 99999999999
refused ordered --users -1
refused ordered --delay x
refused ordered --sets some
refused ordered --workload none
refused ordered --leave asking
refused ordered --leave sleeping:0.1
refused ordered --spikes 0.1
refused ordered --frobnicate

echo "sim.sh: ok"
