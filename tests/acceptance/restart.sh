#!/usr/bin/env bash
# An agent after another: what still runs holds what it held, whatever has become of the pools and of those who
# ran it.
set -euo pipefail
. tests/lib/service.bash
leave='setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$0"'
alive() { [[ "$(ps -o stat= -p "$1")" =~ ^[^Z] ]]; }
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    clean_up
}
trap end_left EXIT
agent() {
    "$HOLDALL" agent --config "$work/config.toml" "$@" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}
kill_agent() { kill -9 "$agent" && wait "$agent" 2>/dev/null || true; }
config() { printf 'cgroups = false\n%s\n' "$1" >"$work/config.toml"; }

# Fewer units, another kind of pool, no locks any more: what is held stays as it is until it is back.
config $'[pools.gpu]\nunits = 4\n[pools.seat]\nunits = ["red", "blue"]'
agent
"$HOLDALL" run gpu:3 seat db -- sh -c "$leave" "$work/pid" 2>/dev/null
left+=("$(cat "$work/pid")")
"$HOLDALL" hold gpu --for 1h >"$work/reserved"
kill_agent
config $'ephemeral = false\n[pools.gpu]\nunits = 2\n[pools.seat]\nunits = ["green"]'
agent
expect 75 "gpu is held" run -n gpu -- true
expect 75 "db is held" run -n db -- true
expect 75 "seat is held" run -n seat -- true
expect 0 "gpu/3#" status gpu
expect 0 "" release "$(head -1 "$work/reserved")"
kill -9 "${left[-1]}"
expect 0 "gpu/0,gpu/1 green" run -w 10s gpu:2 seat -- sh -c 'echo $HOLDALL_UNITS_GPU $HOLDALL_UNITS_SEAT'
expect 78 "makes no locks" run db -- true
expect 78 "only 2 units" run gpu:3 -- true
kill_agent

# A lock that is held has the name of a unit by now: nothing fits, and no agent starts before it is back.
config ""
rm "$HOLDALL_AGENT.lock"
agent
"$HOLDALL" run disk/0 -- sh -c "$leave" "$work/pid" 2>/dev/null
left+=("$(cat "$work/pid")")
kill_agent
config $'[pools.disk]\nunits = 1'
out=$(timeout 20 "$HOLDALL" agent --config "$work/config.toml" 2>&1) && fail "an agent has started and ended" || [ $? -eq 71 ] || fail "an agent has started: $out"
grep -q "does not fit the pools" <<<"$out" || fail "does not say why it does not start: $out"
kill -9 "${left[-1]}"
agent
expect 0 "" run -n disk -- true
kill_agent

# An agent that has a configuration, or files elsewhere, is not replaced by one that has not.
expect 69 "start it again as it was" run a -- true
rm "$HOLDALL_AGENT.lock"
"$HOLDALL" agent --data "$work/other" 2>>"$work/log" &
agent=$!
eventually "$HOLDALL" agent status
kill_agent
expect 69 "had its files in $work/other" run a -- true
HOLDALL_DATA="$work/other" expect 0 "" run a -- true
HOLDALL_DATA="$work/other" expect 0 "" agent stop
rm "$HOLDALL_AGENT.lock"

# A command goes on while there is no agent, and holds under the next one; what it has left in a session of its own, too.
config ""
agent
slow='touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done'
"$HOLDALL" run a -- sh -c "setsid sh -c '$slow' $work/slow; exit 6" 2>/dev/null &
wrapper=$!
eventually test -e "$work/slow"
kill_agent
agent
expect 75 "a is held by" run -n a -- true
touch "$work/slow.end"
status=0 && wait "$wrapper" || status=$?
[ "$status" -eq 6 ] || fail "status $status instead of 6 after the agent was killed"
expect 0 "" run -w 10s a -- true

# Wrapper and agent are killed together, the command has closed all descriptors, and nothing tells it: the next agent
# knows it, and ends it before anybody else has what it held.
program='import os, sys, time
os.closerange(0, 1024)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)'
for cgroups in true false; do
    kill_agent
    echo "cgroups = $cgroups" >"$work/config.toml"
    agent
    for order in "agent wrapper" "wrapper agent"; do
        rm -f "$work/closed"
        "$HOLDALL" run a -- python3 -c "$program" "$work/closed" 2>/dev/null &
        wrapper=$!
        eventually test -s "$work/closed"
        command=$(cat "$work/closed")
        left+=("$command")
        for name in $order; do kill -STOP "${!name}"; done
        for name in $order; do kill -9 "${!name}"; done
        wait "$agent" "$wrapper" 2>/dev/null || true
        agent
        expect 0 "" run -w 10s a -- sh -c 'case $(ps -o stat= -p "$0") in "" | Z*) ;; *) exit 9 ;; esac' "$command"
    done
done
kill_agent
config ""
agent

# A killed wrapper's command is ended by the next agent, if there was none to do it; main threads
# that have ended make no difference.
program='import threading, time, ctypes
threading.Thread(target=time.sleep, args=(1000,)).start()
open("'"$work"'/thread", "w").write("begun")
ctypes.CDLL(None).pthread_exit(None)'
"$HOLDALL" run a -- python3 -c "$program" 2>/dev/null &
wrapper=$!
eventually test -s "$work/thread"
command=$(pgrep -P "$wrapper" python3)
left+=("$command")
eventually grep -q '^State:.Z' "/proc/$command/status"
kill -STOP "$wrapper"
eventually grep -q '^State:.T' "/proc/$wrapper/status"
kill -9 "$agent" "$wrapper"
wait "$agent" "$wrapper" 2>/dev/null || true
alive_threads() { ls "/proc/$1/task" 2>/dev/null | grep -qv "^$1$"; }
alive_threads "$command" || fail "the thread did not outlive its wrapper"
agent
expect 0 "" run -w 10s a -- sh -c 'test -z "$(ls "/proc/$0/task" 2>/dev/null | grep -v "^$0$")"' "$command"

# A killed wrapper: what its command has started is stopped before it is killed, and so cannot fork
# away from it. What its process had started before is nobody's business.
"$HOLDALL" run a -- sh -c "echo \$\$ >$work/forks; for i in \$(seq 40); do setsid sleep 1000 & done; wait" 2>/dev/null &
wrapper=$!
eventually test -s "$work/forks"
eventually sh -c "[ \$(pgrep -c -P $(cat "$work/forks")) -eq 40 ]"
mapfile -t many < <(pgrep -P "$(cat "$work/forks")")
left+=("${many[@]}")
kill -9 "$wrapper"
expect 0 "" run -w 20s a -- true
for pid in "${many[@]}"; do
    alive "$pid" && fail "$pid has escaped from a killed wrapper"
done
bash -c 'sleep 1000 & echo $! >"$0"; exec "$HOLDALL" run --leftovers kill a -- true' "$work/earlier"
left+=("$(cat "$work/earlier")")
alive "${left[-1]}" || fail "what was started before the grant was ended with it"
bash -c 'sleep 1000 & echo $! >"$0"; exec "$HOLDALL" run --leftovers kill a -- sh -c "$2" "$1"' "$work/earlier" "$work/pid" "$leave" 2>/dev/null
left+=("$(cat "$work/earlier")")
alive "${left[-1]}" || fail "what was started before the grant was ended with what was left"
alive "$(cat "$work/pid")" && fail "--leftovers kill has left something"
expect 0 "" run -n a -- true

# No descriptor left when a command ends: what it leaves is held for until it can be told.
rm "$work/pid"
"$HOLDALL" run a -- sh -c "$leave; while [ ! -e $work/end ]; do sleep 0.05; done" "$work/pid" 2>"$work/told" &
wrapper=$!
eventually sh -c '"$HOLDALL" status a | grep -q setsid'
eventually test -s "$work/pid"
left+=("$(cat "$work/pid")")
limit=$(prlimit --pid "$agent" --nofile --noheadings --output SOFT)
free=0
while [ -e "/proc/$agent/fd/$free" ]; do free=$((free + 1)); done
prlimit --pid "$agent" --nofile="$free:"
touch "$work/end"
eventually grep -q "holding a until what the command has left behind" "$work/told"
prlimit --pid "$agent" --nofile="$limit:"
wait "$wrapper" || fail "the wrapper did not end well: $(cat "$work/told")"
expect 75 "a is held by" run -n a -- true
kill -9 "${left[-1]}"
expect 0 "" run -w 10s a -- true
kill_agent

# An agent that hangs while a command ends: its wrapper stays with what was left, until it is known.
config ""
agent
rm "$work/pid"
"$HOLDALL" run a -- sh -c "$leave; while [ ! -e $work/last ]; do sleep 0.05; done; exit 5" "$work/pid" 2>/dev/null &
wrapper=$!
eventually test -s "$work/pid"
left+=("$(cat "$work/pid")")
kill -STOP "$agent"
touch "$work/last"
sleep 11
kill -0 "$wrapper" || fail "the wrapper has left what nobody else knows"
kill -CONT "$agent"
status=0 && wait "$wrapper" || status=$?
[ "$status" -eq 5 ] || fail "status $status instead of 5"
expect 75 "a is held by" run -n a -- true
kill -9 "${left[-1]}"
expect 0 "" run -w 10s a -- true
kill_agent

# An agent and a wrapper that may open few files.
(ulimit -n 64 && exec "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log") &
agent=$!
eventually "$HOLDALL" agent status
for round in 1 2 3; do
    (ulimit -n 64 && exec "$HOLDALL" run a -- sh -c "$leave" "$work/pid" 2>/dev/null)
    left+=("$(cat "$work/pid")")
    expect 75 "a is held by" run -n a -- true
    kill -9 "${left[-1]}"
    expect 0 "" run -w 10s a -- true
done
kill_agent

echo "$script: ok"
