#!/usr/bin/env bash
# Who may do what: rights of users and groups, and quotas. Needs root, to be another user.
set -euo pipefail
. tests/lib/service.bash
if [ "$(id -u)" -ne 0 ]; then
    not_tried "other users, which root alone can be"
    exit 0
fi
chmod 755 "$work"
cp "$HOLDALL" "$work/holdall"
export HOLDALL="$work/holdall"
as() { # UID GROUPS COMMAND: as another user, in these groups.
    local uid=$1 groups=$2
    shift 2
    setpriv --reuid "$uid" --regid "$uid" --groups "$groups" "$@"
}
expect_as() { # UID GROUPS STATUS TEXT COMMAND
    local uid=$1 groups=$2 status=$3 text=$4 out got=0
    shift 4
    out=$(as "$uid" "$groups" "$HOLDALL" "$@" 2>&1) || got=$?
    [ "$got" -eq "$status" ] || fail "status $got instead of $status, as $uid in $groups: $*: $out"
    grep -qF -- "$text" <<<"$out" || fail "does not say '$text': $*: $out"
}
serve() {
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}

# By default everybody may look, ask and reserve, and nothing that is others'.
cat >"$work/config.toml" <<'END'
socket_mode = "0666"
[pools.gpu]
units = 2
END
serve
expect 0 "root may view, ask, reserve, pools, force, admin" agent status
expect_as 4711 4711 0 "4711 may view, ask, reserve" agent status
expect_as 4711 4711 0 "gpu" status
expect_as 4711 4711 0 "" run gpu -- true
theirs=$(as 4711 4711 "$HOLDALL" hold gpu 2>/dev/null)
expect_as 4711 4711 0 "lasts until" renew "$theirs"
for change in "add x" "remove gpu" "resize gpu 3" "drain gpu/0 --reason x" "undrain gpu"; do
    # shellcheck disable=SC2086
    expect_as 4711 4711 77 "lacks the right 'pools'" pool $change
done
expect_as 4711 4711 77 "lacks the right 'admin'" agent stop
mine=$("$HOLDALL" hold lab 2>/dev/null)
expect_as 4711 4711 77 "lacks the right 'force'" release --force "$mine"
expect_as 4711 4711 77 "lacks the right 'force'" renew "$mine"
expect_as 4712 4712 77 "lacks the right 'force'" release "$theirs"
expect_as 4711 4711 0 "" release "$theirs"
kill "$agent" && wait "$agent"

# Rights for users and groups, by name or number.
cat >"$work/config.toml" <<'END'
socket_mode = "0666"
[rights]
everybody = ["view"]
[rights.users]
4711 = ["ask"]
[rights.groups]
4800 = ["pools", "force"]
4801 = ["admin"]
[limits]
waiting = 2
reservations = 1
reservation_hours = 2
END
serve
expect_as 4712 4712 77 "lacks the right 'ask'" run x -- true
expect_as 4712 4712 77 "lacks the right 'reserve'" hold x
expect_as 4711 4711 0 "" run x -- true
expect_as 4711 4711 77 "lacks the right 'reserve'" hold x
expect_as 4711 4800 0 "" pool add p --units 2
expect_as 4711 4711,4800 0 "" release --force "$mine"
expect_as 4711 4800 77 "lacks the right 'admin'" agent stop
expect_as 4712 4801 0 "view, ask, reserve, pools, force, admin" agent status
expect 0 "group 4800: pools, force" agent status

# Quotas, beside which there is always room to look.
expect 78 "2 hours at most" hold x --for 3h
mine=$("$HOLDALL" hold x --for 1h 2>/dev/null)
expect 65 "2 hours at most" renew "$mine" --for 3h
expect 69 "limits.reservations" hold y
"$HOLDALL" run x -- true &
"$HOLDALL" run x -- true &
eventually sh -c '[ "$("$HOLDALL" status x | grep -c "held by")" -eq 2 ]'
expect 69 "limits.waiting" run x -- true
expect 0 "" run y -- true
expect 75 "x is held by" run -n x -- true
expect 0 "held by" status x
expect 0 "" release "$mine"
wait %2 %3 2>/dev/null || true
expect 0 "" run x -- true
kill "$agent" && wait "$agent"

for bad in 'everybody = ["fly"]' '[rights.users]
"no such user" = ["view"]'; do
    printf '[rights]\n%s\n' "$bad" >"$work/config.toml"
    expect 64 "" agent --config "$work/config.toml"
done
echo "$script: ok"
