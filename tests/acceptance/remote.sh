#!/usr/bin/env bash
# Clients without an agent: `holdall` over TLS with a token; why one is not let in; leases; and the wrapper that stops its command by
# itself before what it was lent is given to others.
set -euo pipefail
. tests/lib/service.bash
here=$HOLDALL_AGENT

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
address=127.0.0.1:$(port)
cat >"$work/config.toml" <<'END'
[pools.gpu]
units = 2
[cluster]
lease_seconds = 8
END
serve() {
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}
serve
join=$("$HOLDALL" cluster init --listen "$address" --name lab1 2>/dev/null)
eventually "$HOLDALL" cluster members
token=$("$HOLDALL" token add laptop --may view,ask,reserve --client)
case $token in HC1-*) ;; *) fail "no token for clients: $token" ;; esac

# The laptop: it has no agent and no files of its own.
there() { # COMMAND...
    env -u HOLDALL_DATA HOME="$work/laptop" HOLDALL_AGENT="tls://$address" HOLDALL_TOKEN="$token" HOLDALL_LEASE=6s "$@"
}
laptop() { there "$HOLDALL" "$@"; }
# In the background, so that $! is the wrapper.
beside() { exec env -u HOLDALL_DATA HOME="$work/laptop" HOLDALL_AGENT="tls://$address" HOLDALL_TOKEN="$token" HOLDALL_LEASE=6s "$HOLDALL" "$@"; }
mkdir "$work/laptop"
says() { # STATUS TEXT COMMAND...
    local status=$1 text=$2 out got=0
    shift 2
    out=$("$@" 2>&1) || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status: $*: $out"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}

# Everything that needs no machine works, with the rights of the token.
says 0 'gpu/0,gpu/1' laptop run gpu:2 -- sh -c 'echo $HOLDALL_UNITS_GPU'
says 0 "tls://$address" laptop run gpu -- sh -c 'echo $HOLDALL_GRANT_AGENT'
says 7 '' laptop run gpu -- sh -c 'exit 7'
says 143 '' laptop run gpu -- sh -c 'kill -TERM $$'
says 78 'would wait for itself' laptop run -n gpu:2 -- "$HOLDALL" run -n gpu -- true
says 78 '' laptop run gpu:3 -- true
says 0 'token:laptop' laptop run gpu -- "$HOLDALL" status
says 0 '127.0.0.1' laptop run gpu -- "$HOLDALL" status --json
says 0 'gpu' laptop pool list
says 0 'token:laptop' laptop agent status
grant=$(laptop hold gpu --for 1h)
says 0 "$grant" "$HOLDALL" status
says 0 '' laptop renew "$grant" --for 2h
says 0 '' laptop release "$grant"
beside run gpu:2 -- sleep 1000 & holder=$!
eventually grep -q gpu <("$HOLDALL" status --json)
eventually sh -c '"$HOLDALL" status --json | grep -q "token:laptop"'
beside run gpu -- true & waiter=$!
eventually sh -c '"$HOLDALL" status --json | grep -q "\"waiting\":\[{"'
number=$("$HOLDALL" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["waiting"][0]["request"])')
says 0 'gpu' laptop explain "$number"
kill -TERM $holder
wait $holder && fail 'it was ended' || true
wait $waiter

# Ctrl-C while waiting leaves nothing in the queue.
"$HOLDALL" run gpu:2 -- sleep 1000 & holder=$!
eventually sh -c '"$HOLDALL" status --json | grep -q "sleep 1000"'
beside run gpu -- true & waiter=$!
eventually sh -c '"$HOLDALL" status --json | grep -q "\"waiting\":\[{"'
kill -INT $waiter; wait $waiter || true
eventually sh -c '"$HOLDALL" status --json | grep -q "\"waiting\":\[\]"'
kill -TERM $holder; wait $holder || true

# What is about the machine is refused.
for words in 'agent start' 'agent stop' 'agent restart' 'token list' 'cluster members'; do
    case $words in cluster*) continue ;; esac
    says 64 "machine of the agent" laptop $words
done
says 64 'machine of the agent' laptop job run "$work/config.toml"

# Why one is not let in. No other agent is taken instead.
says 64 'like tls://lab1:7420' there env HOLDALL_AGENT=tls://lab1 "$HOLDALL" status
says 64 'needs a token' there env -u HOLDALL_TOKEN "$HOLDALL" status
says 64 'mistyped' there env HOLDALL_TOKEN=HC1-abc "$HOLDALL" status
says 64 'begins with HC1-' there env HOLDALL_TOKEN=hat_abc "$HOLDALL" status
says 64 'unset one' there env HOLDALL_TOKEN_FILE="$work/token" "$HOLDALL" status
says 64 'too short' there env HOLDALL_LEASE=1s "$HOLDALL" run gpu -- true
echo "$token" >"$work/token"
says 0 '' there env -u HOLDALL_TOKEN HOLDALL_TOKEN_FILE="$work/token" "$HOLDALL" run gpu -- true
says 69 'cannot reach' there "$HOLDALL" run --agent tls://127.0.0.1:1 gpu -- true
wrong=${token%.*}.hat_0000
says 69 'refuses' there env HOLDALL_TOKEN="$wrong" "$HOLDALL" run gpu -- true
other=$(HOLDALL_AGENT=$work/b.sock HOLDALL_DATA=$work/b sh -c '
    "$HOLDALL" agent start && "$HOLDALL" cluster init --listen 127.0.0.1:0 --name lab1 >/dev/null 2>&1
    "$HOLDALL" token add laptop --may view,ask --client; "$HOLDALL" agent stop' 2>/dev/null)
says 69 'another cluster' there env HOLDALL_TOKEN="$other" "$HOLDALL" run gpu -- true
view=$("$HOLDALL" token add wall --may view --client)
says 77 'ask' there env HOLDALL_TOKEN="$view" "$HOLDALL" run gpu -- true
says 0 'gpu' there env HOLDALL_TOKEN="$view" "$HOLDALL" status

# Taken away by force, it is the laptop's until its command has ended: nobody else sees that.
beside run gpu:2 -- sh -c "trap 'sleep 2; echo laptop stops >>$work/forced; exit 0' TERM; touch $work/runs; while :; do sleep 0.1; done" \
    2>/dev/null & holder=$!
eventually test -e "$work/runs"
grant=$("$HOLDALL" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["grants"][0]["request"])')
says 0 '' "$HOLDALL" release --force "$grant"
says 75 '' "$HOLDALL" run -n gpu -- true
"$HOLDALL" run -w 30s gpu:2 -- sh -c "echo next runs >>$work/forced"
status=0; wait $holder || status=$?
[ $status -eq 70 ] || fail "the command ended with $status"
[ "$(tr '\n' ' ' <"$work/forced")" = 'laptop stops next runs ' ] || fail "$(cat "$work/forced")"

# What the command leaves behind.
laptop run gpu -- sh -c 'setsid sleep 2 & echo left' >"$work/out" 2>&1
grep -q 'left behind' "$work/out" || fail "nothing is said of what is left: $(cat "$work/out")"
says 0 'not held for them' laptop run --leftovers warn gpu -- sh -c 'setsid sleep 3 >/dev/null 2>&1 &'
laptop run --leftovers kill gpu -- sh -c 'setsid sleep 1000 & echo $! >'"$work/pid"
eventually sh -c "! kill -0 $(cat "$work/pid")"
says 124 'time limit' laptop run --limit 1s gpu -- sleep 1000

# An agent that is killed and back in time is not noticed.
beside run gpu -- sh -c "touch $work/started; until [ -e $work/go ]; do sleep 0.1; done; exit 5" & holder=$!
eventually test -e "$work/started"
kill -9 $agent; wait $agent || true
serve
touch "$work/go"
status=0; wait $holder || status=$?
[ $status -eq 5 ] || fail "the command ended with $status"
eventually sh -c '"$HOLDALL" status --json | grep -q "\"grants\":\[\]"'

# An agent that hangs: the command is stopped in time, and nobody else had it before.
lends() { # NAME: a command that notes when it runs
    echo "trap 'echo $1 is asked >>$work/order; exit 0' TERM; echo $1 runs >>$work/order; while :; do sleep 0.1; done"
}
beside run gpu:2 -- sh -c "$(lends laptop)" 2>"$work/why" & holder=$!
eventually grep -q 'laptop runs' "$work/order"
kill -STOP $agent
status=0; wait $holder || status=$?
echo 'laptop is over' >>"$work/order"
kill -CONT $agent
[ $status -eq 70 ] || fail "the command ended with $status: $(cat "$work/why")"
grep -q 'stopping the command' "$work/why" || fail "it is not said why: $(cat "$work/why")"
"$HOLDALL" run -w 60s gpu:2 -- sh -c "echo next runs >>$work/order"
[ "$(tr '\n' ' ' <"$work/order")" = 'laptop runs laptop is asked laptop is over next runs ' ] || fail "$(cat "$work/order")"

# One that does not want to end is killed in time.
beside run gpu -- sh -c "trap '' TERM; touch $work/deaf; while :; do sleep 0.1; done" 2>/dev/null & holder=$!
eventually test -e "$work/deaf"
kill -STOP $agent
status=0; wait $holder || status=$?
kill -CONT $agent
[ $status -eq 70 ] || fail "the command ended with $status"

# A wrapper that is killed takes its command with it, and what it held is free when the lease is over.
beside run gpu:2 -- sh -c "echo \$\$ >$work/child; exec sleep 1000" & holder=$!
eventually test -s "$work/child"
kill -9 $holder; wait $holder || true
eventually sh -c "! kill -0 $(cat "$work/child")"
"$HOLDALL" run -w 60s gpu:2 -- true

# The machine of the agent is restarted: the laptop is not, and goes on with what it was lent, for longer than a lease.
boot=/proc/sys/kernel/random/boot_id
cat /proc/sys/kernel/random/uuid >"$work/boot"
if unshare -m mount --bind "$work/boot" $boot 2>/dev/null; then
    beside run gpu:2 -- sleep 1000 2>/dev/null & holder=$!
    eventually sh -c '"$HOLDALL" status --json | grep -q "sleep 1000"'
    kill -9 $agent; wait $agent || true
    unshare -m sh -c 'mount --bind "$0" "$1" && exec "$HOLDALL" agent --config "$2"' \
        "$work/boot" $boot "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
    grep -q 'the machine was restarted' "$work/log" || fail 'it does not know of another boot'
    says 75 '' "$HOLDALL" run -n gpu -- true
    sleep 7
    says 75 '' "$HOLDALL" run -n gpu -- true
    kill $holder || fail 'the command has ended'
    status=0; wait $holder || status=$?
    [ $status -eq 143 ] || fail "the command ended with $status"
    "$HOLDALL" run -w 60s gpu:2 -- true
else
    not_tried 'a machine that is restarted: needs to mount something in a namespace'
fi

# A token that is removed ends its connections, and is good for nothing.
beside run gpu -- sleep 1000 2>"$work/why" & holder=$!
eventually sh -c '"$HOLDALL" status --json | grep -q "token:laptop"'
"$HOLDALL" token remove laptop
status=0; wait $holder || status=$?
[ $status -eq 70 ] || fail "the command ended with $status: $(cat "$work/why")"
says 69 'refuses' laptop status
echo "remote.sh: ok"
