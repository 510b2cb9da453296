#!/usr/bin/env bash
# Each call over HTTP needs its right, and no other is as good: every call, without a token and with one of each right.
set -euo pipefail
. tests/lib/service.bash

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[pools.gpu]\nunits = 4\n' >"$work/config.toml"
"$HOLDALL" agent --config "$work/config.toml" --http "127.0.0.1:$port" 2>"$work/log" &
eventually curl -sf "http://127.0.0.1:$port/readyz"
declare -A token=([none]=none)
rights=(view ask reserve pools force admin)
for right in "${rights[@]}"; do token[$right]=$("$HOLDALL" token add "$right" --may "$right"); done
token[both]=$("$HOLDALL" token add both --may reserve,force)

as() { # TOKEN METHOD PATH [BODY]: prints the status
    curl -s --max-time 3 -o /dev/null -w '%{http_code}' -H "authorization: Bearer ${token[$1]}" -X "$2" "http://127.0.0.1:$port$3" \
        ${4:+-H 'content-type: application/json' -d "$4"} || true # Events do not end.
}
needs() { # RIGHT METHOD PATH [BODY]: whoever has that right may, and who may do everything; nobody else
    local wanted=$1 right status
    shift
    status=$(as none "$@")
    [ "$status" -eq 401 ] || fail "$status without a token: $*"
    for right in "${rights[@]}"; do
        status=$(as "$right" "$@")
        case $right in
        "$wanted" | admin) [ "$status" -ge 200 ] && [ "$status" -ne 403 ] ;;
        *) [ "$status" -eq 403 ] ;;
        esac || fail "$status with the right '$right': $*"
    done
}
other=$("$HOLDALL" hold gpu --for 1h 2>/dev/null)
for path in status "explain/$other" pools pools/gpu audit events; do needs view GET "/v1/$path"; done
needs ask PUT /v1/requests/asked '{"needs": ["db"]}'
needs ask POST /v1/requests '{"needs": ["lamp"]}'
needs reserve PUT /v1/requests/reserved '{"needs": ["seat"], "reserve_ms": 60000}'
needs pools PUT /v1/pools/new '{"units": 2}'
needs pools PATCH /v1/pools/new '{"units": 3}'
needs pools PUT /v1/drains/new '{"reason": "a test"}'
needs pools DELETE /v1/drains/new
needs pools DELETE /v1/pools/new
# What is somebody else's.
needs both POST "/v1/grants/$other/renew" '{"reserve_ms": 60000}'
[ "$(as both POST "/v1/grants/$other/renew" '{"reserve_ms": 60000}')" -eq 204 ] || fail "with both rights it is not renewed"
needs force DELETE "/v1/grants/$other?force=true"
for right in "${rights[@]}"; do
    [ "$(as "$right" GET /v1/agent)" -eq 200 ] || fail "$right is not told who it is"
done
needs admin POST /v1/agent/stop '{"how": "at-once"}'
echo "$script: ok"
