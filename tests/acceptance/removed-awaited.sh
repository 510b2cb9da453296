#!/usr/bin/env bash
# A log was put back, and the member that knew more of it is removed: with pools that wait, its cell waits for what that one holds, and
# says so to everybody until the removed one is forgotten as well, by its id.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2 lab3)
for cell in "${cells[@]}"; do
    printf 'cgroups = false\n[cluster]\nlease_seconds = 10\n[pools.board]\nunits = 1\n' >"$work/$cell.toml"
done
printf '[pools.press]\nlock = true\non_partition = "wait"\n' >>"$work/lab2.toml"
for cell in "${cells[@]}"; do agent_of "$cell"; done
join_all lab2 lab1 lab3

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
id_of() { at lab2 cluster members --json | python3 -c 'import json, sys
members = json.load(sys.stdin)["members"]
print(*[one["id"] for one in members if one["name"] == sys.argv[1] and one["removed"] == (sys.argv[2] == "removed")])' "$@"; }
id=$(id_of "$by" removed)
awaited="'$by' (it was removed, and cannot say it; \`holdall cluster forget $id\`"
tells() { at lab2 agent status | grep -qF "$awaited"; }
eventually tells
expect_at lab2 75 "$awaited" run -n board -- true
expect_at lab2 75 "$awaited" run -w 3s board -- true
at lab2 run board -- true 2>"$work/told" &
waiter=$!
warned() { grep -qF "$awaited" "$work/told"; }
eventually warned
# Its machine joins again under the same name: the living one is not forgotten in its place.
cp "$work/$by.toml" "$work/again.toml"
cells+=(again)
agent_of again
address=$(at lab2 cluster members --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["listens"])')
expect_at again 0 "" cluster join "$address" --token "$(at lab2 cluster token)" --listen 127.0.0.1:0 --name "$by"
eventually sees lab2 "$by" up
expect_at lab2 65 "$id (was removed)" cluster forget "$by"
expect_at lab2 65 "$(id_of "$by" member) (is a member)" cluster forget "$by"
warned || fail "it is given up"
expect_at lab2 0 "" cluster forget "$id"
wait "$waiter" || fail "nobody is waited for any more: $(cat "$work/told")"
at lab2 agent status | grep -q "grants nothing" && fail "it grants again: $(at lab2 agent status)"
echo "$script: ok"
