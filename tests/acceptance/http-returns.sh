#!/usr/bin/env bash
# An agent that serves HTTP at an address and is killed comes back there when a command starts it again; one that was stopped
# does not. Tokens are those of the last agent, and a FIFO in their place holds nobody up.
set -euo pipefail
. tests/lib/service.bash

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
ready() { curl -sf --max-time 5 "http://127.0.0.1:$1/readyz"; }
kill_agent() {
    local pid
    pid=$(agent_pid)
    kill -9 "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}
port=$(free_port) metrics=$(free_port)
while [ "$metrics" = "$port" ]; do metrics=$(free_port); done
"$HOLDALL" agent --http "127.0.0.1:$port" --metrics "127.0.0.1:$metrics" 2>>"$work/log" &
disown
eventually ready "$port"
token=$("$HOLDALL" token add page --may view)
kill_agent
if ready "$port"; then fail "something else answers at the port"; fi
"$HOLDALL" run db -- true
eventually ready "$port"
curl -sf --max-time 5 "http://127.0.0.1:$metrics/metrics" >/dev/null || fail "no metrics any more"
curl -sf --max-time 5 -H "authorization: Bearer $token" "http://127.0.0.1:$port/v1/status" >/dev/null || fail "the token is not known"
# And once more: what was remembered is remembered by the next one, too. It does not end by itself, since who comes there cannot start it.
kill_agent
HOLDALL_IDLE_EXIT=100ms "$HOLDALL" run db -- true
sleep 1
ready "$port" >/dev/null || fail "it has ended, or does not listen"

# If somebody else has taken the port, the agent serves without it, says so, and takes it when it can be had.
kill_agent
python3 -c '
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
print("taken", flush=True)
time.sleep(600)' "$port" >"$work/taken" &
stranger=$!
eventually test -s "$work/taken"
"$HOLDALL" run db -- true
"$HOLDALL" agent status | grep -q "no HTTP over TCP: cannot listen at 127.0.0.1:$port" || fail "it does not say what is missing"
kill "$stranger"
eventually ready "$port"

# Who stops an agent closes its addresses.
"$HOLDALL" agent stop
"$HOLDALL" run db -- true
if ready "$port"; then fail "it listens again, although it was stopped"; fi
"$HOLDALL" agent stop

# A FIFO, a link and a folder where the tokens should be are told, and hold up neither the command nor the agent.
rm "$HOLDALL_DATA/tokens.json"
mkfifo "$HOLDALL_DATA/tokens.json"
told() { # TEXT COMMAND
    local text=$1 out got=0
    shift
    out=$(timeout 20 "$HOLDALL" "$@" 2>&1) || got=$?
    [ "$got" -eq 71 ] || fail "status $got instead of 71: $*: $out"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}
told "tokens.json: it is no plain file" token list
told "tokens.json: it is no plain file" token add ci --may view
timeout 20 "$HOLDALL" run db -- true || fail "a FIFO holds up the agent"
curl -sf --max-time 10 --unix-socket "$work/agent.http.sock" http://localhost/readyz >/dev/null || fail "a FIFO holds up the gateway"
"$HOLDALL" agent stop
rm "$HOLDALL_DATA/tokens.json"
ln -s /etc/passwd "$HOLDALL_DATA/tokens.json"
told "tokens.json: it is a link" token list
rm "$HOLDALL_DATA/tokens.json"

# Tokens of an agent that does not run are where the last one had its files.
"$HOLDALL" agent --socket "$work/far.sock" --data "$work/far" 2>>"$work/log" &
far=$!
eventually "$HOLDALL" status --agent "$work/far.sock"
kill "$far"
wait "$far" 2>/dev/null || true
"$HOLDALL" token add far --may view --agent "$work/far.sock" >/dev/null
grep -q '"far"' "$work/far/tokens.json" || fail "the token is not where the last agent had its files"
echo "$script: ok"
