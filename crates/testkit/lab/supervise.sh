# Runs a lab's namespaces and removes what outlives them, even if the process that started the lab was killed.
# Arguments: the lab's folder; then, unless this run only removes remains, namespaces.sh and its other arguments.
set -u
folder=$1
if [ $# -gt 1 ]; then
    unshare --mount --propagation private --net --pid --fork --kill-child=KILL --mount-proc sh -c "$2" namespaces "$folder" "$3" "$4"
fi
if [ -e "$folder/cgroups" ]; then
    while read -r group; do
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} +
    done <"$folder/cgroups"
fi
rm -rf "$folder"
