#!/bin/sh
# What was used, and what if: from a published format, from a real agent under load, and from damaged files. HOLDALL is the path of the binary.
set -eu
: "${HOLDALL:?is the path of the holdall binary}"
work=$(mktemp -d)
export HOLDALL_AGENT="$work/agent.sock" HOLDALL_DATA="$work/data" HOME="$work"
trap '"$HOLDALL" agent stop >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

fail() {
    echo "history.sh: $*" >&2
    exit 1
}

says() {
    grep -qF -- "$2" "$1" || fail "'$2' is not in: $(cat "$1")"
}

# Ends with this status.
ends_with() {
    expected=$1
    shift
    status=0
    "$HOLDALL" "$@" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" -eq "$expected" ] || fail "status $status instead of $expected: $*: $(cat "$work/err")"
}

# A log in the Standard Workload Format, whose waits are those of a queue that is served in order.
log=examples/cluster.swf
ends_with 0 sim coordinator:fifo,house --trace "$log" --nodes 1 --colocated --record "$work/cluster.jsonl" --svg "$work/a.svg" --json
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "not a line for each protocol and one for what was recorded"
waits() { sed -n "$1p" "$work/out" | grep -o '"waits":{[^}]*}'; }
[ "$(waits 1)" = "$(waits 2)" ] || fail "served in order, it comes to other waits: $(waits 1) $(waits 2)"
ends_with 0 sim house,ordered --trace "$log"
says "$work/out" "as recorded"
ends_with 64 sim house --trace README.md
ends_with 64 sim house --trace "$work/nothing"

# What was played is a history like any other.
ends_with 0 usage --from "$work/cluster.jsonl" --by user --svg "$work/b.svg"
says "$work/out" "user 3"
ends_with 0 usage --from "$work/cluster.jsonl" --export csv
[ "$(wc -l <"$work/out")" -eq 121 ] || fail "not every request is exported"
ends_with 0 usage --from "$work/cluster.jsonl" --by day --csv
ends_with 0 usage --from "$work/cluster.jsonl" --forecast
ends_with 0 whatif --from "$work/cluster.jsonl" --units processors=128 --html "$work/c.html"
says "$work/out" "gains"
says "$work/c.html" "</html>"
ends_with 0 whatif --from "$work/cluster.jsonl" --find 'p99(processors) < 10m' --json
says "$work/out" '"found":{"units":'
ends_with 64 whatif --from "$work/cluster.jsonl" --units boards=3
ends_with 64 whatif --from "$work/cluster.jsonl" --find 'p99(processors)'
ends_with 65 whatif --from "$work/cluster.jsonl" --find 'max(processors) < 0s'

# Torn, and with a clock that was set back: told, and read.
head -c -20 "$work/cluster.jsonl" >"$work/torn.jsonl"
ends_with 0 usage --from "$work/torn.jsonl"
says "$work/err" "only half there"
{ cat "$work/cluster.jsonl"; echo '{"t":5,"k":"ask","r":"9-1","needs":["processors"]}'; } >"$work/back.jsonl"
ends_with 0 usage --from "$work/back.jsonl"
says "$work/err" "set back"

# A real agent under a real load: two boards, ten commands of a fifth of a second.
"$HOLDALL" run board -- true
"$HOLDALL" pool add gpu --units 2
for n in 1 2 3 4 5 6 7 8 9 10; do
    "$HOLDALL" run --name "job $n" gpu -- sleep 0.2 &
done
wait
ends_with 0 usage --by name --json
says "$work/out" '"job 7"'
ends_with 0 usage --by pool
says "$work/out" gpu
ends_with 0 whatif --units gpu=10 --json
# Of ten who wait for two, the last waits for four uses: the mean is 0.4 s, and 0 with ten. The replay comes near what was recorded.
close=$(grep -o '"close":[0-9.]*' "$work/out" | cut -d: -f2)
[ "${close%%.*}" = 1 ] || [ "$(echo "$close" | cut -c1-3)" = 0.9 ] || fail "only $close of the waits are near"
echo "history.sh: ok"
