//! Conversion of each member from 3.2 to 2.2.

use crate::{
    config::{
        Config, Directory, Disk, Dropin, File, Filesystem, Group, Ignition, Link, Owner, Partition,
        Passwd, Raid, Resource, Storage, Systemd, Timeouts, Unit, User,
    },
    v2,
};

/// Converts `config` to 2.2.
pub(super) fn config(config: Config) -> v2::Config {
    let Config { ignition, kernel_arguments: _, passwd, storage, systemd } = config;
    v2::Config {
        ignition: self::ignition(ignition),
        networkd: v2::Networkd::default(),
        passwd: self::passwd(passwd),
        storage: self::storage(storage),
        systemd: self::systemd(systemd),
    }
}

fn ignition(ignition: Ignition) -> v2::Ignition {
    let Ignition { config, proxy: _, security, timeouts, version: _ } = ignition;
    let Timeouts { http_response_headers, http_total } = timeouts;
    let authorities = security.tls.certificate_authorities.into_iter().map(reference).collect();
    v2::Ignition {
        config: v2::Sources {
            append: config.merge.into_iter().map(reference).collect(),
            replace: config.replace.source.is_some().then(|| reference(config.replace)),
        },
        security: v2::Security { tls: v2::Tls { certificate_authorities: authorities } },
        timeouts: v2::Timeouts { http_response_headers, http_total },
        version: crate::target::TargetVersion::V2_2.to_string(),
    }
}

fn reference(resource: Resource) -> v2::Reference {
    let Resource { compression: _, http_headers: _, source, verification } = resource;
    v2::Reference { source: source.unwrap_or_default(), verification }
}

fn passwd(passwd: Passwd) -> v2::Passwd {
    v2::Passwd {
        groups: passwd.groups.into_iter().map(group).collect(),
        users: passwd.users.into_iter().map(user).collect(),
    }
}

fn group(group: Group) -> v2::Group {
    v2::Group {
        gid: group.gid,
        name: group.name,
        password_hash: group.password_hash.unwrap_or_default(),
        system: group.system.unwrap_or_default(),
    }
}

fn user(user: User) -> v2::User {
    v2::User {
        create: None,
        gecos: user.gecos.unwrap_or_default(),
        groups: user.groups,
        home_dir: user.home_dir.unwrap_or_default(),
        name: user.name,
        no_create_home: user.no_create_home.unwrap_or_default(),
        no_log_init: user.no_log_init.unwrap_or_default(),
        no_user_group: user.no_user_group.unwrap_or_default(),
        password_hash: user.password_hash,
        primary_group: user.primary_group.unwrap_or_default(),
        ssh_authorized_keys: user.ssh_authorized_keys,
        shell: user.shell.unwrap_or_default(),
        system: user.system.unwrap_or_default(),
        uid: user.uid,
    }
}

fn storage(storage: Storage) -> v2::Storage {
    let Storage { directories, disks, files, filesystems, links, luks: _, raid } = storage;
    let mounts: Vec<String> = filesystems.iter().filter_map(|it| it.path.clone()).collect();
    v2::Storage {
        directories: directories.into_iter().map(|it| directory(it, &mounts)).collect(),
        disks: disks.into_iter().map(disk).collect(),
        files: files.into_iter().flat_map(|it| file(it, &mounts)).collect(),
        filesystems: self::filesystems(filesystems),
        links: links.into_iter().map(|it| link(it, &mounts)).collect(),
        raid: raid.into_iter().map(self::raid).collect(),
    }
}

/// Returns the name of the filesystem that contains `path`, and the path in it.
///
/// Compat: a path belongs to the longest mount point that is a prefix of its text, so that
/// `/variety` is on `/var`; the validation that follows rejects the rest of such a path.
fn split_mount(path: &str, mounts: &[String]) -> (String, String) {
    let mut best = "";
    for mount in mounts {
        if mount.len() > best.len() && path.starts_with(mount.as_str()) {
            best = mount;
        }
    }
    match path.strip_prefix(best) {
        Some(rest) if !best.is_empty() => (best.to_owned(), rest.to_owned()),
        Some(_) | None => ("root".to_owned(), path.to_owned()),
    }
}

/// Converts an owner if its ID or name is set, even to an empty name.
fn owner(owner: Owner) -> Option<v2::Owner> {
    let Owner { id, name } = owner;
    (id.is_some() || name.is_some()).then(|| v2::Owner { id, name: name.unwrap_or_default() })
}

/// Converts a file to an entry for its contents, and one entry for each resource to append.
fn file(file: File, mounts: &[String]) -> Vec<v2::File> {
    let File { group, overwrite, path, user, append, contents, mode } = file;
    let (filesystem, path) = split_mount(&path, mounts);
    let whole = v2::File {
        filesystem,
        group: owner(group),
        overwrite: Some(overwrite.unwrap_or(false)),
        path,
        user: owner(user),
        append: false,
        contents: v2::Contents::default(),
        mode,
    };
    let pieces = append.into_iter().map(|piece| v2::File {
        append: true,
        overwrite: Some(false),
        contents: self::contents(piece),
        ..whole.clone()
    });
    let pieces: Vec<v2::File> = pieces.collect();
    // Compat: without a source there is no entry for the contents.
    let has_contents = contents.source.is_some();
    let whole = has_contents.then(|| v2::File { contents: self::contents(contents), ..whole });
    whole.into_iter().chain(pieces).collect()
}

fn contents(resource: Resource) -> v2::Contents {
    let Resource { compression, http_headers: _, source, verification } = resource;
    v2::Contents {
        compression: compression.unwrap_or_default(),
        source: source.unwrap_or_default(),
        verification,
    }
}

fn directory(directory: Directory, mounts: &[String]) -> v2::Directory {
    let Directory { group, overwrite, path, user, mode } = directory;
    let (filesystem, path) = split_mount(&path, mounts);
    v2::Directory { filesystem, group: owner(group), overwrite, path, user: owner(user), mode }
}

fn link(link: Link, mounts: &[String]) -> v2::Link {
    let Link { group, overwrite, path, user, hard, target } = link;
    let (filesystem, path) = split_mount(&path, mounts);
    v2::Link {
        filesystem,
        group: owner(group),
        overwrite,
        path,
        user: owner(user),
        hard: hard.unwrap_or_default(),
        target: target.unwrap_or_default(),
    }
}

fn disk(disk: Disk) -> v2::Disk {
    let partition = |partition: Partition| v2::Partition {
        guid: partition.guid.unwrap_or_default(),
        label: partition.label.unwrap_or_default(),
        number: partition.number,
        size: 0,
        start: 0,
        type_guid: partition.type_guid.unwrap_or_default(),
    };
    v2::Disk {
        device: disk.device,
        partitions: disk.partitions.into_iter().map(partition).collect(),
        wipe_table: disk.wipe_table.unwrap_or_default(),
    }
}

fn filesystems(filesystems: Vec<Filesystem>) -> Vec<v2::Filesystem> {
    let mut numbers = 1..;
    let mut name = |path: Option<String>| {
        path.unwrap_or_else(|| numbers.next().map(|it: u64| it.to_string()).unwrap_or_default())
    };
    let mount = |filesystem: Filesystem| v2::Filesystem {
        name: name(filesystem.path),
        mount: Some(v2::Mount {
            create: None,
            device: filesystem.device,
            format: filesystem.format.unwrap_or_default(),
            label: filesystem.label,
            options: filesystem.options,
            uuid: filesystem.uuid,
            wipe_filesystem: filesystem.wipe_filesystem.unwrap_or_default(),
        }),
        path: None,
    };
    filesystems.into_iter().map(mount).collect()
}

fn raid(raid: Raid) -> v2::Raid {
    v2::Raid {
        devices: raid.devices,
        level: raid.level.unwrap_or_default(),
        name: raid.name,
        options: raid.options,
        spares: raid.spares.unwrap_or_default(),
    }
}

fn systemd(systemd: Systemd) -> v2::Systemd {
    let dropin = |Dropin { contents, name }: Dropin| v2::Dropin {
        contents: contents.unwrap_or_default(),
        name,
    };
    let unit = |unit: Unit| v2::Unit {
        contents: unit.contents.unwrap_or_default(),
        dropins: unit.dropins.into_iter().map(dropin).collect(),
        enable: false,
        enabled: unit.enabled,
        mask: unit.mask.unwrap_or_default(),
        name: unit.name,
    };
    v2::Systemd { units: systemd.units.into_iter().map(unit).collect() }
}
