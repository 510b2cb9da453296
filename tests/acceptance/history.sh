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
says "$work/out" "requests that waited"
gzip -c examples/cluster.swf >"$work/cluster.swf.gz"
ends_with 64 sim house --trace "$work/cluster.swf.gz"
says "$work/err" "unpack it first"
ends_with 0 whatif --from "$work/cluster.jsonl" --units processors=128 --html "$work/c.html"
says "$work/out" "gains"
says "$work/c.html" "</html>"
ends_with 0 whatif --from "$work/cluster.jsonl" --find 'p99(processors) < 10m' --json
says "$work/out" '"found":{"units":'
ends_with 64 whatif --from "$work/cluster.jsonl" --units boards=3
ends_with 64 whatif --from "$work/cluster.jsonl" --find 'p99(processors)'
ends_with 64 whatif --from "$work/cluster.jsonl" --find 'max(processors) < 0s'

ends_with 64 whatif --from "$work/cluster.jsonl" --find 'p99(processors) < 10m' --remove processors/3
says "$work/err" "give one"

# Its beginning damaged, torn, and with a clock that was set back: told, and read.
{ printf '\0\0\0\n'; tail -n +3 "$work/cluster.jsonl"; } >"$work/damaged.jsonl"
ends_with 0 usage --from "$work/damaged.jsonl"
says "$work/err" "the first is line 1"
ends_with 0 sim house --trace "$work/damaged.jsonl" --nodes 1 --colocated
head -c -20 "$work/cluster.jsonl" >"$work/torn.jsonl"
ends_with 0 usage --from "$work/torn.jsonl"
says "$work/err" "only half there"
{ cat "$work/cluster.jsonl"; echo '{"t":5,"k":"ask","r":"9-1","needs":["processors"]}'; } >"$work/back.jsonl"
ends_with 0 usage --from "$work/back.jsonl"
says "$work/err" "set back"

# Forward by ten years and back again: told, and no span is longer than it was.
cat >"$work/leap.jsonl" <<'EOF'
{"t":1780272000000,"k":"pool","pool":"gpu","units":1}
{"t":1780272001000,"k":"ask","r":"1-1","needs":["gpu"]}
{"t":1780272001000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}
{"t":2095632031000,"k":"ask","r":"1-2","needs":["gpu"]}
{"t":1780272061000,"k":"end","r":"1-1","how":"released"}
{"t":1780272061000,"k":"grant","r":"1-2","got":{"gpu":["gpu/0"]}}
{"t":1780272121000,"k":"end","r":"1-2","how":"released"}
EOF
ends_with 0 usage --from "$work/leap.jsonl" --json
says "$work/err" "set forward to 2036"
says "$work/err" "set back to 2026-06-01"
says "$work/out" '"requests":2'
longest=$(grep -o '"longest":[0-9]*' "$work/out" | head -1 | cut -d: -f2)
[ "$longest" -le 61000 ] || fail "a use of a minute took $longest ms: $(cat "$work/out")"
ends_with 0 whatif --from "$work/leap.jsonl" --units gpu=2

# A later version: told, and left out beside what can be read; alone it is refused.
mkdir "$work/versions"
printf '%s\n' '{"t":1,"k":"begin","v":2}' '{"t":1,"k":"ask","r":"1-1","needs":["x"]}' >"$work/versions/history-9.jsonl"
ends_with 64 usage --from "$work/versions"
says "$work/err" "of version 2"
cp "$work/cluster.jsonl" "$work/versions/history-1.jsonl"
ends_with 0 usage --from "$work/versions"
says "$work/err" "history-9.jsonl is of version 2: left out"

# What is read is not written into.
before=$(cat "$work/versions/history-1.jsonl")
ends_with 64 usage --from "$work/versions" --svg "$work/versions/history-1.jsonl"
says "$work/err" "which is read: write elsewhere"
ends_with 64 whatif --from "$work/versions" --html "$work/versions/new.html"
ends_with 64 sim house --trace "$work/versions" --record "$work/versions/history-5.jsonl"
[ "$before" = "$(cat "$work/versions/history-1.jsonl")" ] || fail "the history was written over"
[ ! -e "$work/versions/new.html" ] && [ ! -e "$work/versions/history-5.jsonl" ] || fail "something was written beside the history"
# A protocol that is none is told before a history is read.
ends_with 64 sim house,nosuch --trace "$work/nothing"
says "$work/err" "no protocol 'nosuch'"

# What has no end, or is no file, is not read for ever.
ends_with 64 sim house --trace /dev/urandom
mkfifo "$work/pipe" "$work/versions/history-10.jsonl"
cat "$log" >"$work/pipe" &
writer=$!
ends_with 0 sim house --trace "$work/pipe" --nodes 1 --colocated
says "$work/err" "is no plain file"
wait "$writer"
ends_with 0 usage --from "$work/versions"
ends_with 65 sim house --trace "$log" --nodes 1 --colocated --most-waiting 1
says "$work/err" "more than 1 requests wait at once"

# Pools that were resized, or are no more, and uses without an end: told, and played.
cat >"$work/odd.jsonl" <<'EOF'
{"t":1780272000000,"k":"pool","pool":"gpu","units":4}
{"t":1780272000000,"k":"pool","pool":"old","units":1}
{"t":1780272001000,"k":"ask","r":"1-1","needs":["gpu:4"]}
{"t":1780272001000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1","gpu/2","gpu/3"]}}
{"t":1780272100000,"k":"end","r":"1-1","how":"released"}
{"t":1780272200000,"k":"pool","pool":"gpu","units":2}
{"t":1780272300000,"k":"ask","r":"1-2","needs":["old"]}
{"t":1780272300000,"k":"grant","r":"1-2","got":{"old":["old/0"]}}
{"t":1780272400000,"k":"ask","r":"1-3","needs":["old"]}
{"t":1780272400000,"k":"grant","r":"1-3","got":{"old":["old/0"]}}
{"t":1780272500000,"k":"ask","r":"1-4","needs":["old"]}
{"t":1780272500000,"k":"grant","r":"1-4","got":{"old":["old/0"]}}
{"t":1780272600000,"k":"end","r":"1-4","how":"released"}
{"t":1780272600000,"k":"pool","pool":"old","units":0}
EOF
ends_with 0 whatif --from "$work/odd.jsonl" --json
says "$work/err" "'gpu' had 4 units before it had 2"
says "$work/err" "for all of it when played"
says "$work/err" "'old' is no more"
says "$work/err" "2 uses without a recorded end"
says "$work/out" '"waits":{"requests":4,'
ends_with 0 usage --from "$work/odd.jsonl" --by unit --csv
says "$work/out" "old/0,3,0,0,0.0833"

# What cannot be served is broken off, and what cannot be written is told before anything is played.
ends_with 65 whatif --from "$work/cluster.jsonl" --load 50 --most-waiting 100
says "$work/err" "more than 100 requests wait at once"
ends_with 64 whatif --from "$work/cluster.jsonl" --load 101
ends_with 74 whatif --from "$work/cluster.jsonl" --html "$work/no/where.html"

# A real agent under a real load: two boards, ten commands of a fifth of a second.
"$HOLDALL" run board -- true
"$HOLDALL" pool add gpu --units 2
for n in 1 2 3 4 5 6 7 8 9 10; do
    "$HOLDALL" run --name "job $n" gpu -- sleep 0.2 &
done
wait
# It is killed. The next one makes up for what it had not written yet, and notes nothing as missing; nor does it after starts in which
# nothing happens.
agent_pid() { "$HOLDALL" agent status --json | grep -o '"pid":[0-9]*' | cut -d: -f2; }
for n in 1 2 3; do
    kill -9 "$(agent_pid)"
    "$HOLDALL" agent start >/dev/null
done
"$HOLDALL" agent restart
ls "$work"/data/history-*.jsonl >/dev/null || fail "the agent keeps no history"
# It is written a moment later.
sleep 1
ends_with 0 usage --by name --json
says "$work/out" '"job 7"'
[ ! -s "$work/err" ] || fail "something is odd: $(cat "$work/err")"
[ "$(cat "$work"/data/history-*.jsonl | grep -c '"k":"ask"')" -eq 11 ] || fail "not every request is there once"
ends_with 0 usage --by pool
says "$work/out" gpu
ends_with 0 whatif --units gpu=10 --json
# Of ten who wait for two, the last waits for four uses: the mean is 0.4 s, and 0 with ten. The replay comes near what was recorded.
close=$(grep -o '"close":[0-9.]*' "$work/out" | cut -d: -f2)
[ "${close%%.*}" = 1 ] || [ "$(echo "$close" | cut -c1-3)" = 0.9 ] || fail "only $close of the waits are near"

# What nobody used is told, too, and can be removed; what there is not is no unit.
"$HOLDALL" pool add spare --units 2
ends_with 78 run gpu/7 -- true
sleep 1
ends_with 0 usage --by unit --csv
says "$work/out" "spare/1,0,"
! grep -q gpu/7 "$work/out" || fail "what was refused is a unit: $(cat "$work/out")"
ends_with 0 whatif --remove spare/1
ends_with 0 usage --since 1ms --export csv
says "$work/out" "request,user,name"

# Who waits is told when: behind a reservation, exactly then.
reserved=$("$HOLDALL" hold gpu:2 --for 1h 2>/dev/null)
"$HOLDALL" run --by 2h gpu -- true &
waits=$!
expected() { "$HOLDALL" status --json | grep -q '"expected":\[{"request"'; }
tries=0
until expected; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "nobody is told when: $("$HOLDALL" status)"
    sleep 0.2
done
ends_with 0 status
says "$work/out" "59m"
says "$work/out" "worked out"
request=$("$HOLDALL" status --json | grep -o '"waiting":\[{"request":"[^"]*"' | grep -o '[0-9]*-[0-9]*')
ends_with 0 explain "$request"
says "$work/out" "probably granted in 59m"
# It will very probably not be granted by then: given up now, not then.
ends_with 75 run --by 30m gpu -- true
says "$work/err" "probably granted in"
ends_with 64 run --by soon gpu -- true
ends_with 64 run --by -5s gpu -- true
says "$work/err" "'-5s' is no time"
"$HOLDALL" release "$reserved"
wait "$waits" || fail "it was granted in time, and given up"
sleep 1
ends_with 0 usage --forecast
says "$work/out" "estimates that were given"
"$HOLDALL" agent stop

# After a later version ran here, its file stays as it is, and another is begun.
printf '%s\n' '{"t":1,"k":"begin","v":2}' '{"t":1,"k":"new"}' >"$HOLDALL_DATA/history-9999999999999.jsonl"
cp "$HOLDALL_DATA/history-9999999999999.jsonl" "$work/later.jsonl"
"$HOLDALL" run --name after board -- true
"$HOLDALL" agent stop
cmp "$work/later.jsonl" "$HOLDALL_DATA/history-9999999999999.jsonl" || fail "a file of a later version was changed"
ends_with 0 usage --by name
says "$work/out" "after"
says "$work/out" "job 7"
says "$work/err" "is of version 2"

# Anonymous, or none at all: neither names nor commands, and it is said why nobody is told when.
serve() {
    printf '%s\n' "$1" >"$work/config.toml"
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    tries=0
    until "$HOLDALL" agent status >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "no agent: $(cat "$work/log")"
        sleep 0.1
    done
}
export HOLDALL_DATA="$work/anonymous"
serve 'history = "anonymous"'
"$HOLDALL" run --name secret board -- sleep 0.1
kill "$agent" && wait "$agent"
grep -q '"k":"grant"' "$HOLDALL_DATA"/history-*.jsonl || fail "nothing is kept"
! grep -qE 'secret|sleep|"u":' "$HOLDALL_DATA"/history-*.jsonl || fail "names are kept"
export HOLDALL_DATA="$work/none"
serve 'history = "off"'
"$HOLDALL" run board -- sleep 2 &
holds=$!
sleep 0.5
"$HOLDALL" run board -- true &
waits=$!
sleep 0.5
ends_with 0 status
says "$work/out" "keeps no history"
wait "$holds" "$waits"
kill "$agent" && wait "$agent"
! ls "$HOLDALL_DATA"/history-*.jsonl 2>/dev/null || fail "a history is kept"

# Others see their own, and everybody's if the configuration says so. Only root can be another user.
if [ "$(id -u)" -eq 0 ]; then
    export HOLDALL_DATA="$work/everybody"
    chmod 755 "$work"
    cp "$HOLDALL" "$work/holdall"
    other() { setpriv --reuid 4711 --regid 4711 --groups 4711 "$work/holdall" "$@" >"$work/out" 2>"$work/err"; }
    serve 'socket_mode = "0666"'
    "$HOLDALL" run --name theirs board -- true
    other run --name own board -- true
    sleep 1
    other usage --by name || fail "one's own cannot be read: $(cat "$work/err")"
    says "$work/err" "your own"
    says "$work/out" own
    ! grep -q theirs "$work/out" || fail "it sees what others did"
    status=0
    other whatif || status=$?
    [ "$status" -eq 77 ] || fail "what if: $status instead of 77"
    kill "$agent" && wait "$agent"
    serve 'socket_mode = "0666"
history = {everybody = "view"}'
    other usage --by name || fail "everybody's cannot be read: $(cat "$work/err")"
    says "$work/out" theirs
    kill "$agent" && wait "$agent"
fi
echo "history.sh: ok"
