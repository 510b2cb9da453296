#!/usr/bin/env bash
# The Python client: its types, its packages in a fresh environment, and what it does, with a stand-in for an agent and with this one.
set -euo pipefail
. tests/lib/service.bash
. tests/lib/python.bash
unset HOLDALL_AGENT HOLDALL_DATA
python_for_tests || {
    not_tried "the Python client: its tools cannot be installed (tests/lib/requirements.txt)"
    exit 0
}
HOLDALL_PROGRAM=$(realpath "$HOLDALL") clients/python/run-tests || fail "the tests"
echo "$script: ok"
