#!/usr/bin/env bash
# A log was put back, and the member that knew more of it is removed: with pools that wait, its cell waits for what that one holds, and
# says so to everybody until the removed one is forgotten as well.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2 lab3)
for cell in "${cells[@]}"; do
    printf 'cgroups = false\n[cluster]\nlease_seconds = 10\n[pools.board]\nunits = 1\n' >"$work/$cell.toml"
done
printf '[pools.press]\nlock = true\non_partition = "wait"\n' >>"$work/lab2.toml"
for cell in "${cells[@]}"; do agent_of "$cell"; done
join_all "${cells[@]}"

log_of_lab2() { find "$work/lab2.data" -maxdepth 1 \( -name 'segment-*' -o -name 'snapshot-*' \) "$@"; }
kill -STOP "$(cat "$work/lab2.pid")"
mkdir "$work/before"
log_of_lab2 -exec cp {} "$work/before" \;
kill -CONT "$(cat "$work/lab2.pid")"
linked "${cells[@]}"
expect_at lab3 0 "" run -w 20s press@lab2 -- true
kill_agent lab2
log_of_lab2 -delete
cp "$work"/before/* "$work/lab2.data"
agent_of lab2
behind() { test -e "$work/lab2.data/behind.json"; }
eventually behind
by=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["by"])' "$work/lab2.data/behind.json")

# It is taken for wrong, and removed; nobody says any more what it holds.
other=lab1
[ "$by" = lab3 ] || other=lab3
expect_at lab2 75 "knows more of this one" run -n board -- true
kill_agent "$by"
expect_at "$other" 0 "" cluster remove "$by"
kill_agent lab2
rm "$work/lab2.data/behind.json"
agent_of lab2
linked lab2 "$other"
awaited="'$by' (it was removed, and cannot say it; \`holdall cluster forget $by\`"
tells() { at lab2 agent status | grep -qF "$awaited"; }
eventually tells
expect_at lab2 75 "$awaited" run -n board -- true
expect_at lab2 75 "$awaited" run -w 3s board -- true
at lab2 run board -- true 2>"$work/told" &
waiter=$!
warned() { grep -qF "$awaited" "$work/told"; }
eventually warned
expect_at lab2 0 "" cluster forget "$by"
wait "$waiter" || fail "nobody is waited for any more: $(cat "$work/told")"
at lab2 agent status | grep -q "grants nothing" && fail "it grants again: $(at lab2 agent status)"
echo "$script: ok"
