#!/usr/bin/env bash
# Half a minute of signals over agents and clients, half of it by a user who has no cgroups. For longer, or as it was:
# STORM_SECONDS=600 STORM_SEED=7 tests/acceptance/storm.sh
set -euo pipefail
. tests/lib/service.bash
seconds=$((${STORM_SECONDS:-30} / 2))
seed=${STORM_SEED:-$((RANDOM * 32768 + RANDOM))}
storm() { # NAME [COMMAND]...: the storm, in a directory of that name
    local name=$1
    shift
    "$@" tests/lib/storm --seconds "$seconds" --seed "$seed" "$work/$name" >"$work/$name.out" 2>&1 || {
        tail -n 200 "$work/$name.out" "$work/$name/data/agent.log" >&2
        fail "found something, with STORM_SEED=$seed"
    }
    tail -n 1 "$work/$name.out"
}
mkdir "$work/own"
storm own python3
if [ "$(id -u)" -eq 0 ]; then
    # Somebody else's interpreter and program, which a user can reach.
    nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    chmod 711 "$work"
    cp "$HOLDALL" "$work/holdall"
    cp -r tests/lib/storm "$work/lib"
    python=$(PATH=/usr/local/bin:/usr/bin:/bin command -v python3) && "${nobody[@]}" "$python" -c '' ||
        { not_tried "a storm by another user, who has no python3"; exit 0; }
    mkdir "$work/other"
    chown 65534:65534 "$work/other"
    export HOLDALL="$work/holdall"
    storm other "${nobody[@]}" "$python"
fi
echo "$script: ok"
