#!/usr/bin/env bash
# Half a minute of signals over agents and clients: a third under a supervisor, with snapshots and syncs, a third by a
# user who has no cgroups. For longer, or as it was:
# STORM_SECONDS=600 STORM_SEED=7 tests/acceptance/storm.sh
set -euo pipefail
. tests/lib/service.bash
seconds=$((${STORM_SECONDS:-30} / 3))
seed=${STORM_SEED:-$((RANDOM * 32768 + RANDOM))}
storm() { # NAME OPTION PYTHON...: the storm, in a directory of that name
    local name=$1 option=$2
    shift 2
    [ -d "$work/$name" ] || mkdir "$work/$name"
    "$@" "$work/lib" --seconds "$seconds" --seed "$seed" ${option:+"$option"} "$work/$name" >"$work/$name.out" 2>&1 || {
        tail -n 200 "$work/$name.out" "$work/$name"/{agents.log,data/agent.log} >&2 || true
        fail "found something, with STORM_SEED=$seed"
    }
    tail -n 1 "$work/$name.out"
}
chmod 711 "$work" # Some commands become other users.
cp -r tests/lib/storm "$work/lib"
storm own "" python3
storm supervised --supervised python3
if [ "$(id -u)" -eq 0 ]; then
    # Somebody else's interpreter and program, which a user can reach.
    nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    cp "$HOLDALL" "$work/holdall"
    python=$(PATH=/usr/local/bin:/usr/bin:/bin command -v python3) && "${nobody[@]}" "$python" -c '' ||
        { not_tried "a storm by another user, who has no python3"; exit 0; }
    mkdir "$work/other"
    chown 65534:65534 "$work/other"
    export HOLDALL="$work/holdall"
    storm other "" "${nobody[@]}" "$python"
fi
echo "$script: ok"
