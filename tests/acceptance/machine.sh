#!/usr/bin/env bash
# Which agent is meant: the machine's where one is installed, running or not; else the user's own,
# the same from every session. Needs root, for a /run and a /root of its own.
set -euo pipefail
: "${HOLDALL:?is the path of the holdall binary}"
if [ -z "${INSIDE:-}" ]; then
    if ! unshare --mount true 2>/dev/null; then
        [ -z "${HOLDALL_TRY_ALL:-}" ] || { echo "machine.sh: this user may not mount" >&2; exit 1; }
        echo "machine.sh: NOT TRIED: this user may not mount" >&2
        exit 0
    fi
    INSIDE=1 exec unshare --mount --propagation private "$0"
fi
unset HOLDALL_AGENT HOLDALL_DATA HOLDALL_GRANT
export HOLDALL_IDLE_EXIT=60s
script=machine.sh
work=$(mktemp -d)
cp "$HOLDALL" "$work/holdall"
chmod 755 "$work"
HOLDALL=$work/holdall
home=$(getent passwd "$(id -u)" | cut -d: -f6)
mount -t tmpfs none "$home"
mount -t tmpfs none /run
mount -t tmpfs none /var/lib

fail() {
    echo "$script: $*" >&2
    exit 1
}
expect() {
    local status=$1 text=$2 out got=0
    shift 2
    out=$("$@" 2>&1) || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status: $*: $out"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}
eventually() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || fail "never came true: $*"
        sleep 0.05
    done
}
clean_up() {
    "$HOLDALL" agent stop >/dev/null 2>&1 || true
    [ -z "${machine:-}" ] || kill -9 "$machine" 2>/dev/null || true
    umount "$home" /run /var/lib 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
as_nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
agent_of() {
    "$@" agent status --json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p'
}

# Without a machine's agent: one's own, whatever the session looks like.
expect 0 "" env XDG_RUNTIME_DIR="$work/run" XDG_STATE_HOME="$work/state" HOME="$work/home" "$HOLDALL" run a -- true
[ "$(agent_of env -i "$HOLDALL")" = "$(agent_of "$HOLDALL")" ] || fail "cron has another agent"
[ ! -e "$work/run" ] && [ ! -e "$work/state" ] && [ ! -e "$work/home" ] || fail "the session decides the place"
expect 69 "has no home directory" as_nobody "$HOLDALL" run a -- true
"$HOLDALL" agent stop

# Installed, but not running: nobody starts one of its own instead.
mkdir /run/holdall
expect 69 "the agent of this machine" "$HOLDALL" run a -- true
expect 69 "the agent of this machine" as_nobody "$HOLDALL" run -w 1s a -- true
expect 69 "the agent of this machine" "$HOLDALL" run --agent /run/holdall/agent.sock a -- true
rmdir /run/holdall

# The documented command serves everybody.
"$HOLDALL" agent --socket /run/holdall/agent.sock --data /var/lib/holdall 2>"$work/log" &
machine=$!
eventually "$HOLDALL" agent status
"$HOLDALL" run a -- sleep 100 &
holder=$!
eventually sh -c "\"$HOLDALL\" status a | grep -q 'sleep 100'"
expect 75 "a is held by" as_nobody "$HOLDALL" run -n a -- true
expect 0 "" as_nobody "$HOLDALL" run b -- true
as_nobody "$HOLDALL" run a -- sh -c 'echo "$HOLDALL_GRANT"' >"$work/granted" 2>"$work/waiter" &
waiter=$!
eventually sh -c "\"$HOLDALL\" status a | grep -q 'held by'"

# It is restarted: whoever waits goes on waiting for it, in its place, and does not turn to another.
place=$("$HOLDALL" status a --json | sed -n 's/.*"waiting":\[{"request":"\([^"]*\)".*/\1/p')
kill -9 "$machine"
eventually grep -q "the agent is away" "$work/waiter"
expect 69 "the agent of this machine" as_nobody "$HOLDALL" run -n a -- true
"$HOLDALL" agent --socket /run/holdall/agent.sock --data /var/lib/holdall 2>>"$work/log" &
machine=$!
eventually "$HOLDALL" agent status
expect 75 "a is held by" as_nobody "$HOLDALL" run -n a -- true
kill "$holder" && wait "$holder" || true
wait "$waiter" || fail "whoever waited got nothing: $(cat "$work/waiter")"
[ "$(cat "$work/granted")" = "$place" ] || fail "$place was lost: $(cat "$work/granted")"

# For a group alone: others are told, and still start none of their own.
"$HOLDALL" agent stop
printf 'socket_mode = "0660"\nsocket_group = "daemon"\n' >"$work/holdall.toml"
"$HOLDALL" agent --config "$work/holdall.toml" --socket /run/holdall/agent.sock --data /var/lib/holdall 2>>"$work/log" &
machine=$!
eventually "$HOLDALL" agent status
expect 69 "ask to become a member" as_nobody "$HOLDALL" run a -- true
group=$(getent group daemon | cut -d: -f3)
expect 0 "" setpriv --reuid 65534 --regid 65534 --groups "$group" "$HOLDALL" run a -- true
"$HOLDALL" agent stop
echo "$script: ok"
