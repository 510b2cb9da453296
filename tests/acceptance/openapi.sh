#!/usr/bin/env bash
# What /openapi.json says is what the agent does: the description is valid, and calls that schemathesis makes up from it are
# answered as described, with no failure inside. OPENAPI_SECONDS of it, 30 by default.
set -euo pipefail
. tests/lib/service.bash
. tests/lib/python.bash
python_for_tests || {
    not_tried "the description of HTTP: its tools cannot be installed (tests/lib/requirements.txt)"
    exit 0
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[pools.gpu]\nunits = 4\n' >"$work/config.toml"
"$HOLDALL" agent --config "$work/config.toml" --http "127.0.0.1:$port" 2>"$work/log" &
eventually curl -sf "http://127.0.0.1:$port/readyz"
token=$("$HOLDALL" token add tester --may view,ask,reserve,pools,force)

curl -sf "http://127.0.0.1:$port/openapi.json" >"$work/openapi.json"
"$python" -m openapi_spec_validator "$work/openapi.json" >/dev/null || fail "/openapi.json is not valid"
# A call that waits as long as it may would take all the time there is.
sed -i 's/300000/100/g' "$work/openapi.json"
# Everything but the stream, which does not end; one after the other, since parsers of Python 3.11 that run side by side break. How fast calls are made up depends on the machine, and is not looked at.
cd "$work"
"$python" -m schemathesis.cli run openapi.json --url "http://127.0.0.1:$port" -H "Authorization: Bearer $token" \
    --exclude-path /v1/events --max-time "${OPENAPI_SECONDS:-30}" --workers 1 --no-color --request-timeout 60 --suppress-health-check all \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance \
    >"$work/calls" 2>&1 || { tail -100 "$work/calls" >&2; fail "schemathesis has found something"; }
[ "$(curl -s "http://127.0.0.1:$port/healthz")" = ok ] || fail "the agent is gone"
echo "$script: ok"
