#!/usr/bin/env bash
# Copies of a replicated cell, and logs that are not all there was: a cell that was removed is put back from a copy as another one under its name, also
# from an old copy, and into another etcd; pools go from a machine to a replicated cell and back; and etcd's data directories are put back in place.
# Whatever is done, fences go on, and nothing is given twice.
set -euo pipefail
. tests/lib/cluster.bash
. tests/lib/etcd.bash

need_etcd
cells=(lab1 lab2 lab3)
trap end_hosts EXIT
# The fence with which a machine uses something for a moment: above all before.
last=0
fence_above() {
    local name=$2 fence
    fence=$(at "$1" run -w 20s "$name" -- sh -c "echo \$HOLDALL_FENCE_$3")
    [ "$fence" -gt "$last" ] || fail "fence $fence of $name at $1, after $last"
    last=$fence
}
of_cell() { fence_above "$1" maya/0@licences MAYA_LICENCES; }
id_of() {
    at lab1 cluster members --json | python3 -c '
import json, sys
print(*[m["id"] for m in json.load(sys.stdin)["members"] if m["name"] == "licences" and not m["removed"]])'
}
holds() {
    at "$1" run -w 20s maya@licences:4 -- sh -c 'echo $$ >"$0"; sleep 600' "$work/$2" 2>"$work/$2.err" &
    echo $! >"$work/$2.pid"
    eventually test -s "$work/$2"
}
members_end() {
    signal_members KILL 0 1 2
    wait "${member_pids[@]}" 2>/dev/null || true
}
members_begin() {
    for number in 0 1 2; do start_member "$number"; done
    eventually ctl endpoint health
}

start_etcd
start_hosts 8
store="etcd://$endpoints"

# A pool of a machine goes to a replicated cell: nobody begins to use it, those who do end, and its fences go on.
expect_at lab1 0 "" pool add maya --units 4
for _ in 1 2 3; do fence_above lab1 maya/0 MAYA; done
expect_at lab1 0 "" pool drain maya --reason "moves to licences"
expect_at lab1 75 "" run -n maya -- true
expect_at lab1 0 "" pool remove maya
expect_at lab1 64 "is no fence" cell add licences --store "$store" --hosts lab1,lab2 --fences-above 7-
epoch=$(at lab1 agent status | sed -n 's/.*(epoch \([0-9]*\)).*/\1/p')
expect_at lab1 0 "leads licences" cell add licences --store "$store" --hosts lab1,lab2 --fences-above "$epoch"
expect_at lab1 64 "goes on with its own fences" cell add licences --store "$store" --hosts lab1,lab2 --fences-above 1
expect_at lab1 0 "" pool add maya@licences --units 4
for cell in "${cells[@]}"; do of_cell "$cell"; done

# One move after the other: whoever has just led is waited for.
for host in lab2 lab1 lab2 lab1 lab2; do
    expect_at lab3 0 "" cell move licences "$host"
    is_led_by lab3 licences "$host" || fail "$host does not lead: $(at lab3 cell list)"
done

# A cell that was removed comes back from a copy, as another one: nothing of what the first had granted is held, and fences go on.
expect_at lab1 0 "" cell export licences "$work/copy"
of_cell lab3
first=$(id_of)
holds lab2 held
expect_at lab1 0 "go on above those of this one" cell remove licences --force
status=0
wait "$(cat "$work/held.pid")" || status=$?
[ "$status" = 70 ] || fail "whoever held what was given up ends with $status: $(cat "$work/held.err")"
expect_at lab1 0 "as a new cell" cell import licences "$work/copy" --store "$store" --hosts lab1,lab2
second=$(id_of)
[ -n "$second" ] && [ "$second" != "$first" ] || fail "the cell came back as $second, and was $first"
for cell in "${cells[@]}"; do of_cell "$cell"; done
expect_at lab2 0 "" run -w 20s maya@licences:4 -- true
# From the same old copy once more, under another prefix of etcd; and a cell that is made anew under the name.
expect_at lab1 0 "" cell remove licences
expect_at lab1 0 "as a new cell" cell import licences "$work/copy" --store "$store/elsewhere" --hosts lab1,lab2,lab3
for cell in "${cells[@]}"; do of_cell "$cell"; done
expect_at lab1 0 "" cell remove licences
expect_at lab1 0 "leads licences" cell add licences --store "$store" --hosts lab1,lab2
expect_at lab1 0 "" pool add maya@licences --units 4
for cell in "${cells[@]}"; do of_cell "$cell"; done
# While another has its name nothing of the copy is put anywhere.
expect_at lab1 65 "not the one of the copy" cell import licences "$work/copy" --store "$store/third" --hosts lab1,lab2
[ -z "$(ctl get --prefix holdall/third/ --keys-only)" ] || fail "something was written before it was refused"
expect_at lab1 65 "there is nothing to adopt" cell adopt licences

# Data directories of etcd are put back in place: nothing is given, it is said who knows more, and how to go on.
members_end
mkdir "$etcd_dir/backup"
cp -a "$etcd_dir"/m? "$etcd_dir/backup/"
members_begin
for cell in "${cells[@]}"; do of_cell "$cell"; done
for cell in lab1 lab2; do expect_at "$cell" 0 "" agent stop; done
for cell in lab1 lab2; do wait "$(cat "$work/$cell.pid")" || true; done
members_end
rm -rf "$etcd_dir"/m?
cp -a "$etcd_dir"/backup/m? "$etcd_dir"
members_begin
rm -f "$work"/lab?.data/cells/licences/seen.json
for cell in lab1 lab2; do agent_of "$cell"; done
says_who() { at lab3 cell show licences | grep -q "leads.*TROUBLE.*'lab[123]' knows more.*cell adopt licences.*cluster forget lab[123]"; }
eventually says_who
expect_at lab3 75 "" run -w 2s maya@licences -- true
begun=$SECONDS
expect_at lab3 69 "knows more" cell move licences lab1
expect_at lab3 69 "knows more" cell move licences lab2
[ "$((SECONDS - begun))" -le 8 ] || fail "a move that cannot be took $((SECONDS - begun)) s"
expect_at lab1 0 "leads licences no longer" cell adopt licences
for cell in "${cells[@]}"; do of_cell "$cell"; done
untroubled() { ! at lab3 cell list | grep -q TROUBLE; }
eventually untroubled

# And back to the machine, whose agent is told to go on in a later epoch.
expect_at lab1 0 "" pool drain maya@licences --reason "moves to lab1"
expect_at lab1 0 "" pool remove maya@licences
epoch=$(leader lab1 licences)
epoch=${epoch#* }
expect_at lab1 0 "" agent stop
wait "$(cat "$work/lab1.pid")" || true
for kept in "$work/lab1.data/epoch" "$work/lab1.data.epoch"; do sed -i "s/^epoch [0-9]*/epoch $epoch/" "$kept"; done
agent_of lab1
expect_at lab1 0 "" pool add maya --units 4
fence_above lab1 maya/0 MAYA
echo "$script: ok"
