#!/usr/bin/env bash
# Numbers that are used again: whoever has the number of a command, or of its process group, after it
# is gone is a stranger, and left alone by agents that come later. Needs root, for a container in
# which numbers can be chosen.
set -euo pipefail
. tests/lib/service.bash
if [ -z "${INSIDE:-}" ]; then
    rm -rf "$work"
    if ! unshare --pid --fork --mount-proc --kill-child true 2>/dev/null; then
        not_tried "numbers of processes, which root alone can choose"
        exit 0
    fi
    INSIDE=1 exec unshare --pid --fork --mount-proc --kill-child "$0"
fi
echo 'cgroups = false' >"$work/config.toml"
start() {
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}
# A command leaves a process of its group behind; the agent is killed, and then that process.
leave() {
    rm -f "$work/leader" "$work/member"
    "$HOLDALL" run "$1" -- sh -c 'echo $$ >"$0/leader"; sleep 1000 >/dev/null 2>&1 & echo $! >"$0/member"' "$work" 2>/dev/null
    leader=$(cat "$work/leader") member=$(cat "$work/member")
    kill -9 "$agent" && wait "$agent" 2>/dev/null || true
    kill -9 "$member"
    eventually sh -c "! kill -0 $member"
    sleep 0.05 # A process is known by its number and the tick in which it started: a hundredth of a second.
}
# COMMAND...: in the background, with the number that the leader had.
as_leader() {
    local tries=0
    until [ "${stranger:-}" = "$leader" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "the number $leader cannot be had"
        echo $((leader - 1)) >/proc/sys/kernel/ns_last_pid
        setsid "$@" >/dev/null 2>&1 &
        stranger=$!
        [ "$stranger" = "$leader" ] || { kill -9 "$stranger" && wait "$stranger" 2>/dev/null || true; }
    done
}

# The leader's number is a stranger's: nothing is left of its group, and nothing is held.
start
leave a
as_leader sleep 1000
start
expect 0 "" run -n a -- true
kill -0 "$stranger" || fail "whoever has the number of a former leader was killed"

# A stranger of that number has come and gone, and left a process in its group. That may be of the
# command, for all that is known: it is waited for, and not signalled, not even if somebody forces it.
leave b
stranger=
as_leader sh -c 'sleep 1000 & echo $! >"$0/stranger"; exec sleep 0.1' "$work"
wait "$stranger" || true
stranger=$(cat "$work/stranger")
start
expect 75 "b is held by" run -n b -- true
expect 0 "ending, waits for $stranger" status b
grant=$("$HOLDALL" status b --json | sed -n 's/.*"grants":\[{"request":"\([^"]*\)".*/\1/p')
expect 65 "may be somebody else's" release --force "$grant"
eventually "$HOLDALL" run -n b -- true
kill -0 "$stranger" || fail "whoever is in a group of a former number was killed"
echo "$script: ok"
