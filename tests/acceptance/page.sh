#!/usr/bin/env bash
# The page in Chromium, before a stand-in for an agent and before this agent.
set -euo pipefail
. tests/lib/service.bash
. tests/lib/python.bash
# Where a browser was installed for this, it is not passed over.
HOLDALL_TRY_ALL=${HOLDALL_TRY_ALL:-${HOLDALL_TRY_PAGE:-}}
unset HOLDALL_AGENT HOLDALL_DATA
chromium_for_tests || {
    not_tried "the page: there is no Chromium (Debian: apt-get install chromium)"
    exit 0
}
python_for_tests || {
    not_tried "the page: its tools cannot be installed (tests/lib/requirements.txt)"
    exit 0
}
HOLDALL_PROGRAM=$(realpath "$HOLDALL") tests/page/run || fail "the tests"
echo "$script: ok"
