#!/usr/bin/env bash
# Containers: agent and clients in pid, time and cgroup namespaces of their own, and without clone3.
set -euo pipefail
. tests/lib/service.bash

# What most containers and services forbid is not needed.
for cgroups in true false; do
    echo "cgroups = $cgroups" >"$work/config.toml"
    python3 tests/lib/noclone3.py "$HOLDALL" agent --config "$work/config.toml" 2>"$work/log" &
    eventually "$HOLDALL" agent status
    before=$("$HOLDALL" agent status | grep -c "in a cgroup of its own" || true)
    expect 0 "" run a -- true
    python3 tests/lib/noclone3.py "$HOLDALL" run a -- sh -c 'exit 3' && fail "status 0 instead of 3" || [ $? -eq 3 ] || fail "without clone3 nothing runs"
    "$HOLDALL" agent stop
    wait %%
    "$HOLDALL" agent --config "$work/config.toml" 2>"$work/log" &
    eventually "$HOLDALL" agent status
    [ "$before" = "$("$HOLDALL" agent status | grep -c "in a cgroup of its own" || true)" ] || fail "without clone3 there are no cgroups"
    "$HOLDALL" agent stop
    wait %%
    rm "$HOLDALL_AGENT.lock"
done

if ! unshare --pid --fork --mount-proc --time true 2>/dev/null; then
    not_tried "namespaces"
    exit 0
fi
inside() { unshare --pid --fork --mount-proc --kill-child "$@"; }
leave='setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$0"'
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    clean_up
}
trap end_left EXIT
start() { # COMMAND...: an agent, started by it.
    "$@" "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    eventually "$HOLDALL" agent status
    # Its number here: inside, it has another.
    agent=$(pgrep -f "^$HOLDALL agent --config $work")
}
kill_agent() {
    kill -9 "$agent"
    eventually sh -c "! kill -0 $agent"
}

for cgroups in true false; do
    echo "cgroups = $cgroups" >"$work/config.toml"

    # A client inside, also as the first process there; the agent sees all of it from outside.
    start env
    for shell in "" "sh -c '\"\$@\"; exit \$?' sh"; do
        got=0
        eval inside $shell '"$HOLDALL"' run a -- sh -c "'exit 3'" || got=$?
        [ "$got" -eq 3 ] || fail "status $got instead of 3 inside ($cgroups, $shell)"
    done
    inside sh -c '"$HOLDALL" run a -- sh -c "setsid sleep 1000 & wait"; true' 2>/dev/null &
    eventually sh -c '"$HOLDALL" status a | grep -q setsid'
    client=$(client_of a)
    eventually sh -c "pgrep -P \$(pgrep -P $client -f setsid) sleep"
    sleeper=$(pgrep -P "$(pgrep -P "$client" -f setsid)" sleep)
    left+=("$sleeper")
    kill -9 "$client"
    expect 0 "" run -w 10s a -- sh -c 'case $(ps -o stat= -p "$0") in "" | Z*) ;; *) exit 1 ;; esac' "$sleeper"
    kill_agent

    # The agent inside, its client outside: it does not see the client, names no number, and says so.
    start inside
    expect 69 "another pid namespace" run a -- true
    expect 0 "" hold "b-$cgroups" --for 1h
    expect 0 "reserved" status "b-$cgroups"
    kill_agent

    # What a command has left behind holds on when the next agent cannot see it, and does not when
    # one comes that can.
    start env
    "$HOLDALL" run a -- sh -c "$leave" "$work/pid" 2>/dev/null
    left+=("$(cat "$work/pid")")
    kill_agent
    others=("inside" "unshare --time --boottime 100000 --fork --kill-child")
    [ "$cgroups" = false ] || others=("inside")
    for other in "${others[@]}"; do
        # shellcheck disable=SC2086
        start $other
        expect 75 "a is held by" hold -n a
        if [ "$cgroups" = false ]; then
            expect 0 "ending, waits for what cannot be seen" status a
        fi
        kill_agent
    done
    start env
    expect 75 "a is held by" run -n a -- true
    expect 0 "ending, waits for $(cat "$work/pid")" status a
    kill -9 "$(cat "$work/pid")"
    expect 0 "" run -w 10s a -- true
    kill_agent
done

# Agents in two containers have one number, and yet each command a cgroup of its own.
echo >"$work/config.toml"
start env
if ! "$HOLDALL" agent status | grep -q "in a cgroup of its own"; then
    not_tried "cgroups"
    exit 0
fi
kill_agent
contained() { # NAME COMMAND: in a container, with an agent of number 1000.
    mkdir "$work/$1"
    HOLDALL_AGENT="$work/$1/agent.sock" HOLDALL_DATA="$work/$1/data" inside bash -c '
        echo 999 >/proc/sys/kernel/ns_last_pid
        "$HOLDALL" agent 2>/dev/null &
        until "$HOLDALL" agent status >/dev/null 2>&1; do sleep 0.05; done
        "$HOLDALL" run x -- sh -c "$1"
        status=$?
        kill -9 %1
        exit $status' bash "$2"
}
contained one "touch $work/begun; while [ -e $work/begun ]; do sleep 0.1; done" 2>/dev/null &
eventually test -e "$work/begun"
contained two "grep -q holdall- /proc/self/cgroup" 2>/dev/null || fail "no cgroup beside another container"
rm "$work/begun"

# The next agent sees another part of the cgroups: what it does not find there is not gone.
mount=$(awk '/ - cgroup2 / {print $5; exit}' /proc/self/mountinfo)
part="$mount$(sed -n 's/^0:://p' /proc/self/cgroup)/holdall-part-$$"
mkdir "$part"
start env
"$HOLDALL" run a -- sh -c "$leave" "$work/pid" 2>/dev/null
left+=("$(cat "$work/pid")")
kill_agent
bash -c 'echo $$ >"$0/cgroup.procs" && exec unshare --cgroup --mount sh -c "umount \"$1\" && mount -t cgroup2 none \"$1\" && exec \"\$HOLDALL\" agent --config \"$2/config.toml\""' "$part" "$mount" "$work" 2>"$work/log" &
agent=$!
eventually "$HOLDALL" agent status
expect 75 "a is held by" run -n a -- true
expect 0 "ending, waits for what cannot be seen" status a
# Whoever knows better can free it, and is told that nothing was ended.
expect 65 "was not ended" release --force "$("$HOLDALL" status a --json | sed -n 's/.*"grants":\[{"request":"\([^"]*\)".*/\1/p')"
kill_agent
kill -9 "$(cat "$work/pid")"
eventually rmdir "$part"
echo "$script: ok"
