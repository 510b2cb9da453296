#!/usr/bin/env bash
# Every command in the README and in docs/ works as printed: indented lines that begin with
# `holdall` or `cargo run --release --`. A command may show a violation (1), nothing worse.
set -euo pipefail
: "${HOLDALL:?is the path of the holdall binary}"
PATH="$(dirname "$HOLDALL"):$PATH"
# Commands that need an agent or a home get one of their own.
own=$(mktemp -d)
export HOLDALL_AGENT="$own/agent.sock" HOLDALL_DATA="$own/data" HOLDALL_JOBS="$own/jobs" HOME="$own"
trap '"$HOLDALL" agent stop >/dev/null 2>&1 || true; rm -rf "$own"' EXIT

count=0
while IFS= read -r line; do
    status=0
    bash -c "$line" >/dev/null 2>&1 </dev/null || status=$?
    if [ "$status" -gt 1 ]; then
        echo "docs.sh: status $status: $line" >&2
        exit 1
    fi
    count=$((count + 1))
done < <(cat README.md docs/*.md docs/protocols/*.md |
    sed -n 's/^    cargo run --release -- /    holdall /; s/^    \(holdall .*\)$/\1/p' | awk '!seen[$0]++')
# The tests that operations.md names are there.
named=$(sed -n '/^### What can end or lie/,/^## /p' docs/operations.md | awk -F'|' 'NF > 4 {print $4}' | grep -o '`[^`]*`' | tr -d '`' | sort -u)
for name in $named; do
    case $name in
    *.sh) [ -x "tests/acceptance/$name" ] ;;
    *) grep -rqE "fn $name\(" crates/*/src crates/*/tests ;;
    esac || { echo "docs.sh: operations.md names a test that is not there: $name" >&2; exit 1; }
done
[ "$(wc -w <<<"$named")" -gt 30 ] || { echo "docs.sh: found only these tests: $named" >&2; exit 1; }
[ "$count" -gt 10 ] || { echo "docs.sh: found only $count commands" >&2; exit 1; }
echo "docs.sh: ok, $count commands"
