#!/bin/bash
# Runs the commands of the test: reads a number and a command per line, sends the output, and at last a line with the
# number and the exit code. Reading ends when the test disconnects.
while :; do
    if exec 3<>/dev/virtio-ports/cmd; then
        while read -r number command <&3; do
            bash -c "$command" </dev/null >&3 2>&1 3>&-
            printf '\n@@%s %s\n' "$number" "$?" >&3
        done
        exec 3>&-
    fi
    sleep 0.1
done 2>/dev/null
