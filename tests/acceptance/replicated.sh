#!/usr/bin/env bash
# A cell whose log is in etcd: three agents on this machine host it, three members of etcd keep it. Hosts are killed, paused and
# changed on purpose, members of etcd killed and paused; whoever holds goes on, and nothing is held twice.
set -euo pipefail
. tests/lib/cluster.bash
. tests/lib/etcd.bash

need_etcd
cells=(lab1 lab2 lab3)
lease=20
declare -A crowds
# Kills a process of which this shell may be the parent, or not.
kill_hard() {
    kill -9 "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
trap end_hosts EXIT
# Whether somebody leads who is not this one.
is_led_by_other_than() {
    local now
    now=$(leader "$1" licences)
    [ -n "$now" ] && [[ "$now" != "$2 "* ]]
}
# The process that hosts the cell at a machine, while it leads.
host_pid() {
    HOLDALL_AGENT="$work/$1.data/cells/licences/agent.sock" agent_pid
}
# Somebody holds a unit until it is told to end.
hold_unit() {
    at "$1" run -w 20s maya@licences -- sh -c \
        'echo $$ >"$0"; while [ -e "$0" ] && [ ! -e "$0.end" ]; do sleep 0.1; done' "$work/$2" 2>>"$work/$2.err" &
    echo $! >"$work/$2.pid"
    eventually test -s "$work/$2"
}

# The critical section: nobody else is in it, and its fence is above all before.
cat >"$work/section" <<'EOF'
#!/bin/sh
exec 9>>"$0.lock"
flock -n 9 || echo "two hold it" >>"$0.wrong"
last=$(cat "$0.fence" 2>/dev/null || echo 0)
[ "$HOLDALL_FENCE_SEAT_LICENCES" -gt "$last" ] ||
    echo "fence $HOLDALL_FENCE_SEAT_LICENCES after $last" >>"$0.wrong"
echo "$HOLDALL_FENCE_SEAT_LICENCES" >"$0.fence"
sleep 0.02
echo "$HOLDALL_FENCE_SEAT_LICENCES $1" >>"$0.grants"
EOF
chmod +x "$work/section"
crowd_of() {
    while [ ! -e "$work/end.$1" ] && [ ! -e "$work/end" ]; do
        at "$1" run -w 30s seat@licences -- "$work/section" "$1" 2>>"$work/crowd.$1" ||
            echo "$1: status $?" >>"$work/crowd.failed"
    done
}
begin_crowd() {
    rm -f "$work/end.$1"
    crowd_of "$1" &
    crowds[$1]=$!
}
end_crowd() {
    touch "$work/end.$1"
    wait "${crowds[$1]}"
}
grants() {
    wc -l <"$work/section.grants"
}
# Somebody is granted something from now on, of each of these machines.
goes_on() {
    local cell before
    for cell in "$@"; do
        before=$(grep -c " $cell$" "$work/section.grants" || true)
        more() { [ "$(grep -c " $cell$" "$work/section.grants")" -gt "$((before + 1))" ]; }
        eventually more
    done
}

start_etcd
start_hosts "$lease"

# It is made, and asked for from everywhere.
store="etcd://$endpoints"
expect_at lab1 64 "no machine of the cluster is called 'lab9'" cell add licences --store "$store" --hosts lab1,lab9
expect_at lab2 64 "say this at lab1" cell add licences --store "$store" --hosts lab1,lab2
expect_at lab1 64 "" cell add licences --store http://nowhere --hosts lab1
expect_at lab1 65 "hosts licences" cell show licences
expect_at lab1 0 "leads licences" cell add licences --store "$store" --hosts lab1,lab2,lab3
# Each of them has written down who had it do so, without the token.
for cell in "${cells[@]}"; do
    eventually grep -q '"what":"cluster".*licences' "$work/$cell.data/audit.jsonl"
    ! grep -q H1- "$work/$cell.data/audit.jsonl" || fail "a token is in the audit log of $cell"
done
expect_at lab1 0 "" pool add maya@licences --units 3
expect_at lab2 0 "" pool add seat@licences --lock
expect_at lab2 65 "by its own users" pool add maya@lab1 --units 3
for cell in "${cells[@]}"; do
    out=$(at "$cell" run -w 10s maya@licences seat@licences -- sh -c 'echo $HOLDALL_UNITS_MAYA_LICENCES')
    [[ "$out" =~ ^maya/[012]@licences$ ]] || fail "$cell gets something else: $out"
done
expect_at lab3 0 "maya/2" status --all
expect_at lab3 0 "leads, epoch" cell list
expect_at lab3 0 "127.0.0.1" cell show licences
expect_at lab3 65 "lab9 does not host licences" cell move licences lab9
expect_at lab3 65 "stays there" cell move lab1 lab2

hold_unit lab1 stays
hold_unit lab3 lost
for cell in "${cells[@]}"; do begin_crowd "$cell"; done
eventually test -s "$work/section.grants"
goes_on lab1 lab2 lab3

# Handed over on purpose.
expect_at lab3 0 "" cell move licences lab2
is_led_by lab3 licences lab2 || fail "lab2 does not lead: $(at lab3 cell list)"
goes_on lab1 lab2 lab3

# The machine that leads is killed: another one leads when its lease in etcd is over.
# (Nobody on it holds the lock: that would last until its agent is back.)
end_crowd lab2
host=$(host_pid lab2)
kill_hard "$(cat "$work/lab2.pid")"
kill_hard "$host"
eventually is_led_by_other_than lab1 lab2
goes_on lab1 lab3
agent_of lab2

# A machine with a client is gone for good: what that held lapses (looked at in the end).
end_crowd lab3
expect_at lab1 0 "" cell move licences lab1
kill_hard "$(cat "$work/lab3.pid")"
kill -9 "$(cat "$work/lost.pid")" "$(cat "$work/lost")" 2>/dev/null || true
gone=$SECONDS

# Who leads is paused for longer than its lease, and goes on: two believe to lead, one counts.
paused=$(host_pid lab1)
kill -STOP "$paused"
eventually is_led_by_other_than lab2 lab1
begin_crowd lab2
goes_on lab2
kill -CONT "$paused"
paused=
stands_by() { at lab2 cell list | grep -q 'lab1 .*stands by for lab2'; }
eventually stands_by
goes_on lab1 lab2

# One member of etcd is killed: nobody notices. Without a quorum nothing is granted, what is held goes on, and it is said.
signal_members KILL 0
goes_on lab1 lab2
signal_members STOP 1 2
troubled() { at lab1 cell list | grep -q TROUBLE; }
eventually troubled
told() { at lab1 status --all | grep -q 'nothing is granted at the moment'; }
eventually told
before=$(grants)
sleep 2
[ "$(grants)" -le "$((before + 1))" ] || fail "something was granted without a quorum"
kill -0 "$(cat "$work/stays.pid")" || fail "what was held is not held any more: $(cat "$work/stays.err")"
signal_members CONT 1 2
start_member 0
goes_on lab1 lab2
untroubled() { ! at lab1 cell list | grep 'lab[12] ' | grep -q TROUBLE; }
eventually untroubled

# What the lost client held is somebody else's by now, or soon.
expect_at lab2 0 "" run -w "$((lease * 2))s" maya@licences:2 -- true
[ "$((SECONDS - gone))" -ge "$((lease - 2))" ] || fail "it was given to others before its lease was over"
end_crowd lab1
end_crowd lab2

# A copy in a file is put back when all that was in etcd is gone: whoever held by then goes on holding, and nobody else gets it.
# (The machine that was gone is back, without what it held: until all members have said what they hold nothing is given.)
agent_of lab3
expect_at lab1 0 "" cell export licences "$work/copy"
head -c 100 "$work/copy" >"$work/half"
expect_at lab1 64 "damaged" cell import licences "$work/half" --store "$store" --hosts lab1,lab2
expect_at lab1 65 "only be put back where its log was" cell import licences "$work/copy" --store "$store/other" --hosts lab1,lab2
expect_at lab1 71 "only where nothing is" cell import licences "$work/copy" --store "$store" --hosts lab1,lab2
ctl del --prefix holdall/licences/ >/dev/null
expect_at lab1 65 "nothing to adopt" cell adopt licences
[ -z "$(ctl get --prefix holdall/licences/ --keys-only)" ] || fail "something was made where nothing was: $(ctl get --prefix holdall/licences/)"
# Nor is another cell that is there taken for it, by whoever says so nor by its hosts.
ctl put holdall/licences/meta/cell "holdall 1 cell $(printf %032x 7) life $(printf %032x 8) etcd $(printf %016x 9)" >/dev/null
ctl put holdall/licences/meta/head "next 1 epoch 1" >/dev/null
ctl put holdall/licences/meta/epoch "epoch 1" >/dev/null
expect_at lab1 65 "the log of another cell" cell adopt licences
is_another() { at lab1 cell list | grep -q 'lab1 .*is of another cell'; }
eventually is_another
ctl del --prefix holdall/licences/ >/dev/null
expect_at lab1 0 "leads licences" cell import licences "$work/copy" --store "$store" --hosts lab1,lab2
expect_at lab2 0 "" run -w "$((lease * 3))s" maya@licences:2 seat@licences -- "$work/section" lab2
expect_at lab2 75 "" run -w 1s maya@licences:3 -- true
touch "$work/stays.end"
wait "$(cat "$work/stays.pid")" || fail "whoever held was stopped: $(cat "$work/stays.err")"
expect_at lab2 0 "" run -w 10s maya@licences:3 -- true

# A cell that nobody wants any more is removed, not while something of it is held, unless that is given up.
expect_at lab1 65 "hosts lab2" cell remove lab2
hold_unit lab2 last
expect_at lab1 65 "1 hold and 0 wait" cell remove licences
expect_at lab2 0 "" run -w 10s maya@licences -- true
touch "$work/last.end"
wait "$(cat "$work/last.pid")" || fail "whoever held was stopped: $(cat "$work/last.err")"
is_removed() {
    [ -z "$(ctl get --prefix holdall/licences/ --keys-only)" ] || fail "there are keys left: $(ctl get --prefix holdall/licences/)"
    for cell in "${cells[@]}"; do
        [ ! -e "$work/$cell.data/cells/licences" ] || fail "it is hosted at $cell still"
        cleared() { [ -z "$(ls "$work/$cell.data/cells/licences.removed.$1" | grep -v '^audit')" ]; }
        eventually cleared "$1"
        [ "$(grep -c '"what":"cluster".*unhosted.*licences' "$work/$cell.data/audit.jsonl")" = "$1" ] ||
            fail "$cell has not written down that it hosts licences no more"
    done
    expect_at lab2 65 "hosts licences" cell show licences
    expect_at lab2 78 "no cell 'licences'" run -w 1s maya@licences -- true
    grep -q '"what":"cluster".*Remove' "$work/lab1.data/audit.jsonl" || fail "who has removed it is not in the audit log"
}
expect_at lab1 0 "go on above those of this one" cell remove licences
is_removed 1
# Its name is free for another, which can be removed while it is used.
expect_at lab1 0 "leads licences" cell add licences --store "$store" --hosts lab1,lab2,lab3
expect_at lab1 0 "" pool add maya@licences --units 3
hold_unit lab2 given-up
expect_at lab1 0 "licences is removed" cell remove licences --force
is_removed 2
status=0
wait "$(cat "$work/given-up.pid")" || status=$?
[ "$status" = 70 ] || fail "whoever held what is gone ends with $status: $(cat "$work/given-up.err")"
[ ! -e "$work/section.wrong" ] || fail "$(cat "$work/section.wrong")"
[ ! -e "$work/crowd.failed" ] || fail "$(cat "$work/crowd.failed" "$work"/crowd.lab?)"
echo "$script: ok, $(grants) grants"
