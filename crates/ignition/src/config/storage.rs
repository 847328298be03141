//! Disks, filesystems and what is on them.

use std::borrow::Cow;

use super::{Resource, keyed};
use crate::{
    merge::{Item, settle_paths},
    object::{Object, object},
};

object! {
    /// Disks, filesystems and what is on them.
    pub struct Storage before_merge(settle_paths) {
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
        /// Encrypted volumes.
        luks: Vec<Luks> = "luks" [since(V3_2)],
        /// RAID arrays.
        raid: Vec<Raid> = "raid",
    }
}

object! {
    /// A user or group that owns something, by id or by name.
    pub struct Owner {
        /// Id.
        id: Option<i64> = "id",
        /// Name.
        name: Option<String> = "name",
    }
}

object! {
    /// A file.
    pub struct File {
        /// Owning group.
        group: Owner = "group",
        /// Whether to replace what is there.
        overwrite: Option<bool> = "overwrite",
        /// Absolute path.
        path: String = "path" [always],
        /// Owning user.
        user: Owner = "user",
        /// Pieces to add at the end.
        append: Vec<Resource> = "append" [append],
        /// Contents.
        contents: Resource = "contents",
        /// Permissions.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// A directory.
    pub struct Directory {
        /// Owning group.
        group: Owner = "group",
        /// Whether to replace what is there.
        overwrite: Option<bool> = "overwrite",
        /// Absolute path.
        path: String = "path" [always],
        /// Owning user.
        user: Owner = "user",
        /// Permissions.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// A link.
    pub struct Link {
        /// Owning group.
        group: Owner = "group",
        /// Whether to replace what is there.
        overwrite: Option<bool> = "overwrite",
        /// Absolute path.
        path: String = "path" [always],
        /// Owning user.
        user: Owner = "user",
        /// Whether it is a hard link.
        hard: Option<bool> = "hard",
        /// What it points to.
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
        /// Whether to wipe the partition table first.
        wipe_table: Option<bool> = "wipeTable",
    }
}

object! {
    /// A partition.
    pub struct Partition {
        /// Its own GUID.
        guid: Option<String> = "guid",
        /// Label.
        label: Option<String> = "label",
        /// Number; zero takes the next free one.
        number: i64 = "number",
        /// Whether an existing one may change its size.
        resize: Option<bool> = "resize" [since(V3_2)],
        /// Whether there is to be such a partition.
        should_exist: Option<bool> = "shouldExist",
        /// Size.
        size_mib: Option<i64> = "sizeMiB",
        /// First MiB.
        start_mib: Option<i64> = "startMiB",
        /// Type GUID.
        type_guid: Option<String> = "typeGuid",
        /// Whether to replace one that does not match.
        wipe_partition_entry: Option<bool> = "wipePartitionEntry",
    }
}

object! {
    /// A filesystem.
    pub struct Filesystem {
        /// Device path.
        device: String = "device" [always],
        /// Type.
        format: Option<String> = "format",
        /// Label.
        label: Option<String> = "label",
        /// Options for mounting.
        mount_options: Vec<String> = "mountOptions" [since(V3_1), append],
        /// Options for making it.
        options: Vec<String> = "options" [append],
        /// Where it is mounted while files are written.
        path: Option<String> = "path",
        /// Its own UUID.
        uuid: Option<String> = "uuid",
        /// Whether to make it anew each time.
        wipe_filesystem: Option<bool> = "wipeFilesystem",
    }
}

object! {
    /// An encrypted volume.
    pub struct Luks {
        /// IBM Z crypto card.
        cex: Cex = "cex" [since(V3_5)],
        /// Automatic unlocking.
        clevis: Clevis = "clevis" [pointer_until(V3_2)],
        /// Device path.
        device: Option<String> = "device",
        /// Whether to pass discards through.
        discard: Option<bool> = "discard" [since(V3_4)],
        /// Key.
        key_file: Resource = "keyFile",
        /// Label.
        label: Option<String> = "label",
        /// Name.
        name: String = "name" [always],
        /// Options for opening it.
        open_options: Vec<String> = "openOptions" [since(V3_4)],
        /// Options for making it.
        options: Vec<String> = "options" [append],
        /// Its own UUID.
        uuid: Option<String> = "uuid",
        /// Whether to make it anew each time.
        wipe_volume: Option<bool> = "wipeVolume",
    }
}

object! {
    /// IBM Z crypto card.
    pub struct Cex {
        /// Whether to use it.
        enabled: Option<bool> = "enabled",
    }
}

object! {
    /// Automatic unlocking.
    pub struct Clevis {
        /// A pin of the user's own.
        custom: ClevisCustom = "custom" [pointer_until(V3_2)],
        /// Network servers.
        tang: Vec<Tang> = "tang",
        /// How many pins must agree.
        threshold: Option<i64> = "threshold",
        /// The machine's security chip.
        tpm2: Option<bool> = "tpm2",
    }
}

object! {
    /// A pin of the user's own.
    pub struct ClevisCustom {
        /// Its settings.
        config: Option<String> = "config" [plain_until(V3_2)],
        /// Whether it needs the network.
        needs_network: Option<bool> = "needsNetwork",
        /// Its name.
        pin: Option<String> = "pin" [plain_until(V3_2)],
    }
}

object! {
    /// A network server that unlocks volumes.
    pub struct Tang {
        /// Its signed keys, for a machine that boots without it.
        advertisement: Option<String> = "advertisement" [since(V3_4)],
        /// Thumbprint of its signing key.
        thumbprint: Option<String> = "thumbprint",
        /// Address.
        url: String = "url",
    }
}

object! {
    /// A RAID array.
    pub struct Raid {
        /// Member devices.
        devices: Vec<String> = "devices" [always_until(V3_2)],
        /// Level.
        level: Option<String> = "level" [plain_until(V3_2)],
        /// Name.
        name: String = "name" [always],
        /// Options for making it.
        options: Vec<String> = "options" [append],
        /// How many of the devices are spares.
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

    fn absorb(&mut self, child: Self) {
        self.merge_members(child);
    }
}
