//! The software bill of materials of the binary, in CycloneDX 1.6.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde_json::{Value, json};

/// Package whose dependencies are listed.
const ROOT: &str = "mco";

/// Returns the bill of materials of the binary: every crate that is linked into it.
#[expect(clippy::disallowed_methods, reason = "a development tool reads the source tree")]
pub fn of_binary(root: &Path) -> anyhow::Result<String> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("failed to read Cargo.lock")?;
    let document = document(&metadata(root)?, &checksums(&lock))?;
    Ok(format!("{document:#}\n"))
}

/// Returns the names and versions of the crates that are linked into the binary on this platform.
pub fn linked(root: &Path) -> anyhow::Result<BTreeSet<(String, String)>> {
    let metadata = metadata(root)?;
    let packages = reachable(&metadata)?.into_iter();
    Ok(packages.map(|package| (package.name.to_string(), package.version.to_string())).collect())
}

fn metadata(root: &Path) -> anyhow::Result<Metadata> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml"));
    command.other_options(["--locked".to_owned(), format!("--filter-platform={target}")]);
    command.exec().context("cargo metadata failed")
}

/// Returns the packages that the root reaches over normal dependencies, by name and version.
///
/// Features that only development crates turn on count too, because `cargo metadata` unifies them.
fn reachable(metadata: &Metadata) -> anyhow::Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata has no resolve graph")?;
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let root = metadata.packages.iter().find(|package| package.name.as_str() == ROOT);
    let mut queue = vec![&root.context("the workspace has no package mco")?.id];
    let mut seen = BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !seen.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
        let is_linked = |dependency: &&cargo_metadata::NodeDep| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        queue.extend(dependencies.iter().filter(is_linked).map(|dependency| &dependency.pkg));
    }
    let mut packages: Vec<_> =
        metadata.packages.iter().filter(|package| seen.contains(&package.id)).collect();
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

fn document(metadata: &Metadata, sums: &BTreeMap<String, String>) -> anyhow::Result<Value> {
    let packages = reachable(metadata)?;
    let (root, parts): (Vec<&Package>, Vec<&Package>) =
        packages.into_iter().partition(|package| package.name.as_str() == ROOT);
    let root = root.first().map(|package| component(package, "application", sums));
    let parts: Vec<Value> =
        parts.into_iter().map(|package| component(package, "library", sums)).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": parts,
    }))
}

fn component(package: &Package, kind: &str, sums: &BTreeMap<String, String>) -> Value {
    let url = format!("pkg:cargo/{}@{}", package.name, package.version);
    // Cargo still accepts the old spelling of OR.
    let license = package.license.as_ref().map(|license| license.replace('/', " OR "));
    let sum = sums.get(&format!("{} {}", package.name, package.version));
    let mut component = json!({
        "type": kind,
        "bom-ref": url,
        "name": package.name.as_str(),
        "version": package.version.to_string(),
        "purl": url,
        "licenses": license.map(|license| json!([{"expression": license}])),
        "hashes": sum.map(|sum| json!([{"alg": "SHA-256", "content": sum}])),
    });
    if let Some(members) = component.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    component
}

/// Returns the checksum of each package from the registry, by `name version`.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    packages
        .filter_map(|text| {
            let (name, version) = (value(text, "name")?, value(text, "version")?);
            Some((format!("{name} {version}"), value(text, "checksum")?))
        })
        .collect()
}
