#!/bin/sh
# A critical section: writes to one file for each name it holds. RECORD is the directory, STEPS how
# often it writes between its first and its last line.
for name in $HOLDALL_NEEDS; do
    eval "fence=\$HOLDALL_FENCE_$name"
    echo "+ $HOLDALL_GRANT $fence" >>"$RECORD/$name"
done
step=0
while [ "$step" -lt "${STEPS:-0}" ]; do
    sleep 0.01
    for name in $HOLDALL_NEEDS; do
        echo ". $HOLDALL_GRANT" >>"$RECORD/$name"
    done
    step=$((step + 1))
done
for name in $HOLDALL_NEEDS; do
    echo "- $HOLDALL_GRANT" >>"$RECORD/$name"
done
