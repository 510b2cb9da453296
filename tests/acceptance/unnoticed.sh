#!/usr/bin/env bash
# Agents that are killed, restarted and stopped under those who hold and wait, who do not notice.
set -euo pipefail
. tests/lib/service.bash
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    clean_up
}
trap end_left EXIT
mark="$HOLDALL_AGENT.stopped"
gone() { eventually sh -c "! kill -0 $1"; }
# Begins `run NAME` with a command that runs until $work/NAME.end is there, and then ends with a status.
begin() { # NAME STATUS [OPTION]...
    local name=$1 status=$2
    shift 2
    rm -f "$work/$name.end" "$work/$name.begun"
    "$HOLDALL" run "$@" "$name" -- sh -c \
        'echo $$ >"$0.begun"; while [ ! -e "$0.end" ]; do sleep 0.05; done; exit "$1"' "$work/$name" "$status" 2>"$work/$name.told" &
    eventually test -s "$work/$name.begun"
}
# Begins `run NAME` with a command that notes that it was run.
queue() { # NAME
    rm -f "$work/$1.next"
    "$HOLDALL" run "$1" -- touch "$work/$1.next" 2>"$work/$1.queued" &
    eventually sh -c "\"\$HOLDALL\" status $1 | grep -q 'held by'"
}
ends() { # PID STATUS WHAT
    local status=0
    wait "$1" || status=$?
    [ "$status" -eq "$2" ] || fail "$3 ended with $status instead of $2: $(cat "$work"/*.told "$work"/*.queued 2>/dev/null)"
}

# A crowd of 250.
python3 tests/lib/crowd.py "$work"

# stop ends at once and leaves a mark. Who waits starts no agent; who runs goes on, ends as its command does, and
# has said once that the agent is away.
begin a 7 && holder=$!
queue a && waiter=$!
begin c 5 && other=$!
pid=$(agent_pid)
expect 0 "" agent stop
gone "$pid"
[ -e "$mark" ] || fail "stop has left no mark"
touch "$work/c.end"
ends "$other" 5 "a command that ended without an agent"
eventually grep -q "agent" "$work/a.told"
sleep 1 # In which somebody who should not might start an agent, or say it again.
expect 69 "" agent status
kill -0 "$holder" "$waiter" || fail "somebody has ended with the agent"
[ "$(grep -c "agent" "$work/a.told")" -eq 1 ] || fail "that the agent is away is to be said once: $(cat "$work/a.told")"
expect 0 "" run z -- true
[ ! -e "$mark" ] || fail "the mark is there though an agent runs"
expect 75 "a" run -n a -- true
touch "$work/a.end"
ends "$holder" 7 "a command over which its agent was stopped"
ends "$waiter" 0 "a command that waited while there was no agent"
[ -e "$work/a.next" ] || fail "a command that waited has not run"

# So does SIGTERM. A wrapper that is killed while there is no agent: the next one ends its command first.
begin a 0 && holder=$!
pid=$(agent_pid)
kill -TERM "$pid"
gone "$pid"
[ -e "$mark" ] || fail "SIGTERM has left no mark"
command=$(cat "$work/a.begun")
left+=("$command")
kill -9 "$holder"
wait "$holder" 2>/dev/null || true
expect 0 "" run -w 20s a -- sh -c 'case $(ps -o stat= -p "$0") in "" | Z*) ;; *) exit 9 ;; esac' "$command"

# stop --dismiss tells those who wait to go; who holds, holds.
begin a 3 && holder=$!
queue a && waiter=$!
pid=$(agent_pid)
expect 0 "" agent stop --dismiss
gone "$pid"
ends "$waiter" 69 "a command that was dismissed"
kill -0 "$holder" || fail "stop --dismiss has ended who holds"
expect 0 "" run z -- true
expect 75 "a" run -n a -- true
touch "$work/a.end"
ends "$holder" 3 "a command that went on when others were dismissed"

# stop --drain takes no more requests, and ends when nothing is held.
begin a 0 && holder=$!
pid=$(agent_pid)
"$HOLDALL" agent stop --drain &
stopping=$!
eventually sh -c '"$HOLDALL" agent status | grep -q stopping'
expect 69 "stopping" run z -- true
kill -0 "$pid" || fail "stop --drain does not wait"
touch "$work/a.end"
ends "$holder" 0 "a command that was waited for"
ends "$stopping" 0 "agent stop --drain"
gone "$pid"

# A program that is replaced while it runs: restart takes the new one. One that is none is refused, and nothing happens.
expect 0 "" run z -- true
begin a 0 && holder=$!
pid=$(agent_pid)
epoch=$("$HOLDALL" agent status --json | sed -n 's/.*"epoch":\([0-9]*\).*/\1/p')
expect 0 "" agent restart
[ "$("$HOLDALL" agent status --json | sed -n 's/.*"epoch":\([0-9]*\).*/\1/p')" -gt "$epoch" ] || fail "restart has not restarted anything"
[ ! -e "$mark" ] || fail "restart has left a mark"
expect 75 "a" run -n a -- true
touch "$work/a.end"
ends "$holder" 0 "a command over which its agent was restarted"

# An agent that is killed is replaced by whoever waits; who waits keeps its place before who comes later.
begin a 0 && holder=$!
queue a && first=$!
pid=$(agent_pid)
kill -9 "$pid"
"$HOLDALL" run a -- sh -c 'test -e "$0"' "$work/a.next" &
second=$!
touch "$work/a.end"
ends "$holder" 0 "a command whose agent was killed"
ends "$first" 0 "the first in the line"
ends "$second" 0 "the second in the line, which came before the first or not at all,"

# Whoever watches a reservation brings back an agent that was killed, says that one was stopped, and notices the end.
"$HOLDALL" hold w --for 1h --watch >"$work/w.grant" 2>"$work/w.told" &
watcher=$!
eventually test -s "$work/w.grant"
pid=$(agent_pid)
kill -9 "$pid"
eventually "$HOLDALL" agent status
expect 0 "" agent stop
eventually grep -q "the agent was stopped" "$work/w.told"
expect 75 "w" run -n w -- true
expect 0 "" release "$(cat "$work/w.grant")"
ends "$watcher" 0 "a watched reservation"
grep -q "has ended" "$work/w.told" || fail "the end of a reservation is not told: $(cat "$work/w.told")"
echo "$script: ok"
