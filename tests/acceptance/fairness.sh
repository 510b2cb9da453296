#!/usr/bin/env bash
# A request for all eight against sixty for one each: the wide one gets its turns.
set -euo pipefail
. tests/lib/service.bash

"$HOLDALL" run start -- true
touch "$work/go"
narrow() {
    local n=0
    while [ -e "$work/go" ]; do
        "$HOLDALL" run "n$(($1 % 8))" -- sleep 0.005 || exit 1
        n=$((n + 1))
    done
    echo "$n" >>"$work/narrow"
}
jobs=()
for i in $(seq 60); do
    narrow "$i" &
    jobs+=($!)
done
sleep 1
for i in $(seq 10); do
    "$HOLDALL" run -w 60s n0 n1 n2 n3 n4 n5 n6 n7 -- true || fail "the wide one starves in turn $i"
done
rm "$work/go"
for pid in "${jobs[@]}"; do
    wait "$pid" || fail "a narrow one failed"
done
echo "$script: 10 wide grants beside $(awk '{n+=$1} END {print n}' "$work/narrow") narrow ones"
echo "$script: ok"
