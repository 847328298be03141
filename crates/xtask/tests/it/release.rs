//! Releases: the notes, the bill of materials and the checksums.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;
use xtask::release::{self, notes, sbom};

/// Crates that `cargo build --release` compiles for the binary, build scripts and macros included.
///
/// A first build waits for each of them. Raise this number only with a reason in the commit.
const UNITS: usize = 265;

const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- next\n\n## 1.2.0 - 2026-01-02\n\n\
                         ### Fixed\n- this\n\n## 1.1.0\n- before\n";

#[test]
fn the_notes_are_the_section_of_the_version() {
    assert_eq!(notes(CHANGELOG, "1.2.0").unwrap(), "### Fixed\n- this\n");
    assert_eq!(notes(CHANGELOG, "1.3.0").unwrap(), "- next\n");
    assert!(notes("# Changelog\n", "1.0.0").is_err());
}

#[test]
fn the_release_files_match_their_checksums_and_the_manifests_start_with_crds() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mco"), "binary").unwrap();
    release::write(&crate::workspace(), folder.path()).unwrap();
    let mut checked = Command::new("sha256sum");
    let checked = checked.args(["--check", "SHA256SUMS"]).current_dir(&folder).output().unwrap();
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{printed}");
    assert!(printed.contains("mco: OK"), "{printed}");
    let manifests = folder.path().join(format!("mco-{}-manifests.yaml", release::version()));
    let manifests = fs::read_to_string(manifests).unwrap();
    let kinds: Vec<_> = manifests.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    let crds = kinds.iter().take_while(|kind| **kind == "CustomResourceDefinition").count();
    assert_eq!(crds, mco_api::crds().len(), "{kinds:?}");
    assert!(kinds.contains(&"Deployment"), "{kinds:?}");
}

#[test]
fn the_bill_of_materials_lists_every_linked_crate_with_licence_and_checksum() {
    let bill: Value = serde_json::from_str(&sbom::of_binary(&crate::workspace()).unwrap()).unwrap();
    assert_eq!(bill["metadata"]["component"]["name"], "mco");
    let components = bill["components"].as_array().unwrap();
    let names: BTreeSet<_> = components.iter().filter_map(|part| part["name"].as_str()).collect();
    for linked in ["mco-core", "kube-client", "rustls", "serde_json"] {
        assert!(names.contains(linked), "{linked} is missing");
    }
    for other in ["insta", "proptest", "xtask", "mco-testkit"] {
        assert!(!names.contains(other), "{other} is not linked into the binary");
    }
    for part in components.iter().filter(|part| !part["name"].as_str().unwrap().starts_with("mco"))
    {
        assert!(part["licenses"][0]["expression"].is_string(), "{part}");
        assert_eq!(part["hashes"][0]["content"].as_str().unwrap().len(), 64, "{part}");
    }
}

#[test]
fn the_dependency_tree_has_not_grown() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--package", "mco", "--edges", "normal,build", "--prefix", "none"]);
    tree.args(["--locked", "--target", "x86_64-unknown-linux-gnu", "--format", "{p}"]);
    let output = tree.current_dir(crate::workspace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let crates: BTreeSet<_> = printed
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|l| !l.is_empty())
        .collect();
    assert_eq!(
        crates.len(),
        UNITS,
        "the binary is compiled from another number of crates: look at `cargo tree -p mco`, and \
         change UNITS if that is intended"
    );
}
