#!/bin/sh
# The real code under tools that choose the schedule: all of few threads (loom), many of several
# (shuttle). Usage: schedules.sh [loom|shuttle], both if not said.
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-../../target}
for tool in ${1:-loom shuttle}; do
    RUSTFLAGS="--cfg $tool" CARGO_TARGET_DIR="$target/$tool" CARGO_PROFILE_RELEASE_LTO=off \
        cargo test --release --quiet -p holdall-assign --lib --test "$tool"
done
