#!/usr/bin/env bash
# What is lent between cells, and for how long: agents that are away for longer than a lease, with pools that are not leased,
# reservations, what commands leave behind, and commands that are about to start.
set -euo pipefail
. tests/lib/cluster.bash
cells=(lab1 lab2)
lease=6
longer=9 # than a lease and a grace
for cell in "${cells[@]}"; do
    cat >"$work/$cell.toml" <<EOF
[cluster]
lease_seconds = $lease
[pools.board]
units = 2
[pools.scope]
lock = true
[pools.press]
lock = true
on_partition = "wait"
EOF
done
echo 'cgroups = false' | cat - "$work/lab2.toml" >"$work/new" && mv "$work/new" "$work/lab2.toml"
for cell in "${cells[@]}"; do agent_of "$cell"; done
join_all lab1 lab2
# Whether a process is there, and more than the memory of one that nobody has waited for.
runs() { grep -q '^State:[[:space:]]*[A-WYa-z]' "/proc/$1/status" 2>/dev/null; }
sleeper='echo $$ >"$0"; while [ ! -e "$0.end" ]; do sleep 0.05; done'

# What is not leased stays with its holder, however long its cell is away; and so does a reservation that spans cells.
at lab2 run press@lab1 -- sh -c "$sleeper" "$work/press" &
press=$!
held=$(at lab2 hold board@lab1 scope --for 5m)
eventually test -s "$work/press"
kill_agent lab2
expect_at lab1 75 "press" run -w "${longer}s" press -- true
kill -0 "$(cat "$work/press")" || fail "who holds what is not leased was stopped"
expect_at lab1 75 "board" run -n board:2 -- true
agent_of lab2
linked lab1 lab2
expect_at lab1 75 "press" run -n press -- true
touch "$work/press.end"
wait "$press" || fail "who holds what is not leased was lost"
expect_at lab1 0 "" run -w 10s press -- true
expect_at lab2 75 "scope" run -n scope -- true
expect_at lab2 0 "" release "${held%% *}"
expect_at lab1 0 "" run -w 10s board:2 scope@lab2 -- true

# What a command leaves behind under leased units is ended in time if its agent does not come back: by its wrapper, which stays.
for home in lab1 lab2; do
    other=$([ "$home" = lab1 ] && echo lab2 || echo lab1)
    at "$home" run -q "scope@$other" -- sh -c 'setsid sleep 1000 & echo $! >"$0"' "$work/left" &
    wrapper=$!
    eventually test -s "$work/left"
    kill_agent "$home"
    got=0
    wait "$wrapper" || got=$?
    [ "$got" -eq 70 ] || fail "a wrapper at $home ended with $got"
    ! runs "$(cat "$work/left")" || fail "what was left behind at $home runs on"
    rm "$work/left"
    agent_of "$home"
    linked lab1 lab2
    expect_at "$home" 0 "" run -w 20s "scope@$other" -- true
done
# As long as all is well it is waited for.
at lab1 run -q scope@lab2 -- sh -c '(while [ ! -e "$0.end" ]; do sleep 0.05; done) & echo $! >"$0"' "$work/waits" &
wrapper=$!
eventually test -s "$work/waits"
expect_at lab2 75 "scope" run -n scope -- true
touch "$work/waits.end"
wait "$wrapper" || fail "a command that left something behind ended with $?"

# A wrapper that hears of its grant when what was lent is to be given back does not start its command.
for home in lab1 lab2; do
    other=$([ "$home" = lab1 ] && echo lab2 || echo lab1)
    rm -f "$work"/held "$work"/held.end
    at "$other" run scope -- sh -c "$sleeper" "$work/held" &
    holder=$!
    eventually test -s "$work/held"
    HOLDALL_AGENT="$work/$home.sock" "$HOLDALL" run -q "scope@$other" -- touch "$work/began" &
    late=$!
    waits() { at "$home" status --json | grep -q '"waiting":\[{'; }
    eventually waits
    kill -STOP "$late"
    touch "$work/held.end"
    wait "$holder"
    has() { at "$home" status --json | grep -q '"grants":\[{'; }
    eventually has
    kill -STOP "$(cat "$work/$home.pid")"
    sleep "$longer"
    kill -CONT "$late"
    got=0
    wait "$late" || got=$?
    kill -CONT "$(cat "$work/$home.pid")"
    [ "$got" -eq 70 ] || fail "a command at $home that came too late ended with $got"
    [ ! -e "$work/began" ] || fail "a command at $home was started though its time was over"
    linked lab1 lab2
    expect_at "$home" 0 "" run -w 20s "scope@$other" -- true
done

# A command that was killed by its agent before its lease was over, while its wrapper stood still, was lost, also if the agent is away when that goes on.
for home in lab1 lab2; do
    other=$([ "$home" = lab1 ] && echo lab2 || echo lab1)
    rm -f "$work/killed"
    HOLDALL_AGENT="$work/$home.sock" "$HOLDALL" run -q "scope@$other" -- sh -c "trap '' TERM; $sleeper" "$work/killed" &
    wrapper=$!
    eventually test -s "$work/killed"
    kill -STOP "$wrapper" "$(cat "$work/$other.pid")"
    is_killed() { ! runs "$(cat "$work/killed")"; }
    eventually is_killed
    kill -STOP "$(cat "$work/$home.pid")"
    kill -CONT "$wrapper"
    got=0
    wait "$wrapper" || got=$?
    kill -CONT "$(cat "$work/lab1.pid")" "$(cat "$work/lab2.pid")"
    [ "$got" -eq 70 ] || fail "a wrapper at $home whose command was killed in time ended with $got"
    linked lab1 lab2
    expect_at "$home" 0 "" run -w 20s "scope@$other" -- true
done

# Forgotten, a cell loses also what is not leased.
at lab2 run press@lab1 -- sh -c "$sleeper" "$work/gone" &
gone=$!
eventually test -s "$work/gone"
kill_agent lab2
kill -9 "$(cat "$work/gone")" "$gone"
wait "$gone" 2>/dev/null || true
expect_at lab1 75 "press" run -n press -- true
expect_at lab1 0 "" cluster forget lab2
expect_at lab1 0 "" run -w 5s press -- true
echo "$script: ok"
