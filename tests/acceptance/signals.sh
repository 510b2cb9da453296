#!/usr/bin/env bash
# Signals to `holdall run` and its command: stopped, ignored, with grace, without a wrapper.
set -euo pipefail
. tests/lib/service.bash
"$HOLDALL" run a -- true

run() { # NAME SCRIPT: runs it in the background, until it has begun.
    rm -f "$work/begun"
    # A script has its background jobs ignore SIGINT, and what is ignored stays ignored.
    (trap - INT && exec "$HOLDALL" run "$1" -- sh -c "echo \$\$ >'$work/begun'; $2") &
    wrapper=$!
    eventually test -s "$work/begun"
    child=$(cat "$work/begun")
}
ended() { # STATUS: the status with which the wrapper ends.
    local status=0
    wait "$wrapper" || status=$?
    [ "$status" -eq "$1" ] || fail "status $status instead of $1"
}

# SIGTERM reaches a command that is stopped, and everything in its group.
run a 'sleep 1000; true'
kill -STOP "$child"
kill -TERM "$wrapper"
ended 143
expect 0 "" run -w 10s a -- true

# What is ignored from the start stays ignored: nohup.
rm -f "$work/begun"
nohup "$HOLDALL" run a -- sh -c 'echo $$ >"$0"; sleep 0.5; exit 5' "$work/begun" >/dev/null 2>&1 &
wrapper=$!
eventually test -s "$work/begun"
kill -HUP "$wrapper" "$(cat "$work/begun")"
ended 5

# A grant that is taken away leaves everybody five seconds, not only the first who ends.
run a "sh -c 'trap \"sleep 0.5; echo clean >$work/clean; exit\" TERM; while :; do sleep 0.05; done'; true"
grant=$("$HOLDALL" status --json | sed -n 's/.*"grants":\[{"request":"\([^"]*\)".*/\1/p')
"$HOLDALL" release --force "$grant"
ended 70
[ -s "$work/clean" ] || fail "the grace was cut short"
# But not more.
run a "trap '' TERM; while :; do sleep 0.05; done"
grant=$("$HOLDALL" status --json | sed -n 's/.*"grants":\[{"request":"\([^"]*\)".*/\1/p')
"$HOLDALL" release --force "$grant"
ended 70
kill -0 "$child" 2>/dev/null && fail "what ignores SIGTERM lives on"

# SIGINT that ends the command ends the wrapper as a signal does, so that a script stops, too.
run a 'kill -INT $$; sleep 1000'
ended 130

# An agent that somebody has started who waits leaves nothing of itself when it ends.
run x 'sleep 1000; true'
holder=$wrapper
"$HOLDALL" run x -- true 2>/dev/null &
waiter=$!
waits() { "$HOLDALL" status x --json | grep -q '"waiting":\[{'; }
eventually waits
former=$(agent_pid)
kill -9 "$former"
another() { agent=$(agent_pid) && [ -n "$agent" ] && [ "$agent" -ne "$former" ]; }
eventually another
agent=$(agent_pid)
[ "$(ps -o ppid= -p "$agent" | tr -d ' ')" -eq "$waiter" ] || fail "somebody else has started it"
kill -TERM "$agent"
gone() { ! kill -0 "$agent"; }
eventually gone
kill -TERM "$holder" "$waiter"
wait "$holder" "$waiter" || true

timeout 60 python3 tests/lib/pipeline.py || fail "on a terminal"
timeout 300 python3 tests/lib/unread.py || fail "when nobody reads what is said"
echo "$script: ok"
