//! Disks, filesystems, files, directories and links of 2.x.

use crate::{
    config::{Verification, keyed},
    object::object,
};

object! {
    /// Disks, filesystems, files, directories and links.
    pub struct Storage {
        /// Directories.
        directories: Vec<Directory> = "directories" [since(V3_1)],
        /// Disks.
        disks: Vec<Disk> = "disks",
        /// Files.
        files: Vec<File> = "files",
        /// Filesystems.
        filesystems: Vec<Filesystem> = "filesystems",
        /// Links.
        links: Vec<Link> = "links" [since(V3_1)],
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
        name: String = "name" [since(V3_1)],
    }
}

object! {
    /// A file.
    pub struct File {
        /// Name of the filesystem that contains the file.
        filesystem: String = "filesystem",
        /// Owning group.
        group: Option<Owner> = "group",
        /// True if an existing entry at the path is replaced. Defaults to true.
        overwrite: Option<bool> = "overwrite" [since(V3_2)],
        /// Path in the filesystem.
        path: String = "path",
        /// Owning user.
        user: Option<Owner> = "user",
        /// True if the contents are appended to an existing file.
        append: bool = "append" [since(V3_2)],
        /// Contents.
        contents: Contents = "contents",
        /// Permission bits.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// The contents of a file.
    pub struct Contents {
        /// Compression of the contents.
        compression: String = "compression",
        /// URL of the contents.
        source: String = "source",
        /// Verification of the contents.
        verification: Verification = "verification",
    }
}

object! {
    /// A directory.
    pub struct Directory {
        /// Name of the filesystem that contains the directory.
        filesystem: String = "filesystem",
        /// Owning group.
        group: Option<Owner> = "group",
        /// True if an existing entry at the path is replaced.
        overwrite: Option<bool> = "overwrite" [since(V3_2)],
        /// Path in the filesystem.
        path: String = "path",
        /// Owning user.
        user: Option<Owner> = "user",
        /// Permission bits.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// A symbolic or hard link.
    pub struct Link {
        /// Name of the filesystem that contains the link.
        filesystem: String = "filesystem",
        /// Owning group.
        group: Option<Owner> = "group",
        /// True if an existing entry at the path is replaced.
        overwrite: Option<bool> = "overwrite" [since(V3_2)],
        /// Path in the filesystem.
        path: String = "path",
        /// Owning user.
        user: Option<Owner> = "user",
        /// True for a hard link.
        hard: bool = "hard",
        /// Target of the link.
        target: String = "target",
    }
}

object! {
    /// A disk.
    pub struct Disk {
        /// Device path.
        device: String = "device",
        /// Partitions.
        partitions: Vec<Partition> = "partitions",
        /// True if the partition table is wiped first.
        wipe_table: bool = "wipeTable",
    }
}

object! {
    /// A partition.
    pub struct Partition {
        /// GUID of the partition.
        guid: String = "guid" [since(V3_1)],
        /// Label.
        label: String = "label",
        /// Number of the partition; zero for the next free number.
        number: i64 = "number",
        /// Size in sectors.
        size: i64 = "size",
        /// First sector.
        start: i64 = "start",
        /// GUID of the partition type.
        type_guid: String = "typeGuid",
    }
}

object! {
    /// A filesystem to mount, or one that is already mounted.
    pub struct Filesystem {
        /// Options for creating and mounting the filesystem.
        mount: Option<Mount> = "mount",
        /// Name that files refer to.
        name: String = "name",
        /// Path of an already mounted filesystem.
        path: Option<String> = "path",
    }
}

object! {
    /// A filesystem to mount.
    pub struct Mount {
        /// Options for creating the filesystem; superseded by the other members, which are newer.
        create: Option<Create> = "create",
        /// Device path.
        device: String = "device",
        /// Type of the filesystem.
        format: String = "format",
        /// Label.
        label: Option<String> = "label" [since(V3_1)],
        /// Options for creating the filesystem.
        options: Vec<String> = "options" [since(V3_1)],
        /// UUID of the filesystem.
        uuid: Option<String> = "uuid" [since(V3_1)],
        /// True if an existing filesystem is always replaced.
        wipe_filesystem: bool = "wipeFilesystem" [since(V3_1)],
    }
}

object! {
    /// Options for creating a filesystem.
    pub struct Create {
        /// True if an existing filesystem is replaced.
        force: bool = "force",
        /// Options of the command that creates the filesystem.
        options: Vec<String> = "options",
    }
}

object! {
    /// A RAID array.
    pub struct Raid {
        /// Member devices.
        devices: Vec<String> = "devices",
        /// RAID level.
        level: String = "level",
        /// Name of the array.
        name: String = "name",
        /// Options for creating the array.
        options: Vec<String> = "options" [since(V3_2)],
        /// Number of spare devices.
        spares: i64 = "spares",
    }
}

keyed!(
    Directory by path,
    Disk by device,
    File by path,
    Filesystem by name,
    Link by path,
    Partition by label,
    Raid by name,
);
