#!/usr/bin/env bash
# A cell whose log is in etcd while that has no room, and while it has no quorum: for longer than a lease in the first case. What is held goes on, whoever
# would wait for nothing is told why, and nobody is made to lead who cannot. And what is no cell, or another one, is not taken for it.
set -euo pipefail
. tests/lib/cluster.bash
. tests/lib/etcd.bash

need_etcd
cells=(lab1 lab2 lab3)
lease=8
etcd_quota=$((16 << 20))
trap end_hosts EXIT
# Whether the same host leads as before, without an election in between.
stays_led() { [ "$(leader lab1 licences)" = "$led" ]; }
says() { at lab1 cell list | grep -q "$1"; }
untroubled() { ! at lab1 cell list | grep licences | grep -q TROUBLE; }
fill() {
    head -c 1000000 /dev/zero | tr '\0' x >"$work/big"
    local number
    for number in $(seq 40); do ctl put "other/$number" <"$work/big" >/dev/null 2>&1 || return 0; done
    fail "there is room for everything"
}
make_room() {
    ctl del --prefix other/ >/dev/null
    local revision
    revision=$(ctl endpoint status -w json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["Status"]["header"]["revision"])')
    ctl compact "$revision" >/dev/null
    ctl defrag >/dev/null
    ctl alarm disarm >/dev/null
}
# The members of etcd that follow. The one that leads it, if it stands still, may take the lease of a host for over when it goes on: then another host leads,
# and rightly.
followers() {
    ctl endpoint status -w json | python3 -c '
import json, sys
members = [one["Status"] for one in json.load(sys.stdin)]
print(*[at for at, one in enumerate(members) if one["leader"] != one["header"]["member_id"]])'
}
# Refused in less time than anybody would take for a hang.
refused() {
    local begun=$SECONDS
    expect_at "$@"
    [ "$((SECONDS - begun))" -le 12 ] || fail "took $((SECONDS - begun)) s: $*"
}

start_etcd
start_hosts "$lease"
store="etcd://$endpoints"
expect_at lab1 0 "leads licences" cell add licences --store "$store" --hosts lab1,lab2
expect_at lab1 0 "" pool add maya@licences --units 4
ready() { at lab1 cell list | grep -q 'lab1 .*\(stands by for lab2\|leads\)'; }
eventually ready
expect_at lab1 0 "" cell move licences lab1
led=$(leader lab1 licences)
[[ "$led" == "lab1 "* ]] || fail "lab1 does not lead: $led"

# What is no cell in etcd, or has its log elsewhere, is not taken for it.
expect_at lab1 65 "its log is at $store" cell add licences --store "$store/other" --hosts lab1,lab2,lab3
expect_at lab1 65 "is not its log" cell add lab3 --store "$store" --hosts lab1,lab2
expect_at lab1 65 "cell remove licences" cluster remove licences
expect_at lab1 65 "cell remove licences" cluster forget licences
expect_at lab1 65 "only the agents of machines host cells" cell add spare --store "$store/spare" --hosts licences
expect_at lab1 0 "lab1 leads licences" cell add licences --store "$store" --hosts lab1,lab2,lab3
stays_led || fail "another leads ($LINENO): $(leader lab1 licences) after $led"

# A host that is not there, or does not go on, is not made to lead.
kill_agent lab3
gone() { at lab1 cell list | grep -q 'lab3 .*does not answer'; }
eventually gone
refused lab2 69 "does not answer" cell move licences lab3
agent_of lab3
linked lab1 lab2 lab3
stands_by() { at lab1 cell list | grep -q 'lab3 .*stands by for lab1$'; }
eventually stands_by
paused=$(python3 - "$work/lab3.data/cells/licences" <<'FIND'
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline").read().split("\0")
    except OSError:
        continue
    if "--hosted" in words and words[words.index("--hosted") + 1] == sys.argv[1]:
        print(pid)
FIND
)
kill -STOP "$paused"
silent() { at lab1 cell list | grep -q 'lab3 .*not been heard of'; }
eventually silent
refused lab2 69 "not been heard of" cell move licences lab3
kill -CONT "$paused"
paused=
stays_led || fail "another leads ($LINENO): $(leader lab1 licences) after $led"

# No room: what is held goes on for longer than a lease, and can be given back.
at lab2 run maya@licences -- sh -c 'while [ ! -e "$0" ]; do sleep 0.1; done' "$work/end" 2>"$work/long.err" &
long=$!
at lab3 run maya@licences -- sh -c 'while [ ! -e "$0" ]; do sleep 0.1; done' "$work/short" 2>"$work/short.err" &
short=$!
# That something is given back where something else is held delays nobody's beats.
at lab2 run maya@licences -- sh -c 'while [ ! -e "$0" ]; do sleep 0.1; done' "$work/short" 2>"$work/beside.err" &
beside=$!
holds() { [ "$(at "$1" status | grep -o 'maya/' | wc -l)" -ge "$2" ]; }
eventually holds lab2 2
eventually holds lab3 1
grant=$(at lab2 hold --for 10m maya@licences 2>/dev/null)
fill
eventually says 'no room'
# It has a link, and answers: since when it does is not since when it has no room.
expect_at lab3 0 "licences tells nothing: " status --all
at lab3 status --all | grep -q 'no room.* (for [0-9]* s)' || fail "since when there is no room is not told: $(at lab3 status --all)"
refused lab3 69 "no room" run -n maya@licences -- true
refused lab3 69 "no room" run -w 60s maya@licences -- true
refused lab2 69 "has not confirmed" renew "$grant" --for 20m
refused lab2 65 "lab1 goes on leading it" cell move licences lab2
touch "$work/short"
wait "$short" || fail "what was given back while there was no room failed: $(cat "$work/short.err")"
wait "$beside" || fail "what was given back while there was no room failed: $(cat "$work/beside.err")"
sleep $((2 * lease))
kill -0 "$long" 2>/dev/null || fail "what was held without room is lost: $(cat "$work/long.err")"
stays_led || fail "another leads ($LINENO): $(leader lab1 licences) after $led"
make_room
eventually untroubled
expect_at lab3 0 "" run -w 10s maya@licences:2 -- true
touch "$work/end"
wait "$long" || fail "what was held is lost: $(cat "$work/long.err")"

# No quorum: nobody is made to lead, and who leads goes on when there is one.
read -ra paused_members <<<"$(followers)"
[ "${#paused_members[@]}" = 2 ] || fail "of three members these follow: ${paused_members[*]}"
signal_members STOP "${paused_members[@]}"
refused lab2 65 "lab1 goes on leading it" cell move licences lab2
eventually says 'TROUBLE'
refused lab3 69 "nothing new is granted" run -n maya@licences -- true
signal_members CONT "${paused_members[@]}"
eventually untroubled
stays_led || fail "another leads ($LINENO): $(leader lab1 licences) after $led"
expect_at lab3 0 "" run -w 10s maya@licences:3 -- true

# And now it is handed over.
expect_at lab2 0 "" cell move licences lab3
is_led_by lab1 licences lab3 || fail "lab3 does not lead: $(leader lab1 licences)"

# A pool of a machine is moved to the cell, and jobs go on to ask for it by its name.
expect_at lab2 0 "" pool add seats --units 2
rm -f "$work/end"
at lab2 run seats -- sh -c 'while [ ! -e "$0" ]; do sleep 0.1; done' "$work/end" 2>"$work/seats.err" &
seats=$!
taken() { at lab2 status | grep -q 'seats/0#'; }
eventually taken
expect_at lab2 0 "" pool drain seats --reason "moves to licences"
expect_at lab2 75 "" run -w 1s seats -- true
expect_at lab2 65 "is held by" pool remove seats
touch "$work/end"
wait "$seats" || fail "what was held of a drained pool is lost: $(cat "$work/seats.err")"
expect_at lab2 0 "" pool remove seats
expect_at lab2 0 "" pool add seats@licences --units 2
for cell in "${cells[@]}"; do
    printf '[names]\nseats = "seats@licences"\n' >>"$work/$cell.toml"
    expect_at "$cell" 0 "" agent restart
    out=$(at "$cell" run -w 20s seats -- sh -c 'echo $HOLDALL_UNITS_SEATS_LICENCES')
    [[ "$out" =~ ^seats/[01]@licences$ ]] || fail "$cell gets something else: $out"
done
echo "$script: ok"
