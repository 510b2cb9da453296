#!/bin/sh
# `holdall deal` as its page says: workers that share a directory, one killed and started again,
# one retired. Needs the binary in $HOLDALL.
set -eu
: "${HOLDALL:?set HOLDALL to the holdall binary}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "deal.sh: $1" >&2; exit 1; }

# Three workers, sixty items, each run once.
for i in 0 1 2; do
    "$HOLDALL" deal --store "$dir/a" --worker $i --of 3 --count 60 -- \
        sh -c "echo {} >> $dir/a.out" 2>/dev/null &
done
wait
[ "$(sort -nu "$dir/a.out" | wc -l)" -eq 60 ] || fail "not all of 60 items were run"
[ "$(wc -l < "$dir/a.out")" -eq 60 ] || fail "an item was run twice"
"$HOLDALL" deal status --store "$dir/a" | grep -q "60 of 60 done" || fail "status does not say so"
"$HOLDALL" deal wait --store "$dir/a" > /dev/null || fail "wait does not say so"

# A worker is killed in the middle of an item and started again: that item is skipped, not repeated.
"$HOLDALL" deal --store "$dir/b" --worker 0 --of 2 --count 10 -- \
    sh -c "echo {} >> $dir/b.out; sleep 2" 2>/dev/null &
victim=$!
tries=0
until [ -s "$dir/b.out" ]; do
    tries=$((tries + 1)); [ $tries -lt 200 ] || fail "the worker does not start"
    sleep 0.05
done
kill -9 $victim
wait $victim 2>/dev/null || true
status=0
"$HOLDALL" deal --store "$dir/b" --worker 0 --of 2 --count 10 -- \
    sh -c "echo {} >> $dir/b.out" 2> "$dir/b.err" || status=$?
[ $status -eq 75 ] || fail "a skipped item does not count"
grep -q "may be done: skipped" "$dir/b.err" || fail "the started item is not reported"
[ "$(sort -n "$dir/b.out" | uniq -d | wc -l)" -eq 0 ] || fail "an item was run twice"
[ "$(wc -l < "$dir/b.out")" -eq 10 ] || fail "an item is missing"

# Mistakes are refused with status 64 and a remedy.
status=0
"$HOLDALL" deal --store "$dir/b" --worker 0 --of 2 --count 10 --batch 3 -- true \
    2> "$dir/err" || status=$?
[ $status -eq 64 ] && grep -q "begun with --batch 1" "$dir/err" \
    || fail "a wrong --batch is not refused"

# More workers than was said at first: they get items from the others.
"$HOLDALL" deal --store "$dir/d" --worker 0 --of 1 --count 12 --batch 12 -- sleep 0.3 2>/dev/null &
first=$!
sleep 0.1
"$HOLDALL" deal --store "$dir/d" --worker 1 --of 2 --count 12 --batch 12 -- sleep 0.1 2>/dev/null
wait $first
grep -q give "$dir/d/journal-0" || fail "a worker that came later got nothing"
"$HOLDALL" deal status --store "$dir/d" --check > /dev/null || fail "not all of 12 items were run"

# What failed is listed, and run again if asked for.
status=0
"$HOLDALL" deal --store "$dir/e" --worker 0 --of 1 --count 5 -- test {} != 3 2>/dev/null || status=$?
[ $status -eq 1 ] || fail "a failed item does not count"
[ "$("$HOLDALL" deal status --store "$dir/e" --list failed)" = 3 ] || fail "what failed is not listed"
"$HOLDALL" deal --store "$dir/e" --worker 0 --of 1 --count 5 --retry-failed -- true 2>/dev/null \
    || fail "what failed was not run again"

# A dead worker's items go to the others.
"$HOLDALL" deal --store "$dir/c" --worker 1 --of 2 --count 20 --batch 5 -- sleep 3 2>/dev/null &
victim=$!
tries=0
until grep -q start "$dir/c/journal-1" 2>/dev/null; do
    tries=$((tries + 1)); [ $tries -lt 200 ] || fail "the worker does not start"
    sleep 0.05
done
kill -9 $victim
wait $victim 2>/dev/null || true
"$HOLDALL" deal retire --store "$dir/c" --worker 1 --to 0 > "$dir/told"
grep -q "worker 1 is retired" "$dir/told" || fail "retire does not say so"
"$HOLDALL" deal --store "$dir/c" --worker 0 --of 2 --count 20 --batch 5 -- true 2>/dev/null
"$HOLDALL" deal status --store "$dir/c" | grep -q "19 of 20 done" || fail "items were not handed on"

# Reads are fresh here, from both sides of a probe; one side alone shows nothing.
"$HOLDALL" deal probe --store "$dir" --seconds 2 --write > /dev/null &
writer=$!
"$HOLDALL" deal probe --store "$dir" --seconds 1 --read > /dev/null || fail "probe found an old read"
wait $writer
status=0
"$HOLDALL" deal probe --store "$dir" --seconds 1 > /dev/null || status=$?
[ $status -eq 75 ] || fail "a probe of one side counts"
echo "deal.sh: ok"
