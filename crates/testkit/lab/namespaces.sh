# First process of a lab's namespaces: all processes of the lab die with it. It ends at the end of its input, that is
# when the process at the other end of the pipe ends or is killed.
# Arguments: the lab's folder, the root file system of the machines, the Kubernetes programs.
set -eu
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/lab /run/base /run/kube
mount --bind "$1" /run/lab
mount --bind "$2" /run/base
mount --bind "$3" /run/kube
# nspawn leaves folders here when it is killed. The lab's own folders below /tmp stay visible.
mount -t tmpfs tmpfs /tmp
for pair in "lab $1" "base $2" "kube $3"; do
    case ${pair#* } in /tmp/*) mkdir -p "${pair#* }" && mount --bind "/run/${pair%% *}" "${pair#* }" ;; esac
done
ip link set lo up
# A bridge without its own MAC address takes that of a port, another one after each reboot of a machine, and the
# machines would not reach the control plane until their ARP entries expire.
ip link add br0 address 02:00:00:00:00:01 type bridge
ip addr add 10.77.0.1/24 dev br0
ip addr add 10.96.0.1/32 dev br0
ip link set br0 up
# Routes between pods of different machines, in this network namespace only.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready
exec cat >/dev/null
