#!/usr/bin/env bash
# `holdall top` in tmux: what it shows, keys, another size, a killed agent, and a terminal that is left as it was.
set -euo pipefail
. tests/lib/service.bash
command -v tmux >/dev/null || {
    not_tried "holdall top: there is no tmux (Debian: apt-get install tmux)"
    exit 0
}
terminal() { tmux -S "$work/tmux" "$@"; }
trap 'terminal kill-server 2>/dev/null || true; clean_up' EXIT
shows() { terminal capture-pane -p -t top | grep -qF -- "$1"; }
hides() { ! shows "$1"; }
press() { terminal send-keys -t top "$@"; }

printf '[pools.gpu]\nunits = 4\n' >"$work/config.toml"
serve() {
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" status
}
serve
grant=$("$HOLDALL" hold gpu:3 --for 1h --reason 'night run' 2>/dev/null)
"$HOLDALL" run gpu:2 --reason "waits $(printf '\033[2J')long" -- true 2>/dev/null &
waits() { "$HOLDALL" status --json | grep -q '"waiting":\[{'; }
eventually waits

terminal -f /dev/null new-session -d -s top -x 140 -y 30 "bash --norc --noprofile"
press "PS1='re''ady> '" Enter
eventually shows "ready>"
press "stty -g >$work/before; $HOLDALL top; echo left with \$?; stty -g >$work/after" Enter
eventually shows "1 held, 1 waiting"
eventually shows "1 of 4 free"
eventually shows "night run"
# Why somebody waits.
press e
eventually shows "would go on with the release of"
press Escape
eventually hides "would go on with the release of"
# A filter, and its end.
press / nothing Enter
eventually shows "in the order of service: 0"
press Escape
eventually shows "in the order of service: 1"
# Other sizes.
terminal resize-window -t top -x 50 -y 12
eventually shows "in the order of service"
eventually hides "pools:"
terminal resize-window -t top -x 140 -y 30
eventually shows "pools:"
# An agent that is killed is missed until the next one serves.
kill -9 "$agent"
wait "$agent" 2>/dev/null || true
eventually shows "the agent is away"
serve
eventually hides "the agent is away"
eventually shows "1 held, 1 waiting"
# Released after a question; whoever waited is served.
press Tab r
eventually shows "release your reservation $grant"
press n
eventually hides "release your reservation"
press r
eventually shows "release your reservation $grant"
press y
eventually shows "0 held, 0 waiting"
press q
eventually shows "left with 0"
eventually shows "ready>"
hides "pools:" || fail "the screen is not what it was"
eventually cmp "$work/before" "$work/after"
# What was confirmed is released though one leaves while the agent has not even explained something yet.
"$HOLDALL" hold gpu:3 --for 1h >/dev/null 2>&1
"$HOLDALL" run gpu:2 -- true 2>/dev/null &
waiting=$!
eventually waits
press "clear; $HOLDALL top; echo gone with \$?" Enter
eventually shows "1 held, 1 waiting"
kill -STOP "$agent"
press e Tab r
eventually shows "release your reservation"
press y q
eventually hides "pools:"
kill -CONT "$agent"
eventually shows "gone with 0"
"$HOLDALL" status | grep -qF "hold" && fail "it was not released: $("$HOLDALL" status)"
wait "$waiting"
# A signal leaves the terminal clean, too.
rm "$work/after"
press "clear; $HOLDALL top; echo left with \$?; stty -g >$work/after" Enter
eventually shows "pools:"
top=$(pgrep -P "$(terminal display-message -p -t top '#{pane_pid}')" -x holdall)
kill "$top"
eventually shows "left with 0"
eventually cmp "$work/before" "$work/after"
expect 64 "needs a terminal" top </dev/null
echo "$script: ok"
