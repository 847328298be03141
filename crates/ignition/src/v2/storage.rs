//! Disks, filesystems and what is on them.

use crate::{
    config::{Verification, keyed},
    object::object,
};

object! {
    /// Disks, filesystems and what is on them.
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
    /// A user or group that owns something, by id or by name.
    pub struct Owner {
        /// Id.
        id: Option<i64> = "id",
        /// Name.
        name: String = "name" [since(V3_1)],
    }
}

object! {
    /// A file.
    pub struct File {
        /// The name of the filesystem it is on.
        filesystem: String = "filesystem",
        /// Owning group.
        group: Option<Owner> = "group",
        /// Whether to replace what is there; yes, unless it says no.
        overwrite: Option<bool> = "overwrite" [since(V3_2)],
        /// Path in its filesystem.
        path: String = "path",
        /// Owning user.
        user: Option<Owner> = "user",
        /// Whether the contents are to be added at the end of what is there.
        append: bool = "append" [since(V3_2)],
        /// Contents.
        contents: Contents = "contents",
        /// Permissions.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// The contents of a file.
    pub struct Contents {
        /// How they are compressed.
        compression: String = "compression",
        /// Where they are.
        source: String = "source",
        /// How to tell that they are right.
        verification: Verification = "verification",
    }
}

object! {
    /// A directory.
    pub struct Directory {
        /// The name of the filesystem it is on.
        filesystem: String = "filesystem",
        /// Owning group.
        group: Option<Owner> = "group",
        /// Whether to replace what is there.
        overwrite: Option<bool> = "overwrite" [since(V3_2)],
        /// Path in its filesystem.
        path: String = "path",
        /// Owning user.
        user: Option<Owner> = "user",
        /// Permissions.
        mode: Option<i64> = "mode",
    }
}

object! {
    /// A link.
    pub struct Link {
        /// The name of the filesystem it is on.
        filesystem: String = "filesystem",
        /// Owning group.
        group: Option<Owner> = "group",
        /// Whether to replace what is there.
        overwrite: Option<bool> = "overwrite" [since(V3_2)],
        /// Path in its filesystem.
        path: String = "path",
        /// Owning user.
        user: Option<Owner> = "user",
        /// Whether it is a hard link.
        hard: bool = "hard",
        /// What it points to.
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
        /// Whether to wipe the partition table first.
        wipe_table: bool = "wipeTable",
    }
}

object! {
    /// A partition.
    pub struct Partition {
        /// Its own GUID.
        guid: String = "guid" [since(V3_1)],
        /// Label.
        label: String = "label",
        /// Number; zero takes the next free one.
        number: i64 = "number",
        /// Size in sectors.
        size: i64 = "size",
        /// First sector.
        start: i64 = "start",
        /// Type GUID.
        type_guid: String = "typeGuid",
    }
}

object! {
    /// A filesystem: one to mount, or one that is mounted already.
    pub struct Filesystem {
        /// How to mount it, and how to make it.
        mount: Option<Mount> = "mount",
        /// What files call it.
        name: String = "name",
        /// Where it is mounted already.
        path: Option<String> = "path",
    }
}

object! {
    /// A filesystem to mount.
    pub struct Mount {
        /// How to make it; the other members came later and replace this.
        create: Option<Create> = "create",
        /// Device path.
        device: String = "device",
        /// Type.
        format: String = "format",
        /// Label.
        label: Option<String> = "label" [since(V3_1)],
        /// Options for making it.
        options: Vec<String> = "options" [since(V3_1)],
        /// Its own UUID.
        uuid: Option<String> = "uuid" [since(V3_1)],
        /// Whether to make it anew each time.
        wipe_filesystem: bool = "wipeFilesystem" [since(V3_1)],
    }
}

object! {
    /// How to make a filesystem.
    pub struct Create {
        /// Whether to replace one that is there.
        force: bool = "force",
        /// Options for making it.
        options: Vec<String> = "options",
    }
}

object! {
    /// A RAID array.
    pub struct Raid {
        /// Member devices.
        devices: Vec<String> = "devices",
        /// Level.
        level: String = "level",
        /// Name.
        name: String = "name",
        /// Options for making it.
        options: Vec<String> = "options" [since(V3_2)],
        /// How many of the devices are spares.
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
