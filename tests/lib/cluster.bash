# What the scripts about several cells share: agents on this machine, one for each name in `cells`. Not a script by itself.

. tests/lib/service.bash

# A command of one cell.
at() {
    local cell=$1
    shift
    HOLDALL_AGENT="$work/$cell.sock" HOLDALL_DATA="$work/$cell.data" "$HOLDALL" "$@"
}
# The same, with a status and a text to expect.
expect_at() {
    local cell=$1
    shift
    HOLDALL_AGENT="$work/$cell.sock" HOLDALL_DATA="$work/$cell.data" expect "$@"
}
agent_of() {
    "$HOLDALL" agent --config "$work/$1.toml" --socket "$work/$1.sock" --data "$work/$1.data" \
        2>>"$work/$1.log" &
    echo $! >"$work/$1.pid"
    eventually at "$1" agent status
}
kill_agent() {
    kill -9 "$(cat "$work/$1.pid")"
    wait "$(cat "$work/$1.pid")" 2>/dev/null || true
}
end_all() {
    local cell
    for cell in "${cells[@]}"; do
        [ ! -e "$work/$cell.pid" ] || kill -9 "$(cat "$work/$cell.pid")" 2>/dev/null || true
    done
    clean_up
}
trap end_all EXIT
# Whether all of a member's links are as wanted.
sees() {
    local cell=$1 other=$2 state=$3
    at "$cell" cluster members --json | python3 -c '
import json, sys
members = json.load(sys.stdin)["members"]
up = [m["up"] for m in members if m["name"] == sys.argv[1] and not m["removed"]]
sys.exit(up != [sys.argv[2] == "up"])' "$other" "$state"
}
linked() {
    local one other
    for one in "$@"; do
        for other in "$@"; do
            [ "$one" = "$other" ] || eventually sees "$one" "$other" up
        done
    done
}
# One makes a cluster, all others join it, and all have links.
join_all() {
    local line other
    line=$(at "$1" cluster init --listen 127.0.0.1:0 --name "$1" 2>/dev/null)
    for other in "${@:2}"; do
        at "$other" ${line#holdall } --listen 127.0.0.1:0 --name "$other" >/dev/null 2>&1
    done
    linked "$@"
}

# For replicated cells, with etcd.bash. The agents as one cluster, whose leases between cells last so many seconds.
start_hosts() {
    local cell
    for cell in "${cells[@]}"; do
        printf 'cgroups = false\n[cluster]\nlease_seconds = %s\n' "$1" >"$work/$cell.toml"
        agent_of "$cell"
    done
    join_all "${cells[@]}"
}
# What hosts a cell at a machine ends when it sees that its agent has; what is paused sees nothing.
end_hosts() {
    touch "$work/end"
    [ -z "${paused:-}" ] || kill -9 "$paused" 2>/dev/null || true
    end_etcd
    end_all
}
# Which host leads a replicated cell, and in which epoch, as a member knows it: "lab1 7".
leader() {
    at "$1" cell show "$2" --json | python3 -c '
import json, sys
print(*[told for cell in json.load(sys.stdin)["cells"] if cell["leads"] for told in (cell["host"], cell["epoch"])])'
}
# Whether this host leads it.
is_led_by() {
    [[ "$(leader "$1" "$2")" == "$3 "* ]]
}
