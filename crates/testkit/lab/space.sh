# First process of a lab's namespaces: everything that the lab runs dies with it, and it dies when its input ends,
# which it does when the process that holds the other end is gone, however it went.
# Arguments: the lab's folder, the root of the machines, the programs of Kubernetes.
set -eu
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/lab /run/base /run/kube
mount --bind "$1" /run/lab
mount --bind "$2" /run/base
mount --bind "$3" /run/kube
# nspawn leaves folders here when it is killed. What of ours is below stays where it was.
mount -t tmpfs tmpfs /tmp
for pair in "lab $1" "base $2" "kube $3"; do
    case ${pair#* } in /tmp/*) mkdir -p "${pair#* }" && mount --bind "/run/${pair%% *}" "${pair#* }" ;; esac
done
ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.1/24 dev br0
ip addr add 10.96.0.1/32 dev br0
ip link set br0 up
# Pods of different machines meet here; in this network namespace only.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready
exec cat >/dev/null
