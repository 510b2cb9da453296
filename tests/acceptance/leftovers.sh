#!/usr/bin/env bash
# What a command leaves behind: it is known, waited for, let go or ended, and stops nobody else;
# with cgroups where they can be had, and without.
set -euo pipefail
. tests/lib/service.bash

start() {
    "$HOLDALL" agent --config "$work/config.toml" --socket "$HOLDALL_AGENT" --data "$HOLDALL_DATA" \
        "$@" 2>>"$work/agent.log" &
    agent=$!
}
agent() {
    start
    eventually "$HOLDALL" agent status
}
stop() {
    expect 0 "" agent stop
    wait "$agent" || fail "the agent did not end well: $(cat "$work/agent.log")"
}

# Leaves a process behind that has a session of its own, and notes its number.
leave='setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$0"'
alive() { [[ "$(ps -o stat= -p "$1")" =~ ^[^Z] ]]; }
# The number that is written in a file, which must be there, and is not there the next time.
noted() {
    [ -s "$1" ] || fail "nothing is noted in $1"
    cat "$1" && rm "$1"
}
# What is told of grants and processes that a script left behind is ended with it.
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    clean_up
}
trap end_left EXIT

for cgroups in true false; do
    echo "cgroups = $cgroups" >"$work/config.toml"
    agent
    if [ "$cgroups" = false ]; then
        expect 0 "the configuration says cgroups = false" agent status
    fi

    # By default everything is held until it is gone. status says for what it waits, and nobody
    # else does.
    expect 0 "a is held until what the command has left behind has ended" run a -- sh -c "$leave" "$work/pid"
    pid=$(noted "$work/pid") && left+=("$pid")
    expect 75 "a is held by" run -n a -- true
    expect 0 "" run -n b -- true
    expect 0 "ending, waits for $pid" status a
    expect 0 "\"pids\":[$pid]" status --json

    # So it is after the agent was killed, after it was stopped, and after it ended by itself.
    kill -9 "$agent" && wait "$agent" 2>/dev/null || true
    agent
    expect 0 "" run -n b -- true
    expect 75 "a is held by" run -n a -- true
    expect 0 "ending, waits for $pid" status a
    stop
    start --idle-exit 100ms
    wait "$agent" || fail "the agent did not end well: $(cat "$work/agent.log")"
    agent
    expect 75 "a is held by" run -n a -- true
    expect 0 "" run -n b -- true
    alive "$pid" || fail "what was left behind was killed"
    kill -9 "$pid"
    expect 0 "" run -w 10s a -- true

    # A grant that waits for what was left can be taken away, and that is ended.
    "$HOLDALL" run a -- sh -c "$leave" "$work/pid" 2>/dev/null
    pid=$(noted "$work/pid") && left+=("$pid")
    grant=$("$HOLDALL" status --json | sed -n 's/.*"grants":\[{"request":"\([^"]*\)".*/\1/p')
    expect 0 "" release --force "$grant"
    eventually sh -c "! kill -0 $pid"
    expect 0 "" run -w 10s a -- true

    # It is let go, which is told; or it is ended.
    expect 0 "not held for them" run --leftovers warn a -- sh -c "$leave" "$work/pid"
    pid=$(noted "$work/pid") && left+=("$pid")
    expect 0 "" run -n a -- true
    alive "$pid" || fail "--leftovers warn has ended something"
    kill -9 "$pid"
    expect 0 "" run --leftovers kill a -- sh -c "$leave" "$work/pid"
    pid=$(noted "$work/pid")
    alive "$pid" && fail "--leftovers kill has left something"
    expect 0 "" run --leftovers kill a -- sh -c 'setsid sh -c "trap \"\" TERM; echo \$\$ >$0; while :; do sleep 1; done" >/dev/null 2>&1 & while [ ! -s "$0" ]; do sleep 0.01; done' "$work/deaf"
    pid=$(noted "$work/deaf")
    alive "$pid" && fail "--leftovers kill has left what ignores SIGTERM"

    # A wrapper that is killed takes its command with it, and what that has started.
    "$HOLDALL" run a -- sh -c 'sleep 1000 & echo $! >"$0"; wait' "$work/grandchild" 2>/dev/null &
    wrapper=$!
    eventually test -s "$work/grandchild"
    kill -9 "$wrapper"
    expect 0 "" run -w 10s a -- true
    pid=$(noted "$work/grandchild")
    alive "$pid" && fail "a child of a killed wrapper's command lives on"
    # It does so even if nobody is there to kill it.
    "$HOLDALL" run a -- sh -c 'echo $$ >"$0"; exec sleep 1000' "$work/command" 2>/dev/null &
    wrapper=$!
    eventually test -s "$work/command"
    kill -9 "$agent" "$wrapper"
    wait "$agent" "$wrapper" 2>/dev/null || true
    agent
    expect 0 "" run -w 10s a -- true
    pid=$(noted "$work/command")
    alive "$pid" && fail "the command of a killed wrapper lives on"

    stop
done

# With cgroups that holds even for what has left the session. An agent that is started from inside
# a grant is no part of it.
echo >"$work/config.toml"
agent
if "$HOLDALL" agent status | grep -q "in a cgroup of its own"; then
    "$HOLDALL" run a -- sh -c "$leave; sleep 1000" "$work/pid" 2>/dev/null &
    wrapper=$!
    eventually test -s "$work/pid"
    left+=("$(cat "$work/pid")")
    kill -9 "$wrapper"
    expect 0 "" run -w 10s a -- true
    alive "$(cat "$work/pid")" && fail "setsid has escaped from a killed wrapper"
    other="$work/other.sock"
    expect 0 "" run a -- env -u HOLDALL_DATA "$HOLDALL" run --agent "$other" x -- true
    expect 0 "" run -n a -- true
    env -u HOLDALL_DATA "$HOLDALL" agent stop --agent "$other"

    # An agent that was killed before it could note, or remove, a cgroup leaves one; the next removes it.
    mount=$(awk '/ - cgroup2 / {print $5; exit}' /proc/self/mountinfo)
    own=$("$HOLDALL" run a -- sed -n 's/^0:://p' /proc/self/cgroup)
    forgotten="$mount${own%-*-*}-99-99"
    mkdir "$forgotten"
    kill -9 "$agent" && wait "$agent" 2>/dev/null || true
    agent
    [ ! -e "$forgotten" ] || fail "$forgotten is left"
else
    not_tried "cgroups"
fi

# An agent that has no descriptor left to look with takes nobody for gone.
stop
"$HOLDALL" agent --socket "$HOLDALL_AGENT" --data "$HOLDALL_DATA" 2>>"$work/agent.log" &
agent=$!
eventually "$HOLDALL" agent status
prlimit --pid "$agent" --nofile=48:48
"$HOLDALL" run a -- sh -c 'echo $$ >"$0"; exec sleep 1000' "$work/command" &
wrapper=$!
eventually test -s "$work/command"
waiters=()
for i in $(seq 60); do
    "$HOLDALL" run a -- sh -c 'case $(ps -o stat= -p "$0") in "" | Z*) ;; *) exit 1 ;; esac' \
        "$(cat "$work/command")" 2>/dev/null &
    waiters+=($!)
done
eventually grep -q "cannot accept" "$work/agent.log"
kill -9 "$wrapper"
for pid in "${waiters[@]:30}"; do
    kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
done
granted=0
for pid in "${waiters[@]:0:30}"; do
    status=0 && wait "$pid" || status=$?
    [ "$status" -ne 1 ] || fail "granted while the command of a killed wrapper lived"
    [ "$status" -ne 0 ] || granted=$((granted + 1))
done
[ "$granted" -gt 0 ] || fail "nobody was granted what is free again"
stop
echo "$script: ok"
