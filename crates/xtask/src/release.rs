//! Writes the files of a release: the manifests in one file, the bill of materials, the notes and the
//! checksums.
//!
//! `make release` builds the binary and the image and puts them into the same folder.

pub mod sbom;

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use ring::digest::{SHA256, digest};

use crate::hex;

/// Returns the version of the workspace.
#[must_use]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Writes everything that is not built into `folder`, then the checksums of all files in it.
#[expect(clippy::disallowed_methods, reason = "a development tool writes where it is told to")]
pub fn write(root: &Path, folder: &Path) -> anyhow::Result<()> {
    let version = version();
    let changelog = fs::read_to_string(root.join("CHANGELOG.md")).context("CHANGELOG.md")?;
    fs::write(folder.join("NOTES.md"), notes(&changelog, version)?)?;
    let manifests = crate::manifests::stream();
    fs::write(folder.join(format!("mco-{version}-manifests.yaml")), manifests)?;
    let bill = sbom::of_binary(root)?;
    fs::write(folder.join(format!("mco-{version}.cdx.json")), bill)?;
    fs::write(folder.join("SHA256SUMS"), checksums(folder)?)?;
    Ok(())
}

/// Returns the section of the changelog for `version`, or the unreleased one where it has none yet.
pub fn notes(changelog: &str, version: &str) -> anyhow::Result<String> {
    let section = |title: &str| {
        let (_, rest) = changelog.split_once(&format!("\n## {title}"))?;
        let (_, body) = rest.split_once('\n')?;
        Some(body.split_once("\n## ").map_or(body, |(body, _)| body).trim())
    };
    match section(version).or_else(|| section("Unreleased")) {
        Some(body) if !body.is_empty() => Ok(format!("{body}\n")),
        Some(_) | None => bail!("CHANGELOG.md has no section for {version}"),
    }
}

/// Returns the checksums of the files in `folder`, in the format of `sha256sum`.
#[expect(clippy::disallowed_methods, reason = "a development tool reads what it has written")]
fn checksums(folder: &Path) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if name == "SHA256SUMS" {
            continue;
        }
        let bytes =
            fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = name.to_string_lossy().into_owned();
        lines.push((name, hex(digest(&SHA256, &bytes).as_ref())));
    }
    lines.sort();
    let lines: Vec<String> = lines.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    Ok(lines.concat())
}
