//! Writes the files that are generated from Rust types.

use std::path::Path;

use anyhow::Context;

/// First line of every generated file.
const HEADER: &str = "# Generated from the types in crates/api by `make gen`. Do not edit.\n";

/// Writes all generated files below `root`, the root of the workspace.
pub(crate) fn all(root: &Path) -> anyhow::Result<()> {
    crds(&root.join("deploy/crds"))?;
    manifests(&root.join("deploy"))?;
    page(&root.join(xtask::pages::API_SERVER))
}

/// Writes the generated part of the page about the embedded API server.
#[expect(clippy::disallowed_methods, reason = "a development tool writes into the source tree")]
fn page(path: &Path) -> anyhow::Result<()> {
    let named = || path.display().to_string();
    let page = std::fs::read_to_string(path).with_context(named)?;
    let page = xtask::pages::api_server(&page).context("the page has no generated part")?;
    std::fs::write(path, page).with_context(named)
}

/// Writes the manifests.
#[expect(clippy::disallowed_methods, reason = "a development tool writes into the source tree")]
fn manifests(folder: &Path) -> anyhow::Result<()> {
    for (name, text) in xtask::manifests::files() {
        let path = folder.join(name);
        let parent = path.parent().context("a file stands in a folder")?;
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Writes one file per CRD and removes the files of kinds that no longer exist.
#[expect(clippy::disallowed_methods, reason = "a development tool writes into the source tree")]
fn crds(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for entry in std::fs::read_dir(folder)? {
        std::fs::remove_file(entry?.path())?;
    }
    for crd in mco_api::crds() {
        let name = crd.metadata.name.as_deref().context("a CRD without a name")?;
        let path = folder.join(format!("{name}.yaml"));
        let text = format!("{HEADER}{}", mco_api::crd_yaml(&crd));
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
