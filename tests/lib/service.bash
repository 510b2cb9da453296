# What the scripts of the service share: an agent of their own in a directory of their own, and
# nothing left behind. Not a script by itself.

: "${HOLDALL:?is the path of the holdall binary}"
script=$(basename "$0")
work=$(mktemp -d)
export HOLDALL_AGENT="$work/agent.sock" HOLDALL_DATA="$work/data" HOLDALL_IDLE_EXIT=60s
unset HOLDALL_GRANT

fail() {
    echo "$script: $*" >&2
    exit 1
}

# What cannot be tried here is said; where everything is to be tried, it is a failure.
not_tried() {
    [ -z "${HOLDALL_TRY_ALL:-}" ] || fail "cannot be tried: $*"
    echo "$script: NOT TRIED: $*" >&2
}

# The process of the agent, or nothing.
agent_pid() {
    "$HOLDALL" agent status --json 2>/dev/null | sed -n 's/.*"pid":\([0-9]*\).*/\1/p'
}

# The process that asked for what is held of a name.
client_of() {
    "$HOLDALL" status "$1" --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["grants"][0]["who"]["pid"])'
}

# Succeeds when a command does, tried again for up to ten seconds.
eventually() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || fail "never came true: $*"
        sleep 0.05
    done
}

# Runs a command, expects an exit status, and a text on its output.
expect() {
    local status=$1 text=$2 out got=0
    shift 2
    out=$("$HOLDALL" "$@" 2>&1) || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status: $*: $out"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}

clean_up() {
    local pid
    for pid in $(jobs -p); do
        kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
    done
    "$HOLDALL" agent stop >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean_up EXIT
