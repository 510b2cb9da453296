#!/usr/bin/env bash
# A configured agent in the foreground: pools from a file, metrics, one agent a directory.
set -euo pipefail
. tests/lib/service.bash

cat >"$work/holdall.toml" <<'END'
ephemeral = false
[pools.gpu]
units = 2
[pools.db]
lock = true
END
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$HOLDALL" agent --config "$work/holdall.toml" --metrics "127.0.0.1:$port" 2>"$work/log" &
eventually "$HOLDALL" agent status
expect 0 "" run gpu:2 db -- true
expect 78 "makes no locks on first use" run other -- true
"$HOLDALL" run gpu -- sleep 100 &
eventually sh -c '"$HOLDALL" status gpu | grep -q "sleep 100"'
python3 - "$port" <<'END'
import sys, urllib.request
text = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read().decode()
for line in ["holdall_requests_total 3", "holdall_grants_total 2", "holdall_releases_total 1",
             "holdall_refusals_total 1", "holdall_waiting 0", "holdall_grants 1",
             'holdall_held_units{pool="gpu"} 1', "holdall_overtakings_total 0",
             "holdall_wait_seconds_count 2"]:
    if line not in text.splitlines():
        sys.exit(f"no {line} in:\n{text}")
END
expect 75 "an agent runs already" agent
expect 64 "cannot read the configuration" agent --config "$work/none.toml"
echo "$script: ok"
