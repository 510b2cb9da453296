#!/usr/bin/env bash
# The agent itself: it starts clean, cannot be hung, comes back, and touches nobody's files.
set -euo pipefail
. tests/lib/service.bash

# It belongs to nobody: nothing of the command that happened to start it is left.
(
    ulimit -Sn 128
    umask 000
    cd "$work"
    SECRET=hush nice -n 5 "$HOLDALL" run a -- true
)
pid=$(agent_pid)
names=$(tr '\0' '\n' <"/proc/$pid/environ" | cut -d= -f1 | sort | tr '\n' ' ')
[ "$names" = "HOLDALL_IDLE_EXIT PATH " ] || fail "its environment: $names"
[ "$(awk '/^Max open files/ {print $4 == $5}' "/proc/$pid/limits")" = 1 ] || fail "its limits are not raised"
[ "$(awk '/^Umask/ {print $2}' "/proc/$pid/status")" = 0077 ] || fail "its umask"
[ "$(readlink "/proc/$pid/cwd")" = / ] || fail "its directory"
[ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f4)" = "$pid" ] || fail "it leads no session"
if [ "$(id -u)" -eq 0 ]; then
    [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f17)" = 0 ] || fail "its priority"
fi

# Whether a command of ours has got as far as to have SIGTERM told to it.
listens_to_signals() {
    [ "$(readlink "/proc/$1/exe")" = "$(realpath "$HOLDALL")" ] &&
        [ $((0x$(awk '/^SigBlk/ {print $2}' "/proc/$1/status") & 0x4000)) -ne 0 ]
}

# A stopped agent: deadlines and signals are honoured in every phase.
"$HOLDALL" run b -- sh -c 'touch "$0"; sleep 1; exit 7' "$work/running" &
running=$!
eventually test -e "$work/running"
trap 'kill -CONT "$pid" 2>/dev/null || true; clean_up' EXIT
kill -STOP "$pid"
before=$SECONDS
for args in "INT 130" "TERM 143"; do
    read -r signal status <<<"$args"
    # (A script has its background jobs ignore SIGINT, and what is ignored stays ignored.)
    (trap - INT && exec "$HOLDALL" run a -- true 2>/dev/null) &
    waiter=$!
    eventually listens_to_signals "$waiter"
    kill "-$signal" "$waiter"
    got=0
    wait "$waiter" || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status after SIG$signal at a stopped agent"
done
expect 75 "the agent does not answer" run -w 1s a -- true
expect 69 "does not answer" run -n a -- true
expect 69 "does not answer" status
got=0
wait "$running" || got=$?
[ "$got" -eq 7 ] || fail "status $got instead of 7 when the agent is stopped at the end"
[ $((SECONDS - before)) -lt 120 ] || fail "a stopped agent holds commands up"
kill -CONT "$pid"
expect 0 "" run -w 20s b -- true

# A removed socket comes back, with the same agent behind it.
for gone in "$HOLDALL_AGENT" "$HOLDALL_AGENT $HOLDALL_AGENT.lock"; do
    # shellcheck disable=SC2086
    rm $gone
    expect 0 "" run a -- true
    [ "$(agent_pid)" = "$pid" ] || fail "another agent after $gone was removed"
done

# Without its files an agent cannot keep others out, and ends.
mv "$work/data" "$work/elsewhere"
eventually sh -c "! kill -0 $pid"
expect 0 "" run a -- true

# Files of others, and links, are not touched.
mkdir "$work/open" && chmod 777 "$work/open"
expect 69 "others may write to" run --agent "$work/open/x.sock" a -- true
chmod 1777 "$work/open"
echo precious >"$work/victim"
mkdir "$work/open/x.sock.data"
ln -s "$work/victim" "$work/open/x.sock.data/epoch.new"
ln -s "$work/victim" "$work/open/x.sock.data/agent.log"
HOLDALL_DATA="" expect 69 "is a link" run --agent "$work/open/x.sock" a -- true
rm "$work/open/x.sock.data/agent.log"
if [ "$(id -u)" -eq 0 ]; then
    chown 65534 "$work/open/x.sock.data"
    HOLDALL_DATA="" expect 69 "belongs to uid 65534" run --agent "$work/open/x.sock" a -- true
fi
[ "$(cat "$work/victim")" = precious ] || fail "a foreign file was overwritten"
# Nor is anything replaced that is no socket of an agent's.
HOLDALL_DATA="" expect 69 "is a link or no socket" run --agent "$work/victim" a -- true
[ "$(cat "$work/victim")" = precious ] || fail "the file at the path of a socket was replaced"
echo "$script: ok"
