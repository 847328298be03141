//! The dependencies between crates are those that docs/architecture.md draws.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// Each crate that ships, and the crates of the workspace that it uses.
const EDGES: &[(&str, &[&str])] = &[
    ("mco-api", &[]),
    ("mco-ignition", &[]),
    ("mco-core", &["mco-api", "mco-ignition"]),
    ("mco-sim", &["mco-api", "mco-core"]),
    ("mco-host", &["mco-core", "mco-ignition"]),
    ("mco-apply", &["mco-api", "mco-core", "mco-host", "mco-ignition"]),
    ("mco-cluster", &["mco-api"]),
    ("mco-apiserver", &["mco-api"]),
    ("mco-controller", &["mco-api", "mco-cluster", "mco-core"]),
    ("mco-operator", &["mco-api", "mco-cluster", "mco-core"]),
    ("mco-server", &["mco-api", "mco-cluster", "mco-core", "mco-ignition"]),
    ("mco-daemon", &["mco-api", "mco-apply", "mco-cluster", "mco-core", "mco-host"]),
    (
        "mco",
        &[
            "mco-api",
            "mco-apiserver",
            "mco-apply",
            "mco-cluster",
            "mco-controller",
            "mco-core",
            "mco-daemon",
            "mco-host",
            "mco-ignition",
            "mco-operator",
            "mco-server",
            "mco-sim",
        ],
    ),
];

const DEVELOPERS: &[&str] = &["mco-testkit", "xtask"];

/// Libraries that reach the outside world: the network, the disk, the bus, the kernel.
const EFFECTS: &[&str] = &[
    "cap-std",
    "cap-std-ext",
    "hyper",
    "hyper-util",
    "inotify",
    "kube",
    "kube-client",
    "nix",
    "redb",
    "rustix",
    "tokio",
    "tokio-rustls",
    "zbus",
];

const PURE: &[&str] = &["mco-api", "mco-ignition", "mco-core", "mco-sim"];

fn ours() -> Vec<Package> {
    let manifest = crate::workspace().join("Cargo.toml");
    let metadata =
        MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("a workspace");
    metadata.packages
}

fn uses(package: &Package) -> BTreeSet<String> {
    let shipped = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
    shipped.map(|dependency| dependency.name.clone()).collect()
}

#[test]
fn every_crate_uses_exactly_the_crates_of_its_layer() {
    let edges: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    assert_eq!(edges.len(), EDGES.len(), "a crate has two entries");
    let packages = ours();
    let names: BTreeSet<String> = packages.iter().map(|p| p.name.to_string()).collect();
    for package in packages.iter().filter(|p| !DEVELOPERS.contains(&p.name.as_str())) {
        let name = package.name.as_str();
        let expected = edges.get(name).unwrap_or_else(|| panic!("{name} is in no layer yet"));
        let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
        let found: BTreeSet<String> = uses(package).intersection(&names).cloned().collect();
        assert_eq!(found, expected, "crates of the workspace that {name} uses");
    }
}

#[test]
fn pure_crates_have_no_way_to_the_outside_world() {
    for package in ours().iter().filter(|package| PURE.contains(&package.name.as_str())) {
        for used in uses(package) {
            assert!(!EFFECTS.contains(&used.as_str()), "{} must not use {used}", package.name);
        }
    }
}

#[test]
fn nothing_that_ships_uses_the_developers_crates() {
    for package in ours().iter().filter(|p| !DEVELOPERS.contains(&p.name.as_str())) {
        for used in uses(package) {
            assert!(!DEVELOPERS.contains(&used.as_str()), "{} must not use {used}", package.name);
        }
    }
}
