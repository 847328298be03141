//! Tests of config differences and of the changes that a running node cannot take.

use mco_api::machine_configuration::StorageOverride;
use mco_ignition::config::{Disk, Link, Resource};

use super::*;
use crate::fixture::{ignition, machine};

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
        ("/a=%61", "/a=a", "/a encoded differently"),
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

/// Builds a config whose Ignition config has these members.
fn with(members: &str) -> Machine {
    let json = format!(r#"{{"ignition":{{"version":"3.5.0"}}{members}}}"#);
    Machine::read(&ignition("new", "worker", &json)).unwrap()
}

// covers: C41, C42, C43
#[test]
fn unreconcilable_changes_are_refused_in_the_words_of_the_reference() {
    let users = "invalid passwd change(s): ";
    let unsupported = "ignition passwd user section contains unsupported changes: ";
    let cases = [
        ("", String::new()),
        (r#","storage":{"files":[{"path":"/a"}]}"#, String::new()),
        (r#","passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k"]}]}"#, String::new()),
        (
            r#","passwd":{"groups":[{"name":"g"}]}"#,
            format!("{users}ignition Passwd Groups section contains changes"),
        ),
        (
            r#","passwd":{"users":[{"name":"root","passwordHash":"x"}]}"#,
            format!("{users}{unsupported}non-core user"),
        ),
        (
            r#","passwd":{"users":[{"name":"core"}]}"#,
            format!("{users}{unsupported}user must be core and have 1 or more sshKeys"),
        ),
        (
            r#","passwd":{"users":[{"name":"core","passwordHash":"x","shell":"/bin/sh"}]}"#,
            format!("{users}SSH keys and password hash are not reconcilable"),
        ),
        (
            r#","passwd":{"users":[{"name":"core","passwordHash":"x\nroot:y"}]}"#,
            format!("{users}password hash contains a colon or a line break"),
        ),
        (
            r#","kernelArguments":{"shouldExist":["a"]}"#,
            "ignition kargs section contains changes".to_owned(),
        ),
        (
            r#","storage":{"disks":[{"device":"/dev/a","wipeTable":true}]}"#,
            "ignition disks section contains changes".to_owned(),
        ),
        (
            r#","storage":{"filesystems":[{"device":"/dev/a","format":"xfs"}]}"#,
            "ignition filesystems section contains changes".to_owned(),
        ),
        (
            r#","storage":{"raid":[{"name":"a","level":"raid1","devices":["/dev/a"]}]}"#,
            "ignition raid section contains changes".to_owned(),
        ),
        (
            r#","storage":{"directories":[{"path":"/d"}]}"#,
            "ignition directories section contains changes".to_owned(),
        ),
        (
            r#","storage":{"links":[{"path":"/l","target":"/a"}]}"#,
            "ignition links section contains changes".to_owned(),
        ),
        (
            r#","storage":{"files":[{"path":"/run/machine-config-daemon-force"}]}"#,
            "cannot create /run/machine-config-daemon-force via Ignition".to_owned(),
        ),
    ];
    for (members, cause) in cases {
        let refused = reconcile::check(&machine("old", ""), &with(members), &[], None).err();
        let text = refused.map(|error| error.to_string()).unwrap_or_default();
        let prefix = "new machineconfig \"old\" is not reconcilable against \"new\": ";
        assert_eq!(text.strip_prefix(prefix).unwrap_or(&text), cause, "{members}");
    }
}

#[test]
fn appending_is_refused_and_removing_links_is_allowed() {
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
fn an_override_allows_a_storage_section_to_change() {
    let (old, mut new) = (machine("old", ""), machine("new", ""));
    let disk = Disk { device: "/dev/a".into(), wipe_table: Some(true), ..Disk::default() };
    new.config.storage.disks.push(disk);
    assert!(reconcile::check(&old, &new, &[StorageOverride::Raid], None).is_err());
    assert!(reconcile::check(&old, &new, &[StorageOverride::Disks], None).is_ok());
}

#[test]
fn the_fips_mode_of_the_kernel_decides() {
    let (old, new) = (machine("old", ""), machine("new", "/a=1"));
    assert!(reconcile::check(&old, &new, &[], Some(false)).is_ok());
    let error = reconcile::check(&old, &new, &[], Some(true)).unwrap_err().to_string();
    assert_eq!(error, "detected change to FIPS flag; refusing to modify FIPS on a running cluster");
}
