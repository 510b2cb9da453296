#!/usr/bin/env bash
# An agent after another: what still runs holds what it held, whatever has become of the pools, the
# disk and the files.
set -euo pipefail
. tests/lib/service.bash
leave='setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$0"'
alive() { [[ "$(ps -o stat= -p "$1")" =~ ^[^Z] ]]; }
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    mountpoint -q "$work/small" && umount "$work/small"
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

# A reservation that was released, and is back on disk as after a restore from a backup, does not take
# away what somebody holds by now.
config ""
rm "$HOLDALL_AGENT.lock"
agent
"$HOLDALL" hold r --for 1h >"$work/reserved"
cp "$HOLDALL_DATA/state.json" "$work/state.json"
expect 0 "" release "$(head -1 "$work/reserved")"
"$HOLDALL" run r -- sh -c "$leave" "$work/pid" 2>/dev/null
left+=("$(cat "$work/pid")")
kill_agent
cp "$work/state.json" "$HOLDALL_DATA/state.json"
agent
expect 0 "ending, waits for ${left[-1]}" status r
expect 65 "has ended" release "$(head -1 "$work/reserved")"
kill -9 "${left[-1]}"
expect 0 "" run -w 10s r -- true
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

# What a wrapper is still stopping holds: the next agent waits for the wrapper.
config ""
agent
slow='trap "" TERM; touch "$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done'
"$HOLDALL" run a -- sh -c "setsid sh -c '$slow' $work/slow; true" 2>/dev/null &
wrapper=$!
eventually test -e "$work/slow"
kill_agent
agent
expect 75 "a is held by" run -n a -- true
touch "$work/slow.end"
wait "$wrapper" || true
expect 0 "" run -w 10s a -- true

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
kill -STOP "$wrapper" # It shall not stop its command when it misses the agent.
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

# A full disk: what cannot be noted is not done, what was noted stays readable.
if mkdir "$work/small" && mount -t tmpfs -o size=256k none "$work/small" 2>/dev/null; then
    export HOLDALL_DATA="$work/small/data"
    echo >"$work/config.toml"
    agent
    "$HOLDALL" hold r --for 1h >"$work/reserved"
    dd if=/dev/zero of="$work/small/fill" bs=1k 2>/dev/null || true
    tried=0
    while "$HOLDALL" run a -- true 2>"$work/told"; do
        tried=$((tried + 1))
        [ "$tried" -lt 200 ] || fail "the disk is never full"
    done
    grep -q "cannot note who holds it" "$work/told" || fail "on a full disk: $(cat "$work/told")"
    expect 74 "is still held" release "$(head -1 "$work/reserved")"
    expect 75 "r is held by" run -n r -- true
    if "$HOLDALL" agent status | grep -q "in a cgroup of its own"; then
        # What was not noted has left no cgroup behind.
        mount=$(awk '/ - cgroup2 / {print $5; exit}' /proc/self/mountinfo)
        rm "$work/small/fill"
        own=$("$HOLDALL" run a -- sed -n 's/^0:://p' /proc/self/cgroup)
        eventually sh -c "! ls -d '$mount${own%-*-*}'-*"
    fi
    rm -f "$work/small/fill"
    expect 0 "" run a -- true
    kill_agent
    agent
    expect 75 "r is held by" run -n r -- true
    expect 0 "" release "$(head -1 "$work/reserved")"
    expect 0 "" run -n r a -- true
    kill_agent
    # So it is with what a command leaves behind: its wrapper holds until it can be noted.
    config ""
    agent
    rm "$work/pid"
    "$HOLDALL" run a -- sh -c "$leave; while [ ! -e $work/full ]; do sleep 0.05; done" "$work/pid" 2>"$work/told" &
    wrapper=$!
    eventually test -s "$work/pid"
    left+=("$(cat "$work/pid")")
    dd if=/dev/zero of="$work/small/fill" bs=1k 2>/dev/null || true
    while "$HOLDALL" run z -- true 2>/dev/null; do :; done
    touch "$work/full"
    eventually grep -q "holding a until" "$work/told"
    expect 75 "a is held by" run -n a -- true
    rm "$work/small/fill"
    wait "$wrapper" || fail "the wrapper did not end well: $(cat "$work/told")"
    kill_agent
    agent
    expect 0 "ending, waits for ${left[-1]}" status a
    kill -9 "${left[-1]}"
    expect 0 "" run -w 10s a -- true
    kill_agent
else
    not_tried "a full disk, for which root alone can mount one"
fi
echo "$script: ok"
