//! What counts as a difference, and which differences a running node cannot take.

use mco_api::machine_configuration::StorageOverride;
use mco_ignition::config::{Directory, Disk, Filesystem, Group, Link, Raid, Resource, User};

use super::*;
use crate::fixture::machine;

fn shown(diff: &ConfigDiff) -> String {
    let parts = |parts: &[PartChange]| {
        parts.iter().map(|part| format!("{} {}", part.name, part.change)).collect::<Vec<_>>()
    };
    let mut shown = parts(&diff.files);
    shown.extend(parts(&diff.units));
    shown
        .extend(diff.users.map(|users| format!("keys={} password={}", users.keys, users.password)));
    shown.extend(diff.system().into_iter().map(str::to_owned));
    shown.join(", ")
}

// covers: C45
#[test]
fn each_part_that_differs_is_named() {
    let cases = [
        ("/a=1 b.service=x", "/a=1 b.service=x", ""),
        ("", "/a=1 /b=2", "/a added, /b added"),
        ("/a=1 /b=2", "/b=2", "/a removed"),
        ("/a=1", "/a=2", "/a changed"),
        ("/a=1", "/a=1:600", "/a changed"),
        ("/a=%61", "/a=a", "/a written differently"),
        (
            "b.service=x c.service",
            "a.service=x c.service=y",
            "a.service added, c.service changed, b.service removed",
        ),
        ("a.service/x.conf=1", "a.service/x.conf=2", "a.service changed"),
        ("key:a", "key:b", "keys=true password=false"),
        ("karg:a karg:b", "karg:b karg:a", "kernel arguments"),
        ("os:a ext:x", "os:b ext:y", "OS image, extensions"),
        ("kernel:default", "", ""),
        ("kernel:unheard-of", "kernel:default", ""),
        ("", "kernel:realtime", "kernel type"),
        ("", "fips", "FIPS mode"),
    ];
    for (from, to, want) in cases {
        let diff = between(&machine("old", from), &machine("new", to));
        assert_eq!(shown(&diff), want, "{from} -> {to}");
        assert_eq!(diff.is_empty(), want.is_empty(), "{from} -> {to}");
    }
}

// covers: C41, C42, C43
#[test]
fn what_a_running_node_cannot_take_is_refused_in_the_reference_words() {
    type Edit = fn(&mut Machine);
    let cases: [(&str, Edit, Option<&str>); 15] = [
        ("nothing", |_| {}, None),
        ("a new file", |m| *m = machine("new", "/a=1"), None),
        ("a new key", |m| *m = machine("new", "key:a"), None),
        (
            "groups",
            |m| m.config.passwd.groups.push(Group { name: "g".into(), ..Group::default() }),
            Some("invalid passwd change(s): ignition Passwd Groups section contains changes"),
        ),
        (
            "another user",
            |m| m.config.passwd.users.push(User { name: "root".into(), ..User::default() }),
            Some(
                "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user",
            ),
        ),
        (
            "a user with nothing",
            |m| m.config.passwd.users.push(User { name: "core".into(), ..User::default() }),
            Some(
                "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be core and have 1 or more sshKeys",
            ),
        ),
        (
            "a user with a shell",
            |m| {
                m.config.passwd.users.push(User {
                    name: "core".into(),
                    password_hash: Some("x".into()),
                    shell: Some("/bin/sh".into()),
                    ..User::default()
                })
            },
            Some("invalid passwd change(s): SSH keys and password hash are not reconcilable"),
        ),
        (
            "kernel arguments in Ignition",
            |m| m.config.kernel_arguments.should_exist.push("a".into()),
            Some("ignition kargs section contains changes"),
        ),
        (
            "disks",
            |m| {
                m.config.storage.disks.push(Disk {
                    device: "/dev/a".into(),
                    wipe_table: Some(true),
                    ..Disk::default()
                })
            },
            Some("ignition disks section contains changes"),
        ),
        (
            "filesystems",
            |m| {
                m.config.storage.filesystems.push(Filesystem {
                    device: "/dev/a".into(),
                    format: Some("xfs".into()),
                    ..Filesystem::default()
                })
            },
            Some("ignition filesystems section contains changes"),
        ),
        (
            "raid",
            |m| {
                m.config.storage.raid.push(Raid {
                    name: "a".into(),
                    level: Some("raid1".into()),
                    devices: vec!["/dev/a".into()],
                    ..Raid::default()
                })
            },
            Some("ignition raid section contains changes"),
        ),
        (
            "directories",
            |m| {
                m.config
                    .storage
                    .directories
                    .push(Directory { path: "/d".into(), ..Directory::default() })
            },
            Some("ignition directories section contains changes"),
        ),
        (
            "links",
            |m| {
                m.config.storage.links.push(Link {
                    path: "/l".into(),
                    target: Some("/a".into()),
                    ..Link::default()
                })
            },
            Some("ignition links section contains changes"),
        ),
        (
            "the force file",
            |m| *m = machine("new", "/run/machine-config-daemon-force=1"),
            Some("cannot create /run/machine-config-daemon-force via Ignition"),
        ),
        (
            "FIPS",
            |m| m.spec.fips = true,
            Some("detected change to FIPS flag; refusing to modify FIPS on a running cluster"),
        ),
    ];
    let old = machine("old", "");
    for (case, edit, want) in cases {
        let mut new = machine("new", "");
        edit(&mut new);
        let got = reconcile::check(&old, &new, &[], None).err().map(|error| error.to_string());
        let want = want.map(|cause| {
            format!("new machineconfig \"old\" is not reconcilable against \"new\": {cause}")
        });
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn appending_is_refused_and_removing_links_is_not() {
    let (old, mut new) = (machine("old", ""), machine("new", "/a=1"));
    new.config.storage.files[0].append.push(Resource::default());
    let error = reconcile::check(&old, &new, &[], None).unwrap_err().to_string();
    assert!(error.ends_with("ignition file /a includes append"), "{error}");

    let mut linked = machine("old", "");
    let link = Link { path: "/l".into(), target: Some("/a".into()), ..Link::default() };
    linked.config.storage.links.push(link);
    assert!(reconcile::check(&linked, &machine("new", ""), &[], None).is_ok());
}

#[test]
fn an_override_lets_a_storage_section_through() {
    let (old, mut new) = (machine("old", ""), machine("new", ""));
    let disk = Disk { device: "/dev/a".into(), wipe_table: Some(true), ..Disk::default() };
    new.config.storage.disks.push(disk);
    assert!(reconcile::check(&old, &new, &[StorageOverride::Raid], None).is_err());
    assert!(reconcile::check(&old, &new, &[StorageOverride::Disks], None).is_ok());
}

#[test]
fn the_kernel_has_the_last_word_on_fips() {
    let (old, new) = (machine("old", ""), machine("new", "/a=1"));
    assert!(reconcile::check(&old, &new, &[], Some(false)).is_ok());
    let error = reconcile::check(&old, &new, &[], Some(true)).unwrap_err().to_string();
    assert_eq!(error, "detected change to FIPS flag; refusing to modify FIPS on a running cluster");
}
