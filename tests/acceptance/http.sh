#!/usr/bin/env bash
# The agent over HTTP: the life of a grant with curl, tokens, TLS, and what survives `kill -9` and a restart of the agent.
set -euo pipefail
. tests/lib/service.bash
export http="$work/agent.http.sock"

cat >"$work/config.toml" <<'END'
[pools.gpu]
units = 4
END
serve() { # OPTIONS
    "$HOLDALL" agent --config "$work/config.toml" "$@" 2>>"$work/log" &
    agent=$!
    eventually curl -sf --unix-socket "$http" http://localhost/readyz
}
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
call() { # METHOD PATH [BODY] over the Unix socket: prints the status, a blank and the body
    curl -sS --max-time 60 --unix-socket "$http" -X "$1" "http://localhost$2" -o "$work/body" -w '%{http_code} ' \
        ${3:+-H 'content-type: application/json' -d "$3"} && cat "$work/body"
}
told() { # TEXT COMMAND: what it prints has the text in it
    local text=$1 out
    shift
    out=$("$@" 2>&1) || true
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}

# The whole life of a grant.
serve
told '200 ok' call GET /healthz
told '"state":"granted"' call PUT /v1/requests/mine '{"needs": ["gpu:4"], "ttl_ms": 2000, "reason": "a test"}'
told "a test" "$HOLDALL" status gpu
told '"exit":75' call PUT /v1/requests/other '{"needs": ["gpu"]}'
told '"exit":78' call PUT /v1/requests/other '{"needs": ["gpu:9"]}'
told '202 ' call PUT /v1/requests/other '{"needs": ["gpu"], "queue": true}'
told '200 ' call POST /v1/requests/mine/renew
told '"state":"released"' call DELETE /v1/requests/mine
told '"state":"released"' call DELETE /v1/requests/mine
told '"state":"granted"' call GET '/v1/requests/other?wait_ms=30000'
told '"state":"released"' call DELETE /v1/requests/other
told '"grants":[]' call GET /v1/status

# Of two calls about one request, the one that loses patience does not end the waiting of the other.
told '"state":"granted"' call PUT /v1/requests/keeps '{"needs": ["lamp"]}'
curl -sS --max-time 60 --unix-socket "$http" -X PUT http://localhost/v1/requests/both -o "$work/patient" \
    -H 'content-type: application/json' -d '{"needs": ["lamp"], "wait_ms": 50000}' &
patient=$!
waits() { "$HOLDALL" status lamp --json | grep -q '"waiting":\[{'; }
eventually waits
told '"exit":75' call PUT /v1/requests/both '{"needs": ["lamp"], "wait_ms": 10}'
waits || fail "whoever was patient does not wait any more"
told '"state":"released"' call DELETE /v1/requests/keeps
wait "$patient"
told '"state":"granted"' cat "$work/patient"
told '"state":"released"' call DELETE /v1/requests/both

# Whoever stops renewing loses it; whoever waits gets it, with a higher fence.
call PUT /v1/requests/left '{"needs": ["db"], "ttl_ms": 1000}' >"$work/first"
told '"state":"granted"' call PUT /v1/requests/next '{"needs": ["db"], "wait_ms": 60000}'
cp "$work/body" "$work/second"
told '410 ' call GET /v1/requests/left
python3 - "$work" <<'END'
import json, sys
first, second = (json.loads(open(f"{sys.argv[1]}/{name}").read().split(" ", name == "first")[-1])
                 for name in ("first", "second"))
fence = lambda grant: int(grant["taken"][0]["units"][0]["fence"])
assert fence(second) > fence(first), (first, second)
END
told '"state":"released"' call DELETE /v1/requests/next

# An agent that is killed is missed for a moment: the id finds the same grant again.
told '"state":"granted"' call PUT /v1/requests/kept '{"needs": ["gpu:2", "db"], "ttl_ms": 60000}'
number=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
kill -9 "$agent"
wait "$agent" 2>/dev/null || true
serve
told "\"request\":\"$number\"" call GET /v1/requests/kept
told '"state":"granted"' call PUT /v1/requests/kept '{"needs": ["gpu:2", "db"], "ttl_ms": 60000}'
told "\"request\":\"$number\"" cat "$work/body"
# It knows one request from another then, too.
told '"type":"urn:holdall:problem:conflict"' call PUT /v1/requests/kept '{"needs": ["gpu:2"], "ttl_ms": 60000}'
told '"type":"urn:holdall:problem:conflict"' call PUT /v1/requests/kept '{"needs": ["gpu:2", "db"], "ttl_ms": 50000}'
# One that is restarted, and one whose socket somebody removes, too.
"$HOLDALL" agent restart
eventually curl -sf --unix-socket "$http" http://localhost/readyz
told "\"request\":\"$number\"" call POST /v1/requests/kept/renew
rm "$http"
eventually curl -sf --unix-socket "$http" http://localhost/readyz
told "\"request\":\"$number\"" call GET /v1/requests/kept
told '"state":"released"' call DELETE /v1/requests/kept

# Pools, drains, reservations, the audit log, and those who listen.
told '204 ' call PUT /v1/pools/seat '{"units": ["red", "blue"]}'
told '404 ' call DELETE /v1/pools/none
told '404 ' call DELETE /v1/grants/77-7
told '204 ' call PUT /v1/drains/seat%2Fred '{"reason": "wobbles"}'
told 'wobbles' call GET /v1/pools/seat
told '"state":"granted"' call POST /v1/requests '{"needs": ["seat/blue"], "reserve_ms": 600000}'
number=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
told '"state":"reserved"' call GET '/v1/status?pool=seat'
told '204 ' call POST "/v1/grants/$number/renew" '{"reserve_ms": 700000}'
told '"release":[]' call GET "/v1/explain/$number"
told '204 ' call DELETE "/v1/grants/$number"
told '"what":"asked"' call GET '/v1/audit?limit=5&pool=seat&text=BLUE'
# The id of a reservation is good for as long as it lasts: whoever asks again late, or another agent, has the same one.
ask='{"needs": ["seat/blue"], "reserve_ms": 600000, "ttl_ms": 1000}'
told '"state":"granted"' call PUT /v1/requests/late "$ask"
number=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
# By then its lease would be over twice.
sleep 2.5
told "\"request\":\"$number\"" call PUT /v1/requests/late "$ask"
told "\"request\":\"$number\"" call GET /v1/requests/late
kill -9 "$agent"
wait "$agent" 2>/dev/null || true
serve
sleep 2.5
told "\"request\":\"$number\"" call PUT /v1/requests/late "$ask"
told '"type":"urn:holdall:problem:conflict"' call PUT /v1/requests/late '{"needs": ["seat/blue"], "reserve_ms": 5000, "ttl_ms": 1000}'
told '"state":"released"' call DELETE /v1/requests/late
told '"grants":[]' call GET '/v1/status?pool=seat'
# One whose reservation was released by its number is over.
told '"state":"granted"' call PUT /v1/requests/over "$ask"
number=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
told '204 ' call DELETE "/v1/grants/$number"
told '410 ' call POST /v1/requests/over/renew
# Whoever waits for the end of what it holds is told of it.
told '"state":"granted"' call PUT /v1/requests/ends '{"needs": ["lamp"], "ttl_ms": 600000}'
number=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
told '"state":"granted"' call GET '/v1/requests/ends?wait_ms=10&until=ended'
curl -sS --max-time 60 --unix-socket "$http" 'http://localhost/v1/requests/ends?wait_ms=50000&until=ended' -o "$work/ended" &
waits=$!
told '204 ' call DELETE "/v1/grants/$number?force=true"
wait "$waits"
told 'urn:holdall:problem:lost' cat "$work/ended"
# It is kept for whoever has used it until that one says that it does not any more.
told '"exit":75' call PUT /v1/requests/lamp '{"needs": ["lamp"]}'
told '410 ' call PUT /v1/requests/ends '{"needs": ["lamp"], "ttl_ms": 600000}'
told '"exit":75' call PUT /v1/requests/lamp '{"needs": ["lamp"]}'
told '410 ' call DELETE /v1/requests/ends
told '"state":"granted"' call PUT /v1/requests/lamp '{"needs": ["lamp"]}'
told '"state":"released"' call DELETE /v1/requests/lamp
# Whoever takes something away says why.
told '"state":"granted"' call PUT /v1/requests/hangs '{"needs": ["seat/blue"], "ttl_ms": 10000}'
number=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
told '204 ' call DELETE "/v1/grants/$number?force=true&reason=it+hangs"
# Nobody sees whether it is used still: until its time is over nobody else has it.
told '"exit":75' call PUT /v1/requests/again '{"needs": ["seat/blue"]}'
told '"state":"granted"' call PUT /v1/requests/again '{"needs": ["seat/blue"], "wait_ms": 60000, "ttl_ms": 600000}'
again=$(sed -n 's/.*"request":"\([^"]*\)".*/\1/p' "$work/body")
expect 64 "--force" release "$again" --reason "by hand"
"$HOLDALL" release "$again" --force --reason "by hand"
forced() { call GET "/v1/audit?request=$1" | grep -q "forced by .*: $2"; }
eventually forced "$number" "it hangs"
eventually forced "$again" "by hand"
# Whoever says that it has stopped is not waited for.
told '"exit":75' call PUT /v1/requests/after '{"needs": ["seat/blue"]}'
told '410 ' call DELETE /v1/requests/again
told '"state":"granted"' call PUT /v1/requests/after '{"needs": ["seat/blue"]}'
told '"state":"released"' call DELETE /v1/requests/after
told 'event: snapshot' timeout 3 curl -sN --unix-socket "$http" http://localhost/v1/events

# Over TCP: a token, or nothing but the page; TLS where there is a certificate.
kill "$agent"
wait "$agent" 2>/dev/null || true
port=$(free_port)
expect 65 "there is no token ci" token remove ci
token=$("$HOLDALL" token add ci --may view,ask)
told "view, ask" "$HOLDALL" token list
if grep -qF "${token#hat_}" -r "$HOLDALL_DATA"; then fail "a token is on disk"; fi
serve --http "127.0.0.1:$port"
remote() { curl -sS --max-time 20 -o /dev/null -w '%{http_code}' "$@"; }
told 401 remote "http://127.0.0.1:$port/v1/status"
told 200 remote "http://127.0.0.1:$port/"
told 200 remote -H "authorization: Bearer $token" "http://127.0.0.1:$port/v1/status"
told 403 remote -H "authorization: Bearer $token" -X DELETE "http://127.0.0.1:$port/v1/pools/seat"
# Of others' past it sees what happened, and not who they were: the seat was taken away from somebody who is not this token.
others() { curl -sS --max-time 20 -H "authorization: Bearer $token" "http://127.0.0.1:$port/v1/audit?limit=1000"; }
told '"what":"forced"' others
if others | grep -qE "\"who\"|it hangs"; then fail "it sees who others were"; fi
call GET '/v1/audit?limit=1000' | grep -q "it hangs" || fail "its own user does not see everything"
told 421 remote -H 'host: evil.example' "http://127.0.0.1:$port/"
told 403 remote -H 'origin: http://evil.example' "http://127.0.0.1:$port/"
# What a token waits for is withdrawn when the token is removed, though its lease is long; what it holds stays held.
"$HOLDALL" token add other --may view,ask >"$work/token"
as_other() { # NEED
    curl -sS --max-time 20 -H "authorization: Bearer $(cat "$work/token")" -H 'content-type: application/json' \
        "http://127.0.0.1:$port/v1/requests" -d "{\"needs\": [\"$1\"], \"queue\": true, \"ttl_ms\": 3600000}"
}
told '"state":"granted"' as_other lamp
told '"state":"granted"' call PUT /v1/requests/before '{"needs": ["db"], "ttl_ms": 3600000}'
told '"state":"waiting"' as_other db
told '"state":"waiting"' as_other db
waiting() { call GET '/v1/status?pool=db' | grep -q '"waiting":\[{'; }
waiting || fail "nothing waits"
"$HOLDALL" token remove other
nobody_waits() { ! waiting; }
eventually nobody_waits
told 'token:other' call GET '/v1/status?pool=lamp'
told '"state":"released"' call DELETE /v1/requests/before
# Who listens with a token is let go with it.
curl -sN --max-time 60 -H "authorization: Bearer $token" "http://127.0.0.1:$port/v1/events" >"$work/events" &
listens=$!
eventually grep -q '^event: snapshot' "$work/events"
"$HOLDALL" token remove ci
wait "$listens" || [ $? -eq 18 ] || fail "whoever listens is not let go: $?"
told 401 remote -H "authorization: Bearer $token" "http://127.0.0.1:$port/v1/status"
# A file of tokens that cannot be read is told once.
cp "$HOLDALL_DATA/tokens.json" "$work/tokens.json"
echo broken >"$HOLDALL_DATA/tokens.json"
for _ in 1 2 3; do told 401 remote -H "authorization: Bearer $token" "http://127.0.0.1:$port/v1/status"; done
[ "$(grep -c "tokens.json: " "$work/log")" -eq 1 ] || fail "a broken file is not told once: $(grep tokens.json "$work/log")"
cp "$work/tokens.json" "$HOLDALL_DATA/tokens.json"
# Tokens are the agent's that is meant, wherever it has its files.
"$HOLDALL" agent --socket "$work/other.sock" --data "$work/elsewhere" 2>>"$work/log" &
elsewhere=$!
eventually "$HOLDALL" status --agent "$work/other.sock"
"$HOLDALL" token add far --may view --agent "$work/other.sock" >/dev/null
grep -q '"far"' "$work/elsewhere/tokens.json" || fail "the token is not where the agent looks for it"
told far "$HOLDALL" token list --agent "$work/other.sock"
kill "$elsewhere"
wait "$elsewhere" 2>/dev/null || true
# A port that somebody else has: an agent does not start, and one that is restarted goes on without it until it can be had.
python3 -c '
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("127.0.0.1", 0))
s.listen()
print(s.getsockname()[1], flush=True)
time.sleep(600)' >"$work/taken" &
stranger=$!
eventually test -s "$work/taken"
taken=$(cat "$work/taken")
expect 71 "cannot listen at 127.0.0.1:$taken" agent --socket "$work/other.sock" --data "$work/other" --http "127.0.0.1:$taken"
kill "$agent"
wait "$agent" 2>/dev/null || true
printf '[http]\nlisten = "127.0.0.1:%s"\n' "$port" >>"$work/config.toml"
serve
sed -i "s/:$port\"/:$taken\"/" "$work/config.toml"
"$HOLDALL" agent restart
eventually curl -sf --unix-socket "$http" http://localhost/healthz
told "no HTTP over TCP: cannot listen at 127.0.0.1:$taken" "$HOLDALL" agent status
told '503 ' call GET /readyz
kill "$stranger"
eventually curl -sf "http://127.0.0.1:$taken/readyz"
if "$HOLDALL" agent status | grep -q "no HTTP"; then fail "it says that HTTP is missing, which is there"; fi
sed -i '/^\[http\]$/,$d' "$work/config.toml"
expect 64 "tokens would go there in the clear" agent --socket "$work/other.sock" --data "$work/other" --http "0.0.0.0:$port"

if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout "$work/key.pem" -out "$work/cert.pem" 2>>"$work/log"
    kill "$agent"
    wait "$agent" 2>/dev/null || true
    printf '[http]\nlisten = "127.0.0.1:%s"\ncertificate = "%s"\nkey = "%s"\n' "$port" "$work/cert.pem" "$work/key.pem" >>"$work/config.toml"
    serve
    token=$("$HOLDALL" token add tls --may view)
    told 200 remote --cacert "$work/cert.pem" -H "authorization: Bearer $token" "https://localhost:$port/v1/status"
    if curl -s --max-time 20 "http://localhost:$port/healthz" >/dev/null; then fail "it speaks without TLS"; fi
    expect 64 "belong together" agent --config <(printf '[http]\nkey = "x"\n') --socket "$work/other.sock" --data "$work/other"
else
    not_tried "TLS: there is no openssl to make a certificate"
fi
echo "$script: ok"
