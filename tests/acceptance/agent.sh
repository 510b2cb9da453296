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

# Nor is the cgroup: a job's may be killed as a whole.
mount=$(awk '/ - cgroup2 / {print $5; exit}' /proc/self/mountinfo)
job="$mount$(sed -n 's/^0:://p' /proc/self/cgroup)/job-$$"
if [ "$(id -u)" -eq 0 ] && [ -n "$mount" ] && mkdir "$job" 2>/dev/null; then
    other="$work/job.sock"
    (echo $BASHPID >"$job/cgroup.procs" && exec env -u HOLDALL_DATA "$HOLDALL" run --agent "$other" a -- true)
    eventually rmdir "$job"
    env -u HOLDALL_DATA "$HOLDALL" agent stop --agent "$other"
else
    not_tried "cgroups"
fi

# Limits that cannot be lifted and would end it, or have it serve only some: then it does not start.
if [ "$(id -u)" -eq 0 ]; then
    for limit in "-f 1" "-t 5" "-n 100"; do
        out=$(setpriv --bounding-set -sys_resource --inh-caps -sys_resource bash -c \
            "ulimit $limit; exec env -u HOLDALL_DATA '$HOLDALL' run --agent '$work/limited.sock' a -- true" 2>&1) && fail "it starts with $limit"
        [[ "$out" == *"inherit limits"* ]] || fail "with $limit: $out"
    done
    env -u HOLDALL_DATA "$HOLDALL" run --agent "$work/limited.sock" a -- true
    env -u HOLDALL_DATA "$HOLDALL" agent stop --agent "$work/limited.sock"
else
    not_tried "limits, which root alone can have too few rights to lift"
fi
# Whoever has no descriptor left cannot reach it, and is told so.
(ulimit -n 7 && expect 69 "Too many open files" run a -- true)

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
kill -CONT "$pid"
expect 0 "" run -w 20s b -- true

# A descriptor that takes long to close would hold it up. From Linux 6.16 on nobody can send it one.
python3 - "$HOLDALL_AGENT" <<'END'
import array, os, platform, re, socket, sys
kernel = tuple(map(int, re.match(r"(\d+)\.(\d+)", platform.release()).groups()))
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
try:
    connection.sendmsg([b"\0"], rights)
    assert kernel < (6, 16), "the agent takes descriptors"
except PermissionError:
    pass
END

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
# Nor is anything replaced that is no socket of an agent's, and a wrong path leaves no traces.
mkfifo "$work/pipe"
ln -s "$work/victim" "$work/link"
python3 -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); time.sleep(100)' "$work/bound" &
eventually test -S "$work/bound"
before=$(ls -lR "$work")
for wrong in victim pipe link bound nowhere/x.sock; do
    HOLDALL_DATA="" expect 69 "no agent listens" run --agent "$work/$wrong" a -- true
    HOLDALL_DATA="" expect 69 "$work/" agent --socket "$work/$wrong"
done
[ "$(ls -lR "$work")" = "$before" ] || fail "a wrong path leaves traces: $(diff <(echo "$before") <(ls -lR "$work"))"
[ "$(cat "$work/victim")" = precious ] || fail "the file at the path of a socket was replaced"
# Whoever may not start one there is told that none runs.
if [ "$(id -u)" -eq 0 ]; then
    mkdir -m 755 "$work/roots"
    chmod 755 "$work"
    cp "$HOLDALL" "$work/holdall"
    out=$(setpriv --reuid 65534 --regid 65534 --clear-groups env -u HOLDALL_DATA "$work/holdall" run --agent "$work/roots/x.sock" a -- true 2>&1) && fail "nobody has started one"
    [[ "$out" == *"no agent listens at $work/roots/x.sock"* ]] || fail "nobody is told: $out"
fi
echo "$script: ok"
