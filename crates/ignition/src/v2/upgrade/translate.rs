//! Conversion of each member from 2.2 to 3.x.

use crate::{
    config::{self, Resource, Verification},
    v2::{
        Config, Contents, Directory, Disk, File, Group, Ignition, Link, Owner, Passwd, Raid,
        Reference, Storage, Timeouts, Unit, User,
    },
    validate::clean_path,
};

/// Converts `config` to 3.0.
pub(super) fn config(config: Config) -> config::Config {
    let Config { ignition, networkd: _, passwd, storage, systemd } = config;
    config::Config {
        ignition: self::ignition(ignition),
        passwd: self::passwd(passwd),
        storage: self::storage(storage),
        systemd: config::Systemd { units: systemd.units.into_iter().map(unit).collect() },
        ..config::Config::default()
    }
}

fn ignition(ignition: Ignition) -> config::Ignition {
    let Ignition { config, security, timeouts, version: _ } = ignition;
    let Timeouts { http_response_headers, http_total } = timeouts;
    let authorities = security.tls.certificate_authorities.into_iter().map(reference).collect();
    config::Ignition {
        config: config::Sources {
            merge: config.append.into_iter().map(reference).collect(),
            replace: config.replace.map(reference).unwrap_or_default(),
        },
        security: config::Security { tls: config::Tls { certificate_authorities: authorities } },
        timeouts: config::Timeouts { http_response_headers, http_total },
        version: crate::spec::Spec::V3_0.to_string(),
        ..config::Ignition::default()
    }
}

fn reference(reference: Reference) -> Resource {
    let Reference { source, verification } = reference;
    Resource { source: Some(source), verification, ..Resource::default() }
}

fn passwd(passwd: Passwd) -> config::Passwd {
    config::Passwd {
        groups: passwd.groups.into_iter().map(group).collect(),
        users: passwd.users.into_iter().map(user).collect(),
    }
}

fn group(group: Group) -> config::Group {
    config::Group {
        gid: group.gid,
        name: group.name,
        password_hash: text(group.password_hash),
        system: switch(group.system),
        ..config::Group::default()
    }
}

fn user(user: User) -> config::User {
    config::User {
        gecos: text(user.gecos),
        groups: user.groups,
        home_dir: text(user.home_dir),
        name: user.name,
        no_create_home: switch(user.no_create_home),
        no_log_init: switch(user.no_log_init),
        no_user_group: switch(user.no_user_group),
        password_hash: user.password_hash,
        primary_group: text(user.primary_group),
        ssh_authorized_keys: user.ssh_authorized_keys,
        shell: text(user.shell),
        system: switch(user.system),
        uid: user.uid,
        ..config::User::default()
    }
}

fn storage(storage: Storage) -> config::Storage {
    config::Storage {
        directories: storage.directories.into_iter().map(directory).collect(),
        disks: storage.disks.into_iter().map(disk).collect(),
        files: storage.files.into_iter().map(file).collect(),
        // Only `root` passes the checks, and 3.x has no entry for it.
        filesystems: Vec::new(),
        links: storage.links.into_iter().map(link).collect(),
        luks: Vec::new(),
        raid: storage.raid.into_iter().map(raid).collect(),
    }
}

fn file(file: File) -> config::File {
    // 2.x replaces an existing file by default; a file that is appended to cannot be replaced.
    let overwrite = Some(!file.append && file.overwrite.unwrap_or(true));
    let resource = contents(file.contents);
    let (append, contents) =
        if file.append { (vec![resource], Resource::default()) } else { (Vec::new(), resource) };
    config::File {
        group: owner(file.group),
        overwrite,
        path: clean_path(&file.path).into_owned(),
        user: owner(file.user),
        append,
        contents,
        mode: file.mode,
    }
}

fn contents(contents: Contents) -> Resource {
    let Contents { compression, source, verification } = contents;
    let Verification { hash } = verification;
    Resource {
        compression: text(compression),
        source: Some(source),
        verification: Verification { hash },
        ..Resource::default()
    }
}

fn directory(directory: Directory) -> config::Directory {
    config::Directory {
        group: owner(directory.group),
        overwrite: directory.overwrite,
        path: clean_path(&directory.path).into_owned(),
        user: owner(directory.user),
        mode: directory.mode,
    }
}

fn link(link: Link) -> config::Link {
    config::Link {
        group: owner(link.group),
        overwrite: link.overwrite,
        path: clean_path(&link.path).into_owned(),
        user: owner(link.user),
        hard: switch(link.hard),
        target: Some(link.target),
    }
}

fn owner(owner: Option<Owner>) -> config::Owner {
    owner.map(|Owner { id, name }| config::Owner { id, name: text(name) }).unwrap_or_default()
}

fn disk(disk: Disk) -> config::Disk {
    config::Disk {
        device: disk.device,
        partitions: Vec::new(),
        wipe_table: switch(disk.wipe_table),
    }
}

fn raid(raid: Raid) -> config::Raid {
    config::Raid {
        devices: raid.devices,
        level: Some(raid.level),
        name: raid.name,
        options: raid.options,
        spares: Some(raid.spares).filter(|spares| *spares != 0),
    }
}

fn unit(unit: Unit) -> config::Unit {
    let dropin = |dropin: crate::v2::Dropin| config::Dropin {
        contents: text(dropin.contents),
        name: dropin.name,
    };
    config::Unit {
        contents: text(unit.contents),
        dropins: unit.dropins.into_iter().map(dropin).collect(),
        // The newer member takes precedence over the older one, which could only enable.
        enabled: unit.enabled.or(switch(unit.enable)),
        mask: switch(unit.mask),
        name: unit.name,
    }
}

/// Converts an empty text of 2.x to an absent one of 3.x.
fn text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Converts `false` of 2.x to an absent value of 3.x.
fn switch(switch: bool) -> Option<bool> {
    switch.then_some(true)
}
