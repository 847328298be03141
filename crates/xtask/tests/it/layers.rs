//! Which crate may use which, as drawn in docs/architecture.md.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// Crate, and those of ours that it may use. The developers' crates may use anything.
const ALLOWED: &[(&str, &[&str])] = &[
    ("mco-api", &[]),
    ("mco-ignition", &[]),
    ("mco-core", &["mco-api", "mco-ignition"]),
    ("mco-sim", &["mco-api", "mco-core"]),
    ("mco-host", &["mco-api", "mco-core", "mco-ignition"]),
    ("mco-cluster", &["mco-api", "mco-core"]),
    ("mco-apiserver", &["mco-api"]),
    ("mco-controller", &["mco-api", "mco-cluster", "mco-core", "mco-ignition"]),
    ("mco-daemon", &["mco-api", "mco-cluster", "mco-core", "mco-host", "mco-ignition"]),
    ("mco-operator", &["mco-api", "mco-cluster", "mco-core", "mco-ignition"]),
    ("mco-server", &["mco-api", "mco-cluster", "mco-core", "mco-ignition"]),
    ("mco-daemon", &["mco-api", "mco-cluster", "mco-core", "mco-host", "mco-ignition"]),
    (
        "mco",
        &[
            "mco-api",
            "mco-apiserver",
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

/// What gives a crate a way to the outside world.
const EFFECTS: &[&str] =
    &["tokio", "hyper", "kube", "kube-client", "rustix", "cap-std", "cap-std-ext"];

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
fn every_crate_uses_only_what_its_layer_allows() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let packages = ours();
    let names: BTreeSet<String> = packages.iter().map(|p| p.name.to_string()).collect();
    for package in &packages {
        let name = package.name.as_str();
        if DEVELOPERS.contains(&name) {
            continue;
        }
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} is in no layer yet"));
        for used in uses(package).intersection(&names) {
            assert!(allowed.contains(&used.as_str()), "{name} must not use {used}");
        }
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
