#!/usr/bin/env bash
# A reservation of what other members guard outlasts the memory of its home: each guard keeps its part until its time, or until somebody
# releases it there.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2 lab3)
for cell in "${cells[@]}"; do
    printf 'cgroups = false\n[cluster]\nlease_seconds = 10\n[pools.board]\nunits = 2\n[pools.scope]\nunits = 1\n' >"$work/$cell.toml"
    agent_of "$cell"
done
join_all "${cells[@]}"

lose_log() {
    kill_agent lab3
    find "$work/lab3.data" -maxdepth 1 \( -name 'segment-*' -o -name 'snapshot-*' \) -delete
    agent_of lab3
    linked "${cells[@]}"
}
# The number by which a guard knows what is reserved there.
reserved_at() {
    at "$1" status --json | python3 -c '
import json, sys
print(*[grant["request"] for grant in json.load(sys.stdin)["grants"] if grant["state"] == "reserved"])'
}

at lab3 hold board/0@lab2 scope@lab1 board/0 --for 1h >/dev/null 2>&1
at lab3 run board/1@lab2 -- sh -c 'touch "$0"; exec sleep 1000' "$work/used" 2>/dev/null &
user=$!
eventually test -e "$work/used"

# Its log is lost: what was reserved is kept where it is guarded, what was used is not.
lose_log
expect_at lab1 0 "" run -w 60s board/1@lab2 -- true
expect_at lab3 0 "" run -w 60s board:2 -- true
expect_at lab1 75 "board/0" run -n board/0@lab2 -- true
expect_at lab3 75 "scope" run -n scope@lab1 -- true
expect_at lab2 0 "@lab3" status board
wait "$user" || true

# Also when the agent is killed that keeps it, and when the home has lost all of its directory, and is a member again.
kill_agent lab2
agent_of lab2
linked "${cells[@]}"
expect_at lab1 75 "board/0" run -n board/0@lab2 -- true
kill_agent lab3
rm -rf "$work/lab3.data"
agent_of lab3
address=$(at lab1 cluster members --json | python3 -c '
import json, sys
print(next(m["addresses"][0] for m in json.load(sys.stdin)["members"] if m["own"]))')
token=$(at lab1 cluster token --for lab3)
expect_at lab3 0 "lab3" cluster join "$address" --token "$token" --listen 127.0.0.1:0
linked "${cells[@]}"
expect_at lab3 0 "" run -w 120s board -- true
expect_at lab1 75 "board/0" run -n board/0@lab2 -- true
expect_at lab3 75 "scope" run -n scope@lab1 -- true

# Whoever knows that it is not used any more releases it where it is kept.
expect_at lab2 65 "--force" release "$(reserved_at lab2)"
expect_at lab2 0 "" release --force "$(reserved_at lab2)"
expect_at lab1 0 "" run -w 20s board/0@lab2 -- true
expect_at lab3 75 "scope" run -n scope@lab1 -- true

# And when its time is over, it is.
at lab3 hold scope@lab2 --for 15s >/dev/null 2>&1
lose_log
expect_at lab1 0 "" run -w 120s scope@lab2 -- true

# What its home remembers to be over is.
at lab3 hold scope@lab2 --for 1h >"$work/reserved" 2>/dev/null
kill_agent lab2
expect_at lab3 0 "" release "$(head -1 "$work/reserved")"
kill_agent lab3
agent_of lab3
agent_of lab2
linked "${cells[@]}"
expect_at lab1 0 "" run -w 60s scope@lab2 -- true
echo "$script: ok"
