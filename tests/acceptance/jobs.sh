#!/usr/bin/env bash
# `holdall job` as a user meets it: a night of tests on fake boards, failures, groups, cancelling,
# killed runners and holders, bad files; and twenty jobs at once while everything is killed at random.
set -euo pipefail
. tests/lib/service.bash
# Longer than the name of a socket may be.
export HOLDALL_JOBS="$work/jobs-in-a-directory-with-a-rather-long-name/and-another-one-in-it/and-one-more"
storm="$PWD/tests/lib/job_storm.py"
cd "$work"

# Nobody runs a job any more when the script ends.
end_jobs() {
    local id
    for id in $("$HOLDALL" job list 2>/dev/null | awk '/  (running|interrupted)  / {print $1}'); do
        "$HOLDALL" job cancel "$id" >/dev/null 2>&1 && timeout 20 "$HOLDALL" job wait "$id" || true
    done
}
trap 'end_jobs; clean_up' EXIT

# The process that runs a job.
runner_of() {
    "$HOLDALL" job show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["runner"] or "")'
}

# Kills processes, and waits until they are gone, with their locks.
are_gone() {
    local pid
    for pid; do
        [ ! -e "/proc/$pid" ] || grep -q '^State:.[ZX]' "/proc/$pid/status" || return 1
    done
}
kill_wholly() {
    kill -9 "$@"
    eventually are_gone "$@"
}

"$HOLDALL" pool add cpu --units 4
"$HOLDALL" pool add board --units 2

cat > night.toml <<'EOF'
name = "night"
env = { BUILD = "release" }

[task.build]
needs = ["cpu:4"]
run = "echo built $BUILD > built"

[task.flash]
after = ["build"]
needs = ["board", "usb:shared"]
run = "test -e built && echo flashed $HOLDALL_UNITS_BOARD; test $HOLDALL_ATTEMPT = 2"
retries = 2
pause = "10ms"
timeout = "10m"

[task.suite]
after = ["flash"]
matrix = { part = ["smoke", "radio", "power"] }
needs = ["board", "license/vector"]
run = ["sh", "-c", "mkdir busy && sleep 0.1 && rmdir busy && echo {part} >> parts"]

[task.report]
after = ["suite"]
when = "always"
run = "sort parts > report"
EOF

expect 0 "critical path: build -> flash -> suite[smoke] -> report" job check night.toml
expect 0 "holds at most: board:2 cpu:4 license/vector usb:shared" job check night.toml
expect 0 "suite[power]: succeeded" job run night.toml
[ "$(tr '\n' ' ' < report)" = "power radio smoke " ] || fail "the report: $(cat report)"
"$HOLDALL" job show night-1 | grep -q "flash: succeeded after .*, run 2 times" || fail "flash"
expect 0 "flashed board/" job logs night-1 flash
expect 0 '"state":"succeeded","attempts":2' job show night-1 --json
"$HOLDALL" job show night-1 --junit | python3 -c '
import sys, xml.etree.ElementTree as tree
suite = tree.fromstring(sys.stdin.read())[0]
assert suite.attrib["tests"] == "6" and suite.attrib["failures"] == "0", suite.attrib'
"$HOLDALL" job show night-1 --svg | python3 -c '
import sys, xml.etree.ElementTree as tree
text = "".join(tree.fromstring(sys.stdin.read()).itertext())
assert "board/0" in text and "suite[radio]: succeeded" in text, text'
expect 0 "night-1  succeeded  6 of 6 tasks succeeded" job list
"$HOLDALL" job list --json | python3 -c '
import json, sys
job = json.loads(sys.stdin.readline())
assert job["schema"] == 1 and job["state"] == "succeeded" and job["tasks"][0]["exit_status"] == 0, job'
expect 65 "has ended already" job cancel night-1
expect 0 "" job retry night-1 report
expect 0 "" job wait night-1
expect 0 "report: succeeded" job show night-1
# A retry that was killed before it had noted anything.
rm "$HOLDALL_JOBS/night-1/over.json"
expect 0 "" job wait night-1
HOLDALL_JOBS=/proc/none expect 73 "HOLDALL_JOBS names another" job list
expect 65 "there is no job" job show nothing-1
expect 65 "there is no job" job show ../jobs/night-1

# A failure stops the rest, but not what wants to know of it; again, it succeeds.
cat > fail.toml <<'EOF'
[task.first]
run = "test -e fixed"
[task.second]
after = ["first"]
run = "true"
[task.told]
after = ["first"]
when = "failure"
run = "touch told"
EOF
expect 1 "(exit status 1), log" job run fail.toml --junit fail.xml
python3 -c '
import xml.etree.ElementTree as tree
suite = tree.parse("fail.xml").getroot()[0]
assert suite.attrib["failures"] == "1" and suite.attrib["skipped"] == "1", suite.attrib'
[ -e told ] || fail "nobody was told"
expect 0 "second: skipped" job show fail-2
touch fixed
expect 0 "" job retry fail-2
expect 0 "" job wait fail-2
expect 0 "told: skipped" job show fail-2
expect 65 "all tasks of night-1 have succeeded" job retry night-1

# A group holds through all of its tasks, which share what they need.
cat > group.toml <<'EOF'
[task.one]
run = "test -n \"$HOLDALL_UNITS_BOARD\" && echo $HOLDALL_UNITS_BOARD $HOLDALL_UNITS_CPU > one"
needs = ["cpu:2"]
[task.two]
run = "echo $HOLDALL_UNITS_BOARD $HOLDALL_UNITS_CPU > two"
needs = ["cpu:2"]
[task.three]
after = ["two"]
run = "test -z \"$HOLDALL_UNITS_CPU\" && $HOLDALL status board --json | grep -q '\"free\":1'"
[group.bench]
needs = ["board"]
tasks = ["one", "two", "three"]
EOF
expect 0 "bench holds board cpu:4 through its tasks" job check group.toml
expect 0 "two: succeeded" job run group.toml
[ "$(cut -d' ' -f1 one)" = "$(cut -d' ' -f1 two)" ] || fail "they have different boards"
[ "$(cut -d' ' -f2 one)" != "$(cut -d' ' -f2 two)" ] || fail "they have the same processors"

# Cancelling releases everything, while it waits and while it runs.
cat > long.toml <<'EOF'
[task.long]
needs = ["board:2"]
run = "touch running; sleep 600"
[task.after]
after = ["long"]
run = "touch never"
EOF
long=$("$HOLDALL" job submit long.toml)
eventually test -e running
waiting=$("$HOLDALL" job submit long.toml)
expect 0 "long: waiting" job show "$waiting"
expect 0 "" job cancel "$waiting"
expect 130 "" job wait "$waiting"
expect 0 "" job cancel "$long"
expect 130 "" job wait "$long"
expect 0 "" run -n board:2 -- true
[ ! -e never ] || fail "it went on"

# So does Ctrl-C.
rm running
env --default-signal=INT "$HOLDALL" job run long.toml > /dev/null 2>&1 &
eventually test -e running
kill -INT $!
got=0
wait $! || got=$?
[ "$got" -eq 130 ] || fail "status $got of a job that was interrupted"
expect 0 "" run -n board:2 -- true

# One at a time.
printf '[task.alone]\nmatrix = { n = [1, 2] }\nrun = "mkdir alone && sleep 0.2 && rmdir alone"\n' > alone.toml
expect 0 "alone[2]: succeeded" job run --jobs 1 alone.toml

# Tasks find no signal blocked, with needs and without; and those that are to end are asked to first.
cat > signals.toml <<'EOF'
[task.free]
run = ["grep", "SigBlk", "/proc/self/status"]
[task.held]
needs = ["board"]
run = ["grep", "SigBlk", "/proc/self/status"]
[task.asked]
after = ["free", "held"]
run = ["bash", "-c", "trap 'echo asked to end; exit' TERM; touch trapping; sleep 606 & wait"]
EOF
signals=$("$HOLDALL" job submit signals.toml)
eventually test -e trapping
for task in free held; do
    "$HOLDALL" job logs "$signals" $task | grep -q "^SigBlk:.0*$" || fail "$("$HOLDALL" job logs "$signals")"
done
expect 0 "" job cancel "$signals"
expect 130 "" job wait "$signals"
expect 0 "asked to end" job logs "$signals" asked

# On a terminal there is a live tree.
TERM=xterm python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$HOLDALL" job run night.toml > seen < /dev/null ||
    fail "on a terminal: $(cat seen)"
grep -q "of 6 tasks done" seen || fail "there is no tree: $(cat seen)"

# A runner that is told to end, as when the machine goes down, leaves the job to the next.
printf '[task.a]\nrun = "echo ran >> term; test $(wc -l < term) -ge 2 || sleep 607"\nagain = true\n' > term.toml
term=$("$HOLDALL" job submit term.toml)
eventually test -s term
kill -TERM "$(runner_of "$term")"
expect 0 "" job resume "$term"
expect 0 "" job wait "$term"
rm term
"$HOLDALL" job run term.toml > told 2>&1 &
eventually test -s term
kill -TERM $!
got=0
wait $! || got=$?
[ "$got" -eq 143 ] || fail "a runner that was told to end ends with $got"
term=$(sed -n 's/.*`holdall job resume \(.*\)` goes on.*/\1/p' told)
expect 0 "" job wait "$term"
[ "$(wc -l < term)" -eq 2 ] || fail "it ran so often: $(wc -l < term)"

# A task that was cancelled stays so, even if the runner is killed before it has ended.
cat > stubborn.toml <<'EOF'
[task.a]
again = true
run = ["bash", "-c", "trap '' TERM; echo ran >> stubborn; sleep 608"]
EOF
stubborn=$("$HOLDALL" job submit stubborn.toml)
eventually test -s stubborn
runner=$(runner_of "$stubborn")
expect 0 "" job cancel "$stubborn" a
kill_wholly "$runner"
expect 1 "" job wait "$stubborn"
expect 0 "a: failed" job show "$stubborn"
expect 0 "cancelled" job show "$stubborn"
[ "$(wc -l < stubborn)" -eq 1 ] || fail "it was run again"

# Logs are followed to the end of the task, or of the job.
printf '[task.talk]\nrun = "echo one; sleep 0.5; echo two"\n' > talk.toml
talk=$("$HOLDALL" job submit talk.toml)
[ "$("$HOLDALL" job logs "$talk" talk -f | tr '\n' ' ')" = "one two " ] || fail "logs -f"
expect 0 "== talk" job logs "$talk" -f

# What is started under a grant ends with it, so no runner is.
expect 65 "would be part of the grant" run other -- "$HOLDALL" job submit talk.toml
expect 0 "$talk  succeeded" run other -- "$HOLDALL" job list
expect 65 "talk of $talk has ended already" job cancel "$talk" talk

# A runner is killed, and the holder of the task that needs nothing with it, so that nobody is left to
# end that task. The next runner goes on: it runs nothing again that has ended or may not be run again,
# and nothing beside what is left of it.
cat > killed.toml <<'EOF'
[task.first]
run = "grep -q '\"started\":{\"task\":0' $HOLDALL_JOBS/$HOLDALL_JOB/records.jsonl && echo first >> order"
[task.again]
after = ["first"]
needs = ["board"]
again = true
run = "echo again >> order; exec 9> again; flock -n 9 || exit 3; test $(grep -c again order) -ge 2 || sleep 601"
[task.free]
after = ["first"]
again = true
run = "echo free >> order; exec 9> free; flock -n 9 || exit 3; test $(grep -c free order) -ge 2 || sleep 602"
[task.once]
after = ["first"]
needs = ["board"]
continue = true
run = "echo once >> order; sleep 603"
EOF
killed=$("$HOLDALL" job submit killed.toml)
for task in again free once; do
    eventually grep -q $task order
done
runner=$(runner_of "$killed")
holder=$(pgrep -P "$runner" -f "^[^ ]* job holder")
kill_wholly "$runner" "$holder"
expect 0 "" job resume "$killed"
expect 0 "" job wait "$killed"
expect 0 "once: failed" job show "$killed"
expect 0 "it is not known how it ended" job show "$killed"
[ "$(sort order | uniq -c | tr -s ' ' | tr '\n' ';')" = " 2 again; 1 first; 2 free; 1 once;" ] ||
    fail "what ran: $(tr '\n' ' ' < order)"
eventually "$HOLDALL" run -n board:2 -- true

# A task that ends while its runner cannot hear of it is not lost with the runner.
printf '[task.a]\nrun = "echo ran >> ran; until [ -e go ]; do sleep 0.05; done"\n' > deaf.toml
deaf=$("$HOLDALL" job submit deaf.toml)
eventually test -s ran
runner=$(runner_of "$deaf")
kill -STOP "$runner"
touch go
eventually test -s "$HOLDALL_JOBS/$deaf"/running/*/0.1
kill_wholly "$runner"
expect 0 "" job resume "$deaf"
expect 0 "" job wait "$deaf"
[ "$(wc -l < ran)" -eq 1 ] || fail "it was run twice"

# A holder that is killed by itself: its task is stopped, and counts as lost.
cat > lost.toml <<'EOF'
[task.held]
needs = ["board"]
run = "exec 9> beside; flock -n 9; echo $$ > held; exec sleep 604"
[task.told]
after = ["held"]
when = "always"
run = "flock -n beside true || touch overlap"
EOF
lost=$("$HOLDALL" job submit lost.toml)
eventually test -s held
kill -9 "$(ps -o ppid= -p "$(cat held)" | tr -d ' ')"
expect 1 "" job wait "$lost"
expect 0 "held: failed" job show "$lost"
expect 0 "what it held was lost" job show "$lost"
[ ! -e overlap ] || fail "what comes after it ran beside it"
# One that needs nothing is known to nobody else: its runner ends it.
sed -i '/needs/d' lost.toml
rm held
lost=$("$HOLDALL" job submit lost.toml)
eventually test -s held
kill -9 "$(ps -o ppid= -p "$(cat held)" | tr -d ' ')"
expect 1 "" job wait "$lost"
expect 0 "it is not known how it ended" job show "$lost"
[ ! -e overlap ] || fail "what comes after it ran beside it"
sed -i '2i needs = ["board"]' lost.toml
# So it is when the process that asked for it is told to end, or is killed.
for signal in TERM KILL; do
    rm held
    lost=$("$HOLDALL" job submit lost.toml)
    eventually test -s held
    kill -$signal "$(client_of board)"
    expect 1 "" job wait "$lost"
    expect 0 "what it held was lost" job show "$lost"
    [ ! -e overlap ] || fail "what comes after it ran beside it"
done

# A process that waits and is killed is no verdict: it is asked for again.
"$HOLDALL" run board:2 -- sh -c 'until [ -e let-go ]; do sleep 0.05; done' &
printf '[task.a]\nneeds = ["board"]\nrun = "true"\n' > patient.toml
patient=$("$HOLDALL" job submit patient.toml)
waiting() {
    "$HOLDALL" status board --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["waiting"][0]["who"]["pid"])'
}
eventually waiting
kill -9 "$(waiting)"
touch let-go
expect 0 "" job wait "$patient"

# A job's surroundings are those of its submission; and one that nobody runs can be cancelled.
printf '[task.a]\nrun = "echo $WORD > word; sleep 605"\nagain = true\n' > word.toml
word=$(WORD=submitted "$HOLDALL" job submit word.toml)
eventually test -s word
kill_wholly "$(runner_of "$word")"
rm word
WORD=resumed "$HOLDALL" job resume "$word"
eventually test -s word
[ "$(cat word)" = submitted ] || fail "it has the surroundings of whoever resumed it"
kill_wholly "$(runner_of "$word")"
expect 0 "" job cancel "$word"
expect 130 "" job wait "$word"
expect 0 "cancelled" job show "$word"

# A job that no runner can run is told of by those who wait for it, and disturbs no list.
rm word
bad=$("$HOLDALL" job submit word.toml)
eventually test -s word
kill_wholly "$(runner_of "$bad")"
mkdir aside
mv "$HOLDALL_JOBS/$bad/environ" "$HOLDALL_JOBS/$bad/running" aside
expect 0 "$bad: $bad is damaged" job list
expect 0 "night-1  succeeded" job list
mv aside/environ "$HOLDALL_JOBS/$bad"
expect 70 "ends again and again" job logs "$bad" -f
echo '{"ended":{"task":9,"outcome":"skipped","at":1}}' >> "$HOLDALL_JOBS/$bad/records.jsonl"
expect 70 "it is damaged" job wait "$bad"
expect 0 "$bad: " job list
expect 0 "night-1  succeeded" job list
eventually rm -rf "${HOLDALL_JOBS:?}/$bad" # Somebody may be about to find out that it cannot run.

# Nor is a group, if what it holds is lost just then. (The task after it may begin before that is heard
# of: then it runs again.)
cat > unheard.toml <<'EOF'
[task.one]
run = "echo one >> unheard; until [ -e unheard-go ]; do sleep 0.05; done"
[task.two]
after = ["one"]
again = true
run = "echo two >> unheard"
[group.both]
needs = ["board"]
tasks = ["one", "two"]
EOF
unheard=$("$HOLDALL" job submit unheard.toml)
eventually test -s unheard
runner=$(runner_of "$unheard")
kill -STOP "$runner"
touch unheard-go
eventually test -s "$HOLDALL_JOBS/$unheard"/running/*/0.1
kill -9 "$(client_of board)"
kill -CONT "$runner"
got=0
timeout 60 "$HOLDALL" job wait "$unheard" || got=$?
[ "$got" -eq 0 ] || fail "it ended with $got: $("$HOLDALL" job show "$unheard")"
[[ "$(tr '\n' ' ' < unheard)" =~ ^one\ two\ (two\ )?$ ]] || fail "what ran: $(cat unheard)"

# Units by name, in a group too.
cat > units.toml <<'EOF'
[task.one]
run = "echo $HOLDALL_UNITS_BOARD > named"
needs = ["board/1"]
[task.other]
run = "echo $HOLDALL_UNITS_BOARD > any"
needs = ["board:1"]
[group.both]
tasks = ["one", "other"]
needs = ["usb"]
EOF
expect 0 "one: succeeded" job run units.toml
[ "$(cat named any | tr '\n' ' ')" = "board/1 board/0 " ] || fail "units: $(cat named any)"
sed -i 's,board/1,board/7,' units.toml
expect 78 "the pool board has no unit board/7" job run units.toml

# What can never be granted is said before anything runs, and bad files with the place.
printf '[task.a]\nrun = "touch started"\n[task.b]\nneeds = ["board:3"]\nrun = "true"\n' > never.toml
expect 78 "'b' needs board:3, which can never be granted: board has only 2 units" job run never.toml
[ ! -e started ] || fail "something ran"
printf '[task.a]\nrun = "true"\nafter = ["b"]\n[task.b]\nrun = "true"\nafter = ["a"]\n' > cycle.toml
expect 64 "cycle.toml: line 1, column 7: these tasks wait for each other: a after b after a" job check cycle.toml
expect 64 "cannot read no.toml" job run no.toml
expect 64 "is larger than" job check /dev/zero
printf '[task.a]\nrunn = "true"\n' > key.toml
expect 64 "key.toml: line 2, column 1: there is no 'runn' here; 'run' is meant?" job check key.toml

# Jobs are kept as long as it is said, and numbers are not used twice.
HOLDALL_JOBS_KEEP=0s "$HOLDALL" job submit talk.toml > last
[ "$("$HOLDALL" job list | wc -l)" -eq 1 ] || fail "old jobs are kept"
[ "$(sed 's/talk-//' last)" -gt 10 ] || fail "a number is used again: $(cat last)"
expect 0 "" job wait "$(cat last)"
HOLDALL_JOBS_KEEP=0s "$HOLDALL" job run talk.toml > /dev/null 2>&1

# Twenty runners over six boards, while runners, holders, those who ask, tasks and the agent are killed.
"$HOLDALL" pool remove board
"$HOLDALL" pool add board --units 6
"$HOLDALL" pool add rig --units 4
export HOLDALL HOLDALL_JOBS="$work/storm-jobs"
mkdir storm storm/locks
cd storm
touch noted
cat > storm.toml <<EOF
[task.a]
run = ["python3", "$storm", "task"]
needs = ["board"]
again = true
retries = 3
[task.b]
after = ["a"]
run = ["python3", "$storm", "task"]
needs = ["board:2"]
again = true
[task.c]
after = ["a"]
matrix = { n = [1, 2] }
run = ["python3", "$storm", "task"]
needs = ["board"]
[task.d]
after = ["b", "c"]
when = "always"
run = ["python3", "$storm", "task"]
again = true
[task.e]
run = ["python3", "$storm", "task"]
again = true
[task.f]
after = ["e"]
run = ["python3", "$storm", "task"]
needs = ["board:1"]
again = true
[group.bench]
needs = ["rig:1"]
tasks = ["e", "f"]
EOF
for _ in $(seq 20); do
    "$HOLDALL" job submit storm.toml > /dev/null
done
python3 "$storm" storm 10
for id in $("$HOLDALL" job list | awk '{print $1}'); do
    got=0
    timeout 60 "$HOLDALL" job wait "$id" || got=$?
    [ "$got" -le 1 ] || fail "$id ended with $got"
done
python3 "$storm" verify 20
eventually "$HOLDALL" run -n board:6 -- true
echo "$script: ok"
