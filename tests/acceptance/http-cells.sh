#!/usr/bin/env bash
# Over HTTP, and with the Python client, what another cell guards: it is granted, renewed and waited for, answers tell for how long it is
# good, and whoever uses it has stopped before its guard gives it to another, whichever of the two agents is cut off or gone.
set -euo pipefail
. tests/lib/cluster.bash

cells=(lab1 lab2)
for cell in "${cells[@]}"; do
    printf 'cgroups = false\n[cluster]\nlease_seconds = 8\n[pools.board]\nunits = 1\n' >"$work/$cell.toml"
    agent_of "$cell"
done
join_all lab1 lab2

call() { # METHOD PATH [BODY] at lab1: prints the status, a blank and the body
    curl -sS --max-time 60 --unix-socket "$work/lab1.http.sock" -X "$1" "http://localhost$2" -o "$work/body" -w '%{http_code} ' \
        ${3:+-H 'content-type: application/json' -d "$3"} && cat "$work/body"
}
told() { # TEXT COMMAND: what it prints has the text in it
    local text=$1 out
    shift
    out=$("$@" 2>&1) || true
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}
is_lent() { # what was told last is good for no longer than a lease between cells, and for some time
    python3 - "$work/body" <<'END'
import json, sys
told = json.load(open(sys.argv[1]))
assert told["ttl_ms"] == 600000 and 0 < told["lent_ms"] <= 8000 and told["valid_ms"] == told["lent_ms"], told
END
}

# Its life, with a lease of its own that is longer than that between cells.
told '"state":"granted"' call PUT /v1/requests/mine '{"needs": ["board@lab2", "board@lab1"], "ttl_ms": 600000, "wait_ms": 30000}'
is_lent
told '"exit":75' call PUT /v1/requests/other '{"needs": ["board@lab2"]}'
told '200 ' call POST /v1/requests/mine/renew
is_lent
told '"state":"granted"' call GET '/v1/requests/mine?wait_ms=3000&until=ended'
is_lent
told '202 ' call PUT /v1/requests/other '{"needs": ["board@lab2"], "ttl_ms": 600000, "queue": true}'
told '"state":"released"' call DELETE /v1/requests/mine
told '"state":"granted"' call GET '/v1/requests/other?wait_ms=30000'
is_lent
# An agent that is killed and comes back says so again as soon as the other one has confirmed it.
kill_agent lab1
agent_of lab1
eventually curl -sf --unix-socket "$work/lab1.http.sock" http://localhost/readyz
again() { call POST /v1/requests/other/renew | grep -q '^200 .*"state":"granted".*"name":"board/0@lab2"'; }
eventually again
is_lent

# The guard hangs: whoever waits for the end is told when the lease is about to be over, and nobody else had it before.
curl -sS --max-time 60 --unix-socket "$work/lab1.http.sock" 'http://localhost/v1/requests/other?wait_ms=60000&until=ended' -o "$work/ended" &
waits=$!
at lab2 run -w 60s board -- sh -c "echo next runs >>$work/order" &
next=$!
queued() { at lab2 status --json | grep -q '"waiting":\[{'; }
eventually queued
kill -STOP "$(cat "$work/lab2.pid")"
wait "$waits"
told 'urn:holdall:problem:lost' cat "$work/ended"
echo "told of the loss" >>"$work/order"
told '410 ' call DELETE /v1/requests/other
kill -CONT "$(cat "$work/lab2.pid")"
wait "$next"
in_order() { # LINES
    [ "$(tr '\n' ',' <"$work/order")" = "$1" ] || fail "not in order: $(cat "$work/order")"
    rm "$work/order"
}
in_order "told of the loss,next runs,"
linked lab1 lab2

# A program that uses it through the Python client, and nobody can tell it anything: its own agent hangs, or is killed.
cat >"$work/uses.py" <<'END'
import sys, holdall
order = open(sys.argv[1], "a", buffering=1)
try:
    with holdall.hold("board@lab2", ttl=600, agent=sys.argv[2]) as grant:
        print("it runs", file=order)
        grant.lost.wait(120)
        print("it is over", file=order)
except holdall.Lost:
    pass
END
for cut in STOP KILL; do
    HOLDALL_PROGRAM=/nonexistent PYTHONPATH=clients/python/src python3 "$work/uses.py" "$work/order" "$work/lab1.sock" &
    uses=$!
    eventually test -s "$work/order"
    at lab2 run -w 60s board -- sh -c "echo next runs >>$work/order" &
    next=$!
    eventually queued
    kill "-$cut" "$(cat "$work/lab1.pid")"
    wait "$next"
    [ "$cut" = KILL ] || kill -CONT "$(cat "$work/lab1.pid")"
    [ "$cut" = STOP ] || { wait "$(cat "$work/lab1.pid")" 2>/dev/null || true; agent_of lab1; }
    wait "$uses"
    in_order "it runs,it is over,next runs,"
    linked lab1 lab2
done
echo "$script: ok"
