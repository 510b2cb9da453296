#!/usr/bin/env bash
# What an agent remembers, and what becomes of it when its files are damaged, deleted, or find no room: nothing is
# granted twice, fences only grow, and whatever was lost is said.
set -euo pipefail
. tests/lib/service.bash
left=()
end_left() {
    kill -9 "${left[@]}" 2>/dev/null || true
    [ -z "${agent:-}" ] || { kill -9 "$agent" && wait "$agent"; } 2>/dev/null || true
    mountpoint -q "$work/small" && umount "$work/small"
    clean_up
}
trap end_left EXIT
alive() { [[ "$(ps -o stat= -p "$1")" =~ ^[^Z] ]]; }
agent() {
    "$HOLDALL" agent --config "$work/config.toml" 2>>"$work/log" &
    agent=$!
    eventually "$HOLDALL" agent status
}
kill_agent() { kill -9 "$agent" && wait "$agent" 2>/dev/null || true; }
echo 'forgotten = "2s"' >"$work/config.toml"
fence() { "$HOLDALL" run -w "${2:-30s}" "$1" -- sh -c 'echo "$HOLDALL_FENCE_'"${1^^}"'"'; }
# What a grant has, with its fences.
taken() {
    "$HOLDALL" status --json | python3 -c '
import json, sys
print([one["taken"] for one in json.load(sys.stdin)["grants"] if one["request"] == sys.argv[1]])' "$1"
}
grows() { # BEFORE AFTER WHEN
    [ "$2" -gt "$1" ] || fail "a fence is $2 after $1, $3"
}
# A command that has closed all descriptors, and holds a name until it is told to end.
holder() { # NAME
    rm -f "$work/holder" "$work/end"
    "$HOLDALL" run "$1" -- python3 -c '
import os, sys, time
os.closerange(0, 1024)
open(sys.argv[1] + "/holder", "w").write(str(os.getpid()))
while not os.path.exists(sys.argv[1] + "/end"): time.sleep(0.05)' "$work" 2>>"$work/told" &
    wrapper=$!
    eventually test -s "$work/holder"
    left+=("$(cat "$work/holder")")
}
# Whoever gets a name has it alone.
alone() { # NAME SECONDS
    "$HOLDALL" run -w "$2" "$1" -- sh -c 'case $(ps -o stat= -p "$0") in "" | Z*) ;; *) exit 9 ;; esac' "${left[-1]}"
}

# A reservation keeps its units, whatever becomes of its pool; what it has is not moved.
agent
"$HOLDALL" pool add gpu --units 4
G=$("$HOLDALL" hold gpu/1 gpu/3 --for 1h)
before=$(taken "$G")
"$HOLDALL" pool resize gpu 1
kill_agent
agent
[ "$(taken "$G")" = "$before" ] || fail "the reservation had $before and has $(taken "$G")"
expect 75 "gpu" run -n gpu -- true
expect 78 "" run gpu:2 -- true
expect 0 "" release "$G"
expect 0 "" pool remove gpu

# The epoch is missing: its twin knows it. The twin is missing: the epoch does. Both: the log does.
last=$(fence f)
for missing in "data/epoch" "data.epoch" "data/epoch data.epoch"; do
    kill_agent
    for file in $missing; do
        [ -e "$work/$file" ] || fail "there is no $file"
        rm "$work/$file"
    done
    agent
    next=$(fence f)
    grows "$last" "$next" "without $missing"
    last=$next
done

# A record that was not written to its end was told to nobody: nothing is lost.
G=$("$HOLDALL" hold r --for 1h)
before=$(taken "$G")
holder x
"$HOLDALL" run free -- true
kill_agent
python3 tests/lib/segment.py "$HOLDALL_DATA" cut >/dev/null
agent
[ "$(taken "$G")" = "$before" ] || fail "after a cut record, the reservation had $before and has $(taken "$G")"
expect 75 "x" run -n x -- true
expect 75 "r" run -n r -- true
alive "${left[-1]}" || fail "a command was ended because a record was cut"

# Its last record is wrong: something was lost, which is said, and nobody gets what may be in use.
"$HOLDALL" run free -- true
kill_agent
python3 tests/lib/segment.py "$HOLDALL_DATA" last >/dev/null
lines=$(wc -l <"$work/log")
agent
tail -n "+$((lines + 1))" "$work/log" | grep -qi "lost" || fail "does not say that something was lost: $(tail -5 "$work/log")"
expect 75 "" run -n x -- true
touch "$work/end"
alone x 60s || fail "x was granted while its former holder lived, or never: $?"
wait "$wrapper" || true
next=$(fence f 60s)
grows "$last" "$next" "after a torn end"
last=$next
"$HOLDALL" release "$G" >/dev/null 2>&1 || true

# A record in the middle is wrong: no agent starts; file, byte and remedy are told. Mended, it goes on.
for i in 1 2 3 4; do "$HOLDALL" run "m$i" -- true; done
G=$("$HOLDALL" hold r --for 1h)
kill_agent
cp -r "$HOLDALL_DATA" "$work/kept"
read -r file byte < <(python3 tests/lib/segment.py "$HOLDALL_DATA" middle)
out=$(timeout 20 "$HOLDALL" agent --config "$work/config.toml" 2>&1) && fail "an agent has started on a damaged log" || [ $? -eq 71 ] || fail "not 71: $out"
for word in "$file" "damaged" "byte" "copy"; do
    grep -qF "$word" <<<"$out" || fail "does not say '$word': $out"
done
cat "$work/kept/$(basename "$file")" >"$file"
agent
expect 75 "r" run -n r -- true
expect 0 "" release "$G"
next=$(fence f)
grows "$last" "$next" "after damage"
last=$next

# The directory is deleted under a living agent: it grants nothing any more and ends; the next one knows the epoch
# by its twin, nothing else, and gives nobody anything as long as somebody may use it.
holder x
rm -rf "$HOLDALL_DATA"
eventually sh -c "! kill -0 $agent"
agent
expect 75 "" run -n x -- true
touch "$work/end"
alone x 60s || fail "x was granted while its former holder lived, or never: $?"
wait "$wrapper" || true
next=$(fence f 60s)
grows "$last" "$next" "after the directory was deleted"
kill_agent

# A full disk: new requests are refused; what is given back stays given back, what is held stays held.
if mkdir "$work/small" && mount -t tmpfs -o size=40m none "$work/small" 2>/dev/null; then
    export HOLDALL_DATA="$work/small/data"
    rm -f "$HOLDALL_AGENT.lock"
    agent
    G=$("$HOLDALL" hold r --for 1h)
    K=$("$HOLDALL" hold kept --for 1h)
    holder x
    dd if=/dev/zero of="$work/small/fill" bs=64k 2>/dev/null || true
    dd if=/dev/zero of="$work/small/fill2" bs=1k 2>/dev/null || true
    python3 - <<'END' || fail "the disk is never full"
import os, subprocess, sys
long = ["n" + str(i) * 60 for i in range(60)]
for _ in range(2000):
    done = subprocess.run([os.environ["HOLDALL"], "run", *long, "--", "true"], capture_output=True, text=True)
    if done.returncode:
        if done.returncode != 74 or "room" not in done.stderr:
            print(done.returncode, done.stderr)
            sys.exit(1)
        sys.exit(0)
sys.exit(1)
END
    # What is small finds room for a little longer.
    tried=0
    while "$HOLDALL" run y -- true 2>"$work/told"; do
        tried=$((tried + 1))
        [ "$tried" -lt 500 ] || fail "small requests always find room"
    done
    grep -q "room" "$work/told" || fail "on a full disk: $(cat "$work/told")"
    expect 0 "" release "$G"
    expect 0 "" status
    kill_agent
    agent
    expect 75 "x" run -n x -- true
    status=$("$HOLDALL" status)
    grep -q "^ $G " <<<"$status" && fail "what was released on a full disk is back: $status"
    grep -q "^ $K " <<<"$status" || fail "what was held on a full disk is gone: $status"
    touch "$work/end"
    wait "$wrapper" || fail "a command did not end well on a full disk: $(tail -3 "$work/told")"
    rm "$work/small/fill" "$work/small/fill2"
    expect 0 "" run -w 20s x -- true
    expect 0 "" run -w 20s y r -- true
    expect 75 "kept" run -n kept -- true
    expect 0 "" release "$K"
    kill_agent
else
    not_tried "a full disk, for which root alone can mount one"
fi
echo "$script: ok"
