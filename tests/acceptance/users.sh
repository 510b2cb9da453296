#!/usr/bin/env bash
# Other users: their commands in cgroups, what they may not do to others, and processes that nobody
# but root can see. Needs root, for users and a /proc of its own.
set -euo pipefail
. tests/lib/service.bash
if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
    not_tried "other users and mounts, which root alone can have"
    exit 0
fi
if [ -z "${INSIDE:-}" ]; then
    rm -rf "$work"
    INSIDE=1 exec unshare --mount --propagation private "$0"
fi
chmod 755 "$work"
cp "$HOLDALL" "$work/holdall"
export HOLDALL="$work/holdall"
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
alive() { [[ "$(ps -o stat= -p "$1")" =~ ^[^Z] ]]; }
leave='setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$0"'
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    clean_up
}
trap end_left EXIT
mkdir -m 777 "$work/theirs"
number() { # FILE: the number that is written there, once it is.
    eventually test -s "$1"
    cat "$1"
}
first() { "$HOLDALL" status --json | sed -n 's/.*"grants":\[{"request":"\([^"]*\)".*/\1/p'; }

# Root's agent, nobody's commands.
echo 'socket_mode = "0666"' >"$work/config.toml"
"$HOLDALL" agent --config "$work/config.toml" 2>"$work/log" &
agent=$!
eventually "$HOLDALL" agent status
as_nobody "$HOLDALL" run a -- sh -c 'exit 3' && fail "status 0 instead of 3" || [ $? -eq 3 ] || fail "nobody runs nothing"
if "$HOLDALL" agent status | grep -q "in a cgroup of its own"; then
    as_nobody "$HOLDALL" run a -- grep -q /holdall- /proc/self/cgroup || fail "nobody's command has no cgroup"
    as_nobody "$HOLDALL" run a -- sh -c "$leave" "$work/theirs/pid" 2>/dev/null
    left+=("$(number "$work/theirs/pid")")
    expect 0 "ending, waits for ${left[-1]}" status a
    kill -9 "${left[-1]}"
    expect 0 "" run -w 10s a -- true
    rm "$work/theirs/pid"
    as_nobody "$HOLDALL" run a -- sh -c "$leave; sleep 1000" "$work/theirs/pid" 2>/dev/null &
    left+=("$(number "$work/theirs/pid")")
    kill -9 "$(client_of a)"
    expect 0 "" run -w 10s a -- true
    alive "${left[-1]}" && fail "setsid has escaped from nobody's killed wrapper"
    rm "$work/theirs/pid"
else
    not_tried "cgroups"
fi
# What is not theirs they cannot lock, take away or end.
for file in "$HOLDALL_DATA/agent.lock" "$HOLDALL_DATA/lock" "$HOLDALL_DATA"/segment-* "$HOLDALL_AGENT.lock"; do
    [ -e "$file" ] || fail "there is no $file"
    as_nobody sh -c "exec <$file" 2>/dev/null && fail "nobody can open, and so lock, $file"
done
"$HOLDALL" run b -- sleep 1000 &
eventually sh -c '"$HOLDALL" status b | grep -q "sleep 1000"'
grant=$(first)
out=$(as_nobody "$HOLDALL" release --force "$grant" 2>&1) && fail "nobody has taken away root's grant"
grep -q "belongs to root; .* lacks the right 'force'" <<<"$out" || fail "does not say whose it is: $out"
expect 0 "" release --force "$grant"
# Who was refused has a name in the audit log.
as_nobody "$HOLDALL" run 'x:2' -- true 2>/dev/null && fail "there is no pool x"
kill "$agent" && wait "$agent"
python3 - "$work/data/audit.jsonl" <<'END'
import json, sys
refused = [line for line in map(json.loads, open(sys.argv[1])) if line["what"] == "refused"]
assert len(refused) == 1, refused
for line in refused:
    assert line["who"]["uid"] == 65534 and line["who"]["user"] and line["who"]["pid"] > 1, line
END
rm "$HOLDALL_AGENT.lock"

# An agent of nobody's, where it sees no process but its own user's.
mount -t proc -o hidepid=2 proc /proc
work2=$work/theirs/own
as_nobody mkdir "$work2"
export HOLDALL_AGENT="$work2/agent.sock" HOLDALL_DATA="$work2/data"
program=$HOLDALL
printf '#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups %s "$@"\n' "$program" >"$work/as-nobody"
chmod +x "$work/as-nobody"
export HOLDALL="$work/as-nobody"
start() {
    "$HOLDALL" agent 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}
start
"$HOLDALL" run a -- sh -c "$leave" "$work2/pid" 2>"$work/told" &
wrapper=$!
left+=("$(number "$work2/pid")")
eventually grep -q "holding a until what the command has left behind" "$work/told"
expect 75 "a is held by" run -n a -- true
kill -9 "${left[-1]}"
wait "$wrapper" || fail "what was left is gone, and the wrapper not well: $(cat "$work/told")"
expect 0 "" run -n a -- true

# Its command becomes root's: it can neither see nor end it, and does not take it for gone.
cp "$(command -v setpriv)" "$work/setpriv"
chmod u+s "$work/setpriv"
becomes_root="echo \$\$ >$work2/root; exec $work/setpriv --reuid 0 --regid 0 --clear-groups sleep 1000"
"$HOLDALL" run a -- sh -c "$becomes_root" 2>/dev/null &
root=$(number "$work2/root")
left+=("$root")
eventually grep -q '^Uid:.0' "/proc/$root/status"
kill -9 "$(client_of a)"
expect 75 "a is held by" run -n a -- true
kill -9 "$agent" && wait "$agent" 2>/dev/null || true
start
expect 75 "a is held by" run -n a -- true
alive "$root" || fail "nobody has killed root's process"
kill -9 "$agent" && wait "$agent" 2>/dev/null || true
umount /proc
start
expect 65 "no right to end" release --force "$(first)"
expect 75 "a is held by" run -n a -- true
kill -9 "$root"
expect 0 "" run -w 10s a -- true
kill "$agent"
echo "$script: ok"
