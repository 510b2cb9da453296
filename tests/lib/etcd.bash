# Three members of etcd on loopback, for the scripts that need them. Not a script by itself; after service.bash.

# Without etcd nothing is tried; where it must be, that is a failure.
need_etcd() {
    if ! { command -v etcd && command -v etcdctl; } >/dev/null; then
        [ -z "${HOLDALL_TRY_ETCD:-}" ] || fail "etcd is missing: install etcd-server and etcd-client"
        not_tried "there is no etcd here"
        exit 0
    fi
}

# So many ports that nobody listens at.
free_ports() {
    python3 -c '
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in held: one.bind(("127.0.0.1", 0))
print(*[one.getsockname()[1] for one in held])' "$1"
}

# Starts a member, for the first time or again: in memory unless etcd_place says where, as a killed process loses nothing of it either.
start_member() {
    local at=$1
    etcd --name "m$at" --data-dir "$etcd_dir/m$at" --log-level error --quota-backend-bytes "${etcd_quota:-2147483648}" \
        --listen-client-urls "http://127.0.0.1:${client_ports[at]}" \
        --advertise-client-urls "http://127.0.0.1:${client_ports[at]}" \
        --listen-peer-urls "http://127.0.0.1:${peer_ports[at]}" \
        --initial-advertise-peer-urls "http://127.0.0.1:${peer_ports[at]}" \
        --initial-cluster "$etcd_cluster" --heartbeat-interval 100 --election-timeout 1000 \
        >>"$work/etcd$at.log" 2>&1 &
    member_pids[at]=$!
}

# Sends all members a signal.
signal_members() {
    local at
    for at in "${@:2}"; do kill "-$1" "${member_pids[at]}" 2>/dev/null || true; done
}

ctl() {
    ETCDCTL_API=3 etcdctl --endpoints "$endpoints" "$@"
}

start_etcd() {
    local ports at
    etcd_dir=$(mktemp -d -p "${etcd_place:-/dev/shm}" 2>/dev/null || mktemp -d)
    read -ra ports <<<"$(free_ports 6)"
    client_ports=("${ports[@]:0:3}") peer_ports=("${ports[@]:3:3}") member_pids=()
    etcd_cluster="m0=http://127.0.0.1:${peer_ports[0]},m1=http://127.0.0.1:${peer_ports[1]},m2=http://127.0.0.1:${peer_ports[2]}"
    endpoints="127.0.0.1:${client_ports[0]},127.0.0.1:${client_ports[1]},127.0.0.1:${client_ports[2]}"
    for at in 0 1 2; do start_member "$at"; done
    eventually ctl endpoint health
}

end_etcd() {
    [ -z "${etcd_dir:-}" ] || { signal_members KILL 0 1 2; rm -rf "$etcd_dir"; }
}
