#!/usr/bin/env bash
# Three agents on this machine as three cells: a cluster is made and joined, sets span cells, agents are killed, members
# are removed and forgotten.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2 lab3)
lease=10 # Long enough for an agent to come back within it on a busy machine.
for cell in "${cells[@]}"; do
    cat >"$work/$cell.toml" <<EOF
cgroups = false
[cluster]
lease_seconds = $lease
[pools.board]
units = 2
[pools.scope]
lock = true
EOF
done
cat >>"$work/lab1.toml" <<EOF
[names]
tool = "scope@lab3"
EOF
cat >>"$work/lab3.toml" <<EOF
[pools.press]
lock = true
on_partition = "wait"
EOF
for cell in "${cells[@]}"; do agent_of "$cell"; done

# Alone, an agent knows no other cells, and says how there would be some.
expect_at lab1 78 "this agent is alone" run board@lab2 -- true
expect_at lab1 65 "holdall cluster init" cluster members
expect_at lab1 0 "" run undeclared -- true

# One makes a cluster, and prints the line for the others.
expect_at lab1 64 "no name for a cell" cluster init --listen 127.0.0.1:0 --name Lab_1
expect_at lab1 64 "is no address" cluster init --listen nowhere --name lab1
expect_at lab1 64 "cannot listen at 203.0.113.1" cluster init --listen 203.0.113.1:7420 --name lab1
line=$(at lab1 cluster init --listen 127.0.0.1:0 --name lab1 2>/dev/null)
grep -q '^holdall cluster join 127.0.0.1:[0-9]* --token H1-' <<<"$line" || fail "prints no line to join: $line"
expect_at lab1 64 "a member of a cluster already" cluster init --listen 127.0.0.1:0 --name lab1
address=$(cut -d' ' -f4 <<<"$line")
token=$(cut -d' ' -f6 <<<"$line")
expect_at lab2 64 "mistyped" cluster join "$address" --token "${token%?}" --listen 127.0.0.1:0 --name lab2
expect_at lab2 64 "is no address of a member" cluster join nowhere --token "$token" --listen 127.0.0.1:0 --name lab2
expect_at lab2 69 "refused" cluster join 127.0.0.1:9 --token "$token" --listen 127.0.0.1:0 --name lab2
expect_at lab2 77 "is called lab1 already" cluster join "$address" --token "$token" --listen 127.0.0.1:0 --name lab1
expect_at lab2 0 "lab2" cluster join "$address" --token "$token" --listen 127.0.0.1:0 --name lab2

# A token can be revoked, is good for as many machines as it says, and shown by its label alone.
once=$(at lab1 cluster token --machines 1 --lasts 10m)
label=$(at lab1 cluster token list --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"][-1]["label"])')
expect_at lab1 0 "$label" cluster token list
expect_at lab1 0 "" cluster token revoke "$label"
expect_at lab1 65 "there is no token" cluster token revoke "$label"
expect_at lab3 77 "not known here, or was revoked" cluster join "$address" --token "$once" --listen 127.0.0.1:0 --name lab3
expect_at lab2 65 "the key of the authority is not on this machine" cluster token
expect_at lab3 0 "lab3" cluster join "$address" --token "$token" --listen 127.0.0.1:0 --name lab3
linked lab1 lab2 lab3
expect_at lab2 0 "board:2 scope" cluster members

# A set that spans cells, with its units and fences by name.
spans='echo "$HOLDALL_UNITS_BOARD_LAB1 $HOLDALL_UNITS_SCOPE_LAB3 $HOLDALL_FENCE_SCOPE_LAB3"'
out=$(at lab2 run board@lab1 scope@lab3 board -- sh -c "$spans")
[[ "$out" =~ ^board/[01]@lab1\ scope@lab3\ [0-9]+$ ]] || fail "spans otherwise: $out"
out2=$(at lab2 run scope@lab3 -- sh -c 'echo $HOLDALL_FENCE_SCOPE_LAB3')
[ "$out2" -gt "${out##* }" ] || fail "a fence went back: $out2 after $out"
expect_at lab3 0 "board/1@lab1" run board/1@lab1 -- sh -c 'echo $HOLDALL_UNITS_BOARD_1_LAB1 $HOLDALL_UNITS_BOARD_LAB1'

# Names: bare ones are declared, or refused with both remedies; an alias is another's; nothing else is guessed.
expect_at lab2 78 "holdall pool add db --lock" run db -- true
expect_at lab2 78 "db@lab2" run db -- true
expect_at lab2 0 "" run db@lab2 -- true
expect_at lab2 0 "" run db@lab1:shared -- true
expect_at lab1 0 "scope@lab3" run tool -- sh -c 'echo $HOLDALL_UNITS_SCOPE_LAB3'
expect_at lab1 65 "'tool' means 'scope@lab3' here" pool add tool --lock
expect_at lab2 78 "there is no cell 'lab9'" run board@lab9 -- true
expect_at lab2 78 "'board@lab1:4': 'board@lab1' has only 2 units" run board board@lab1:4 -- true
whole=$(at lab2 hold --for 10m board 2>/dev/null)
expect_at lab2 78 "parts of a grant cannot span cells" run --in "$whole" scope@lab3 -- true
expect_at lab2 0 "" release "$whole"
expect_at lab2 78 "nesting across cells is refused" run board@lab1 -- "$HOLDALL" run scope@lab3 -- true

# Who waits knows for which cell and whom, at both ends; contended in both orders, all are served.
at lab1 run scope@lab3 board@lab2:2 -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/held" &
holder=$!
eventually test -e "$work/held"
expect_at lab3 75 "@lab1" run -n scope -- true
expect_at lab2 75 "@lab1" run -n board@lab2 -- true
at lab2 run scope@lab3 board@lab1 -- true &
waiter=$!
waits() { at lab2 status --json | grep -q '"waiting":\[{'; }
eventually waits
request=$(at lab2 status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["waiting"][0]["request"])')
expect_at lab2 0 "scope" explain "$request"
expect_at lab2 0 "@lab1" explain "$request"
expect_at lab1 0 "scope@lab3" status --all
expect_at lab3 0 "lab2" status --all
touch "$work/held.end"
wait "$holder" "$waiter"

# A chain goes on from whoever is in the way and waits elsewhere itself. What is kept for it meanwhile is not in its way.
at lab1 run scope -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/chain" &
first=$!
eventually test -e "$work/chain"
at lab2 run scope scope@lab1 -- true &
second=$!
eventually waits
expect_at lab2 0 "  scope@lab1: lab1 has not given it yet" status
at lab3 run scope@lab2 -- true &
third=$!
waits_at() { at "$1" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["waiting"][0]["request"])' 2>/dev/null; }
eventually waits_at lab3
expect_at lab3 0 "at lab1:" explain "$(waits_at lab3)"
touch "$work/chain.end"
wait "$first" "$second" "$third"
for n in $(seq 20); do
    at lab1 run scope@lab2 scope@lab3 -- true &
    at lab2 run scope@lab3 scope@lab1 -- true &
    at lab3 run scope@lab1 scope@lab2 -- true &
done
for job in $(jobs -p); do
    grep -qx "$job" "$work"/lab?.pid || wait "$job" || fail "a contended run has failed"
done

# An agent is killed in the middle: its commands go on, hold, and give back; so do those of others that it guards.
at lab2 run board@lab1 board@lab2 -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/one" &
one=$!
at lab1 run board@lab2 -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/two" &
two=$!
eventually test -e "$work/one"
eventually test -e "$work/two"
at lab1 hold --for 10m scope@lab2 >"$work/reserved" 2>/dev/null
kill_agent lab2
eventually sees lab1 lab2 down
# It ends when it is said to, and not with a lease.
python3 - "$(at lab1 status --json)" <<'EOF' || fail "a reservation ends otherwise: $(at lab1 status --json)"
import json, sys, time
ends = [grant["until"] / 1000 - time.time() for grant in json.loads(sys.argv[1])["grants"] if grant["state"] == "reserved"]
sys.exit(not (len(ends) == 1 and 400 < ends[0] <= 601))
EOF
HOLDALL_AGENT="$work/lab1.sock" HOLDALL_DATA="$work/lab1.data" "$HOLDALL" run -w 60s scope@lab2 -- true 2>/dev/null &
vain=$!
eventually waits_at lab1
expect_at lab1 0 "a cell that it waits for cannot be reached" explain "$(waits_at lab1)"
kill "$vain"
wait "$vain" || true
expect_at lab1 75 "'lab2' cannot be reached" run -n board@lab2 -- true
expect_at lab1 75 "lab2 does not answer, since" run -w 2s board@lab2 -- true
expect_at lab1 0 "does not answer" status --all
expect_at lab1 0 "held, " status
expect_at lab1 69 "lab2 does not answer" pool add tray@lab2 --lock
agent_of lab2
linked lab1 lab2 lab3
expect_at lab1 0 "" release "$(cat "$work/reserved")"
expect_at lab3 75 "board" run -n board@lab2:2 -- true
touch "$work/one.end" "$work/two.end"
wait "$one" "$two" || fail "a command was lost with an agent that came back"
expect_at lab3 0 "" run -w 10s board@lab1:2 board@lab2:2 -- true

# What somebody waits for elsewhere is granted while its agent is away, and its wrapper comes back later than the agent: it is told.
at lab1 run scope -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/early" &
early=$!
eventually test -e "$work/early"
HOLDALL_AGENT="$work/lab2.sock" HOLDALL_DATA="$work/lab2.data" "$HOLDALL" run -w 30s scope@lab1 -- touch "$work/came" &
late=$!
eventually waits
kill -STOP "$late"
kill_agent lab2
touch "$work/early.end"
wait "$early"
agent_of lab2
is_granted() { at lab2 status --json | grep -q '"grants":\[{'; }
eventually is_granted
sleep 2 # Until the lease is confirmed.
kill -CONT "$late"
wait "$late" || fail "who came back after the grant was not told of it"

# One that does not come back within the lease: whoever uses what it guards is stopped, and what it held is given to others, but for
# what it has of pools that wait, whatever else the same grant has there.
at lab1 run scope@lab2 -- sh -c 'echo $$ >"$0"; exec sleep 1000' "$work/stopped" &
stopped=$!
at lab2 run scope@lab3 -- sh -c 'echo $$ >"$0"; exec sleep 1000' "$work/lost" &
lost=$!
at lab2 run press@lab3 board@lab3:2 -- sh -c 'echo $$ >"$0"; exec sleep 1000' "$work/both" &
both=$!
eventually test -s "$work/stopped"
eventually test -s "$work/lost"
eventually test -s "$work/both"
kill_agent lab2
expect_at lab1 0 "" run -w 60s scope@lab3 -- true
expect_at lab1 0 "" run -w 20s board@lab3:2 -- true
expect_at lab3 75 "@lab2" run -n press -- true
got=0
wait "$both" || got=$?
[ "$got" -eq 70 ] || fail "what is leased was used on beside what is not: status $got"
got=0
wait "$stopped" || got=$?
[ "$got" -eq 70 ] || fail "what a dead cell guards was used on: status $got"
kill -9 "$(cat "$work/lost")" "$lost" 2>/dev/null || true
wait "$lost" 2>/dev/null || true
agent_of lab2
linked lab1 lab2 lab3
expect_at lab2 0 "" run -w 20s scope@lab1 scope@lab2 scope@lab3 -- true
expect_at lab1 0 "" run -w 20s press@lab3 -- true

# The directory of a member is lost, and its log is not: what it keeps for others without a lease stays theirs; and it is the same
# member again, not another one.
at lab1 run press@lab3 -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/kept" &
kept=$!
eventually test -e "$work/kept"
kill_agent lab3
mv "$work/lab3.data/cluster" "$work/lab3.lost"
agent_of lab3
expect_at lab3 65 "holdall cluster init" cluster members
sleep $((lease * 2)) # longer than a lease and a grace
expect_at lab3 75 "@lab1" run -n press -- true
new=$(at lab1 cluster token)
expect_at lab3 64 "was the member 'lab3'" cluster join "$address" --token "$new" --listen 127.0.0.1:0 --name lab4
expect_at lab3 77 "a member already" cluster join "$address" --token "$new" --listen 127.0.0.1:0
expect_at lab3 0 "lab3" cluster join "$address" --token "$(at lab1 cluster token --for lab3)" --listen 127.0.0.1:0
linked lab1 lab2 lab3
expect_at lab3 75 "@lab1" run -n press -- true
touch "$work/kept.end"
wait "$kept" || fail "what is not leased was lost"
expect_at lab3 0 "" run -w 20s press -- true

# Who has the key of the authority makes itself another certificate.
rm "$work/lab1.data/cluster/cell.pem"
expect_at lab1 0 "holdall cluster join $address" cluster init --listen "$address"
linked lab1 lab2 lab3

# Removed: nobody talks to it any more, its name is free, and it is told. Forgotten: what it held is given up, at once.
at lab3 run board@lab1:2 -- sh -c 'echo $$ >"$0"; exec sleep 1000' "$work/gone" &
gone=$!
eventually test -s "$work/gone"
at lab1 run scope@lab3 -- sh -c 'echo >"$0"; exec sleep 1000' "$work/guarded" 2>"$work/unguarded" &
unguarded=$!
eventually test -s "$work/guarded"
kill_agent lab3
expect_at lab1 0 "" cluster forget lab3
expect_at lab1 0 "" run -w 3s board:2 -- true
expect_at lab1 78 "the cell 'lab3' was forgotten" run -n board@lab3 -- true
got=0
wait "$unguarded" || got=$?
[ "$got" -eq 70 ] || fail "what nobody guards any more was used on: status $got"
grep -q "the grant was lost; stopping the command: the cell 'lab3' was forgotten" "$work/unguarded" || fail "not told at once: $(cat "$work/unguarded")"
kill -9 "$(cat "$work/gone")" "$gone" 2>/dev/null || true
wait "$gone" 2>/dev/null || true
agent_of lab3
told() { at lab3 cluster members | grep -q "was forgotten in this life"; }
eventually told
expect_at lab3 0 "was forgotten in this life" agent status
kill_agent lab3
rm "$work"/lab3.data/segment-* "$work"/lab3.data/snapshot-* 2>/dev/null || true
agent_of lab3
linked lab1 lab2 lab3
expect_at lab3 0 "" run -w 60s board@lab1 scope -- true
at lab1 run scope -- sh -c 'touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/stays" &
stays=$!
eventually test -e "$work/stays"
at lab3 run scope@lab1 -- true 2>"$work/in-vain" &
in_vain=$!
eventually waits_at lab3
expect_at lab1 0 "" cluster remove lab3
expect_at lab1 65 "no member is called lab3" cluster remove lab3
expect_at lab1 78 "there is no cell 'lab3' any more: it was removed" run board@lab3 -- true
removed() { at lab3 cluster members | grep -q "was removed"; }
eventually removed
# It is never let in again as who it was: nobody waits for that.
got=0
wait "$in_vain" || got=$?
[ "$got" -eq 78 ] || fail "who waits for what it can never have ends with $got: $(cat "$work/in-vain")"
expect_at lab3 78 "this cell was removed from the cluster" run scope@lab1 -- true
expect_at lab3 78 "this cell was removed from the cluster" run -n scope@lab2 -- true
touch "$work/stays.end"
wait "$stays"
expect_at lab3 0 "" run board -- true
expect_at lab3 0 "" run board@lab3 -- true
expect_at lab1 0 "" run board@lab2 board@lab1 -- true
# It says how it comes back, as a new member of the same name.
expect_at lab3 0 "move \`cluster\` in its data directory away" agent status
kill_agent lab3
mv "$work/lab3.data/cluster" "$work/lab3.removed"
agent_of lab3
expect_at lab3 0 "lab3" cluster join "$address" --token "$(at lab1 cluster token)" --listen 127.0.0.1:0 --name lab3
linked lab1 lab2 lab3
expect_at lab1 0 "" run -w 60s board@lab3 -- true
echo "$script: ok"
