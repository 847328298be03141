# Plays the boot loader and the initial file system of a machine with ostree deployments: finds the boot entry with the
# highest version, and puts the root of its deployment together, with the shared /var and a /usr that cannot be written.
# Arguments: the folder of the machine's disk, the mount point of its root.
set -eu
disk=$1 root=$2
sysroot=$disk/sysroot
entry=$(for file in "$sysroot"/boot/loader/entries/*.conf; do
    echo "$(sed -n 's/^version //p' "$file") $file"
done | sort -rn | head -n 1 | cut -d ' ' -f 2-)
options=$(sed -n 's/^options //p' "$entry")
link=$(echo "$options" | tr ' ' '\n' | sed -n 's/^ostree=//p')
deployment=$(readlink -f "$sysroot$link")
[ -d "$deployment/usr" ] || { echo "the boot entry $entry leads to $deployment, which is no deployment" >&2; exit 1; }
while umount -R "$root" 2>/dev/null; do :; done
# libostree does the same to every deployment that it writes itself.
chattr +i "$deployment" 2>/dev/null || true
mount --bind "$deployment" "$root"
mount --bind "$root/usr" "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind "$sysroot" "$root/sysroot"
mount --bind "$sysroot/boot" "$root/boot"
mount --bind "$sysroot/ostree/deploy/mco/var" "$root/var"
mkdir -p "$disk/entry"
touch "$disk/entry/booted"
echo "BOOT_IMAGE=/vmlinuz $options" >"$disk/entry/cmdline"
