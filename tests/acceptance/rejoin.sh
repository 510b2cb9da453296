#!/usr/bin/env bash
# A machine that was removed from its cluster comes back as another member, with the log of the one that it was: what that had heard of others is
# no sign that theirs were put back, and all go on.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2 lab3)
for cell in "${cells[@]}"; do
    printf 'cgroups = false\n[cluster]\nlease_seconds = 8\n[pools.board]\nunits = 2\n' >"$work/$cell.toml"
    agent_of "$cell"
done
join_all "${cells[@]}"
for _ in 1 2 3; do
    expect_at lab2 0 "" run -w 10s board@lab1 board@lab3 -- true
    expect_at lab1 0 "" run -w 10s board@lab2 -- true
done
expect_at lab1 0 "nobody talks to lab2 any more" cluster remove lab2
expect_at lab2 0 "" agent stop
wait "$(cat "$work/lab2.pid")" || true
mv "$work/lab2.data/cluster" "$work/lab2.before"
agent_of lab2
address=$(at lab1 cluster members --json | python3 -c '
import json, sys
print(*[m["addresses"][0] for m in json.load(sys.stdin)["members"] if m["own"]])')
expect_at lab2 0 "this machine is 'lab4'" cluster join "$address" --token "$(at lab1 cluster token)" --listen 127.0.0.1:0 --name lab4
is_up() { sees lab1 lab4 up && sees lab3 lab4 up && sees lab1 lab3 up; }
eventually is_up
for again in once twice; do
    expect_at lab1 0 "" run -w 20s board board@lab3 board@lab4 -- true
    expect_at lab3 0 "" run -w 20s board@lab1 board@lab4 -- true
    expect_at lab2 0 "" run -w 20s board@lab1 board board@lab3 -- true
    [ "$again" = twice ] || for cell in lab1 lab2; do
        kill_agent "$cell"
        agent_of "$cell"
    done
done
for cell in "${cells[@]}"; do
    ! at "$cell" agent status | grep "grants nothing" || fail "$cell grants nothing"
done
echo "$script: ok"
