//! Disks, filesystems, files, directories and links.

use std::borrow::Cow;

use super::{Resource, keyed};
use crate::{
    merge::{Item, remove_conflicting_paths},
    object::{Object, object},
};

object! {
    /// Disks, filesystems, files, directories and links.
    pub struct Storage before_merge(remove_conflicting_paths) {
        /// Directories.
        directories: Vec<Directory> = "directories",
        /// Disks.
        disks: Vec<Disk> = "disks",
        /// Files.
        files: Vec<File> = "files",
        /// Filesystems.
        filesystems: Vec<Filesystem> = "filesystems",
        /// Links.
        links: Vec<Link> = "links",
        /// LUKS encrypted volumes.
        luks: Vec<Luks> = "luks" [since(V3_2)],
        /// RAID arrays.
        raid: Vec<Raid> = "raid",
    }
}

object! {
    /// The user or group that owns an entry, by ID or by name.
    pub struct Owner {
        /// ID of the owner.
        id: Option<i64> = "id",
        /// Name of the owner.
        name: Option<String> = "name",
    }
}

object! {
    /// A file.
    pub struct File {
        /// Owning group.
        group: Owner = "group",
        /// True if an existing entry at the path is replaced.
        overwrite: Option<bool> = "overwrite",
        /// Absolute path.
        path: String = "path" [always],
        /// Owning user.
        user: Owner = "user",
        /// Contents to append.
        append: Vec<Resource> = "append" [append],
        /// Contents.
        contents: Resource = "contents",
        /// Permission bits.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// A directory.
    pub struct Directory {
        /// Owning group.
        group: Owner = "group",
        /// True if an existing entry at the path is replaced.
        overwrite: Option<bool> = "overwrite",
        /// Absolute path.
        path: String = "path" [always],
        /// Owning user.
        user: Owner = "user",
        /// Permission bits.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// A symbolic or hard link.
    pub struct Link {
        /// Owning group.
        group: Owner = "group",
        /// True if an existing entry at the path is replaced.
        overwrite: Option<bool> = "overwrite",
        /// Absolute path.
        path: String = "path" [always],
        /// Owning user.
        user: Owner = "user",
        /// True for a hard link.
        hard: Option<bool> = "hard",
        /// Target of the link.
        target: Option<String> = "target" [plain_until(V3_2)],
    }
}

object! {
    /// A disk.
    pub struct Disk {
        /// Device path.
        device: String = "device" [always],
        /// Partitions.
        partitions: Vec<Partition> = "partitions",
        /// True if the partition table is wiped first.
        wipe_table: Option<bool> = "wipeTable",
    }
}

object! {
    /// A partition.
    pub struct Partition {
        /// GUID of the partition.
        guid: Option<String> = "guid",
        /// Label.
        label: Option<String> = "label",
        /// Number of the partition; zero for the next free number.
        number: i64 = "number",
        /// True if an existing partition may be resized.
        resize: Option<bool> = "resize" [since(V3_2)],
        /// False if the partition must not exist.
        should_exist: Option<bool> = "shouldExist",
        /// Size in MiB.
        size_mib: Option<i64> = "sizeMiB",
        /// Start in MiB.
        start_mib: Option<i64> = "startMiB",
        /// GUID of the partition type.
        type_guid: Option<String> = "typeGuid",
        /// True if an existing partition that does not match is replaced.
        wipe_partition_entry: Option<bool> = "wipePartitionEntry",
    }
}

object! {
    /// A filesystem.
    pub struct Filesystem {
        /// Device path.
        device: String = "device" [always],
        /// Type of the filesystem.
        format: Option<String> = "format",
        /// Label.
        label: Option<String> = "label",
        /// Mount options.
        mount_options: Vec<String> = "mountOptions" [since(V3_1), append],
        /// Options for creating the filesystem.
        options: Vec<String> = "options" [append],
        /// Mount point while Ignition writes files.
        path: Option<String> = "path",
        /// UUID of the filesystem.
        uuid: Option<String> = "uuid",
        /// True if an existing filesystem is always replaced.
        wipe_filesystem: Option<bool> = "wipeFilesystem",
    }
}

object! {
    /// A LUKS encrypted volume.
    pub struct Luks {
        /// Unlocking by an IBM Z crypto card.
        cex: Cex = "cex" [since(V3_5)],
        /// Automatic unlocking with Clevis.
        clevis: Clevis = "clevis" [pointer_until(V3_2)],
        /// Device path.
        device: Option<String> = "device",
        /// True if discards are passed through to the device.
        discard: Option<bool> = "discard" [since(V3_4)],
        /// Key file of the volume.
        key_file: Resource = "keyFile",
        /// Label.
        label: Option<String> = "label",
        /// Name of the volume.
        name: String = "name" [always],
        /// Options for opening the volume.
        open_options: Vec<String> = "openOptions" [since(V3_4)],
        /// Options for creating the volume.
        options: Vec<String> = "options" [append],
        /// UUID of the volume.
        uuid: Option<String> = "uuid",
        /// True if an existing volume is always replaced.
        wipe_volume: Option<bool> = "wipeVolume",
    }
}

object! {
    /// Unlocking of a volume by an IBM Z crypto card.
    pub struct Cex {
        /// True if the crypto card is used.
        enabled: Option<bool> = "enabled",
    }
}

object! {
    /// Automatic unlocking of a volume with Clevis.
    pub struct Clevis {
        /// Custom Clevis pin.
        custom: ClevisCustom = "custom" [pointer_until(V3_2)],
        /// Tang servers.
        tang: Vec<Tang> = "tang",
        /// Number of pins that must succeed.
        threshold: Option<i64> = "threshold",
        /// True if the TPM2 chip is used.
        tpm2: Option<bool> = "tpm2",
    }
}

object! {
    /// A custom Clevis pin.
    pub struct ClevisCustom {
        /// Configuration of the pin.
        config: Option<String> = "config" [plain_until(V3_2)],
        /// True if the pin needs the network.
        needs_network: Option<bool> = "needsNetwork",
        /// Name of the pin.
        pin: Option<String> = "pin" [plain_until(V3_2)],
    }
}

object! {
    /// A Tang server that unlocks volumes.
    pub struct Tang {
        /// Signed keys of the server, for provisioning while the server is unreachable.
        advertisement: Option<String> = "advertisement" [since(V3_4)],
        /// Thumbprint of the server's signing key.
        thumbprint: Option<String> = "thumbprint",
        /// URL of the server.
        url: String = "url",
    }
}

object! {
    /// A RAID array.
    pub struct Raid {
        /// Member devices.
        devices: Vec<String> = "devices" [always_until(V3_2)],
        /// RAID level.
        level: Option<String> = "level" [plain_until(V3_2)],
        /// Name of the array.
        name: String = "name" [always],
        /// Options for creating the array.
        options: Vec<String> = "options" [append],
        /// Number of spare devices.
        spares: Option<i64> = "spares",
    }
}

keyed!(
    Directory by path,
    Disk by device,
    File by path,
    Filesystem by device,
    Link by path,
    Luks by name,
    Raid by name,
    Tang by url,
);

impl Item for Partition {
    fn key(&self) -> Cow<'_, str> {
        match (self.number, &self.label) {
            (0, None) => Cow::Borrowed(""),
            (0, Some(label)) => Cow::Owned(format!("label:{label}")),
            (number, _) => Cow::Owned(format!("number:{number}")),
        }
    }

    fn merge_child(&mut self, child: Self) {
        self.merge_members(child);
    }
}
