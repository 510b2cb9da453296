#!/usr/bin/env bash
# The log of a member is put back in place, so that nothing of it can be seen when it starts: once another member has refused it, it
# gives nothing to anybody, whatever starts follow, until its memory is declared lost.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2 lab3)
for cell in "${cells[@]}"; do
    cat >"$work/$cell.toml" <<EOF
cgroups = false
[cluster]
lease_seconds = 10
[pools.board]
units = 2
EOF
    agent_of "$cell"
done
join_all "${cells[@]}"

log_of_lab2() { find "$work/lab2.data" -maxdepth 1 \( -name 'segment-*' -o -name 'snapshot-*' \) "$@"; }
copy_log() {
    rm -rf "$work/before"
    mkdir "$work/before"
    log_of_lab2 -exec cp {} "$work/before" \;
}
put_back() {
    kill_agent lab2
    log_of_lab2 -delete
    cp "$work"/before/* "$work/lab2.data"
}
lose_memory() {
    kill_agent lab2
    log_of_lab2 -delete
    agent_of lab2
    linked "${cells[@]}"
}
knows() { at lab2 agent status | grep -q "knows more of this one than its log tells"; }
kill_agent lab2
copy_log
agent_of lab2
linked "${cells[@]}"
at lab1 run board/0@lab2 -- sh -c 'touch "$0"; exec sleep 1000' "$work/held" &
holder=$!
eventually test -e "$work/held"
for n in 1 2 3; do expect_at lab2 0 "" run board -- true; done

# Whoever holds something of it knows more than its log tells, and says so.
put_back
agent_of lab2
eventually knows
expect_at lab2 75 "knows more of this one" run -n board/0 -- true
expect_at lab2 75 "knows more of this one" run board -- true
expect_at lab2 0 "knows more of this one" cluster members
got=0
at lab2 cluster forget lab1 >"$work/forget" 2>&1 || got=$?
[ "$got" -ne 0 ] && grep -q "knows more of this one" "$work/forget" || fail "one who knows more is given up: $got, $(cat "$work/forget")"
refused() { at "$1" cluster members | grep -q "the log of 'lab2' is not all that there was"; }
eventually refused lab1
expect_at lab1 75 "'lab2' cannot be reached" run -n board@lab2 -- true
got=0
wait "$holder" || got=$?
[ "$got" -eq 70 ] || fail "what nobody guards was used on: status $got"

# So it stays, whoever else is there; starts make a log longer.
for cell in lab1 lab3; do kill_agent "$cell"; done
for n in 1 2 3; do
    kill_agent lab2
    agent_of lab2
    expect_at lab2 75 "behind.json" run -n board -- true
done
for cell in lab1 lab3; do agent_of "$cell"; done
linked lab1 lab3
eventually refused lab1
eventually refused lab3

# What it is told to do helps.
lose_memory
expect_at lab2 0 "" run -w 60s board:2 -- true
expect_at lab1 0 "" run -w 20s board@lab2:2 -- true
[ ! -e "$work/lab2.data/behind.json" ] || fail "what was said of another life is kept"

# Also if the agents of all others were started anew meanwhile: what was heard since the links came up is in their logs.
kill -STOP "$(cat "$work/lab2.pid")"
copy_log
kill -CONT "$(cat "$work/lab2.pid")"
reserved=$(at lab1 hold board/0@lab2 --for 1h 2>/dev/null | head -1)
put_back
for cell in lab1 lab3; do
    kill_agent "$cell"
    agent_of "$cell"
done
agent_of lab2
eventually knows
expect_at lab2 75 "behind.json" run -n board/0 -- true
expect_at lab3 75 "'lab2' cannot be reached" run -n board/0@lab2 -- true
lose_memory
expect_at lab3 75 "board/0" run -n board/0@lab2 -- true

# And if it was started often before anybody heard it, and has written more than was lost.
kill -STOP "$(cat "$work/lab2.pid")"
copy_log
kill -CONT "$(cat "$work/lab2.pid")"
for n in 1 2 3; do expect_at lab1 0 "" run board/1@lab2 -- true; done
for cell in lab1 lab3; do kill_agent "$cell"; done
put_back
for n in 1 2 3; do
    agent_of lab2
    for n in 1 2 3 4 5 6 7 8 9 10; do expect_at lab2 0 "" run board/1 -- true; done
    kill_agent lab2
done
for cell in "${cells[@]}"; do agent_of "$cell"; done
eventually knows
expect_at lab2 75 "behind.json" run -n board/1 -- true
lose_memory

# Whoever was started often, and says so, is let in: nothing of its log is missing.
for n in 1 2 3; do
    kill_agent lab2
    agent_of lab2
done
linked "${cells[@]}"
for cell in lab1 lab3; do
    kill_agent "$cell"
    agent_of "$cell"
done
linked "${cells[@]}"
expect_at lab3 0 "" run -w 60s board/1@lab2 -- true
at lab1 release "$reserved" >/dev/null
expect_at lab3 0 "" run -w 60s board@lab2:2 -- true
echo "$script: ok"
